# ruff: noqa: RUF001  the punctuation of Chinese is meant
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from audiokv.models.weights import resolve_model
from audiokv.models.whisper.text import (
    UNSPACED_LANGUAGES,
    TokenWord,
    WhisperText,
    without_leading_mark,
)
from audiokv.streaming.captions import Word, join_words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.models.whisper.conftest import Tiny

# Any text but half of a surrogate pair, and the sign that stands for what cannot be decoded.
ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=30
)
SCRIPTS = st.text(
    st.sampled_from("ab é ß „“”\"'(). ,!—… 你好，。「」ไทยัี नमस्ते 안 م، 👍🏽❤️👨‍👩 e\u0301 \n"),
    max_size=30,
)
LANGUAGES = st.sampled_from(["en", "zh", "th", None])


@pytest.fixture(scope="module", params=["tiny", pytest.param("real", marks=pytest.mark.weights)])
def text(request: pytest.FixtureRequest, tiny: Tiny) -> WhisperText:
    """A vocabulary that spells most characters byte by byte, and Whisper's own."""
    if request.param == "tiny":
        return tiny.text
    return WhisperText(resolve_model("whisper-base").folder / "tokenizer.json")


def shown(words: list[TokenWord]) -> str:
    return join_words([Word(w.text, 0, 0, 1.0, space_before=w.space_before) for w in words])


def without_space(text: str) -> str:
    return "".join(c for c in text if not c.isspace())


