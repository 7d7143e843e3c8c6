"""Events as the dialects of speech APIs hear them."""

from __future__ import annotations

from audiokv.streaming.captions import Caption, Word, join_words
from audiokv.streaming.messages import Limits, Progress, Ready

READY = Ready("s-1", "scripted", ("de", "en"), Limits(65_536, 60, 60, 10_000))


def words(text: str, *, start_ms: int = 100, n_final: int | None = None) -> tuple[Word, ...]:
    """Return words of 100 ms each; the first ``n_final`` are committed, by default all."""
    parts = text.split()
    n_committed = len(parts) if n_final is None else n_final
    return tuple(
        Word(
            part,
            start_ms + 100 * i,
            start_ms + 100 * (i + 1),
            confidence=0.5,
            is_final=i < n_committed,
        )
        for i, part in enumerate(parts)
    )


def caption(  # noqa: PLR0913  a default for each
    text: str,
    *,
    is_final: bool = True,
    segment: int = 0,
    start_ms: int = 100,
    n_final: int | None = None,
    speaker: str | None = None,
) -> Caption:
    """Return a caption; of one that is not final, no word is committed unless said."""
    n_committed = n_final if is_final or n_final is not None else 0
    said = words(text, start_ms=start_ms, n_final=n_committed)
    return Caption(
        seq=1,
        segment=segment,
        revision=0,
        is_final=is_final,
        start_ms=said[0].start_ms if said else start_ms,
        end_ms=said[-1].end_ms if said else start_ms,
        text=join_words(said),
        language="en",
        speaker=speaker,
        words=said,
    )


def progress(processed_ms: int, received_ms: int | None = None) -> Progress:
    """Return how far a stream is."""
    received = processed_ms if received_ms is None else received_ms
    return Progress(received, 16 * received, processed_ms, received - processed_ms)
