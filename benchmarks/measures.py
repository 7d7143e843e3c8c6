"""What is measured of captions: errors, latencies, stability. Definitions are in docs/results.md."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jiwer
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.streaming.captions import Caption, Word

CHARACTER_LANGUAGES = frozenset({"zh", "ja"})


def normalised(text: str) -> str:
    """Return text as it is scored: lower case, no punctuation, hyphens as spaces."""
    spaced = unicodedata.normalize("NFKC", text).replace("-", " ")
    kept = (c for c in spaced if not unicodedata.category(c).startswith("P"))
    return " ".join("".join(kept).casefold().split())


@dataclass(frozen=True, slots=True)
class Errors:
    """Edit operations between a reference and a hypothesis, in words (characters in zh, ja)."""

    substitutions: int
    deletions: int
    insertions: int
    reference: int

    @property
    def total(self) -> int:
        """All edit operations."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Edit operations per reference unit."""
        return self.total / max(self.reference, 1)

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.reference + other.reference,
        )


def errors(reference: str, hypothesis: str, language: str) -> Errors:
    """Count the edit operations of a hypothesis after normalisation."""
    ref, hyp = normalised(reference), normalised(hypothesis)
    if language in CHARACTER_LANGUAGES:
        ref, hyp = ref.replace(" ", ""), hyp.replace(" ", "")
        out = jiwer.process_characters(ref, hyp)
    else:
        out = jiwer.process_words(ref, hyp)
    return Errors(
        out.substitutions,
        out.deletions,
        out.insertions,
        out.substitutions + out.deletions + out.hits,
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A caption and when it arrived, in ms on the stream's clock (0: first sample sent)."""

    at_ms: float
    caption: Caption


@dataclass(frozen=True, slots=True)
class WordTiming:
    """When a word of the final text was first shown and committed; None where it never was."""

    word: Word
    shown_ms: float
    committed_ms: float


def final_words(arrivals: Sequence[Arrival]) -> list[Word]:
    """Return the words of all final captions in order."""
    return [w for a in arrivals if a.caption.is_final for w in a.caption.words]


def word_timings(arrivals: Sequence[Arrival]) -> list[WordTiming]:
    """Return first showing (at its place, same spelling) and commitment of every final word."""
    timings: list[WordTiming] = []
    for final in (a for a in arrivals if a.caption.is_final):
        shown = [a for a in arrivals if a.caption.segment == final.caption.segment]
        for i, word in enumerate(final.caption.words):
            text = normalised(word.text)
            first = next(
                a.at_ms
                for a in shown
                if len(a.caption.words) > i and normalised(a.caption.words[i].text) == text
            )
            committed = next(
                a.at_ms
                for a in shown
                if len(a.caption.words) > i
                and a.caption.words[i].is_final
            )
            timings.append(WordTiming(word, first, committed))
    return timings


def reference_ends_ms(
    words: Sequence[str], reference: Sequence[tuple[str, float]]
) -> list[float | None]:
    """Return the true end of each word, from a timed reference; None where there is none.

    Args:
        words: The recognised words.
        reference: True words with their ends in ms.
    """
    ref = [normalised(w) or "." for w, _ in reference]
    hyp = [normalised(w) or "." for w in words]
    ends: list[float | None] = [None] * len(words)
    if not ref or not hyp:
        return ends
    alignment = jiwer.process_words(
        [" ".join(w.replace(" ", "_") for w in ref)], [" ".join(w.replace(" ", "_") for w in hyp)]
    ).alignments[0]
    for chunk in alignment:
        if chunk.type in {"equal", "substitute"}:
            for r, h in zip(
                range(chunk.ref_start_idx, chunk.ref_end_idx),
                range(chunk.hyp_start_idx, chunk.hyp_end_idx),
                strict=True,
            ):
                ends[h] = reference[r][1]
    return ends


def normalised_erasure(arrivals: Sequence[Arrival], spelling: Callable[[str], str] = str) -> float:
    """Return deleted displayed words per final word; case and punctuation changes count.

    A segment that is split hands its tail to the next one, so texts are compared over the whole
    stream: finals so far plus the open segment.
    """
    settled: list[str] = []
    previous: list[str] = []
    n_erased = 0
    for arrival in arrivals:
        words = [spelling(w.text) for w in arrival.caption.words]
        now = [*settled, *words]
        same = 0
        for a, b in zip(previous, now, strict=False):
            if a != b:
                break
            same += 1
        split = arrival.caption.is_final and same == len(now)
        n_erased += 0 if split else len(previous) - same
        previous = previous if split else now
        if arrival.caption.is_final:
            settled = now
    return n_erased / max(len(final_words(arrivals)), 1)


def changed_commitments(arrivals: Sequence[Arrival]) -> int:
    """Count committed words that a later caption of their segment changed, moved or dropped."""
    n_changed = 0
    committed: dict[int, tuple[Word, ...]] = {}
    for arrival in arrivals:
        caption = arrival.caption
        before = committed.get(caption.segment, ())
        now = tuple(w for w in caption.words if w.is_final)
        n_changed += sum(
            1 for i, w in enumerate(before) if i >= len(caption.words) or caption.words[i] != w
        )
        committed[caption.segment] = now
    return n_changed


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99, rounded to a tenth; empty without values."""
    if not values:
        return {}
    found = np.percentile(np.asarray(values, dtype=float), [50, 95, 99])
    return {f"p{p}": round(float(v), 1) for p, v in zip((50, 95, 99), found, strict=True)}
