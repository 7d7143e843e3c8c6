"""Whisper's encoder and decoder, with a static key/value cache and attention that can be read.

Written for one stream on a CPU: no batch dimension, matrix products in the fastest type the
processor has, everything between them in float32.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from audiokv.models.whisper.cross_cache import CrossCache, merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.models.whisper.cross_cache import Holding


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of a Whisper model, from its Hugging Face config."""

    d_model: int
    n_encoder_layers: int
    n_decoder_layers: int
    n_encoder_heads: int
    n_decoder_heads: int
    n_mels: int
    n_vocabulary: int
    max_source_positions: int
    max_target_positions: int

    @classmethod
    def from_config(cls, config: Mapping[str, int]) -> Dimensions:
        """Read the sizes from a parsed ``config.json``."""
        return cls(
            d_model=config["d_model"],
            n_encoder_layers=config["encoder_layers"],
            n_decoder_layers=config["decoder_layers"],
            n_encoder_heads=config["encoder_attention_heads"],
            n_decoder_heads=config["decoder_attention_heads"],
            n_mels=config["num_mel_bins"],
            n_vocabulary=config["vocab_size"],
            max_source_positions=config["max_source_positions"],
            max_target_positions=config["max_target_positions"],
        )


def fastest_dtype() -> torch.dtype:
    """Return bfloat16 where the processor multiplies it clearly faster than float32.

    Measured, since no public call tells: two products of the model's shape, a few ms in all.
    """
    a, b = torch.randn(256, 512), torch.randn(512, 2048)
    best: dict[torch.dtype, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, w = a.to(dtype), b.to(dtype)
        _ = x @ w
        times = []
        for _ in range(5):
            start = time.perf_counter()
            _ = x @ w
            times.append(time.perf_counter() - start)
        best[dtype] = min(times)
    faster = best[torch.bfloat16] * 1.5 < best[torch.float32]
    return torch.bfloat16 if faster else torch.float32


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return full attention, shape (heads, n, head size); a bias joins the logits of each slot.

    In bfloat16 two plain products and a softmax take half the time of torch's fused kernel on a
    CPU (measured at 400 and 650 positions); in float32 the fused kernel is the faster one.
    """
    if q.dtype is torch.float32:
        mask = None if bias is None else bias.expand(q.shape[1], -1)
        return functional.scaled_dot_product_attention(q[None], k[None], v[None], mask)[0]
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(1, 2)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    attended: torch.Tensor = scores.softmax(dim=-1) @ v
    return attended


class Affine:
    """A linear map whose weights are kept in the compute type; input and output float32."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map shape (n, in) to (n, out)."""
        return self.low(x).float()

    def low(self, x: torch.Tensor) -> torch.Tensor:
        """Map shape (n, in) to (n, out) and leave the result in the compute type."""
        return functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer normalisation in float32."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension."""
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class SelfCache:
    """Static key/value cache of the decoder's own tokens; rolled back by writing over it."""

    def __init__(self, dims: Dimensions, dtype: torch.dtype) -> None:
        shape = (
            dims.n_decoder_layers,
            dims.n_decoder_heads,
            dims.max_target_positions,
            dims.d_model // dims.n_decoder_heads,
        )
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)


