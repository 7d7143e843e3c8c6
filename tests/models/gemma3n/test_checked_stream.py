"""A stream and a session over a model that says what a script says, refusals included."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from audiokv.models.base import StreamOptions
from audiokv.models.gemma3n.checked_decoding import DoubtCounts
from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.speech_model import SpeechModel
from audiokv.models.gemma3n.tail_decoding import TailDecoder
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.session import Session
from tests.models.gemma3n.conftest import sound
from tests.models.gemma3n.test_checked_decoding import (
    END,
    EOA,
    REAL,
    REFUSAL,
    START,
    WORD_IDS,
    ids,
    write_chat_tokenizer,
)
from tests.models.gemma3n.test_gemma3n_recognizer import Loudness

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from audiokv.streaming.recognition_counts import RecognitionCounts


@pytest.fixture
def chat_folder(folder: Path, tmp_path: Path) -> Path:
    made = tmp_path / "chat"
    shutil.copytree(folder, made)
    write_chat_tokenizer(made)
    return made


class Script:
    """Lets a real model say what is written down for the audio heard so far."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first = self.again = ""
        self._tail: list[int] = []
        embed, script = SpeechModel.tokens, self

        def tokens(model: SpeechModel, new: Sequence[int]) -> Any:
            if new[0] == EOA:
                script._tail = []
            script._tail += new
            return embed(model, new)

        monkeypatch.setattr(SpeechModel, "tokens", tokens)
        monkeypatch.setattr(TailDecoder, "choose", lambda _, hidden: script.choose(len(hidden)))

    def choose(self, n_positions: int) -> tuple[list[int], list[float]]:
        tail = self._tail
        is_locked = WORD_IDS["nothing"] in tail[: tail.index(END)]
        turn = tail[len(tail) - tail[::-1].index(START) :]
        text = [token for token in turn if token]  # the turn's own words are unknown: 0
        whole = [*ids(self.again if is_locked else self.first), 1]
        first = len(text) - n_positions + 1
        if first and text[0] != whole[0]:  # it goes on from what is committed
            whole = [*ids(self.again), 1]
        chosen = [whole[min(first + i, len(whole) - 1)] for i in range(n_positions)]
        return chosen, [-0.1] * n_positions


def test_a_stream_drops_a_refusal_and_keeps_what_is_committed(
    chat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognizer = Gemma3nRecognizer(chat_folder, "chat")
    stream = recognizer.open_stream(StreamOptions("en"))
    script = Script(monkeypatch)

    def step(first: str, again: str = "") -> str:
        script.first, script.again = first, again
        stream.append(sound(8_000))
        (hypothesis,) = recognizer.decode([stream])
        return " ".join(word.text for word in hypothesis.words)

    stream.open(0)
    assert step("hello") == "hello"
    held = stream._prefix.held
    assert step(REFUSAL, REFUSAL) == ""
    assert stream._prefix.held == held + 3  # the slots that came, and nothing of the question
    assert step(REFUSAL, "hello world") == "hello world"
    stream.commit(1)
    assert (
        step("hello The audio contains speech.", "hello nothing new")
        == "The audio contains speech."
    )
    assert step(f"hello {REFUSAL}", f"hello {REFUSAL}") == REFUSAL  # in mid-sentence nothing is odd
    assert step("hello world") == "world"
    assert stream._decoder.counts == DoubtCounts(2, 1, 1)


def test_a_session_shows_who_really_says_so_and_no_refusal(
    chat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognizer = Gemma3nRecognizer(chat_folder, "chat")
    script = Script(monkeypatch)
    counts: list[RecognitionCounts] = []

    def captions(first: str, again: str) -> list[str]:
        script.first, script.again = first, again
        session = Session(
            fmt=AudioFormat(Encoding.PCM_F32LE, 16_000),
            stream=recognizer.open_stream(StreamOptions("en")),
            info=recognizer.info,
            detector=Loudness(),
        )
        session.push(np.concatenate((sound(40_000), np.zeros(16_000, np.float32))).tobytes())
        session.stop()
        events = session.prepare()
        while session.is_step_due:
            events += session.apply(recognizer.decode([session.stream])[0])
            events += session.prepare()
        counts.append(session.counts)
        return [event.text for event in events if isinstance(event, Caption)]

    assert captions(REFUSAL, REFUSAL) == []
    assert captions(REAL, REAL)[-1] == REAL
    assert captions(REFUSAL, "hello world")[-1] == "hello world"
    assert counts[0].n_dropped == counts[0].n_decoded_again > 5
    assert counts[1].n_dropped == 0 < counts[1].n_decoded_again
    assert counts[2].n_dropped == 0 < counts[2].n_decoded_again
