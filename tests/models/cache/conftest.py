"""Tiny random models of the classes that caches must serve, and the reference they must match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import (
    Qwen3OmniMoeThinkerConfig,
)
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeThinkerForConditionalGeneration,
)

from audiokv.models.cache import ATTENTION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VOCABULARY = 64
WINDOW = 7
N_FRAMES = 30


# What all decoders here have in common. Configs take more than their signatures say.
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}

# Layers 1 and 3 are full-attention producers, 5 and 7 read the keys of layer 3.
GEMMA: dict[str, Any] = {
    **SMALL,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 8,
    "num_hidden_layers": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 4,
    "sliding_window": WINDOW,
    "num_kv_shared_layers": 4,
}

QWEN3_OMNI: dict[str, Any] = {
    "text_config": {
        **SMALL,
        "num_hidden_layers": 2,
        "moe_intermediate_size": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1_000_000.0,
            "mrope_section": [2, 1, 1],
        },
    },
    "audio_config": {
        "encoder_layers": 1,
        "d_model": 16,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "num_mel_bins": 16,
        "output_dim": 32,
        "downsample_hidden_size": 8,
    },
    "vision_config": {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 32,
        "patch_size": 4,
        "deepstack_visual_indexes": [0],
    },
    "vision_start_token_id": 60,
    "audio_token_id": 61,
    "image_token_id": 62,
    "video_token_id": 63,
}

WHISPER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 8,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "d_model": 16,
    "max_source_positions": N_FRAMES,
    "max_target_positions": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, num_hidden_layers=3)),
    "gemma3n": lambda: Gemma3nForCausalLM(
        Gemma3nTextConfig(**GEMMA, laurel_rank=4, activation_sparsity_pattern=[0.0] * 8)
    ),
    # Heads of full-attention layers are wider than those of sliding ones.
    "gemma4": lambda: Gemma4ForCausalLM(Gemma4TextConfig(**(GEMMA | {"global_head_dim": 16}))),
    "qwen3_omni": lambda: Qwen3OmniMoeThinkerForConditionalGeneration(
        Qwen3OmniMoeThinkerConfig(**QWEN3_OMNI)
    ),
    "whisper": lambda: WhisperForConditionalGeneration(WhisperConfig(**WHISPER)),
}


class TinyModel:
    """A decoder with random weights and one way to run it, whatever its class."""

    def __init__(self, family: str) -> None:
        torch.manual_seed(7)
        self.family = family
        self.model = FAMILIES[family]().eval()
        self.frames = torch.randn(1, N_FRAMES, 16) if family == "whisper" else None
        self._spread_attention()

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def text_config(self) -> Any:
        return self.config.get_text_config(decoder=True)

    def tokens(self, n_tokens: int, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(4, 60, (1, n_tokens), generator=generator)

    @torch.no_grad()
    def step(self, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits of each token, shape (1, tokens, vocabulary)."""
        logits: torch.Tensor
        if self.family != "whisper":
            logits = self.model(tokens, cache=cache).logits
            return logits
        out = self.model.model.decoder(
            tokens, encoder_hidden_states=self.frames, cache=cache, use_cache=True
        )
        logits = self.model.proj_out(out.last_hidden_state)
        return logits

    def wrap(self, cache: Any, cross: Any = None) -> Any:
        """The cache in the form the model takes."""
        if self.family != "whisper":
            return cache
        return EncoderDecoderCache(cache, DynamicCache() if cross is None else cross)

    def own_cache(self) -> Any:
        """The cache the model would make for itself."""
        by_config = {} if self.family == "whisper" else {"config": self.text_config}
        return self.wrap(DynamicCache(**by_config))

    def attentions(self) -> list[Any]:
        base = self.model.model
        if self.family == "whisper":
            base = base.decoder
        base = getattr(base, "language_model", base)
        return [layer.self_attn for layer in base.layers]

    @torch.no_grad()
    def attention(self, tokens: torch.Tensor, cache: Any) -> list[torch.Tensor]:
        """Weights of each self-attention, shape (query_heads, queries, slots)."""
        seen: list[torch.Tensor] = []
        hooks = [
            module.register_forward_hook(lambda *call: seen.append(call[-1][1][0]))
            for module in self.attentions()
        ]
        self.step(tokens, cache)
        for hook in hooks:
            hook.remove()
        return seen

    def twin(self, attention: str) -> TinyModel:
        """The same weights with another attention."""
        made = TinyModel(self.family)
        made.model.set_attn_implementation(attention)
        return made

    def mask_cross_attention(self, kept: Any) -> list[Any]:
        """Hide frames from Whisper's heads; kept has shape (layers, heads, frames)."""

        def hide(by_head: Any) -> Callable[..., Any]:
            mask = torch.from_numpy(by_head)[None, :, None]
            return lambda _, args, kwargs: (args, {**kwargs, "attention_mask": mask})

        return [
            layer.encoder_attn.register_forward_pre_hook(hide(by_head), with_kwargs=True)
            for layer, by_head in zip(self.model.model.decoder.layers, kept, strict=True)
        ]

    def producer_of(self, index: int) -> int:
        """Index of the layer whose keys a layer reads."""
        modes = getattr(self.text_config, "kv_sharing_modes", None)
        if not modes or modes[index] != "reuse":
            return index
        types = self.text_config.layer_types
        return max(
            i for i, mode in enumerate(modes) if mode == "store" and types[i] == types[index]
        )

    def window_of(self, index: int) -> int | None:
        types = getattr(self.text_config, "layer_types", None)
        return WINDOW if types and types[index] == "sliding_attention" else None

    def full_producers(self) -> list[int]:
        """Indices of the layers whose slots a budgeted cache manages."""
        return [
            index
            for index in range(len(self.attentions()))
            if self.producer_of(index) == index and self.window_of(index) is None
        ]

    def _spread_attention(self) -> None:
        # Fresh weights are so small that attention is flat and eviction would change little.
        with torch.no_grad():
            for name, weights in self.model.named_parameters():
                if weights.ndim > 1 and ("q_proj" in name or "k_proj" in name):
                    weights.mul_(8.0)


