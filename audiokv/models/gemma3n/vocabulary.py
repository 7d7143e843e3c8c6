"""Between tokens and words for any ``tokenizer.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from audiokv.models.whisper.text import UNSPACED_LANGUAGES, TokenWord, group_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_UNFINISHED = "\ufffd"  # what a decoder makes of part of a character


class Vocabulary:
    """A model's vocabulary.

    Args:
        tokenizer_file: The model's ``tokenizer.json``.

    Attributes:
        special: Tokens that are no text, such as the marks of a turn.

    Raises:
        ValueError: The file cannot be read.
    """

    def __init__(self, tokenizer_file: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer_file))
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{tokenizer_file.name} cannot be read ({error})") from error
        added = self._tokenizer.get_added_tokens_decoder()
        self.special = frozenset(number for number, token in added.items() if token.special)

    def has(self, token: str) -> bool:
        """Tell whether a token exists."""
        return self._tokenizer.token_to_id(token) is not None

    def encode(self, text: str) -> list[int]:
        """Return the tokens of running text; special tokens spelled out in it are left out."""
        return [token for token in self.encode_marked(text) if token not in self.special]

    def encode_marked(self, text: str) -> list[int]:
        """Return the tokens of our own text, in which special tokens may be spelled out."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones and line breaks included."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text

    def words(self, before: list[int], tokens: list[int], language: str | None) -> list[TokenWord]:
        """Group text tokens into words; those of an unfinished character at the end are left out.

        Args:
            before: Tokens that stand before them, whole words.
            tokens: Text tokens only.
            language: Decides whether words are separated by spaces.
        """
        pieces = self._pieces([*before, *tokens])
        n_before = len(before)
        new: list[tuple[str, list[int]]] = []
        for text, ids in pieces:
            if n_before <= 0:
                new.append((text, ids))
            n_before -= len(ids)
        return group_words(new, is_spaced=language not in UNSPACED_LANGUAGES)

    def _pieces(self, tokens: list[int]) -> list[tuple[str, list[int]]]:
        """Split tokens where whole characters end.

        Each piece is what it adds to the text before it: some decoders put the space between two
        words only where there are two.
        """
        pieces: list[tuple[str, list[int]]] = []
        pending: list[int] = []
        n_known = 0
        for end, token in enumerate(tokens, start=1):
            pending.append(token)
            text = self._tokenizer.decode(tokens[:end], skip_special_tokens=False)
            if not text.endswith(_UNFINISHED):
                pieces.append((text[n_known:], pending))
                pending, n_known = [], len(text)
        return pieces