@pytest.mark.parametrize(
    ("language", "sentence", "expected"),
    [
        ("en", ' He said, "no way" (twice).', ["He", "said,", '"no', 'way"', "(twice)."]),
        ("en", " 'Tis the 90's, rock'n'roll!", ["'Tis", "the", "90's,", "rock'n'roll!"]),
        ("en", " about 3.14, or 1,000 %", ["about", "3.14,", "or", "1,000", "%"]),
        ("en", " well-known e-mail…", ["well-known", "e-mail…"]),
        ("en", " I ❤️ it 👍🏽!", ["I", "❤️", "it", "👍🏽!"]),
        ("de", " „Füße“, sagte er", ["„Füße“,", "sagte", "er"]),
        ("fr", " L'été est « beau ».", ["L'été", "est", "« beau", "»."]),
        ("es", " ¿Qué? ¡Sí!", ["¿Qué?", "¡Sí!"]),
        ("fr", " un cafe\u0301 noir", ["un", "cafe\u0301", "noir"]),
        ("ru", " Привет, мир", ["Привет,", "мир"]),
        ("hi", " नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("ar", " مرحبا، كيف", ["مرحبا،", "كيف"]),
        ("ko", " 안녕하세요 세계", ["안녕하세요", "세계"]),
        ("vi", " Tiếng Việt", ["Tiếng", "Việt"]),
    ],
)
def test_words_of_spaced_languages(
    text: WhisperText, language: str, sentence: str, expected: list[str]
) -> None:
    words = text.words(text.encode(sentence), language)
    assert [w.text for w in words] == expected
    assert all(w.space_before for w in words)
    assert shown(words) == sentence.strip()


@pytest.mark.parametrize(
    ("language", "sentence", "expected"),
    [
        ("zh", "你好，世界！", ["你", "好，", "世", "界！"]),
        ("zh", "我说“不”。", ["我", "说", "“不”。"]),
        ("yue", "《書》（二）", ["《書》", "（二）"]),
        ("ja", "「はい」と。", ["「は", "い」", "と。"]),
        ("ja", "ガ\u3099ー", ["ガ\u3099", "ー"]),
        ("th", "สวัสดี", ["ส", "วั", "ส", "ดี"]),
    ],
)
def test_words_of_unspaced_languages(
    tiny: Tiny, text: WhisperText, language: str, sentence: str, expected: list[str]
) -> None:
    words = text.words(text.encode(sentence), language)
    assert shown(words) == sentence
    assert not any(w.space_before for w in words)
    if text is tiny.text:  # Whisper's own vocabulary has tokens of several characters
        assert [w.text for w in words] == expected


def test_latin_words_in_an_unspaced_language_keep_their_spaces(text: WhisperText) -> None:
    words = text.words(text.encode("我 用 Python 写"), "zh")
    assert shown(words) == "我 用 Python 写"
    assert any(w.space_before for w in words)


@settings(deadline=None, max_examples=150)
@given(sentence=ANY_TEXT | SCRIPTS, language=LANGUAGES)
@example(sentence="\na\n b", language="en")
def test_no_token_and_no_character_is_lost(
    text: WhisperText, sentence: str, language: str | None
) -> None:
    tokens = text.encode(sentence)
    words = text.words(tokens, language)
    kept = [token for word in words for token in word.tokens]
    assert kept == tokens[: len(kept)]
    left = text._tokenizer.decode(tokens[len(kept) :])  # waits for the word that follows
    assert all(c.isspace() or c in "\"'“\u2018¿¡([{-「『《〈\uff08【«„" for c in left)
    assert without_space(shown(words) + left) == without_space(text._tokenizer.decode(tokens))
    assert all(word.text == word.text.strip() != "" for word in words)


@settings(deadline=None, max_examples=80)
@given(sentence=ANY_TEXT | SCRIPTS, language=LANGUAGES, data=st.data())
def test_half_a_character_is_never_shown(
    text: WhisperText, sentence: str, language: str | None, data: st.DataObject
) -> None:
    tokens = text.encode(sentence)
    cut = data.draw(st.integers(0, len(tokens)))
    words = text.words(tokens[:cut], language)
    assert "\ufffd" not in shown(words)
    kept = [token for word in words for token in word.tokens]
    assert kept == tokens[: len(kept)]


def test_a_byte_that_belongs_nowhere_hides_nothing_after_it(text: WhisperText) -> None:
    broken = text._tokenizer.token_to_id("ÿ")  # the byte 0xFF, which no character has
    assert broken is not None
    words = text.words([*text.encode(" one"), broken, *text.encode(" two three")], "en")
    assert shown(words).startswith("one")
    assert shown(words).endswith("two three")


def test_an_opening_mark_waits_for_its_word(text: WhisperText) -> None:
    before = text.encode(" say")
    assert [w.text for w in text.words([*before, *text.encode(' "')], "en")] == ["say"]
    words = text.words([*before, *text.encode(' "yes')], "en")
    assert [w.text for w in words] == ["say", '"yes']


def test_the_rest_of_a_committed_word_has_no_space_before(text: WhisperText) -> None:
    words = text.words(text.encode("ing on"), "en")
    assert [(w.text, w.space_before) for w in words] == [("ing", False), ("on", True)]


def test_no_tokens_make_no_words(text: WhisperText) -> None:
    assert text.words([], "en") == []
    assert text.words(text.encode("   "), "en") == []


def test_transcripts_open_with_language_and_task(tiny: Tiny) -> None:
    text = tiny.text
    assert text.start_tokens("de") == [341, 343, 347, 351]
    assert text.start_tokens(None) == [341, 351]
    assert text.n_text_tokens == text.end_of_text == 340


def test_languages_are_those_between_start_and_task(tiny: Tiny) -> None:
    assert tiny.text.language_ids == {"en": 342, "de": 343, "zh": 344, "yue": 345}
    assert {"zh", "ja", "th"} <= UNSPACED_LANGUAGES


@pytest.mark.parametrize("token", ["<|x|>", "<|x1|>", "<|nolang|>"])
def test_other_tokens_among_the_languages_are_none(tiny: Tiny, tmp_path: Path, token: str) -> None:
    text = WhisperText(saved(tmp_path, tiny, "<|de|>", token))
    assert text.language_ids == {"en": 342, "zh": 344, "yue": 345}


@pytest.mark.weights
def test_all_languages_of_the_real_model_are_found() -> None:
    text = WhisperText(resolve_model("whisper-base").folder / "tokenizer.json")
    assert len(text.language_ids) == 99
    assert {"en", "de", "haw", "jw"} <= set(text.language_ids)


def test_special_tokens_spelled_out_by_a_user_are_not_obeyed(text: WhisperText) -> None:
    tokens = text.encode(" a<|startoftranscript|> b<|endoftext|>")
    assert tokens == [*text.encode(" a"), *text.encode(" b")]
    assert all(token < text.n_text_tokens for token in tokens)


def saved(tmp_path: Path, tiny: Tiny, old: str, new: str) -> Path:
    file = tmp_path / "tokenizer.json"
    original = (tiny.folder / "tokenizer.json").read_text("utf-8")
    assert old in original
    file.write_text(original.replace(old, new), "utf-8")
    return file


def test_the_older_name_of_no_speech_is_known(tiny: Tiny, tmp_path: Path) -> None:
    text = WhisperText(saved(tmp_path, tiny, "<|nospeech|>", "<|nocaptions|>"))
    assert text.no_speech == tiny.text.no_speech == 350


@pytest.mark.parametrize("token", ["<|startoftranscript|>", "<|nospeech|>", "<|translate|>"])
def test_another_tokenizer_is_refused(tiny: Tiny, tmp_path: Path, token: str) -> None:
    file = saved(tmp_path, tiny, token, "<|something|>")
    with pytest.raises(ValueError, match="not a Whisper tokenizer"):
        WhisperText(file)


@pytest.mark.parametrize("contents", ["", "{", "[]", '{"model": 3}'])
def test_a_broken_file_is_named(tmp_path: Path, contents: str) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(contents)
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        WhisperText(file)


def test_blank_is_the_token_of_a_space(tiny: Tiny) -> None:
    tokenizer = Tokenizer.from_file(str(tiny.folder / "tokenizer.json"))
    assert tokenizer.decode(tiny.text.blank) == " "


def words_of(*texts: str) -> list[TokenWord]:
    return [TokenWord(t, (i, 100 + i), space_before=True) for i, t in enumerate(texts)]


def test_a_leading_mark_is_hidden_and_its_tokens_kept() -> None:
    found = without_leading_mark(words_of(",", "and", "so"))
    assert [w.text for w in found] == ["and", "so"]
    assert found[0].tokens == (0, 100, 1, 101)
    assert found[0].space_before


@pytest.mark.parametrize("mark", [".", "...", "?!", "。", "»", "\u0301"])
def test_a_mark_alone_is_hidden(mark: str) -> None:
    assert without_leading_mark(words_of(mark)) == []


@pytest.mark.parametrize("texts", [[], ["so,", "and"], ["$", "5"], ['"']])
def test_anything_else_stays(texts: list[str]) -> None:
    assert without_leading_mark(words_of(*texts)) == words_of(*texts)
