"""Tables, verdicts and plots of what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.retention_policies import AUDIOKV
from benchmarks.retention_rows import FULL, FULL_PERCENT, Table
from benchmarks.retention_speech import SPEECH_NAMES
from benchmarks.retention_statistics import paired_interval, reference, samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.retention_rows import Row
    from benchmarks.retention_statistics import Interval, Sample

MODE_TITLES = {
    "P": "evict once after the whole clip, then decode",
    "D": "constant budget, text included, while decoding",
    "S": "live session, evicted at every step",
}
_ARROWS = {"worse": " ↑", "better": " ↓", "same": ""}
# English words.
POOLED = (
    "english",
    "pauses",
    "noise20",
    "noise10",
    "noise5",
    "digits",
    "digit-strings",
    "digit-streams",
)
_COLUMNS = (
    "Kept",
    "Policy",
    "Errors",
    "S / D / I",
    "Median clip",
    "Collapsed",
    "Points over full",
    "Points over audiokv",
    "Bytes of budget: max, mean",
    "Mean share",
)
_WORDS = {"worse": "audiokv wins", "better": "audiokv loses", "same": "no difference shown"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One policy at one retention over one speech.

    Attributes:
        policy: Its name.
        retention_percent: Its budget.
        sample: Its rows.
        to_full: Error rate less that of the full cache.
        to_audiokv: Error rate less that of audiokv at the same retention; None where it was not
            measured.
    """

    policy: str
    retention_percent: int
    sample: Sample
    to_full: Interval
    to_audiokv: Interval | None

    def as_json(self) -> dict[str, object]:
        """Return the figures, rates in per cent."""
        errors = self.sample.errors
        return {
            "policy": self.policy,
            "retention_percent": self.retention_percent,
            "n_clips": len(self.sample.clips),
            "n_reference": errors.n_reference,
            "error_percent": round(100 * errors.rate, 2),
            "substitutions": errors.substitutions,
            "deletions": errors.deletions,
            "insertions": errors.insertions,
            "capped_error_percent": round(100 * self.sample.capped_rate, 2),
            "median_clip_error_percent": round(100 * self.sample.median_rate, 2),
            "collapsed_percent": round(100 * self.sample.collapse_rate, 2),
            "max_held_percent_of_budget": round(100 * self.sample.max_of_budget, 2),
            "mean_held_percent_of_budget": round(100 * self.sample.mean_of_budget, 2),
            "mean_held_percent_of_present": round(100 * self.sample.mean_share, 2),
            "points_over_full": _interval(self.to_full),
            "points_over_audiokv": self.to_audiokv and _interval(self.to_audiokv),
            "verdict": self.verdict,
        }

    @property
    def verdict(self) -> str:
        """What this says of audiokv; empty where there is nothing to say."""
        if self.to_audiokv is None or self.policy.startswith(AUDIOKV):
            return ""
        return _WORDS[self.to_audiokv.verdict]


