"""Between tokens and words: special tokens, prompts, and words in any script."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Languages written without spaces between words: their words are shown character by character.
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
_OPENING = frozenset("\"'“\u2018¿¡([{-「『《〈\uff08【«„")
_LANGUAGE_CODE_LENGTHS = (2, 3)


@dataclass(frozen=True, slots=True)
class TokenWord:
    """A word as the tokens that spell it.

    Attributes:
        text: The word with its punctuation, without surrounding white space.
        tokens: Its tokens.
        space_before: Whether a space stands before it.
    """

    text: str
    tokens: tuple[int, ...]
    space_before: bool


class WhisperText:
    """The vocabulary of one Whisper model.

    Args:
        tokenizer_file: The model's ``tokenizer.json``.

    Raises:
        ValueError: The file cannot be read, or is not Whisper's.
    """

    def __init__(self, tokenizer_file: Path) -> None:
        self._tokenizer = _read_tokenizer(tokenizer_file)
        self.end_of_text = self._id("<|endoftext|>")
        self.start = self._id("<|startoftranscript|>")
        self.start_of_previous = self._id("<|startofprev|>")
        self.no_timestamps = self._id("<|notimestamps|>")
        no_speech = self._tokenizer.token_to_id("<|nospeech|>")
        self.no_speech = no_speech if no_speech is not None else self._id("<|nocaptions|>")
        self._transcribe = self._id("<|transcribe|>")
        self.language_ids = self._find_languages()
        self.blank = self._tokenizer.encode(" ", add_special_tokens=False).ids

    def _id(self, token: str) -> int:
        found: int | None = self._tokenizer.token_to_id(token)
        if found is None:
            raise ValueError(f"tokenizer has no {token}: not a Whisper tokenizer")
        return found

    def _find_languages(self) -> dict[str, int]:
        # They stand between <|startoftranscript|> and <|translate|>.
        last = self._id("<|translate|>")
        found = {}
        for token_id in range(self.start + 1, last):
            token = self._tokenizer.id_to_token(token_id) or ""
            code = token.removeprefix("<|").removesuffix("|>")
            if len(code) in _LANGUAGE_CODE_LENGTHS and code.isalpha():
                found[code] = token_id
        return found

    @property
    def n_text_tokens(self) -> int:
        """How many tokens spell text; the special ones have higher numbers."""
        return self.end_of_text

    def encode(self, text: str) -> list[int]:
        """Return the tokens of running text; special tokens spelled out in it are left out."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token < self.n_text_tokens]

    def start_tokens(self, language: str | None) -> list[int]:
        """Return what opens a transcript without timestamps; no language on English-only models."""
        if language is None:
            return [self.start, self.no_timestamps]
        return [self.start, self.language_ids[language], self._transcribe, self.no_timestamps]

    def words(self, tokens: list[int], language: str | None) -> list[TokenWord]:
        """Group text tokens into words; tokens of an unfinished character at the end are left out.

        Args:
            tokens: Text tokens only.
            language: Decides whether words are separated by spaces.
        """
        return group_words(self._characters(tokens), is_spaced=language not in UNSPACED_LANGUAGES)

    def _characters(self, tokens: list[int]) -> list[tuple[str, list[int]]]:
        """Split tokens where whole characters end: a token may carry part of one."""
        pieces: list[tuple[str, list[int]]] = []
        pending: list[int] = []
        for token in tokens:
            pending.append(token)
            text = self._tokenizer.decode(pending, skip_special_tokens=False)
            if not text.endswith("\ufffd"):  # inside it is a byte that no later one can complete
                pieces.append((text, pending))
                pending = []
        return pieces


def group_words(pieces: Iterable[tuple[str, list[int]]], *, is_spaced: bool) -> list[TokenWord]:
    """Group pieces of text into words.

    Args:
        pieces: Text and tokens of each, whole characters only.
        is_spaced: Whether the language separates words by spaces.
    """
    words: list[TokenWord] = []
    opening: list[tuple[str, list[int]]] = []
    for piece, ids in pieces:
        bare = piece.strip()
        starts_word = (
            bool(opening) or piece.startswith(" ") or (not is_spaced and not _is_closing(bare))
        )
        if not bare or (starts_word and all(c in _OPENING for c in bare)):
            opening.append((piece, ids))  # blanks too: they belong to the word that follows
        elif not words or starts_word:
            parts = [*opening, (piece, ids)]
            text = "".join(part for part, _ in parts)
            tokens = tuple(token for _, part_ids in parts for token in part_ids)
            words.append(TokenWord(text.strip(), tokens, text.startswith(" ")))
            opening = []
        else:
            last = words[-1]
            words[-1] = TokenWord(
                (last.text + piece).strip(), (*last.tokens, *ids), last.space_before
            )
    return words


def _read_tokenizer(file: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{file.name} cannot be read ({error})") from error


def _is_closing(text: str) -> bool:
    return bool(text) and all(
        unicodedata.category(c).startswith(("P", "M")) and c not in _OPENING for c in text
    )


def without_leading_mark(words: list[TokenWord]) -> list[TokenWord]:
    """Hide punctuation at the start: it belongs to a word that is committed and cannot change.

    Its tokens stay, with the word that follows, so that the decoder's context is what it said.
    """
    if not words or not _is_closing(words[0].text):
        return words
    if len(words) == 1:
        return []
    mark, word = words[:2]
    return [TokenWord(word.text, (*mark.tokens, *word.tokens), word.space_before), *words[2:]]
