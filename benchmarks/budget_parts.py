"""Named parts of a latency, what each is known from, and their sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL_PERCENTILE = 95


class Known(StrEnum):
    """What a figure is known from."""

    MEASURED = "measured"
    SCALED = "measured by layer, times the count"
    RULE = "by the program's own rules"
    SHAPES = "from the model's sizes"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing a word waits for on its way to the caption.

    Attributes:
        name: What it is.
        typical_ms: Median of what was measured, mean of a wait.
        worst_ms: 95th percentile of what was measured, longest of a wait.
        known: What the figures are known from.
        note: What they are made of.
        is_on_the_way: Whether the word waits for it; else it runs beside.
    """

    name: str
    typical_ms: float
    worst_ms: float
    known: Known
    note: str = ""
    is_on_the_way: bool = True

    def as_json(self) -> dict[str, object]:
        """Return it for the results file."""
        return {
            "part": self.name,
            "typical_ms": round(self.typical_ms, 3),
            "worst_ms": round(self.worst_ms, 3),
            "known": str(self.known),
            "note": self.note,
            "is_on_the_way": self.is_on_the_way,
        }


def measured_part(name: str, samples_ms: Sequence[float], note: str = "") -> Part:
    """Return the part that some measurements say, at least one."""
    found = np.percentile(np.asarray(samples_ms, dtype=float), (50, _TAIL_PERCENTILE))
    return Part(name, float(found[0]), float(found[1]), Known.MEASURED, note)


@dataclass(frozen=True, slots=True)
class Check:
    """A sum held against what was measured of the whole.

    Attributes:
        name: What was measured, and where.
        budget_ms: The sum of those parts that it has.
        measured_ms: Its median.
    """

    name: str
    budget_ms: float
    measured_ms: float

    @property
    def is_over_percent(self) -> float:
        """How far the sum is above what was measured; negative below it."""
        return 100 * (self.budget_ms / self.measured_ms - 1)

    def as_json(self) -> dict[str, object]:
        """Return it for the results file."""
        return {
            "against": self.name,
            "budget_ms": round(self.budget_ms, 1),
            "measured_p50_ms": round(self.measured_ms, 1),
            "budget_over_measured_percent": round(self.is_over_percent, 1),
        }


@dataclass(frozen=True, slots=True)
class Budget:
    """All parts of one model on one device, in the order in which they happen.

    Attributes:
        model: Its name.
        device: Where it runs.
        parts: From the end of the word to its caption on the page.
        after: What follows until the word is committed; not in the sum.
        checks: Sums held against measurements.
        notes: What a reader must know.
    """

    model: str
    device: str
    parts: tuple[Part, ...]
    after: tuple[Part, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def typical_ms(self) -> float:
        """Sum of what is on the way, each part as it usually is."""
        return sum(part.typical_ms for part in self.parts if part.is_on_the_way)

    @property
    def worst_ms(self) -> float:
        """Sum of what is on the way, all parts at their worst at once."""
        return sum(part.worst_ms for part in self.parts if part.is_on_the_way)

    def as_json(self) -> dict[str, object]:
        """Return it for the results file."""
        return {
            "model": self.model,
            "device": self.device,
            "typical_ms": round(self.typical_ms, 1),
            "worst_ms": round(self.worst_ms, 1),
            "parts": [part.as_json() for part in self.parts],
            "until_committed": [part.as_json() for part in self.after],
            "checks": [check.as_json() for check in self.checks],
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """Return it as lines of text."""
        width = max(len(part.name) for part in (*self.parts, *self.after))
        lines = [f"{self.model} on {self.device}", f"{'':{width}}  typical   worst  ms"]
        for part in self.parts:
            line = _line(part, width)
            lines.append(line if part.is_on_the_way else f"{line}  (beside: not in the sum)")
        lines.append(f"{'sum':{width}} {self.typical_ms:8.1f}{self.worst_ms:8.1f}")
        lines += [f"{_line(part, width)}  (after the caption)" for part in self.after]
        lines += [
            f"check: {check.name}: p50 {check.measured_ms:.0f} ms, the sum of the same parts "
            f"{check.budget_ms:.0f} ms ({check.is_over_percent:+.0f} %)"
            for check in self.checks
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _line(part: Part, width: int) -> str:
    note = f"; {part.note}" if part.note else ""
    return f"{part.name:{width}} {part.typical_ms:8.1f}{part.worst_ms:8.1f}      {part.known}{note}"
