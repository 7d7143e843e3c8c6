"""What is measured of captions: errors, latencies, stability; defined in docs/results.md."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import jiwer
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.streaming.captions import Caption, Word

CHARACTER_LANGUAGES = frozenset({"zh", "ja"})

_PERCENTILES = (50, 95, 99)


def normalised(text: str) -> str:
    """Return text as it is scored: lower case, no punctuation, hyphens as spaces."""
    spaced = unicodedata.normalize("NFKC", text).replace("-", " ")
    kept = (c for c in spaced if not unicodedata.category(c).startswith("P"))
    return " ".join("".join(kept).casefold().split())


def scored_units(text: str, language: str) -> list[str]:
    """Return the units errors are counted in: words, or characters where no space is set."""
    plain = normalised(text)
    return list(plain.replace(" ", "")) if language in CHARACTER_LANGUAGES else plain.split()


@dataclass(frozen=True, slots=True)
class Errors:
    """Edit operations between a reference and a hypothesis, in words (characters in zh, ja)."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    n_reference: int = 0

    @property
    def total(self) -> int:
        """All edit operations."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Edit operations per reference unit."""
        return self.total / max(self.n_reference, 1)

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.n_reference + other.n_reference,
        )


def errors(reference: str, hypothesis: str, language: str) -> Errors:
    """Count the edit operations of a hypothesis after normalisation."""
    expected = scored_units(reference, language)
    out = jiwer.process_words(" ".join(expected), " ".join(scored_units(hypothesis, language)))
    return Errors(out.substitutions, out.deletions, out.insertions, len(expected))


@dataclass(frozen=True, slots=True)
class Arrival:
    """A caption and when it arrived, in ms on the stream's clock (0: first sample sent)."""

    at_ms: float
    caption: Caption


@dataclass(frozen=True, slots=True)
class WordTiming:
    """When a word of the final text was first shown at its place, and when it was committed."""

    word: Word
    shown_ms: float
    committed_ms: float


def final_words(arrivals: Sequence[Arrival]) -> list[Word]:
    """Return the words of all final captions in order."""
    return [w for a in arrivals if a.caption.is_final for w in a.caption.words]


def final_text(arrivals: Sequence[Arrival]) -> str:
    """Return the text of all final captions in order."""
    return " ".join(a.caption.text for a in arrivals if a.caption.is_final and a.caption.text)


def word_timings(arrivals: Sequence[Arrival]) -> list[WordTiming]:
    """Return first showing (at its place, same spelling) and commitment of every final word.

    Case and punctuation are not spelling. A word counts as committed at the latest with its
    segment's final caption.
    """
    timings: list[WordTiming] = []
    for final in (a for a in arrivals if a.caption.is_final):
        revisions = [
            a
            for a in arrivals
            if a.caption.segment == final.caption.segment and a.at_ms <= final.at_ms
        ]
        for i, word in enumerate(final.caption.words):
            text = normalised(word.text)
            holding = [a for a in revisions if len(a.caption.words) > i]
            shown_ms = next(a.at_ms for a in holding if normalised(a.caption.words[i].text) == text)
            committed_ms = next(
                (a.at_ms for a in holding if a.caption.words[i].is_final), final.at_ms
            )
            timings.append(WordTiming(word, shown_ms, committed_ms))
    return timings


def reference_ends_ms(
    words: Sequence[str], reference: Sequence[tuple[str, float]], language: str
) -> list[float | None]:
    """Return the true end of each recognised word, None where no true word stands opposite.

    In languages without spaces recogniser and reference cut words differently; there an end is
    known where the last character of both stands opposite each other.

    Args:
        words: The recognised words.
        reference: True words with their ends in ms.
        language: ISO 639-1 code.
    """
    if language in CHARACTER_LANGUAGES:
        return _ends_by_character(words, reference, language)
    pairs = _opposite([_token(w) for w, _ in reference], [_token(w) for w in words])
    return [None if (r := pairs.get(h)) is None else reference[r][1] for h in range(len(words))]


