"""Captions for tests."""

from __future__ import annotations

from audiokv.streaming.captions import Caption, Word, join_words


def caption(text: str = "hi there", *, is_final: bool = True, start_ms: int = 0) -> Caption:
    """Return a caption whose words take half a second each."""
    words = tuple(
        Word(part, start_ms + 500 * n, start_ms + 500 * (n + 1), 0.5 + 0.25 * n, is_final)
        for n, part in enumerate(text.split())
    )
    return Caption(
        seq=1,
        segment=0,
        revision=0,
        is_final=is_final,
        start_ms=start_ms,
        end_ms=words[-1].end_ms if words else start_ms,
        text=join_words(words),
        language="en",
        speaker=None,
        words=words,
    )
