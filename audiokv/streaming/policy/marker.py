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


N_COLUMNS = 4
VOICE_SHARE = 0.5


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
        # Frames that do not fill a slot yet: a call costs more than a frame, so they wait.
        self._samples: Samples = np.empty(0, np.float32)
        self._is_voice: Mask = np.empty(0, np.bool_)

    def push(
        self, samples: Samples, is_voice: Mask, talker: Talker = UNKNOWN_TALKER
    ) -> list[SlotMarks]:
        """Take in frames and return the slots they complete.

        Args:
            samples: Whole frames, shape (n * 160,), 16 kHz mono.
            is_voice: Voice activity of each frame, shape (n,).
            talker: Who speaks now; a slot takes the talker of the frame that completes it.

        Raises:
            ValueError: There are not 160 samples for every mark.
        """
        if len(samples) != len(is_voice) * FRAME_SAMPLES:
            raise ValueError(f"{len(is_voice)} voice marks for {len(samples)} samples")
        samples = np.concatenate((self._samples, samples))
        is_voice = np.concatenate((self._is_voice, is_voice))
        per_slot = self._slot_ms // FRAME_MS
        n_slots = len(is_voice) // per_slot
        n_frames = n_slots * per_slot
        self._samples, self._is_voice = samples[n_frames * FRAME_SAMPLES :], is_voice[n_frames:]
        if not n_slots:
            return []
        frames = self._frames(samples[: n_frames * FRAME_SAMPLES], is_voice[:n_frames])
        means = frames.reshape(n_slots, per_slot, N_COLUMNS).mean(axis=1)
        return [self._mark(slot, talker) for slot in means.tolist()]

    def _frames(self, samples: Samples, is_voice: Mask) -> Floats:
        """Return voice, boundary, power and factor of whole frames, shape (n, 4)."""
        bands = self._spectrum.push(samples)
        by_frame = samples.reshape(-1, FRAME_SAMPLES)
        frames = np.empty((len(is_voice), N_COLUMNS))
        frames[:, 0] = is_voice
        frames[:, 1] = self._detector.push(bands)
        frames[:, 2] = np.einsum("fs,fs->f", by_frame, by_frame) / FRAME_SAMPLES
        frames[:, 3] = 1.0 if self._prior is None else self._prior.factors_for(bands)
        return frames

    def _mark(self, means: list[float], talker: Talker) -> SlotMarks:
        start_ms, self._at_ms = self._at_ms, self._at_ms + self._slot_ms
        voice_share, boundary_share, power, factor = means
        return SlotMarks(
            start_ms,
            self._at_ms,
            is_voice=voice_share >= VOICE_SHARE,
            is_boundary=boundary_share > 0,
            speaker=talker.speaker,
            language=talker.language,
            prior=factor,
            power=power,
        )
