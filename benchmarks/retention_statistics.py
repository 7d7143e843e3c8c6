"""From rows to what may be said: errors by kind, collapses, and paired intervals."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.measures import Errors
from benchmarks.retention_rows import FULL, FULL_PERCENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from benchmarks.retention_rows import Row

    Floats = NDArray[np.float64]

N_RESAMPLES = 10_000
MIN_CLUSTERS = 5
_TAIL_PERCENTS = (2.5, 97.5)
_SEED = 20_240_607


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows of one policy at one retention, over clips and seeds.

    Attributes:
        rows: All of them.
    """

    rows: tuple[Row, ...]

    @property
    def clips(self) -> frozenset[str]:
        """Names of the clips."""
        return frozenset(row.cell.clip for row in self.rows)

    @property
    def errors(self) -> Errors:
        """Errors over all clips and seeds."""
        total = Errors()
        for row in self.rows:
            total += Errors(row.substitutions, row.deletions, row.insertions, row.n_reference)
        return total

    @property
    def capped_rate(self) -> float:
        """Error rate where no clip counts as more than wholly wrong."""
        wrong = sum(min(row.n_errors, row.n_reference) for row in self.rows)
        return wrong / max(sum(row.n_reference for row in self.rows), 1)

    @property
    def median_rate(self) -> float:
        """Median of the clips' error rates."""
        return float(np.median([row.n_errors / max(row.n_reference, 1) for row in self.rows]))

    @property
    def collapse_rate(self) -> float:
        """Share of clips that collapsed."""
        return float(np.mean([row.is_collapsed for row in self.rows]))

    @property
    def max_of_budget(self) -> float:
        """Most held bytes as a share of the budget, over all steps of all clips."""
        return max(row.held.max_of_budget for row in self.rows)

    @property
    def mean_of_budget(self) -> float:
        """Mean held bytes as a share of the budget while there was more audio than budget."""
        shares = [
            row.held.mean_full_bytes / row.held.budget_bytes
            for row in self.rows
            if row.held.mean_full_bytes
        ]
        return float(np.mean(shares)) if shares else 0.0

    @property
    def mean_share(self) -> float:
        """Mean share of the present slots that was held."""
        return float(np.mean([row.held.mean_share for row in self.rows]))

    def on(self, clips: frozenset[str]) -> Sample:
        """Return the rows of some clips."""
        return Sample(tuple(row for row in self.rows if row.cell.clip in clips))


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference of error rates, in points (per cent of reference units).

    Attributes:
        difference: What was measured.
        low: 2.5th percentile of the resamples.
        high: 97.5th percentile.
        n_clusters: How many clusters were drawn from.
    """

    difference: float
    low: float
    high: float
    n_clusters: int

    @property
    def verdict(self) -> str:
        """What it says of the first of the two: ``worse``, ``better`` or ``same``.

        Draws from very few clusters hardly differ, so these say nothing.
        """
        if self.n_clusters < MIN_CLUSTERS:
            return "same"
        if self.low > 0:
            return "worse"
        return "better" if self.high < 0 else "same"


def samples(rows: Iterable[Row]) -> dict[tuple[str, int], Sample]:
    """Return the rows by policy and retention."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.cell.policy, row.cell.retention_percent].append(row)
    return {key: Sample(tuple(group)) for key, group in found.items()}


def reference(found: dict[tuple[str, int], Sample]) -> Sample:
    """Return the full cache's rows.

    Raises:
        SystemExit: There are none.
    """
    full = found.get((FULL, FULL_PERCENT))
    if full is None:
        raise SystemExit("The full cache was not measured; nothing can be held against it.")
    return full


def paired_interval(first: Sample, second: Sample, n_resamples: int = N_RESAMPLES) -> Interval:
    """Return the error rate of the first less that of the second, with a bootstrap interval.

    Both are restricted to the clips they share. What is drawn, with replacement, are clusters of
    clips; each draw also draws one of the seeds of a policy that has several. Percentile method
    (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993).

    Args:
        first: One policy.
        second: Another.
        n_resamples: How often is drawn.
    """
    shared = first.clips & second.clips
    names = sorted({row.cluster for row in first.rows if row.cell.clip in shared})
    if not names:
        return Interval(0.0, 0.0, 0.0, 0)
    chance = np.random.default_rng(_SEED)
    counts = chance.multinomial(len(names), np.full(len(names), 1 / len(names)), n_resamples)
    draws = [_drawn(one.on(shared), names, counts, chance) for one in (first, second)]
    low, high = np.percentile(draws[0] - draws[1], _TAIL_PERCENTS)
    measured = first.on(shared).errors.rate - second.on(shared).errors.rate
    return Interval(100 * measured, 100 * float(low), 100 * float(high), len(names))


def _drawn(
    sample: Sample, names: Sequence[str], counts: NDArray[np.int64], chance: np.random.Generator
) -> Floats:
    """Return the error rate of each resample."""
    seeds = sorted({row.cell.seed for row in sample.rows})
    wrong = np.zeros((len(seeds), len(names)))
    said = np.zeros((len(seeds), len(names)))
    place = {name: i for i, name in enumerate(names)}
    for row in sample.rows:
        at = seeds.index(row.cell.seed), place[row.cluster]
        wrong[at] += row.n_errors
        said[at] += row.n_reference
    chosen = chance.integers(len(seeds), size=len(counts))
    rates: Floats = np.einsum("rc,rc->r", counts, wrong[chosen]) / np.maximum(
        np.einsum("rc,rc->r", counts, said[chosen]), 1
    )
    return rates
