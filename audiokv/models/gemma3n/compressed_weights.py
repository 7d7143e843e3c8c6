"""Weights of the text model in 8 bits, by torchao, or in 4, by bitsandbytes.

What is held smaller: the linear layers of the text model but the small ones of AltUp, and the
per-layer embeddings, which are the largest part of a Gemma-3n. The audio tower (a small part, and
the ear), the word embeddings and the output layer they are tied to stay as they are. Activations
stay in the model's type: Gemma's are too large for the float16 that 8 bits of bitsandbytes need.

int8: one scale for each row of a matrix. int4: NF4 in blocks of 64 (Dettmers et al., 2023).
"""

from __future__ import annotations

import importlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from audiokv.models.gemma3n.checkpoint import SpeechCheckpoint


class WeightFormat(StrEnum):
    """How the text model's weights are held."""

    FULL = "full"
    INT8 = "int8"
    INT4 = "int4"


_LARGE_EMBEDDING = "embed_tokens_per_layer"
_KEPT = "altup"  # a few numbers each, on which every layer depends
_ROWS_TOGETHER, _BLOCK = 32, 64  # what bitsandbytes' processor kernels need of a matrix


def compress(checkpoint: SpeechCheckpoint, kind: WeightFormat) -> None:
    """Hold the text model's weights in fewer bits from now on.

    Args:
        checkpoint: The model, on the device where it will be used; it is changed. Its full weights
            are there before, so it saves memory of what runs, not of loading.
        kind: How to hold them.

    Raises:
        WeightsError: The library for it is not installed.
    """
    text = checkpoint.model.language_model
    if kind == WeightFormat.INT8:
        _to_int8(text, _library("torchao.quantization", kind))
    elif kind == WeightFormat.INT4:
        _to_int4(text, _library("bitsandbytes.nn", kind))


def held_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's parameters and of the scales they need to be read."""
    return sum(_weight_bytes(weight) for weight in module.parameters())


def _weight_bytes(weight: Any) -> int:  # noqa: ANN401  a tensor with what its library adds
    parts = [getattr(weight, name) for name in getattr(weight, "tensor_data_names", ())]
    if parts:
        return sum(int(part.nbytes) for part in parts)
    state = getattr(weight, "quant_state", None)
    n_scales = 0 if state is None else int(state.absmax.nbytes + state.code.nbytes)
    return int(weight.nbytes) + n_scales


def _library(name: str, kind: WeightFormat) -> Any:  # noqa: ANN401  a module, typed in part
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise WeightsError(
            f"{package}_missing",
            f"Weights in {kind} need the Python package {package}, which is not installed.",
            "Run: pip install 'audiokv[gemma]', or leave --weights out.",
        ) from error


def _is_linear(module: nn.Module, name: str) -> bool:
    return type(module) is nn.Linear and _KEPT not in name


def _to_int8(text: nn.Module, library: Any) -> None:  # noqa: ANN401
    def is_meant(module: nn.Module, name: str) -> bool:
        return _is_linear(module, name) or name == _LARGE_EMBEDDING

    library.quantize_(text, library.Int8WeightOnlyConfig(), filter_fn=is_meant)


def _to_int4(text: nn.Module, library: Any) -> None:  # noqa: ANN401
    for name, module in list(text.named_modules()):
        parent, _, own = name.rpartition(".")
        if name == _LARGE_EMBEDDING:
            setattr(text, own, _ScaledRows(library, module))
        elif _is_linear(module, name) and _fits(module):
            setattr(text.get_submodule(parent), own, _linear4(library, module))


def _fits(linear: Any) -> bool:  # noqa: ANN401  a module
    n_rows, n_columns = linear.weight.shape
    return bool(n_rows % _ROWS_TOGETHER == 0 and n_columns % _BLOCK == 0)


def _linear4(library: Any, linear: Any) -> nn.Module:  # noqa: ANN401
    weight = linear.weight
    made = library.Linear4bit(
        linear.in_features,
        linear.out_features,
        bias=linear.bias is not None,
        compute_dtype=weight.dtype,
        quant_type="nf4",
    )
    made.load_state_dict(linear.state_dict())
    return _converted(made, weight.device)


class _ScaledRows(nn.Module):
    """Rows in 4 bits, scaled as those of ``Gemma3nTextScaledWordEmbedding`` are."""

    def __init__(self, library: Any, embedding: Any) -> None:  # noqa: ANN401
        super().__init__()
        weight = embedding.weight
        rows = library.Embedding4bit(*weight.shape, dtype=weight.dtype, quant_type="nf4")
        rows.load_state_dict({"weight": weight})
        self.rows = _converted(rows, weight.device)
        self.register_buffer("scale", embedding.embed_scale.to(weight.dtype), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the scaled rows of token ids."""
        scale = self.get_buffer("scale")
        rows: torch.Tensor = self.rows(ids)
        return rows.to(scale.dtype) * scale


def _converted(made: nn.Module, device: torch.device) -> nn.Module:
    # Moving them is what makes bitsandbytes convert its weights, also to where they are already.
    return made.to(device).eval().requires_grad_(requires_grad=False)
