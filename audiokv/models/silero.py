"""Silero VAD through onnxruntime: how probable it is that a chunk of audio holds a voice."""

from __future__ import annotations

import hashlib
from collections import deque
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

_QUIET = 0.35  # a probability below this is no voice
_REFRESH_CHUNKS = 250  # 8 s
_REPLAY_CHUNKS = 64  # 2 s

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

    In steady hum and tones the model's cell state grows until single words are no longer heard
    (measured on spoken digits: 7 of 50 lost after a minute of 425 Hz, 27 of 50 after ten). So when
    the state is older than 8 s and the last 2 s held no voice, it is computed afresh from those 2 s
    in one call of 2 ms; from nothing would not do, as a fresh model takes hum for a voice at first.

    Args:
        session: The shared onnxruntime session.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.reset()

    def reset(self) -> None:
        """Forget the stream; the next chunk is the first of another."""
        self._hidden = np.zeros(_STATE_SHAPE, np.float32)
        self._cell = np.zeros(_STATE_SHAPE, np.float32)
        self._inputs: deque[FloatArray] = deque(maxlen=_REPLAY_CHUNKS)
        self._context = np.zeros(_CONTEXT_SAMPLES, np.float32)
        self._n_quiet = 0
        self._n_age = 0

    def probability(self, samples: FloatArray) -> float:
        """Return the probability between 0 and 1 that the chunk holds a voice.

        Args:
            samples: Shape (512,), 16 kHz mono float32, directly following the chunk before.

        Raises:
            ValueError: The shape is another.
        """
        if samples.shape != (CHUNK_SAMPLES,):
            raise ValueError(f"A chunk has {CHUNK_SAMPLES} samples, not shape {samples.shape}.")
        self._inputs.append(np.concatenate([self._context, samples]))
        self._context = self._inputs[-1][-_CONTEXT_SAMPLES:]
        probability = self._run(self._inputs[-1][np.newaxis])
        self._n_age += 1
        self._n_quiet = self._n_quiet + 1 if probability < _QUIET else 0
        if self._n_age >= _REFRESH_CHUNKS and self._n_quiet >= _REPLAY_CHUNKS:
            self._refresh()
        return probability

    def _refresh(self) -> None:
        self._hidden = np.zeros(_STATE_SHAPE, np.float32)
        self._cell = np.zeros(_STATE_SHAPE, np.float32)
        self._run(np.stack(self._inputs))
        self._n_age = _REPLAY_CHUNKS

    def _run(self, inputs: FloatArray) -> float:
        """Advance the state over inputs of shape (n, 576); return the last probability."""
        probabilities, self._hidden, self._cell = cast(
            "list[FloatArray]",
            self._session.run(
                ["speech_probs", "hn", "cn"],
                {"input": inputs, "h": self._hidden, "c": self._cell},
            ),
        )
        return float(probabilities[-1])
