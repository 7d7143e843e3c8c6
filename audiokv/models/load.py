"""From a model's name to a recogniser."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from audiokv.models.weights import resolve_model
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from audiokv.models.base import Recognizer
    from audiokv.models.weights import ModelFiles


def load_recognizer(name: str) -> Recognizer:
    """Load a recogniser by model name, hub name or folder.

    Raises:
        WeightsError: The weights are missing or corrupt, or of a kind that is not supported.
    """
    files = resolve_model(name)
    kind = _model_type(files)
    if kind == "whisper":
        import torch  # noqa: PLC0415  seconds to import

        from audiokv.models.whisper.recognizer import WhisperRecognizer  # noqa: PLC0415  likewise

        torch.set_num_threads(inference_threads(os.cpu_count() or 1))
        try:
            return WhisperRecognizer(files.folder, files.name)
        except (KeyError, ValueError) as error:
            raise _broken(name, str(error)) from error
    raise WeightsError(
        "unsupported_model",
        f"The model {name!r} is of type {kind!r}, which is not supported.",
        "Use a Whisper model of any size, such as whisper-base or openai/whisper-small.",
    )


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
