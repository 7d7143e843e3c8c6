from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from audiokv.models.gemma3n.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from audiokv.models.whisper.text import TokenWord


@pytest.fixture
def words_only(folder: Path) -> Vocabulary:
    """One token a word: the space between two is the decoder's."""
    return Vocabulary(folder / "tokenizer.json")


@pytest.fixture
def pieces(tmp_path: Path) -> Vocabulary:
    """Pieces as Gemma has them: a space is part of its word, rare characters are bytes."""
    texts = ["▁Hel", "lo", "▁world", ",", "▁(", "yes", ")", "Hel", "▁", "你", "好", "。"]
    vocabulary = {text: number for number, text in enumerate(texts)}
    vocabulary |= {f"<0x{byte:02X}>": 100 + byte for byte in range(256)}
    vocabulary["<mark>"] = 500
    tokenizer = {
        "version": "1.0",
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "added_tokens": [
            {
                "id": 500,
                "content": "<mark>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return Vocabulary(tmp_path / "tokenizer.json")


def shown(vocabulary: Vocabulary, tokens: list[int], before: tuple[int, ...] = ()) -> list[str]:
    words = vocabulary.words(list(before), tokens, "en")
    assert [token for word in words for token in word.tokens] == tokens[: sum_of(words)]
    return [(" " if word.space_before else "") + word.text for word in words]


def sum_of(words: list[TokenWord]) -> int:
    return sum(len(word.tokens) for word in words)


def test_one_token_a_word(words_only: Vocabulary) -> None:
    assert shown(words_only, [6, 7, 47]) == ["w6", " w7", " w47"]
    assert shown(words_only, [7, 47], before=(6,)) == [" w7", " w47"]
    assert shown(words_only, []) == []


def test_pieces_join_to_words_with_their_marks(pieces: Vocabulary) -> None:
    assert shown(pieces, [7, 1, 3, 2, 4, 5, 6]) == ["Hello,", " world", " (yes)"]
    assert shown(pieces, [2, 0, 1], before=(7, 1)) == [" world", " Hello"]


def test_an_unfinished_character_waits(pieces: Vocabulary) -> None:
    first, second, third = (100 + byte for byte in "漢".encode())
    assert shown(pieces, [2, first, second]) == [" world"]
    assert shown(pieces, [2, first, second, third]) == [" world漢"]


def test_languages_without_spaces_are_grouped_by_character(pieces: Vocabulary) -> None:
    words = pieces.words([], [9, 10, 11], "zh")
    assert [word.text for word in words] == ["你", "好。"]


def test_running_text_cannot_spell_special_tokens(pieces: Vocabulary) -> None:
    assert pieces.encode_marked("<mark>,") == [500, 3]
    assert pieces.encode("<mark>,") == [3]
    assert pieces.has("<mark>")
    assert not pieces.has("<nothing>")


@pytest.mark.parametrize("contents", ["", "{}", "not a tokenizer"])
def test_a_broken_file_is_named(tmp_path: Path, contents: str) -> None:
    (tmp_path / "tokenizer.json").write_text(contents)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        Vocabulary(tmp_path / "tokenizer.json")


def test_text_keeps_marks_and_blanks(pieces: Vocabulary) -> None:
    tokens = pieces.encode("Hello world, (yes)")
    assert pieces.text(tokens).strip() == "Hello world, (yes)"
    assert pieces.text([0, 1, 500]).endswith("<mark>")
    assert pieces.text([]) == ""
