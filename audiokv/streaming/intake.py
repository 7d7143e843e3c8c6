"""What a source sent and asked for, in the order of the audio, until its session gets there."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from audiokv.models.base import FloatArray, StreamOptions

    Request: TypeAlias = "StreamOptions | Ask"

_SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000


class Ask(Enum):
    """What a source may ask for besides new wishes."""

    FINALIZE = auto()
    STOP = auto()


class Intake:
    """Frames and requests; a request waits until the audio sent before it was taken.

    Of several requests of one kind at one position only the last counts, so that a source that
    repeats itself fills no memory.
    """

    def __init__(self) -> None:
        self._blocks: deque[FloatArray] = deque()
        self._n_samples = 0
        self._requests: deque[tuple[int, Request]] = deque()
        self._position_ms = 0

    @property
    def position_ms(self) -> int:
        """End of the audio taken out."""
        return self._position_ms

    @property
    def end_ms(self) -> int:
        """End of the audio put in."""
        return self._position_ms + self._n_samples // _SAMPLES_PER_MS

    @property
    def is_empty(self) -> bool:
        """Whether neither a frame nor a request waits."""
        return not self._n_samples and not self._requests

    def put(self, frames: FloatArray) -> None:
        """Add whole 10 ms frames, shape (n * 160,), 16 kHz mono; n may be 0."""
        if frames.size:
            self._blocks.append(frames)
            self._n_samples += frames.size

    def ask(self, request: Request) -> None:
        """Add a request at the end of the audio put in so far."""
        at_ms = self.end_ms
        if self._requests:
            last_ms, last = self._requests[-1]
            if last_ms == at_ms and (last is request or type(last) is type(request) is not Ask):
                self._requests.pop()
        self._requests.append((at_ms, request))

    def take_request(self) -> Request | None:
        """Take out the oldest request whose position is reached; None where there is none."""
        if self._requests and self._requests[0][0] <= self._position_ms:
            return self._requests.popleft()[1]
        return None

    def take_frame(self) -> FloatArray:
        """Take out the oldest frame, shape (160,).

        Raises:
            IndexError: There is none.
        """
        block = self._blocks.popleft()
        frame, rest = block[:FRAME_SAMPLES], block[FRAME_SAMPLES:]
        if rest.size:
            self._blocks.appendleft(rest)
        self._n_samples -= frame.size
        self._position_ms += FRAME_MS
        return frame
