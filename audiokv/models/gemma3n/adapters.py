"""LoRA adapters, merged into the weights before anything is recognised.

A merged adapter costs nothing at run time, and everything behind it (streaming tower, cache, int8)
sees ordinary weights. Reading, scaling and merging are peft's own. LoRA: Hu et al., 2021.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from audiokv.models.gemma3n.checkpoint import SpeechCheckpoint

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_VISION = ("vision_tower.", "embed_vision.")  # never built, so an adapter's part for it is no loss


def merge_adapter(checkpoint: SpeechCheckpoint, name: str) -> SpeechCheckpoint:
    """Merge an adapter into a model.

    Args:
        checkpoint: The model, in the type it will be used in.
        name: Folder as peft's ``save_pretrained`` leaves it, or a hub name.

    Returns:
        The same model with other weights.

    Raises:
        WeightsError: The adapter cannot be found or read, was made for another model, or peft is
            not installed.
    """
    try:
        from peft import PeftModel  # noqa: PLC0415  only needed with an adapter
        from safetensors.torch import load_file  # noqa: PLC0415  likewise
    except ImportError as error:
        raise WeightsError(
            "peft_missing",
            f"The adapter {name!r} needs the Python package peft, which is not installed.",
            "Run: pip install 'audiokv[gemma]'",
        ) from error
    folder = _resolve(name)
    try:
        json.loads((folder / CONFIG).read_text("utf-8"))
        names = set(load_file(folder / WEIGHTS))
    except Exception as error:  # safetensors' own exception has no narrower base
        raise WeightsError(
            "adapter_corrupt",
            f"The adapter {name!r} cannot be read ({error}).",
            "Fetch it again, or save it again with peft's save_pretrained.",
        ) from error
    wrap: Any = PeftModel.from_pretrained
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is missing is told below, with its name
            adapted = wrap(checkpoint, str(folder))
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise _misfit(name, str(error).splitlines()[0]) from error
    _check_all_used(name, names, adapted)
    merged: SpeechCheckpoint = adapted.merge_and_unload().eval()
    return merged.requires_grad_(requires_grad=False)


def _resolve(name: str) -> Path:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _download(name)
    missing = [file for file in (CONFIG, WEIGHTS) if not (folder / file).is_file()]
    if missing:
        raise WeightsError(
            "adapter_missing",
            f"The adapter {name!r} has no {', no '.join(missing)}.",
            "Pass the folder that peft's save_pretrained wrote.",
        )
    return folder


def _download(name: str) -> Path:
    import huggingface_hub  # noqa: PLC0415  only needed for an adapter from the hub

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS]))
    except (
        OSError,
        ValueError,
    ) as error:  # covers no network, no such adapter, no access, bad name
        raise WeightsError(
            "adapter_missing",
            f"There is no adapter folder {name!r}, and it could not be fetched from the hub "
            f"({type(error).__name__}).",
            "Check the name, and the connection where it comes from the hub.",
        ) from error


def _check_all_used(name: str, names: set[str], adapted: Any) -> None:  # noqa: ANN401  not typed
    """Refuse an adapter part of which has no place in the model: it would change too little."""
    from peft import get_peft_model_state_dict  # noqa: PLC0415  only needed with an adapter

    left = names - set(get_peft_model_state_dict(adapted))
    unused = sorted(key for key in left if not any(part in key for part in _VISION))
    if unused:
        raise _misfit(name, f"the model has no place for {unused[0]}")


def _misfit(name: str, what: str) -> WeightsError:
    return WeightsError(
        "adapter_misfit",
        f"The adapter {name!r} was made for another model: {what}.",
        "Use it with the model that its adapter_config.json names, in the same size.",
    )
