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
_DROP_CHUNKS = 8  # 256 ms: the gaps between keypad tones are shorter
_DROP_RATIO = 0.03

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
    (measured on spoken digits: 7 of 50 lost after a minute of 425 Hz, 27 of 50 after ten). So the
    state is computed afresh, once the last 2 s held no voice:

    - when it is older than 8 s, from those 2 s, in one call of 2 ms. From nothing would not do, as
      a fresh model takes the beginning of hum for a voice;
    - when the sound has dropped by 30 dB for 256 ms (the hold tone is over), from the quiet alone.
      Else even 2 s of a tone cost the first word after it (10 of 60 digits; 46 after hum).

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
        self._levels: deque[float] = deque(maxlen=_REPLAY_CHUNKS)
        self._n_quiet = 0  # chunks in a row without a voice
        self._n_low = 0  # of these, since the sound dropped
        self._n_age = 0  # chunks the state was computed from

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
        self._note(probability, float(np.sqrt(np.square(samples).mean())))
        if self._n_quiet >= _REPLAY_CHUNKS:
            if self._n_age >= _REFRESH_CHUNKS:
                self._refresh(_REPLAY_CHUNKS)
            elif _DROP_CHUNKS <= self._n_low < self._n_age:
                self._refresh(self._n_low)
        return probability

    def _note(self, probability: float, level_rms: float) -> None:
        self._n_age += 1
        self._n_quiet = self._n_quiet + 1 if probability < _QUIET else 0
        self._levels.append(level_rms)
        is_low = self._n_quiet > 0 and level_rms < _DROP_RATIO * max(self._levels)
        self._n_low = self._n_low + 1 if is_low else 0

    def _refresh(self, n_chunks: int) -> None:
        """Compute the state from the last chunks alone."""
        self._hidden = np.zeros(_STATE_SHAPE, np.float32)
        self._cell = np.zeros(_STATE_SHAPE, np.float32)
        self._n_age = min(n_chunks, len(self._inputs))
        self._run(np.stack(self._inputs)[-self._n_age :])

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
