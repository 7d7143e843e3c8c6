"""What the server's audio cache holds, what left it and why, in one line of text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audiokv.streaming.audio_cache import CacheCounters

SEPARATOR = " · "
NOTHING_BOUND = "cache: the server sets it no budget (audiokv serve --audio-budget-slots)"
_UNITS = ("B", "kB", "MB", "GB")
_BYTES_PER_UNIT = 1000


class CacheLine:
    """Keeps the latest counters of a stream and puts them on a line."""

    def __init__(self) -> None:
        self._counters: CacheCounters | None = None
        self._is_heard = False

    def hear(self, counters: CacheCounters | None) -> None:
        """Take in what a progress said; None where the server does not bound its cache."""
        self._counters = counters
        self._is_heard = True

    def clear(self) -> None:
        """Forget the stream, as before its first progress."""
        self._counters = None
        self._is_heard = False

    def text(self, columns: int) -> str:
        """Return as much as fits, what matters most in front; empty before the first progress.

        Args:
            columns: Columns of the line.
        """
        if self._counters is None:
            return NOTHING_BOUND[:columns] if self._is_heard else ""
        first, *others = cache_parts(self._counters)
        line = first[:columns]
        for part in others:
            if len(line) + len(SEPARATOR) + len(part) > columns:
                break
            line += SEPARATOR + part
        return line


def cache_parts(counters: CacheCounters) -> list[str]:
    """Return the parts of the line: what is held, in which pools, what left, and why those."""
    n_left = counters.seen_slots - counters.held_slots
    held = f"cache {counters.held_slots}/{counters.budget_slots} slots"
    parts = [
        f"{held} of {counters.seen_slots} seen, {shown_bytes(counters.held_bytes)}",
        _listed("", asdict(counters.pools)),
    ]
    if n_left:
        parts.append(_listed(f"left {n_left}: ", asdict(counters.left_slots)))
    if any(asdict(counters.chosen_slots).values()):
        parts.append(_listed("they were ", asdict(counters.chosen_slots)))
    return parts


def _listed(title: str, counts: dict[str, int]) -> str:
    """Return the counts that are not zero, by name."""
    return title + (", ".join(f"{n} {name}" for name, n in counts.items() if n) or "nothing")


def shown_bytes(n_bytes: float) -> str:
    """Return a size with three digits or fewer and its unit, such as 872 kB."""
    unit = 0
    while n_bytes >= _BYTES_PER_UNIT - 0.5 and unit < len(_UNITS) - 1:
        n_bytes /= _BYTES_PER_UNIT
        unit += 1
    is_small = unit and n_bytes < 9.95  # noqa: PLR2004  from here on one decimal would be noise
    return f"{n_bytes:.1f} {_UNITS[unit]}" if is_small else f"{n_bytes:.0f} {_UNITS[unit]}"
