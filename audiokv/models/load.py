"""From a model's name to a recogniser."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from audiokv.models.base import WeightOptions
from audiokv.models.weights import resolve_model
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError, WeightsError

KERNEL_CACHE_VARIABLES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
KERNEL_CACHE_ENTRIES = 32  # more than one step has shapes of its own

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from audiokv.models.base import Recognizer
    from audiokv.models.weights import ModelFiles


def load_recognizer(
    name: str, cache: CacheOptions | None = None, weights: WeightOptions | None = None
) -> Recognizer:
    """Load a recogniser by model name, hub name or folder.

    Args:
        name: A name ``audiokv.models.weights.resolve_model`` knows.
        cache: Bound of each stream's audio cache; None for no bound.
        weights: How to load the weights, where the model has a choice.

    Raises:
        ConfigError: The model has no such choice.
        WeightsError: The weights are missing or corrupt, or of a kind that is not supported.
    """
    files = resolve_model(name)
    kind = model_type(files)
    if kind in LOOP_ONLY:
        raise WeightsError(
            "unsupported_model",
            f"The model {name!r} is {LOOP_ONLY[kind]}: its audio can be heard live from Python "
            "(docs/gemma4-qwen3-omni.md), but it has no recogniser that writes captions yet.",
            "Serve a Whisper model of any size or a Gemma-3n.",
        )
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
        return _OPENERS[kind](files, cache or CacheOptions(), weights or WeightOptions())
    except (KeyError, ValueError) as error:
        raise _broken(name, str(error)) from error


def _open_whisper(files: ModelFiles, cache: CacheOptions, weights: WeightOptions) -> Recognizer:
    if weights != WeightOptions():
        raise ConfigError(
            "weights_unsupported",
            f"The model {files.name!r} is a Whisper, which has no such choice of weights.",
            "Leave --adapter, --weights and --dtype out, or use a Gemma-3n.",
        )
    from audiokv.models.whisper.recognizer import WhisperRecognizer  # noqa: PLC0415  seconds
    from audiokv.models.whisper.stream import WindowOptions  # noqa: PLC0415  likewise

    return WhisperRecognizer(files.folder, files.name, window=WindowOptions(cache=cache))


def _open_gemma3n(files: ModelFiles, cache: CacheOptions, weights: WeightOptions) -> Recognizer:
    from audiokv.models.gemma3n.gemma3n_recognizer import (  # noqa: PLC0415  seconds to import
        Gemma3nRecognizer,
    )
    from audiokv.models.gemma3n.gemma3n_stream import WindowOptions  # noqa: PLC0415  likewise

    window = WindowOptions(cache=cache)
    return Gemma3nRecognizer(files.folder, files.name, window, weights)


# By ``model_type`` of config.json.
_OPENERS: dict[str | None, Callable[[ModelFiles, CacheOptions, WeightOptions], Recognizer]] = {
    "whisper": _open_whisper,
    "gemma3n": _open_gemma3n,
}

# Kinds that run in ``audiokv.models.audio_llm.live_loop``, which has no prompts and no words.
LOOP_ONLY: dict[str | None, str] = {
    "gemma4": "a Gemma 4",
    "qwen3_omni_moe": "a Qwen3-Omni",
    "qwen3_omni_moe_thinker": "the thinker of a Qwen3-Omni",
}


def model_type(files: ModelFiles) -> str | None:
    """Return the ``model_type`` that a model's config names.

    Raises:
        WeightsError: The config cannot be read.
    """
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
