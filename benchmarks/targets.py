"""What the captions must reach, and whether they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.measures import Errors
    from benchmarks.scoring import Summary

ENGLISH_POINTS = 1.0  # streaming error over offline error, in per cent of words
OTHER_POINTS = 3.0
SHOWN_P50_MS = 400.0
SHOWN_P95_MS = 900.0
COMMIT_P50_MS = 900.0
FINALISATION_P50_MS = 700.0
ERASURE = 0.2


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and the figure measured.

    Attributes:
        target: What is asked for, in words.
        measured: The figure, None where nothing could be measured.
        limit: The largest figure that meets it.
        unit: Unit of both.
        note: What the figure is made of.
    """

    target: str
    measured: float | None
    limit: float
    unit: str = ""
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the target is reached; a figure that is missing does not reach it."""
        return self.measured is not None and self.measured <= self.limit

    def line(self) -> str:
        """Return the verdict as one line of text."""
        figure = "nothing" if self.measured is None else f"{self.measured:.4g}"
        unit = f" {self.unit}" if self.unit else ""
        note = f" ({self.note})" if self.note else ""
        word = "met    " if self.is_met else "NOT MET"
        return f"{word}  {self.target}: {figure}{unit}, limit {self.limit:g}{unit}{note}"

    def as_json(self) -> dict[str, object]:
        """Return the verdict for the results file."""
        return {
            "target": self.target,
            "measured": None if self.measured is None else round(self.measured, 3),
            "limit": self.limit,
            "unit": self.unit,
            "note": self.note,
            "is_met": self.is_met,
        }


def judge(summary: Summary) -> list[Verdict]:
    """Return a verdict on every target of live captions."""
    latencies = [
        ("first-shown latency p50", summary.shown.get("p50"), SHOWN_P50_MS),
        ("first-shown latency p95", summary.shown.get("p95"), SHOWN_P95_MS),
        ("commit latency p50", summary.committed.get("p50"), COMMIT_P50_MS),
        ("finalisation latency p50", summary.finalised.get("p50"), FINALISATION_P50_MS),
    ]
    return [
        *(
            _error_verdict(language, streaming, offline)
            for language, (streaming, offline) in summary.errors_by_language().items()
        ),
        *(Verdict(name, measured, limit, "ms") for name, measured, limit in latencies),
        Verdict("normalised erasure", summary.erasure, ERASURE),
        Verdict("committed words that changed", float(summary.n_changed), 0.0),
    ]


def _error_verdict(language: str, streaming: Errors, offline: Errors) -> Verdict:
    return Verdict(
        f"{language}: streaming error over offline error",
        round(100 * (streaming.rate - offline.rate), 6),
        ENGLISH_POINTS if language == "en" else OTHER_POINTS,
        "points",
        f"{100 * streaming.rate:.1f} % beside {100 * offline.rate:.1f} %, "
        f"{streaming.total} and {offline.total} of {offline.n_reference}",
    )
