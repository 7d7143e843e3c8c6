"""Silero VAD through onnxruntime: how probable it is that a chunk of audio holds a voice."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, cast

import numpy as np
import onnxruntime

from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

CHUNK_SAMPLES = 512  # 32 ms at 16 kHz, the only length the model takes
_CONTEXT_SAMPLES = 64  # the end of the chunk before, which the model sees again
_STATE_SHAPE = (1, 1, 128)

_FILE_NAME = "silero_vad_16k_sequence.onnx"
_SHA256 = "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"
_LOG_ERRORS_ONLY = 3


class SileroModel:
    """The loaded weights, shared by the detectors of all streams; safe to share between threads.

    Args:
        session: An onnxruntime session of the model.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session

    @classmethod
    def load(cls, file: Traversable | None = None) -> SileroModel:
        """Load the model from the file that comes with the package, or another copy of it.

        Args:
            file: A copy of the model's file, or None for the packaged one.

        Raises:
            WeightsError: ``weights_missing`` or ``weights_corrupt``, naming the file.
        """
        source = (
            file if file is not None else resources.files("audiokv.models") / "data" / _FILE_NAME
        )
        try:
            weights = source.read_bytes()
        except OSError as error:
            raise WeightsError(
                "weights_missing",
                f"The voice detector's weights {source} cannot be read ({error.strerror}).",
                "Install audiokv again.",
            ) from error
        if hashlib.sha256(weights).hexdigest() != _SHA256:
            raise WeightsError(
                "weights_corrupt",
                f"The voice detector's weights {source} are not the ones expected (SHA-256).",
                "Install audiokv again.",
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # 55 microseconds of work; threads would only wait
        options.inter_op_num_threads = 1
        options.log_severity_level = _LOG_ERRORS_ONLY
        return cls(
            onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        )

    def open(self) -> SileroDetector:
        """Return a detector with fresh state for one stream."""
        return SileroDetector(self._session)


class SileroDetector:
    """The recurrent state of one stream; a `VoiceDetector`.

    Args:
        session: The shared onnxruntime session.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._input = np.zeros((1, _CONTEXT_SAMPLES + CHUNK_SAMPLES), np.float32)
        self._hidden = np.zeros(_STATE_SHAPE, np.float32)
        self._cell = np.zeros(_STATE_SHAPE, np.float32)

    def probability(self, samples: FloatArray) -> float:
        """Return the probability between 0 and 1 that the chunk holds a voice.

        Args:
            samples: Shape (512,), 16 kHz mono float32, directly following the chunk before.

        Raises:
            ValueError: The shape is another.
        """
        if samples.shape != (CHUNK_SAMPLES,):
            raise ValueError(f"A chunk has {CHUNK_SAMPLES} samples, not shape {samples.shape}.")
        self._input[0, :_CONTEXT_SAMPLES] = self._input[0, -_CONTEXT_SAMPLES:]
        self._input[0, _CONTEXT_SAMPLES:] = samples
        probabilities, self._hidden, self._cell = cast(
            "list[FloatArray]",
            self._session.run(
                ["speech_probs", "hn", "cn"],
                {"input": self._input, "h": self._hidden, "c": self._cell},
            ),
        )
        return float(probabilities[0])

    def reset(self) -> None:
        """Forget the stream; the next chunk is the first of another."""
        self._input[:] = 0
        self._hidden = np.zeros(_STATE_SHAPE, np.float32)
        self._cell = np.zeros(_STATE_SHAPE, np.float32)
