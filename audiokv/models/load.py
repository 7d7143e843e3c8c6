"""From a model's name to a recogniser."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from audiokv.models.weights import resolve_model
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from audiokv.models.base import Recognizer


def load_recognizer(name: str) -> Recognizer:
    """Load a recogniser by model name, hub name or folder.

    Raises:
        WeightsError: The weights are missing or corrupt, or of a kind that is not supported.
    """
    files = resolve_model(name)
    kind = json.loads((files.folder / "config.json").read_text()).get("model_type")
    if kind == "whisper":
        import torch  # noqa: PLC0415  seconds to import

        from audiokv.models.whisper.recognizer import WhisperRecognizer  # noqa: PLC0415  likewise

        torch.set_num_threads(inference_threads(os.cpu_count() or 1))
        return WhisperRecognizer(files.folder, files.name)
    raise WeightsError(
        "unsupported_model",
        f"The model {name!r} is of type {kind!r}, which is not supported.",
        "Use a Whisper model of any size, such as whisper-base or openai/whisper-small.",
    )


def inference_threads(n_cores: int) -> int:
    """Return how many threads one forward pass may use.

    Threads of one pass wait for each other actively: where a neighbour takes one of their cores,
    every product waits for the scheduler (measured: steps of 60 ms became 3,200 ms on two shared
    cores). Half the cores are left to the event loop, clients and whatever else runs.
    """
    return max(1, n_cores // 2)
