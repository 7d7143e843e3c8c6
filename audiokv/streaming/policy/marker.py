"""From 10 ms frames to the marks of whole slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES
from audiokv.streaming.policy.boundary import BoundaryDetector
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.spectrum import BandSpectrum

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Mask
    from audiokv.streaming.policy.dialect import DialectPrior
    from audiokv.streaming.policy.spectrum import Samples


@dataclass(frozen=True, slots=True)
class Talker:
    """Who speaks in which language.

    Attributes:
        speaker: Label, or None.
        language: ISO 639-1 code, or None.
    """

    speaker: str | None = None
    language: str | None = None


UNKNOWN_TALKER = Talker()


class SlotMarker:
    """Gathers frames into slots: voiced by majority, a boundary where any frame has one.

    Args:
        slot_ms: Length of one slot, a multiple of 10 ms.
        prior: Dialect prior, or None.
        start_ms: Position of the first frame on the stream's sample clock.

    Raises:
        ValueError: The slot is not whole frames.
    """

    def __init__(self, slot_ms: int, prior: DialectPrior | None = None, start_ms: int = 0) -> None:
        if slot_ms <= 0 or slot_ms % FRAME_MS:
            raise ValueError(f"a slot of {slot_ms} ms is not whole frames of {FRAME_MS} ms")
        self._slot_ms = slot_ms
        self._prior = prior
        self._at_ms = start_ms
        self._spectrum = BandSpectrum()
        self._detector = BoundaryDetector()
        # Columns of frames that do not fill a slot yet: voice, boundary, power, factor.
        self._waiting: Floats = np.empty((0, 4))

    def push(
        self, samples: Samples, is_voice: Mask, talker: Talker = UNKNOWN_TALKER
    ) -> list[SlotMarks]:
        """Take in frames and return the slots they complete.

        Args:
            samples: Whole frames, shape (n * 160,), 16 kHz mono.
            is_voice: Voice activity of each frame, shape (n,).
            talker: Who speaks now; a slot takes the talker of the frame that completes it.

        Raises:
            ValueError: The samples are not whole frames, or not as many as the marks.
        """
        bands = self._spectrum.push(samples)
        if len(is_voice) != len(bands):
            raise ValueError(f"{len(is_voice)} voice marks for {len(bands)} frames")
        frames = np.empty((len(bands), 4))
        frames[:, 0] = is_voice
        frames[:, 1] = self._detector.push(bands)
        by_frame = samples.reshape(-1, FRAME_SAMPLES)
        frames[:, 2] = np.einsum("fs,fs->f", by_frame, by_frame) / FRAME_SAMPLES
        frames[:, 3] = 1.0 if self._prior is None else self._prior.factors_for(bands)
        waiting = np.concatenate((self._waiting, frames))
        per_slot = self._slot_ms // FRAME_MS
        n_slots = len(waiting) // per_slot
        self._waiting = waiting[n_slots * per_slot :]
        slots = waiting[: n_slots * per_slot].reshape(n_slots, per_slot, 4)
        return [self._mark(slot, talker) for slot in zip(*_summaries(slots), strict=True)]

    def _mark(self, slot: tuple[bool, bool, float, float], talker: Talker) -> SlotMarks:
        start_ms, self._at_ms = self._at_ms, self._at_ms + self._slot_ms
        is_voice, is_boundary, power, factor = slot
        return SlotMarks(
            start_ms,
            self._at_ms,
            is_voice=is_voice,
            is_boundary=is_boundary,
            speaker=talker.speaker,
            language=talker.language,
            prior=factor,
            power=power,
        )


def _summaries(slots: Floats) -> tuple[list[bool], list[bool], list[float], list[float]]:
    """Return voice, boundary, power and factor of slots given as (slots, frames, 4)."""
    means = slots.mean(axis=1)
    return (
        (means[:, 0] >= 0.5).tolist(),  # noqa: PLR2004  half the frames
        (means[:, 1] > 0).tolist(),
        means[:, 2].tolist(),
        means[:, 3].tolist(),
    )