class MaskedReference:
    """Transformers' own full cache, with every lost slot masked by an explicit 4-D mask."""

    def __init__(self, plain: TinyModel) -> None:
        self._tiny = plain
        self._cache = plain.wrap(DynamicCache())
        self._n_heads = 2
        self._seen = 0
        self._producers = self._tiny.full_producers()
        self._is_held = np.empty((len(self._producers), self._n_heads, 0), np.bool_)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        n_new = tokens.shape[1]
        new = np.ones((*self._is_held.shape[:2], n_new), np.bool_)
        self._is_held = np.concatenate((self._is_held, new), axis=-1)
        self._seen += n_new
        hooks = [
            module.register_forward_pre_hook(self._masker(index), with_kwargs=True)
            for index, module in enumerate(self._tiny.attentions())
        ]
        logits = self._tiny.step(tokens, self._cache)
        for hook in hooks:
            hook.remove()
        return logits

    def hold(
        self, positions: Sequence[int], producer: int | None = None, head: int | None = None
    ) -> None:
        """Mask all seen positions but these from now on."""
        kept = np.zeros(self._seen, np.bool_)
        kept[list(positions)] = True
        at = (
            slice(None) if producer is None else producer,
            slice(None) if head is None else head,
        )
        self._is_held[at] &= kept

    def _masker(self, index: int) -> Callable[..., Any]:
        producer, window = self._tiny.producer_of(index), self._tiny.window_of(index)
        row = self._producers.index(producer) if window is None else None

        def give_mask(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            hidden = args[0] if args else kwargs["hidden_states"]
            queries = np.arange(self._seen - hidden.shape[1], self._seen)[:, None]
            positions = np.arange(self._seen)
            visible = (positions <= queries)[None]
            if window is not None:
                visible = visible & (queries - positions < window)
            if row is not None:
                by_head = np.repeat(
                    self._is_held[row],
                    self._tiny.text_config.num_attention_heads // self._n_heads,
                    axis=0,
                )
                visible = visible & by_head[:, None]
            kwargs["attention_mask"] = torch.from_numpy(visible)[None]
            return args, kwargs

        return give_mask


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def tiny(family: str, make_tiny: Callable[[str], TinyModel]) -> TinyModel:
    """A model that uses our attention."""
    return make_tiny(family)


@pytest.fixture(scope="session")
def make_tiny() -> Callable[[str], TinyModel]:
    """Models of one family that use our attention, made once."""
    made: dict[str, TinyModel] = {}

    def make(family: str) -> TinyModel:
        if family not in made:
            made[family] = TinyModel(family)
            made[family].model.set_attn_implementation(ATTENTION)
        return made[family]

    return make


@pytest.fixture(scope="module")
def plain(family: str) -> TinyModel:
    """The same weights with the attention that transformers uses by default."""
    return TinyModel(family)


@pytest.fixture(scope="module")
def new_reference(plain: TinyModel) -> Callable[[], MaskedReference]:
    return lambda: MaskedReference(plain)
