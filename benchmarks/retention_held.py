"""What a cache held at each step, measured, against its budget."""

from __future__ import annotations

from dataclasses import dataclass, field


class BudgetBrokenError(Exception):
    """A cache held more than its budget."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the cache held, measured.

    Attributes:
        full_slots: Most audio slots the full cache holds of this clip.
        budget_slots: Slots that may be held.
        slot_bytes: Keys and values of one slot in all layers and heads.
        max_bytes: Most that was held at any step.
        mean_full_bytes: Mean over the steps at which there was more audio than budget; 0 without.
        mean_share: Mean over all steps of held by present slots.
        n_steps: Steps that were measured.
        n_cut: Steps whose text was cut off by the token limit or as a loop.
    """

    full_slots: int
    budget_slots: int
    slot_bytes: int
    max_bytes: int
    mean_full_bytes: float
    mean_share: float
    n_steps: int
    n_cut: int = 0

    @property
    def budget_bytes(self) -> int:
        """Bytes that may be held."""
        return self.budget_slots * self.slot_bytes

    @property
    def max_of_budget(self) -> float:
        """Most that was held as a share of the budget; 0 where nothing was heard at all."""
        return self.max_bytes / max(self.budget_bytes, 1)

    def check(self, what: str) -> None:
        """Refuse a measurement whose budget was not held.

        Args:
            what: Who held it, for the message.

        Raises:
            BudgetBrokenError: More was held at some step.
        """
        if self.max_bytes > self.budget_bytes:
            raise BudgetBrokenError(f"{what}: {self.max_bytes} of {self.budget_bytes} bytes held")


@dataclass(frozen=True, slots=True)
class CacheStep:
    """The audio cache when the decoder ran.

    Attributes:
        present_slots: Audio slots of the window, held or not.
        held_slots: Audio slots among the keys the decoder was given.
        held_bytes: Keys and values of these, as the tensors take them up.
        is_cut: Whether the text was cut off by the token limit or as a loop.
    """

    present_slots: int
    held_slots: int
    held_bytes: int
    is_cut: bool = False


@dataclass(slots=True)
class CacheLog:
    """The steps of one stream.

    Attributes:
        steps: In order.
    """

    steps: list[CacheStep] = field(default_factory=list)

    @property
    def full_slots(self) -> int:
        """Length of the longest window."""
        return max((step.present_slots for step in self.steps), default=0)

    def held(self, full_slots: int, budget_slots: int, slot_bytes: int) -> Held:
        """Return what was held, against a budget."""
        filled = [s.held_bytes for s in self.steps if s.present_slots >= budget_slots]
        present = sum(step.present_slots for step in self.steps)
        return Held(
            full_slots=full_slots,
            budget_slots=budget_slots,
            slot_bytes=slot_bytes,
            max_bytes=max((step.held_bytes for step in self.steps), default=0),
            mean_full_bytes=round(sum(filled) / len(filled), 1) if filled else 0.0,
            mean_share=round(sum(step.held_slots for step in self.steps) / max(present, 1), 4),
            n_steps=len(self.steps),
            n_cut=sum(step.is_cut for step in self.steps),
        )
