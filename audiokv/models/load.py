"""From a model's name to a recogniser."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from audiokv.models.weights import resolve_model
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import WeightsError

KERNEL_CACHE_VARIABLES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
KERNEL_CACHE_ENTRIES = 32  # more than one step has shapes of its own

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from audiokv.models.base import Recognizer
    from audiokv.models.weights import ModelFiles


def load_recognizer(name: str, cache: CacheOptions | None = None) -> Recognizer:
    """Load a recogniser by model name, hub name or folder.

    Args:
        name: A name ``audiokv.models.weights.resolve_model`` knows.
        cache: Bound of each stream's audio cache; None for no bound.

    Raises:
        WeightsError: The weights are missing or corrupt, or of a kind that is not supported.
    """
    files = resolve_model(name)
    kind = _model_type(files)
    if kind not in _OPENERS:
        raise WeightsError(
            "unsupported_model",
            f"The model {name!r} is of type {kind!r}, which is not supported.",
            "Use a Whisper model of any size, such as whisper-base or openai/whisper-small, or a "
            "Gemma-3n.",
        )
    bound_kernel_caches(os.environ)
    import torch  # noqa: PLC0415  seconds to import

    torch.set_num_threads(inference_threads(os.cpu_count() or 1))
    try:
        return _OPENERS[kind](files, cache or CacheOptions())
    except (KeyError, ValueError) as error:
        raise _broken(name, str(error)) from error


def _open_whisper(files: ModelFiles, cache: CacheOptions) -> Recognizer:
    from audiokv.models.whisper.recognizer import WhisperRecognizer  # noqa: PLC0415  seconds
    from audiokv.models.whisper.stream import WindowOptions  # noqa: PLC0415  likewise

    return WhisperRecognizer(files.folder, files.name, window=WindowOptions(cache=cache))


def _open_gemma3n(files: ModelFiles, cache: CacheOptions) -> Recognizer:
    from audiokv.models.gemma3n.gemma3n_recognizer import (  # noqa: PLC0415  seconds to import
        Gemma3nRecognizer,
    )
    from audiokv.models.gemma3n.gemma3n_stream import WindowOptions  # noqa: PLC0415  likewise

    return Gemma3nRecognizer(files.folder, files.name, WindowOptions(cache=cache))


# By ``model_type`` of config.json.
_OPENERS: dict[str | None, Callable[[ModelFiles, CacheOptions], Recognizer]] = {
    "whisper": _open_whisper,
    "gemma3n": _open_gemma3n,
}


def _model_type(files: ModelFiles) -> str | None:
    try:
        config = json.loads((files.folder / "config.json").read_text("utf-8"))
    except ValueError as error:
        raise _broken(files.name, "config.json cannot be read") from error
    if not isinstance(config, dict):
        raise _broken(files.name, "config.json holds no settings")
    return config.get("model_type")


def _broken(name: str, what: str) -> WeightsError:
    return WeightsError(
        "weights_corrupt",
        f"The files of the model {name!r} do not fit together: {what}.",
        "Fetch the model again, or save it again with save_pretrained, its tokenizer included.",
    )


def inference_threads(n_cores: int) -> int:
    """Return how many threads one forward pass may use.

    Threads of one pass wait for each other actively: where a neighbour takes one of their cores,
    every product waits for the scheduler (measured: steps of 60 ms became 3,200 ms on two shared
    cores). Half the cores are left to the event loop, clients and whatever else runs.
    """
    return max(1, n_cores // 2)


def bound_kernel_caches(environment: MutableMapping[str, str]) -> None:
    """Keep torch's caches of prepared kernels small, unless the user has set them.

    Both keep 1,024 by default, one for each shape met. A live window has another length at each
    step, so they fill up with what is hardly used again (measured with whisper-base: 1,312 MB of
    memory after 27 s of speech became 631 MB, with a tenth less processor time). They are read when
    the first kernel is prepared.

    Args:
        environment: The process's environment variables.
    """
    for name in KERNEL_CACHE_VARIABLES:
        environment.setdefault(name, str(KERNEL_CACHE_ENTRIES))
