"""How long a word waits for audio, steps and rules, by the program's own rules and sizes.

Nothing here is timed. A word may end at any moment of the grids of frames, slots and steps, so it
is put at each of them and the rules that the server runs say when it is shown and committed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES
from audiokv.streaming.captions import Word
from audiokv.streaming.stabilizer import AlignedCommit, LocalAgreement, TailView
from benchmarks.budget_parts import Known, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.models.gemma3n.mel import MelFrontEnd
    from audiokv.streaming.session_options import SessionOptions
    from audiokv.streaming.stabilizer import Stabilizer

WORD_MS = 350  # from one word's end to the next one's: some 170 words a minute
_SPOKEN = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_CONFIDENCE = 0.9  # a word the recogniser is sure of
_MOST_STEPS = 200
_SAMPLES_PER_MS = FRAME_SAMPLES // FRAME_MS


class Sight(Protocol):
    """When a sound is in what a model reads."""

    @property
    def grid_ms(self) -> int:
        """Period after which its waits repeat."""

    def seen_ms(self, end_ms: int) -> int:
        """Return how much audio must have come until a sound that ends at ``end_ms`` is seen."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """A model that encodes its whole window at each step, as Whisper does."""

    grid_ms: int = FRAME_MS

    def seen_ms(self, end_ms: int) -> int:
        """Return ``end_ms`` itself."""
        return end_ms


@dataclass(frozen=True, slots=True)
class SlotGrid:
    """A model whose audio comes in slots that see a fixed part of the audio.

    Attributes:
        hop_samples: Samples from one mel frame to the next.
        frame_samples: Samples of a mel frame.
        mel_per_slot: Mel frames from one slot to the next.
        reach: Last mel frame a slot depends on, counted from its own first.
        is_final: Whether only slots count that no later audio can change; else also those that
            would be the last if the audio ended here.
    """

    hop_samples: int
    frame_samples: int
    mel_per_slot: int
    reach: int
    is_final: bool = False

    @classmethod
    def of(
        cls, front_end: MelFrontEnd, mel_per_slot: int, reach: int, *, is_final: bool
    ) -> SlotGrid:
        """Return the grid of a front end."""
        return cls(front_end.hop_samples, front_end.frame_samples, mel_per_slot, reach, is_final)

    @property
    def grid_ms(self) -> int:
        """Length of a slot."""
        return self.mel_per_slot * self.hop_samples // _SAMPLES_PER_MS

    def seen_ms(self, end_ms: int) -> int:
        """Return how much audio must have come, in whole frames of 10 ms."""
        last = end_ms * _SAMPLES_PER_MS - 1
        # The first mel frame that holds the sound, and the first slot that reaches that frame.
        frame = max(0, math.ceil((last - self.frame_samples + 1) / self.hop_samples))
        slot = max(0, math.ceil((frame - self.reach) / self.mel_per_slot))
        first = slot * self.mel_per_slot
        awaited = first + self.reach if self.is_final else max(frame, first)
        samples = awaited * self.hop_samples + self.frame_samples
        return max(end_ms, math.ceil(samples / FRAME_SAMPLES) * FRAME_MS)


@dataclass(frozen=True, slots=True)
class Waits:
    """What words that end at every moment of the grids waited, each an array in ms.

    Attributes:
        audio_ms: Until what was said last is in what the model reads.
        step_ms: From then until the next step.
        show_ms: From then until the step that shows the word.
        commit_ms: From then until the step that commits it.
    """

    audio_ms: NDArray[np.float64]
    step_ms: NDArray[np.float64]
    show_ms: NDArray[np.float64]
    commit_ms: NDArray[np.float64]

    @property
    def total_ms(self) -> NDArray[np.float64]:
        """All of it until the step that shows the word."""
        return self.audio_ms + self.step_ms + self.show_ms

    @property
    def median_ms(self) -> float:
        """Median of it."""
        return float(np.median(self.total_ms))

    def parts(self, audio_note: str) -> tuple[Part, Part, Part]:
        """Return the parts until the word is shown."""
        return (
            _part("audio the model must have", self.audio_ms, Known.SHAPES, audio_note),
            _part("next recognition step", self.step_ms, Known.RULE),
            _part("rule for showing a word", self.show_ms, Known.RULE),
        )

    def commit_part(self) -> Part:
        """Return what follows until the word is committed."""
        note = f"if a word is said every {WORD_MS} ms"
        return _part("rule for committing it", self.commit_ms, Known.RULE, note)


def find_waits(sight: Sight, options: SessionOptions, *, is_aligned: bool) -> Waits:
    """Put a word's end at every moment of the grids and let the rules decide.

    Args:
        sight: When a sound is in what the model reads; its words are known from then on.
        options: How the stream is cut into steps, and the rules.
        is_aligned: Whether words are committed by their times, else by agreement.
    """
    period_ms = math.lcm(sight.grid_ms, options.step_ms)
    found = [
        _wait(sight, options, period_ms + phase_ms, _commit_rule(options, is_aligned=is_aligned))
        for phase_ms in range(0, period_ms, FRAME_MS)
    ]
    return Waits(*np.asarray(found, dtype=float).T)


def _wait(
    sight: Sight, options: SessionOptions, end_ms: int, commit: Stabilizer
) -> tuple[int, int, int, int]:
    view = TailView(options.show)
    ends_ms = [end_ms + number * WORD_MS for number in range(len(_SPOKEN))]
    seen_ms = [sight.seen_ms(one) for one in ends_ms]
    first_step = math.ceil(seen_ms[0] / options.step_ms)
    shown_ms: int | None = None
    for number in range(first_step, first_step + _MOST_STEPS):
        heard_ms = number * options.step_ms
        tail = _words(ends_ms, [one <= heard_ms for one in seen_ms])
        is_committed = commit.observe(tail, heard_ms) > 0
        if shown_ms is None and (view.observe(tail, heard_ms) or is_committed):
            shown_ms = heard_ms
        if is_committed and shown_ms is not None:
            step_ms = first_step * options.step_ms
            return (
                seen_ms[0] - end_ms,
                step_ms - seen_ms[0],
                shown_ms - step_ms,
                heard_ms - shown_ms,
            )
    raise ValueError(f"a word was not committed within {_MOST_STEPS} steps")


def _commit_rule(options: SessionOptions, *, is_aligned: bool) -> Stabilizer:
    return AlignedCommit(options.commit) if is_aligned else LocalAgreement()


def _words(ends_ms: Sequence[int], are_seen: Sequence[bool]) -> list[Word]:
    return [
        Word(text, end_ms - WORD_MS, end_ms, _CONFIDENCE)
        for text, end_ms, is_seen in zip(_SPOKEN, ends_ms, are_seen, strict=True)
        if is_seen
    ]


def _part(name: str, waits_ms: NDArray[np.float64], known: Known, note: str = "") -> Part:
    return Part(name, float(waits_ms.mean()), float(waits_ms.max()), known, note)
