# ruff: noqa: RUF001  the punctuation of many scripts looks alike
"""Where caption text may be broken, and how wide it is on a screen.

Widths are counted in columns: a Latin letter takes one, a full-width East Asian character or an
emoji two, a combining mark none (Unicode Standard Annex 11). Text is never cut inside what a
reader sees as one character.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_COLUMNS = 42
"""Columns of one caption line (Netflix, CEA-708)."""

_MAX_COLUMNS_BY_LANGUAGE = {"zh": 32, "yue": 32, "ko": 32, "ja": 26}
"""Sixteen full-width characters in Chinese and Korean, thirteen in Japanese."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_FULL_WIDTH_COLUMNS = 2
_ZERO_WIDTH_JOINER = "\u200d"
_EMOJI_VARIATION = "\ufe0f"
_ENCLOSING_OR_MARK = frozenset({"Mn", "Mc", "Me"})
_INVISIBLE = frozenset({"Mn", "Me", "Cf", "Cc"})

_SENTENCE_END = frozenset(".!?…。！？．؟۔।။։")
_CLAUSE_END = frozenset(",;:，；：、،؛—–")
_CLOSING = frozenset("\"'”’»)]}）」』】》〉")
_NO_LINE_START = (
    _SENTENCE_END
    | _CLAUSE_END
    | _CLOSING
    | frozenset("ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー々％%")
)
_NO_LINE_END = frozenset("“‘«([{（「『【《〈¿¡$€£¥")

_LEANS_ON_NEXT = {
    "en": "a an the of to in on at by for from with and or but nor my your his her its our their "
    "what which that who whose mr. mrs. ms. dr. st.",
    "de": "der die das den dem des ein eine einen einem einer im am in an auf mit von zu und oder "
    "dass weil dr. st.",
    "fr": "le la les un une des du de à au aux en dans par pour sur et ou mon ma ses son que "
    "qui m. mme.",
    "es": "el la los las un una unos unas de del a al en por para con y o su sus mi que",
    "it": "il lo la i gli le un uno una di del della a al in da per con e o che",
    "pt": "o a os as um uma de do da em no na por para com e ou que",
    "nl": "de het een van in op met te voor en of dat",
}
_LEANING_WORDS = {code: frozenset(words.split()) for code, words in _LEANS_ON_NEXT.items()}

SENTENCE_BREAK = 0.0
CLAUSE_BREAK = 1.5
PLAIN_BREAK = 4.0
BAD_BREAK = 12.0


def clean_text(text: str) -> str:
    """Return text that is safe in a subtitle file or on a terminal: no controls, no line breaks."""
    return _LONE_SURROGATE.sub("\ufffd", _UNPRINTABLE.sub(" ", text)).strip()


def columns_of_language(language: str | None) -> int:
    """Return the columns of one caption line in a language."""
    return _MAX_COLUMNS_BY_LANGUAGE.get(language or "", MAX_COLUMNS)


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _continues(cluster: str, char: str) -> bool:
    """Whether a code point belongs to the visible character before it."""
    if cluster.endswith(_ZERO_WIDTH_JOINER) or char == _ZERO_WIDTH_JOINER:
        return True
    if unicodedata.category(char) in _ENCLOSING_OR_MARK or "\U0001f3fb" <= char <= "\U0001f3ff":
        return True
    if "\u1160" <= char <= "\u11ff":  # Hangul vowels and trailing consonants
        return True
    return _is_regional(char) and len(cluster) == 1 and _is_regional(cluster)


def clusters(text: str) -> list[str]:
    """Return the characters a reader sees: marks, joined emoji and flags stay whole."""
    found: list[str] = []
    for char in text:
        if found and _continues(found[-1], char):
            found[-1] += char
        else:
            found.append(char)
    return found


def continues(text: str, more: str) -> bool:
    """Whether ``more`` begins inside the last visible character of ``text``."""
    return _continues(clusters(text)[-1], more[0])


def _cluster_columns(cluster: str) -> int:
    if _EMOJI_VARIATION in cluster or _is_regional(cluster[0]):
        return _FULL_WIDTH_COLUMNS
    widest = 0
    for char in cluster:
        if unicodedata.east_asian_width(char) in ("W", "F"):
            return _FULL_WIDTH_COLUMNS
        if unicodedata.category(char) not in _INVISIBLE:
            widest = 1
    return widest


@lru_cache(maxsize=4096)
def display_columns(text: str) -> int:
    """Return the columns text takes on a screen with fixed-width characters."""
    if text.isascii():
        return len(text)
    return sum(_cluster_columns(cluster) for cluster in clusters(text))


