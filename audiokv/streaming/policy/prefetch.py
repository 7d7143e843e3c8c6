"""How much room to make before it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from audiokv.streaming.policy.rhythm import RhythmPredictor


class Prefetch(Protocol):
    """Says how many slots should be free before the next step. Pure."""

    def free_slots(self, rhythm: RhythmPredictor, step_slots: int, total_slots: int) -> int:
        """Return the slots to have free.

        Args:
            rhythm: Says whether this is a pause, and what arrives after it.
            step_slots: Most slots a recent step brought.
            total_slots: The budget.

        Returns:
            0 to ``total_slots``.
        """


def check_share(share: float) -> None:
    """Refuse what is no share.

    Raises:
        ValueError: It is not 0 to 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share {share} is not 0 to 1")


@dataclass(frozen=True, slots=True)
class NoPrefetch:
    """Makes no room: steps over the budget evict on the hot path."""

    def free_slots(self, rhythm: RhythmPredictor, step_slots: int, total_slots: int) -> int:
        """Return 0."""
        del rhythm, step_slots, total_slots
        return 0


@dataclass(frozen=True, slots=True)
class StepPrefetch:
    """Makes room for one more step after each: the fullest use of the budget.

    Attributes:
        max_share: Most of the budget that may be freed, 0 to 1. Where a step is more than that, no
            room is made ahead: it would cost more of what is held than it saves time (measured at
            10 % of Whisper's slots, steps of up to half the budget: 20 % errors instead of 9 %).
        rare_slots: Size of steps that are too rare to be remembered; they get room where that is
            within the share.

    Raises:
        ValueError: The share is out of range.
    """

    max_share: float = 0.15
    rare_slots: int = 0

    def __post_init__(self) -> None:
        """Refuse a share that is none."""
        check_share(self.max_share)

    def free_slots(self, rhythm: RhythmPredictor, step_slots: int, total_slots: int) -> int:
        """Return the slots of one step, or none where that is too much."""
        del rhythm
        most = total_slots * self.max_share
        wanted = (max(step_slots, self.rare_slots), step_slots)
        return next((slots for slots in wanted if slots <= most), 0)


@dataclass(frozen=True, slots=True)
class RhythmPrefetch:
    """Makes room in pauses for all that comes before the next one, and always for one step.

    Attributes:
        max_share: Most of the budget that a pause may free, 0 to 1. Speech that outlasts it is
            served by the room made after each step.

    Raises:
        ValueError: The share is out of range.
    """

    max_share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a share that is none."""
        check_share(self.max_share)

    def free_slots(self, rhythm: RhythmPredictor, step_slots: int, total_slots: int) -> int:
        """Return the slots of one step, in a pause those of the next stretch up to the cap."""
        # The step that ends the stretch wants its room too.
        coming = rhythm.expected_slots + step_slots
        ahead = min(coming, int(total_slots * self.max_share))
        wanted = max(step_slots, ahead) if rhythm.is_pause else step_slots
        return min(wanted, total_slots)
