"""What is known about a slot as it arrives, and the enumerations the ledger uses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Pool(IntEnum):
    """Part of the budget a slot is charged to."""

    BASE = 0
    BUFFER = 1
    RESERVE = 2


class Keeping(IntEnum):
    """Lasting reason to keep a slot; a larger one is the stronger."""

    NONE = 0
    SEGMENT_END = 1
    SINK = 2
    PROMPT = 3


class Reason(IntEnum):
    """Why a slot left."""

    FORCED = 0  # over the budget on the hot path
    AHEAD = 1  # to make room before it is needed
    SHARED = 2  # silence that shares another slot now
    EXPIRED = 3  # its audio is no longer part of the recogniser's window


@dataclass(frozen=True, slots=True)
class SlotMarks:
    """One new slot.

    Attributes:
        start_ms: Start of its audio on the stream's sample clock.
        end_ms: End of its audio, never before ``start_ms``.
        is_voice: Whether voice activity covers most of it.
        is_boundary: Whether a phoneme boundary lies in it.
        speaker: Label of the speaker or telephone leg, or None.
        language: ISO 639-1 code, or None while unknown.
        is_prompt: Whether it holds no audio of the stream (prompt text, padding).
        prior: Factor of the dialect prior on its score.
        power: Mean power of its samples, or None where it is not measured.
    """

    start_ms: int
    end_ms: int
    is_voice: bool = True
    is_boundary: bool = False
    speaker: str | None = None
    language: str | None = None
    is_prompt: bool = False
    prior: float = 1.0
    power: float | None = None


def check_order(marks: Sequence[SlotMarks], last_start_ms: int | None, last_end_ms: int) -> None:
    """Refuse slots that are not in time order.

    Args:
        marks: New slots.
        last_start_ms: Start of the slot before them, or None if they are the first.
        last_end_ms: End of that slot.

    Raises:
        ValueError: A slot ends before it starts, or starts or ends before its predecessor does.
    """
    for mark in marks:
        if mark.end_ms < mark.start_ms:
            raise ValueError(f"a slot from {mark.start_ms} ms cannot end at {mark.end_ms} ms")
        if last_start_ms is not None and (
            mark.start_ms < last_start_ms or mark.end_ms < last_end_ms
        ):
            raise ValueError(f"the slot from {mark.start_ms} ms comes after a later one")
        last_start_ms, last_end_ms = mark.start_ms, mark.end_ms