def _interval(found: Interval) -> list[float]:
    return [round(value, 2) for value in (found.difference, found.low, found.high)]


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Return what a table says, by falling retention and then by errors.

    Policies that lack clips are compared on those they have; a cell is left out altogether where
    it lacks a clip that the full cache has heard, so that all rates of a table are of one speech.
    """
    found = samples(rows)
    full = reference(found)
    whole = {
        key: sample
        for key, sample in found.items()
        if sample.clips == full.clips and key[0] != FULL
    }
    result = []
    for (policy, percent), sample in whole.items():
        ours = whole.get((AUDIOKV, percent))
        to_audiokv = paired_interval(sample, ours) if ours and policy != AUDIOKV else None
        to_full = paired_interval(sample, full)
        result.append(Finding(policy, percent, sample, to_full, to_audiokv))
    return sorted(result, key=lambda one: (-one.retention_percent, one.sample.errors.rate))


def markdown(title: str, rows: Sequence[Row]) -> str:
    """Return a table of everything that was found, as Markdown."""
    full = reference(samples(rows))
    wrong = full.errors
    heading = (
        f"{len(full.clips)} clips, {wrong.n_reference} words. Full cache: {100 * wrong.rate:.1f} % "
        f"errors (S {wrong.substitutions}, D {wrong.deletions}, I {wrong.insertions}), "
        f"{100 * full.collapse_rate:.0f} % collapsed.\n"
    )
    lines = [
        f"### {title}\n",
        heading,
        matrix(rows),
        _cells(_COLUMNS),
        _cells(["--:", "---", *["--:"] * 4, *["---"] * 4]),
    ]
    lines += [_line(one) for one in findings(rows)]
    return "\n".join(lines) + "\n"


def matrix(rows: Sequence[Row]) -> str:
    """Return error rates by policy and retention as a Markdown table.

    An arrow marks a policy with fewer (↓) or more (↑) errors than audiokv at the same retention
    where the interval of the difference leaves 0 out.
    """
    found = {(one.policy, one.retention_percent): one for one in findings(rows)}
    percents = sorted({percent for _, percent in found}, reverse=True)

    def rate(policy: str) -> float:
        rates = [one.sample.capped_rate for (name, _), one in found.items() if name == policy]
        return sum(rates) / len(rates)

    policies = sorted({policy for policy, _ in found}, key=lambda name: (rate(name), name))
    lines = [
        _cells(["Errors, %", *(f"{percent} % kept" for percent in percents)]),
        _cells(["---", *["--:"] * len(percents)]),
    ]
    for policy in policies:
        ours = [found.get((policy, percent)) for percent in percents]
        lines.append(_cells([policy, *("" if one is None else _marked(one) for one in ours)]))
    return "\n".join(lines) + "\n"


def _marked(one: Finding) -> str:
    verdict = one.to_audiokv.verdict if one.to_audiokv else "same"
    return f"{100 * one.sample.errors.rate:.1f}{_ARROWS[verdict]}"


def _line(one: Finding) -> str:
    sample = one.sample
    n_seeds = len({row.cell.seed for row in sample.rows})
    errors = sample.errors
    kinds = (errors.substitutions, errors.deletions, errors.insertions)
    counts = " / ".join(f"{n / n_seeds:.0f}" for n in kinds)
    against = "" if one.to_audiokv is None else f"{_span(one.to_audiokv)} {one.verdict}".strip()
    return _cells(
        [
            f"{one.retention_percent} %",
            one.policy,
            f"{100 * errors.rate:.1f} %",
            counts,
            f"{100 * sample.median_rate:.1f} %",
            f"{100 * sample.collapse_rate:.0f} %",
            _span(one.to_full),
            against,
            f"{100 * sample.max_of_budget:.1f} %, {100 * sample.mean_of_budget:.1f} %",
            f"{100 * sample.mean_share:.0f} %",
        ]
    )


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _span(found: Interval) -> str:
    return f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def plot(title: str, rows: Sequence[Row], path: Path) -> None:
    """Draw errors against retention, a line for each policy.

    Args:
        title: What stands above it.
        rows: Of one mode, model and speech.
        path: The PNG file.
    """
    import matplotlib as mpl  # noqa: PLC0415  only where something is drawn

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  after the backend is chosen

    found = [one for one in findings(rows) if "audiokv-" not in one.policy]
    full = reference(samples(rows))
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    marks = "osv^<>DpPX*hd"
    for i, policy in enumerate(sorted({one.policy for one in found})):
        points = [one for one in found if one.policy == policy]
        axes.plot(
            [one.retention_percent for one in points],
            [100 * one.sample.capped_rate for one in points],
            marker=marks[i % len(marks)],
            linewidth=3 if policy == AUDIOKV else 1.2,
            color="black" if policy == AUDIOKV else f"C{i % 10}",
            label=policy,
        )
    axes.axhline(100 * full.capped_rate, color="0.6", linestyle=":", label="full cache")
    percents = sorted({one.retention_percent for one in found} | {FULL_PERCENT})
    axes.set_xscale("log")
    axes.set_xticks(percents, [str(percent) for percent in percents])
    axes.minorticks_off()
    axes.set(title=title, xlabel="slots kept (%)", ylabel="errors (%, a clip at most 100)")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=8, ncols=2)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def report(mode: str, model: str, folder: Path) -> dict[str, object]:
    """Write the tables and the plot of each speech there is, and of the English ones together.

    Args:
        mode: One of P, D and S.
        model: Name of the model.
        folder: Where the tables lie, and where ``MODE_MODEL.md`` and its plots go.

    Returns:
        The figures by speech.
    """
    tables = {name: Table.open(mode, model, name, folder) for name in SPEECH_NAMES}
    kept = {name: list(table.rows.values()) for name, table in tables.items() if table.rows}
    pooled = [name for name in POOLED if name in kept]
    if len(pooled) > 1:
        kept["+".join(pooled)] = [row for name in pooled for row in kept[name]]
    texts, figures = [], {}
    for name, rows in kept.items():
        title = f"{mode}: {MODE_TITLES[mode]}; {model}, {name}"
        texts.append(markdown(title, rows))
        plot(title, rows, folder / f"{mode}_{model}_{name}.png")
        figures[name] = [one.as_json() for one in findings(rows)]
    (folder / f"{mode}_{model}.md").write_text("\n".join(texts), "utf-8")
    return dict(figures)
