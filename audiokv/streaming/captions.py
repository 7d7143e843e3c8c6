"""What a stream says: words, captions and the events around them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """One recognised word on the stream's sample clock.

    Attributes:
        text: The word with its punctuation, without surrounding white space.
        start_ms: Start, in ms from the start of the stream.
        end_ms: End, in ms from the start of the stream; never before ``start_ms``.
        confidence: Probability of the word between 0 and 1.
        is_final: Whether the word is committed: it never changes, moves or disappears.
        space_before: Whether a space separates it from the word before (not in Chinese, Japanese).
    """

    text: str
    start_ms: int
    end_ms: int
    confidence: float
    is_final: bool = False
    space_before: bool = True


def join_words(words: tuple[Word, ...] | list[Word]) -> str:
    """Return the running text of words, spaced as their language spaces them."""
    return "".join((" " if w.space_before else "") + w.text for w in words).strip()


@dataclass(frozen=True, slots=True)
class Caption:
    """The text of one segment as it stands; a later revision of the same segment replaces it.

    Attributes:
        seq: Rises by one with every caption of the stream, from 1.
        segment: Number of the segment, from 0.
        revision: Rises by one with every caption of the segment, from 0.
        is_final: Whether this is the segment's last caption.
        start_ms: Start of the first word.
        end_ms: End of the last word.
        text: All words joined.
        language: ISO 639-1 code, or None while unknown.
        speaker: Label of the speaker, or None.
        words: Committed words first, then the revisable tail.
    """

    seq: int
    segment: int
    revision: int
    is_final: bool
    start_ms: int
    end_ms: int
    text: str
    language: str | None
    speaker: str | None
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SpeechChange:
    """Voice began or ended at a position of the stream."""

    is_on: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the source should know while the stream goes on (a warning on the wire)."""

    code: str
    message: str
    remedy: str = ""


Event = Caption | SpeechChange | Notice
