"""A writer of CTranslate2 models, the counterpart of the reader under test, and a tiny model."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

N_VOCABULARY = 96
FLOAT16_ID, FLOAT32_ID, BFLOAT16_ID, INT8_ID, INT16_ID = 4, 0, 5, 1, 2
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|haw|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nocaptions|>",
    "<|notimestamps|>",
]


def _string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


@dataclass
class ModelWriter:
    """Collects variables and gives the bytes of a ``model.bin``."""

    version: int = 6
    spec: str = "WhisperSpec"
    variables: dict[str, tuple[tuple[int, ...], int, bytes]] = field(default_factory=dict)
    aliases: dict[str, str] = field(
        default_factory=lambda: {"decoder/projection/weight": "decoder/embeddings/weight"}
    )

    def add(self, name: str, tensor: torch.Tensor, dtype_id: int = FLOAT32_ID) -> None:
        """Store a tensor in one of the floating-point types."""
        if dtype_id == BFLOAT16_ID:
            raw = tensor.to(torch.bfloat16).view(torch.int16).numpy().tobytes()
        else:
            dtype = {FLOAT16_ID: np.float16, FLOAT32_ID: np.float32}[dtype_id]
            raw = tensor.numpy().astype(dtype).tobytes()
        self.variables[name] = (tuple(tensor.shape), dtype_id, raw)

    def add_number(self, name: str, value: int, dtype_id: int) -> None:
        """Store a number without dimensions."""
        n_bytes = {INT8_ID: 1, INT16_ID: 2}[dtype_id]
        self.variables[name] = ((), dtype_id, value.to_bytes(n_bytes, "little", signed=True))

    def to_bytes(self) -> bytes:
        """Return the file."""
        chunks = [struct.pack("<I", self.version), _string(self.spec), struct.pack("<I", 3)]
        chunks.append(struct.pack("<I", len(self.variables)))
        for name, (shape, dtype_id, raw) in self.variables.items():
            chunks.append(_string(name) + struct.pack("<B", len(shape)))
            chunks.append(struct.pack(f"<{len(shape)}I", *shape))
            chunks.append(struct.pack("<BI", dtype_id, len(raw)) + raw)
        chunks.append(struct.pack("<I", len(self.aliases)))
        chunks.extend(_string(key) + _string(value) for key, value in self.aliases.items())
        return b"".join(chunks)


@dataclass(frozen=True)
class TinyWhisper:
    """A random Whisper of a few thousand parameters and its CTranslate2 form."""

    model: WhisperForConditionalGeneration
    writer: ModelWriter
    config: dict[str, Any]
    tokenizer: dict[str, Any]

    def save(self, folder: Path) -> Path:
        """Write the folder that CTranslate2's converter would write."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.bin").write_bytes(self.writer.to_bytes())
        (folder / "config.json").write_text(json.dumps(self.config), "utf-8")
        (folder / "tokenizer.json").write_text(json.dumps(self.tokenizer), "utf-8")
        return folder


def _fuse(writer: ModelWriter, name: str, projections: list[Any], dtype_id: int) -> None:
    biases = [p.bias if p.bias is not None else torch.zeros(p.weight.shape[0]) for p in projections]
    writer.add(f"{name}/weight", torch.cat([p.weight for p in projections]), dtype_id)
    writer.add(f"{name}/bias", torch.cat(biases), dtype_id)


def _norm(writer: ModelWriter, name: str, norm: Any, dtype_id: int) -> None:
    writer.add(f"{name}/gamma", norm.weight, dtype_id)
    writer.add(f"{name}/beta", norm.bias, dtype_id)


def _write_layer(writer: ModelWriter, name: str, layer: Any, dtype_id: int) -> None:
    own = layer.self_attn
    _norm(writer, f"{name}/self_attention/layer_norm", layer.self_attn_layer_norm, dtype_id)
    stacked = [own.q_proj, own.k_proj, own.v_proj]
    _fuse(writer, f"{name}/self_attention/linear_0", stacked, dtype_id)
    _fuse(writer, f"{name}/self_attention/linear_1", [own.out_proj], dtype_id)
    _norm(writer, f"{name}/ffn/layer_norm", layer.final_layer_norm, dtype_id)
    _fuse(writer, f"{name}/ffn/linear_0", [layer.fc1], dtype_id)
    _fuse(writer, f"{name}/ffn/linear_1", [layer.fc2], dtype_id)
    if hasattr(layer, "encoder_attn"):
        cross = layer.encoder_attn
        _norm(writer, f"{name}/attention/layer_norm", layer.encoder_attn_layer_norm, dtype_id)
        _fuse(writer, f"{name}/attention/linear_0", [cross.q_proj], dtype_id)
        _fuse(writer, f"{name}/attention/linear_1", [cross.k_proj, cross.v_proj], dtype_id)
        _fuse(writer, f"{name}/attention/linear_2", [cross.out_proj], dtype_id)


def make_tiny_whisper(dtype_id: int = FLOAT32_ID) -> TinyWhisper:
    """Return a random Whisper whose weights are exact in the given type."""
    torch.manual_seed(0)
    dtype = {FLOAT16_ID: torch.float16, FLOAT32_ID: torch.float32, BFLOAT16_ID: torch.bfloat16}
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=N_VOCABULARY,
            num_mel_bins=8,
            d_model=16,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=2,
            decoder_attention_heads=4,
            encoder_ffn_dim=24,
            decoder_ffn_dim=40,
            max_source_positions=50,
            max_target_positions=20,
            bos_token_id=80,
            eos_token_id=80,
            pad_token_id=80,
            decoder_start_token_id=81,
            begin_suppress_tokens=None,
        )
    )
    model.train(mode=False)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter).mul(0.1).to(dtype[dtype_id]).float()
        parameter.requires_grad_(False)  # noqa: FBT003  torch's own signature
    writer = ModelWriter()
    for side in ("encoder", "decoder"):
        part = getattr(model.model, side)
        writer.add_number(f"{side}/num_heads", part.layers[0].self_attn.num_heads, INT16_ID)
        positions = part.embed_positions.weight
        writer.add(f"{side}/position_encodings/encodings", positions, dtype_id)
        _norm(writer, f"{side}/layer_norm", part.layer_norm, dtype_id)
        for index, layer in enumerate(part.layers):
            _write_layer(writer, f"{side}/layer_{index}", layer, dtype_id)
    for name in ("conv1", "conv2"):
        _fuse(writer, f"encoder/{name}", [getattr(model.model.encoder, name)], dtype_id)
    writer.add("decoder/embeddings/weight", model.model.decoder.embed_tokens.weight, dtype_id)
    writer.add_number("decoder/activation", 3, INT8_ID)
    added = [{"id": 80 + index, "content": text} for index, text in enumerate(SPECIAL)]
    return TinyWhisper(
        model=model,
        writer=writer,
        config={
            "alignment_heads": [[1, 0], [2, 3]],
            "suppress_ids": [1, 2],
            "suppress_ids_begin": [7, 80],
        },
        tokenizer={"added_tokens": added},
    )


@pytest.fixture
def tiny_whisper() -> TinyWhisper:
    """A tiny Whisper in 32-bit floating point."""
    return make_tiny_whisper()


@pytest.fixture(name="make_tiny_whisper")
def _make_tiny_whisper() -> Callable[[int], TinyWhisper]:
    """Makes a tiny Whisper in the type of a CTranslate2 number."""
    return make_tiny_whisper