def _ends_by_character(
    words: Sequence[str], reference: Sequence[tuple[str, float]], language: str
) -> list[float | None]:
    true: list[tuple[str, float | None]] = []
    for text, end_ms in reference:
        units = scored_units(text, language)
        true += [(c, None) for c in units[:-1]] + [(c, end_ms) for c in units[-1:]]
    heard = [scored_units(w, language) for w in words]
    pairs = _opposite([c for c, _ in true], [c for units in heard for c in units])
    ends: list[float | None] = []
    n_before = 0
    for units in heard:
        n_before += len(units)
        opposite = pairs.get(n_before - 1) if units else None
        ends.append(None if opposite is None else true[opposite][1])
    return ends


def _token(word: str) -> str:
    return normalised(word).replace(" ", "_") or "."


def _opposite(true: list[str], heard: list[str]) -> dict[int, int]:
    """Return which true unit stands opposite a heard one, by index.

    Equal units do, and so do differing ones where as many were said as heard. A minimal edit
    alignment would do less well: it pairs a word with its neighbour to save an edit.
    """
    pairs: dict[int, int] = {}
    matcher = SequenceMatcher(None, true, heard, autojunk=False)
    for _, true_first, true_end, first, end in matcher.get_opcodes():
        if true_end - true_first == end - first:
            pairs.update(zip(range(first, end), range(true_first, true_end), strict=True))
    return pairs


def n_same_prefix(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common prefix."""
    n = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        n += 1
    return n


def n_erased_words(arrivals: Sequence[Arrival], spelling: Callable[[str], str] = str) -> int:
    """Count words that were displayed and then removed or changed.

    Of what was displayed, all that lies behind the longest common prefix with what is displayed
    next counts. Texts are compared over the whole stream, finals so far plus the open segment,
    because a segment that is split hands its tail to the next one. What is displayed at the end and
    stands in no final caption was erased too.

    Args:
        arrivals: All captions of a stream in order.
        spelling: How words are compared; by default exactly, so that a change of case or
            punctuation counts. With `normalised` it does not.
    """
    settled: list[str] = []
    displayed: list[str] = []
    n_erased = 0
    for arrival in arrivals:
        now = [*settled, *(spelling(w.text) for w in arrival.caption.words)]
        n_same = n_same_prefix(displayed, now)
        is_handed_on = arrival.caption.is_final and n_same == len(now)
        if not is_handed_on:
            n_erased += len(displayed) - n_same
            displayed = now
        if arrival.caption.is_final:
            settled = now
    return n_erased + len(displayed) - n_same_prefix(displayed, settled)


def changed_commitments(arrivals: Sequence[Arrival]) -> int:
    """Count committed words that a later caption of their segment changed, moved or dropped."""
    n_changed = 0
    committed: dict[int, tuple[Word, ...]] = {}
    for arrival in arrivals:
        caption = arrival.caption
        before = committed.get(caption.segment, ())
        n_changed += sum(
            1 for i, w in enumerate(before) if i >= len(caption.words) or caption.words[i] != w
        )
        committed[caption.segment] = tuple(w for w in caption.words if w.is_final)
    return n_changed


def n_words_ever_shown(arrivals: Sequence[Arrival]) -> int:
    """Count displayed words: of each segment the most that any of its captions had."""
    most: dict[int, int] = {}
    for arrival in arrivals:
        segment = arrival.caption.segment
        most[segment] = max(most.get(segment, 0), len(arrival.caption.words))
    return sum(most.values())


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99, rounded to a tenth, and how many values; only n without values."""
    if not values:
        return {"n": 0}
    found = np.percentile(np.asarray(values, dtype=float), _PERCENTILES)
    named = {f"p{p}": round(float(v), 1) for p, v in zip(_PERCENTILES, found, strict=True)}
    return {"n": len(values), **named}
