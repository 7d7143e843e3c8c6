"""Rows made by hand for the tests of retention."""

from __future__ import annotations

from benchmarks.retention_held import Held
from benchmarks.retention_rows import FULL, FULL_PERCENT, Cell, Row

HELD = Held(
    full_slots=100,
    budget_slots=40,
    slot_bytes=8,
    max_bytes=320,
    mean_full_bytes=316.0,
    mean_share=0.5,
    n_steps=3,
)


def row(clip: str, policy: str, n_wrong: int, seed: int = 0) -> Row:
    """Return a row of ten words at 40 %, so many of them misheard."""
    cell = Cell(clip, policy, seed, FULL_PERCENT if policy == FULL else 40)
    return Row(cell, clip, "en", "words", n_wrong, 0, 0, 10, is_looping=False, held=HELD)