class WhisperNetwork:
    """The weights of one model and the two forward passes.

    Args:
        tensors: Weights under their Hugging Face names.
        dims: Sizes.
        dtype: Type of the matrix products.
        alignment_heads: (layer, head) pairs of the decoder whose cross-attention follows time.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        dims: Dimensions,
        dtype: torch.dtype,
        alignment_heads: list[tuple[int, int]],
    ) -> None:
        self.dims = dims
        self.dtype = dtype
        self._t = tensors
        enc, dec = "model.encoder.", "model.decoder."
        self._conv1 = (self._low(enc + "conv1.weight"), self._low(enc + "conv1.bias"))
        self._conv2 = (self._low(enc + "conv2.weight"), self._low(enc + "conv2.bias"))
        self._encoder_positions = self._full(enc + "embed_positions.weight")
        self._encoder = [
            self._layer(f"{enc}layers.{i}.", has_cross=False) for i in range(dims.n_encoder_layers)
        ]
        self._encoder_norm = self._norm(enc + "layer_norm")
        self._embedding = self._full(dec + "embed_tokens.weight")
        self._unembed = self._embedding.to(dtype)
        self._decoder_positions = self._full(dec + "embed_positions.weight")
        self._decoder = [
            self._layer(f"{dec}layers.{i}.", has_cross=True) for i in range(dims.n_decoder_layers)
        ]
        self._decoder_norm = self._norm(dec + "layer_norm")
        self._aligned: dict[int, list[int]] = {}
        for layer, head in alignment_heads:
            self._aligned.setdefault(layer, []).append(head)
        del self._t

    def _full(self, name: str) -> torch.Tensor:
        return self._t[name].float().contiguous()

    def _low(self, name: str) -> torch.Tensor:
        return self._t[name].to(self.dtype).contiguous()

    def _norm(self, name: str) -> Norm:
        return Norm(self._full(name + ".weight"), self._full(name + ".bias"))

    def _affine(self, *names: str) -> Affine:
        weights = [self._low(n + ".weight") for n in names]
        biases = [
            self._low(n + ".bias") if n + ".bias" in self._t else torch.zeros(w.shape[0]).to(w)
            for n, w in zip(names, weights, strict=True)
        ]
        return Affine(torch.cat(weights).contiguous(), torch.cat(biases).contiguous())

    def _layer(self, prefix: str, *, has_cross: bool) -> _Layer:
        own, cross = prefix + "self_attn.", prefix + "encoder_attn."
        return _Layer(
            self_norm=self._norm(prefix + "self_attn_layer_norm"),
            qkv=self._affine(own + "q_proj", own + "k_proj", own + "v_proj"),
            self_out=self._affine(own + "out_proj"),
            cross_norm=self._norm(prefix + "encoder_attn_layer_norm") if has_cross else None,
            cross_q=self._affine(cross + "q_proj") if has_cross else None,
            cross_kv=self._affine(cross + "k_proj", cross + "v_proj") if has_cross else None,
            cross_out=self._affine(cross + "out_proj") if has_cross else None,
            mlp_norm=self._norm(prefix + "final_layer_norm"),
            fc1=self._affine(prefix + "fc1"),
            fc2=self._affine(prefix + "fc2"),
        )

    def _heads(self, x: torch.Tensor, n_heads: int) -> torch.Tensor:
        return x.view(x.shape[0], n_heads, -1).transpose(0, 1)

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """Encode a window of any length.

        Args:
            mel: Shape (n_mels, n), n even and at most twice ``max_source_positions``.

        Returns:
            Shape (n // 2, d_model), float32.
        """
        x = mel.to(self.dtype)[None]
        x = functional.gelu(functional.conv1d(x, *self._conv1, padding=1))
        x = functional.gelu(functional.conv1d(x, *self._conv2, stride=2, padding=1))
        h = x[0].T.float()
        h = h + self._encoder_positions[: h.shape[0]]
        heads = self.dims.n_encoder_heads
        for layer in self._encoder:
            q, k, v = (
                self._heads(p, heads) for p in layer.qkv.low(layer.self_norm(h)).chunk(3, dim=-1)
            )
            h = h + layer.self_out(_attend(q, k, v).transpose(0, 1).reshape(h.shape))
            h = h + layer.fc2(functional.gelu(layer.fc1.low(layer.mlp_norm(h))))
        return self._encoder_norm(h)

    def cross_cache(
        self, encoded: torch.Tensor, n_audio_slots: int, holding: Holding | None = None
    ) -> CrossCache:
        """Compute every decoder layer's keys and values of the encoded audio.

        Args:
            encoded: Shape (slots, d_model): the audio and the silence behind it.
            n_audio_slots: How many of the slots are audio.
            holding: Which of the audio slots to hold; None for all.
        """
        keys, values = [], []
        log_mass = None
        if holding is not None:
            silence = encoded[n_audio_slots:]
            audio, log_mass = merged(encoded[:n_audio_slots], holding)
            encoded = torch.cat((audio, silence))
            if log_mass is not None:
                log_mass = functional.pad(log_mass, (0, len(silence)))
        low = encoded.to(self.dtype)
        for layer in self._decoder:
            assert layer.cross_kv is not None  # noqa: S101  every decoder layer has one
            k, v = layer.cross_kv.low(low).chunk(2, dim=-1)
            keys.append(self._heads(k, self.dims.n_decoder_heads).contiguous())
            values.append(self._heads(v, self.dims.n_decoder_heads).contiguous())
        held = None if holding is None else holding.places
        return CrossCache(keys, values, n_audio_slots, held, log_mass)

    def decode(
        self, tokens: list[int], start: int, own: SelfCache, cross: CrossCache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run tokens at positions start, start + 1, ... and write their keys and values.

        Returns:
            Hidden states, shape (n, d_model) float32, and the cross-attention of the alignment
            heads, shape (alignment heads, n, slots) float32.
        """
        n, heads = len(tokens), self.dims.n_decoder_heads
        end = start + n
        h = self._embedding[torch.tensor(tokens)] + self._decoder_positions[start:end]
        mask = None
        if n > 1:
            mask = torch.ones(n, end, dtype=torch.bool).tril(diagonal=start)
        scale = (self.dims.d_model // heads) ** -0.5
        weights: list[torch.Tensor] = []
        for i, layer in enumerate(self._decoder):
            assert layer.cross_norm is not None  # noqa: S101  every decoder layer has these
            assert layer.cross_q is not None  # noqa: S101
            assert layer.cross_out is not None  # noqa: S101
            q, k, v = (
                self._heads(p, heads) for p in layer.qkv.low(layer.self_norm(h)).chunk(3, dim=-1)
            )
            own.keys[i, :, start:end] = k
            own.values[i, :, start:end] = v
            attended = functional.scaled_dot_product_attention(
                q[None], own.keys[i, :, :end][None], own.values[i, :, :end][None], attn_mask=mask
            )[0]
            h = h + layer.self_out(attended.transpose(0, 1).reshape(h.shape))
            q = self._heads(layer.cross_q.low(layer.cross_norm(h)), heads)
            aligned = self._aligned.get(i)
            if aligned is None:
                attended = _attend(q, cross.keys[i], cross.values[i], cross.log_mass)
            else:
                logits = (q @ cross.keys[i].transpose(1, 2)).float() * scale
                if cross.log_mass is not None:
                    logits = logits + cross.log_mass
                attention = logits.softmax(dim=-1)
                weights.extend(attention[head] for head in aligned)
                attended = attention.to(self.dtype) @ cross.values[i]
            h = h + layer.cross_out(attended.transpose(0, 1).reshape(h.shape))
            h = h + layer.fc2(functional.gelu(layer.fc1.low(layer.mlp_norm(h))))
        return self._decoder_norm(h), torch.stack(weights)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return next-token logits, shape (n, n_vocabulary) float32."""
        return functional.linear(hidden.to(self.dtype), self._unembed).float()


@dataclass(slots=True)
class _Layer:
    self_norm: Norm
    qkv: Affine
    self_out: Affine
    cross_norm: Norm | None
    cross_q: Affine | None
    cross_kv: Affine | None
    cross_out: Affine | None
    mlp_norm: Norm
    fc1: Affine
    fc2: Affine
