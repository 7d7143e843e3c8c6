"""What a stream asks of its decoder, and what it believes of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from audiokv.models.base import StreamOptions
from audiokv.models.whisper.decoding import DraftDecoder
from audiokv.models.whisper.stream import WhisperModel, WhisperStream, WindowOptions
from audiokv.models.whisper.text import WhisperText
from tests.models.whisper.stream_doubles import (
    DETECTED,
    WINDOW,
    Recorded,
    noise,
    said,
    stream,
    texts,
)

if TYPE_CHECKING:
    from tests.models.whisper.conftest import Tiny


def test_a_prompt_comes_first_and_can_be_changed(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, options=StreamOptions("en", "  quick fox "), audio=noise(500))
    opened.decode()
    start = tiny.text.start_tokens("en")
    previous = tiny.text.start_of_previous
    assert recorded.contexts[-1] == [previous, *tiny.text.encode(" quick fox"), *start]
    opened.update(StreamOptions("de", "Fuchs"))
    opened.decode()
    start = tiny.text.start_tokens("de")
    assert recorded.contexts[-1] == [previous, *tiny.text.encode(" Fuchs"), *start]
    opened.update(StreamOptions("de", "   "))
    assert opened.decode().language == "de"
    assert recorded.contexts[-1] == start


def test_a_long_prompt_is_cut(tiny: Tiny, recorded: Recorded) -> None:
    window = WindowOptions(padding_ms=400, max_prompt_tokens=5)
    options = StreamOptions("en", "the other fox " * 50)
    stream(tiny, options=options, window=window, audio=noise(300)).decode()
    prompt = recorded.contexts[-1][1 : -len(tiny.text.start_tokens("en"))]
    assert prompt == tiny.text.encode(" the other fox the other fox")[:5]


@pytest.mark.parametrize("spelled", ["<|endoftext|>", "<|startoftranscript|>", "<|de|>"])
def test_special_tokens_in_a_prompt_are_not_obeyed(
    tiny: Tiny, recorded: Recorded, spelled: str
) -> None:
    stream(tiny, options=StreamOptions("en", f"a {spelled} b"), audio=noise(300)).decode()
    context = recorded.contexts[-1]
    assert context.count(tiny.text.start) == 1
    assert tiny.text.end_of_text not in context


def test_the_language_is_detected_from_the_open_segment(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, options=DETECTED, audio=noise(1000), at_ms=2000)
    hypothesis = opened.decode()
    assert hypothesis.language in tiny.text.language_ids
    assert hypothesis.language_confidence < 1
    assert not hypothesis.is_settled
    opened.begin_segment(2600)
    opened.append(noise(200))
    opened.decode()
    opened.begin_segment(1000)  # never before the window
    opened.decode()
    opened.begin_segment(9000)  # nor behind it
    opened.decode()
    assert recorded.language_slots == [50, 30, 60, 1]


def test_commits_settle_the_detected_language(tiny: Tiny, worded: np.ndarray) -> None:
    opened = stream(tiny, options=DETECTED, audio=worded)
    language = opened.decode().language
    opened.commit(1)
    hypothesis = opened.decode()
    assert hypothesis.is_settled
    assert hypothesis.language == language
    assert hypothesis.language_confidence == 1.0


def test_another_language_starts_afresh(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = iter([[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    monkeypatch.setattr(
        DraftDecoder, "language_logits", lambda *_: np.array(next(heard), dtype=np.float32)
    )
    opened = stream(tiny, options=DETECTED, audio=worded)
    assert [opened.decode().language for _ in range(3)] == ["de", "de", "zh"]
    assert recorded.drafts[1] == recorded.results[0].tokens != []
    assert recorded.drafts[2] == []
    assert tiny.text.language_ids["zh"] in recorded.contexts[2]


def test_an_english_only_model_uses_no_language_tokens(tiny: Tiny, recorded: Recorded) -> None:
    text = WhisperText(tiny.folder / "tokenizer.json")
    text.language_ids = {}
    model = WhisperModel(tiny.network, text, tiny.model.mel_filters, [])
    for language in (None, "de"):
        opened = WhisperStream(model, StreamOptions(language), WINDOW)
        opened.open(0)
        opened.append(noise(500))
        hypothesis = opened.decode()
        assert hypothesis.language == "en"
        assert hypothesis.is_settled
        assert recorded.contexts[-1] == [text.start, text.no_timestamps]
    assert recorded.language_slots == []


def test_a_loop_is_cut(tiny: Tiny, recorded: Recorded) -> None:
    (the,) = tiny.text.encode(" the")
    opened = stream(tiny, audio=noise(1000))
    recorded.scripted = said([the] * 9, [40] * 9, n_slots=50)
    assert texts(opened.decode()) == ["the"]
    assert opened._draft == [the]


def test_a_jump_back_is_cut(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    tokens = [50, 51, 52, 53]
    recorded.scripted = said(tokens, [2, 45, 3, 5], n_slots=50)
    opened.decode()
    assert opened._draft == tokens[:2]


def test_improbable_text_on_silence_is_dropped(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    scripted = {"no_speech_probability": 0.9, "log_probabilities": [-3.0, -3.0]}
    recorded.scripted = said([50, 51], [2, 30], n_slots=50, **scripted)
    assert opened.decode().words == ()
    assert opened._draft == []


def test_punctuation_of_a_committed_word_is_hidden(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    (the,), (other,), (dot,) = (tiny.text.encode(t) for t in (" the", " other", "."))
    recorded.scripted = said([the, other], [2, 30], n_slots=50)
    opened.decode()
    opened.commit(1)
    recorded.scripted = said([dot, other], [2, 10, 30], n_slots=50)
    hypothesis = opened.decode()
    assert texts(hypothesis) == ["other"]
    opened.commit(1)
    recorded.scripted = None
    opened.decode()
    assert recorded.forced[-1] == [the, dot, other]


def test_confidence_is_that_of_all_tokens_of_a_word(tiny: Tiny, recorded: Recorded) -> None:
    tokens = tiny.text.encode(" zz the")
    assert len(tokens) == 4
    scores = [-0.2, -0.4, -0.6, -0.05]
    recorded.scripted = said(tokens, [2, 5, 8, 30], n_slots=50, log_probabilities=scores)
    words = stream(tiny, audio=noise(1000)).decode().words
    assert words[0].confidence == pytest.approx(np.exp(-0.4), abs=1e-3)
    assert words[1].confidence == pytest.approx(np.exp(-0.05), abs=1e-3)


def test_words_without_time_of_their_own_at_the_end_are_hidden(
    tiny: Tiny, recorded: Recorded
) -> None:
    tokens = tiny.text.encode(" the other the")
    recorded.scripted = said(tokens, [2] + [25] * (len(tokens) - 2) + [49], n_slots=50)
    opened = stream(tiny, audio=noise(1000))
    assert texts(opened.decode()) == ["the", "other"]
    opened.commit(2)
    recorded.scripted = None
    opened.decode()
    assert recorded.forced[-1] == tokens[:-1]
    assert recorded.drafts[-1] == tokens[-1:]