def cut_to_columns(text: str, columns: int) -> str:
    """Return text that takes at most so many columns, ending in an ellipsis where it was cut."""
    if display_columns(text) <= columns:
        return text
    ends = accumulate(_cluster_columns(cluster) for cluster in clusters(text))
    kept = "".join(
        cluster for cluster, end in zip(clusters(text), ends, strict=True) if end < columns
    )
    return kept.rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text that stays on one line.

    Attributes:
        text: Its characters, no white space around them.
        start_ms: Start on the stream's sample clock.
        end_ms: End on the stream's sample clock.
        space_before: Whether a space separates it from the token before it on the line.
        is_word_start: False for the later pieces of a word that is too long for one line.
    """

    text: str
    start_ms: int
    end_ms: int
    space_before: bool = True
    is_word_start: bool = True

    @property
    def columns(self) -> int:
        """Columns of the token alone."""
        return display_columns(self.text)


def split_to_fit(token: Token, columns: int) -> list[Token]:
    """Return the token, or its visible characters when it may have to be broken over lines.

    A run of full-width characters is one "word" to some recognisers although it may be broken
    anywhere, so that one is opened from half a line on. Time is shared out evenly.
    """
    parts = clusters(token.text)
    widths = [_cluster_columns(part) for part in parts]
    if token.columns <= (columns // 2 if _FULL_WIDTH_COLUMNS in widths else columns):
        return [token]
    span_ms = token.end_ms - token.start_ms
    edges = [token.start_ms + span_ms * i // len(parts) for i in range(len(parts) + 1)]
    return [
        Token(
            text=part,
            start_ms=edges[i],
            end_ms=edges[i + 1],
            space_before=token.space_before and i == 0,
            is_word_start=i == 0 or _FULL_WIDTH_COLUMNS in (widths[i - 1], widths[i]),
        )
        for i, part in enumerate(parts)
    ]


def join_tokens(tokens: Sequence[Token]) -> str:
    """Return one line of text."""
    return "".join(
        (" " if token.space_before and i else "") + token.text for i, token in enumerate(tokens)
    )


def break_cost(before: Token, after: Token, language: str | None) -> float:
    """Return how much a break between two tokens disturbs reading; 0 after a sentence."""
    if not after.is_word_start or after.text[0] in _NO_LINE_START:
        return BAD_BREAK
    bare = before.text.rstrip("".join(_CLOSING)) or before.text
    if bare[-1] in _NO_LINE_END:
        return BAD_BREAK
    if bare.lower() in _LEANING_WORDS.get(language or "", frozenset()):
        return BAD_BREAK
    if bare[-1] in _SENTENCE_END:
        return SENTENCE_BREAK
    return CLAUSE_BREAK if bare[-1] in _CLAUSE_END else PLAIN_BREAK


def fill_line(tokens: Sequence[Token], columns: int, indent: int = 0) -> int:
    """Return how many of the first tokens fit on one line, at least one.

    Args:
        tokens: What is to be set.
        columns: Columns of the line.
        indent: Columns taken already, for example by a speaker's name.
    """
    used = indent
    for i, token in enumerate(tokens):
        used += token.columns + (1 if token.space_before and i else 0)
        if used > columns and i:
            return i
    return len(tokens)


def fits_two_lines(tokens: Sequence[Token], columns: int, indent: int = 0) -> bool:
    """Whether the tokens can be set on two lines."""
    n_first = fill_line(tokens, columns, indent)
    rest = tokens[n_first:]
    return not rest or fill_line(rest, columns) == len(rest)


def break_lines(
    tokens: Sequence[Token], columns: int, language: str | None = None, indent: int = 0
) -> tuple[str, ...]:
    """Return the tokens on one line, or on the two lines that read best.

    One line where one is enough; else the break that follows the sense, with lines of about
    equal length.

    Args:
        tokens: Tokens that fit on two lines.
        columns: Columns of a line.
        language: ISO 639-1 code, or None.
        indent: Columns of the first line taken already.
    """
    n_most = fill_line(tokens, columns, indent)
    if n_most == len(tokens):
        return (join_tokens(tokens),)

    def cost(n_first: int) -> float:
        top = display_columns(join_tokens(tokens[:n_first])) + indent
        bottom = display_columns(join_tokens(tokens[n_first:]))
        overflow = max(0, bottom - columns) * 100.0
        imbalance = abs(top - bottom) / columns * PLAIN_BREAK
        return overflow + imbalance + break_cost(tokens[n_first - 1], tokens[n_first], language)

    best = min(range(1, n_most + 1), key=cost)
    return (join_tokens(tokens[:best]), join_tokens(tokens[best:]))
