"""Captions made by hand for the tests of the measures."""

from __future__ import annotations

from audiokv.streaming.captions import Caption, Word
from benchmarks.measures import Arrival


def words(text: str, n_final: int = 0, start_ms: int = 0) -> tuple[Word, ...]:
    """Return words of 100 ms each, the first of them committed."""
    return tuple(
        Word(w, start_ms + 100 * i, start_ms + 100 * (i + 1), 0.9, is_final=i < n_final)
        for i, w in enumerate(text.split())
    )


def arrival(
    at_ms: float, text: str, *, n_final: int = 0, is_final: bool = False, segment: int = 0
) -> Arrival:
    """Return a caption of a text; all of it is committed in a final caption."""
    found = words(text, len(text.split()) if is_final else n_final)
    end_ms = found[-1].end_ms if found else 0
    return Arrival(at_ms, Caption(1, segment, 0, is_final, 0, end_ms, text, "en", None, found))
