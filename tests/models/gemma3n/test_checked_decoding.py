from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.gemma3n.batch_requests import run_alone
from audiokv.models.gemma3n.checked_decoding import Asked, CheckedDecoder, DoubtCounts
from audiokv.models.gemma3n.prompt_layout import Frame
from audiokv.models.gemma3n.tail_decoding import Continuation, TailRequest
from audiokv.models.gemma3n.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

EOA, START, END = 56, 6, 7
SENTENCES = [
    "hello world",
    "nothing new",
    "I'm sorry, but I cannot come today.",
    "I cannot transcribe this audio.",
    "As an AI, I have no ears.",
    "The audio contains speech.",
]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
WORD_IDS = {word: 8 + number for number, word in enumerate(WORDS)}
REFUSAL, REAL = SENTENCES[3], SENTENCES[2]


def write_chat_tokenizer(folder: Path) -> None:
    """One token a word, with the marks of a turn."""
    special = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<boa>": 3, "<eoa>": EOA}
    special |= {"<start_of_turn>": START, "<end_of_turn>": END}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": special | WORD_IDS, "unk_token": "<pad>"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [
            {"id": number, "content": text, "special": True, **flags}
            for text, number in special.items()
        ],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")


def ids(text: str) -> list[int]:
    return [WORD_IDS[word] for word in text.split()]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    folder = tmp_path_factory.mktemp("chat")
    write_chat_tokenizer(folder)
    return Vocabulary(folder / "tokenizer.json")


@dataclass
class ScriptedDecoder:
    """Says one thing when asked, and another when asked more strictly."""

    first: str = ""
    again: str = ""
    share: float | None = None
    is_looping: bool = False
    requests: list[TailRequest] = field(default_factory=list)

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        return () if self.share is None else ((3, 1),)

    def decoding(
        self, _: object, request: TailRequest, rows: np.ndarray
    ) -> Generator[Any, None, Continuation]:
        yield from ()
        self.requests.append(request)
        is_locked = request.after_audio == (EOA, 9)
        tokens = ids(self.again if is_locked else self.first)
        share = self.share if self.share is not None else 1.0
        shape = (1, len(request.forced) + len(tokens) + 1, len(rows))
        return Continuation(
            tokens=tokens,
            log_probabilities=[-0.1] * len(tokens),
            attention=np.full(shape, share / len(rows), np.float32),
            is_complete=True,
            is_looping=self.is_looping and not is_locked,
            n_passes=1,
        )


FRAME = Frame((2,), (3,), (EOA,), (1,), frozenset({1}), (EOA, 9))


def said(
    decoder: CheckedDecoder,
    forced: Sequence[int] = (),
    n_slots: int = 20,
    language: str | None = "en",
    frame: Frame = FRAME,
) -> list[int]:
    request = TailRequest(None, 0, frame.after_audio, list(forced), [], 40, n_slots)
    rows = np.arange(n_slots)
    made = run_alone(
        decoder.decoding(None, request, rows, Asked(frame, language))  # type: ignore[arg-type]
    )
    assert made.attention.shape[1] == len(forced) + len(made.tokens) + 1
    assert len(made.log_probabilities) == len(made.tokens)
    return made.tokens


def opened(scripted: ScriptedDecoder, vocabulary: Vocabulary) -> CheckedDecoder:
    return CheckedDecoder(scripted, vocabulary)  # type: ignore[arg-type]  # a double


def test_speech_costs_one_decode(vocabulary: Vocabulary) -> None:
    scripted = ScriptedDecoder("hello world")
    decoder = opened(scripted, vocabulary)
    assert said(decoder) == ids("hello world")
    assert decoder.counts == DoubtCounts()
    assert len(scripted.requests) == 1


def test_a_clean_second_text_is_taken(vocabulary: Vocabulary) -> None:
    scripted = ScriptedDecoder(REFUSAL, "hello world")
    decoder = opened(scripted, vocabulary)
    assert said(decoder) == ids("hello world")
    assert decoder.counts == DoubtCounts(1, 1, 0)
    assert scripted.requests[1].after_audio == (EOA, 9)
    assert list(scripted.requests[1].draft) == ids(REFUSAL)


def test_a_refusal_that_comes_again_is_dropped_and_what_is_committed_stays(
    vocabulary: Vocabulary,
) -> None:
    decoder = opened(ScriptedDecoder(REFUSAL, REFUSAL), vocabulary)
    assert said(decoder) == []
    assert decoder.counts == DoubtCounts(1, 0, 1)
    sentence = ids("I cannot come today.")
    assert said(decoder, sentence) == []
    assert decoder.counts == DoubtCounts(2, 0, 2)


def test_a_segment_begins_a_sentence_whatever_stands_before_it(vocabulary: Vocabulary) -> None:
    decoder = opened(ScriptedDecoder(REFUSAL, REFUSAL), vocabulary)
    assert said(decoder) == []
    assert said(decoder, ids("hello")) == ids(REFUSAL)  # in mid-sentence
    decoder.begin_segment()
    assert said(decoder, ids("hello")) == []
    assert said(decoder, ids("hello")) == []
    assert said(decoder, ids("hello world")) == ids(REFUSAL)


def test_nothing_the_second_time_is_nothing(vocabulary: Vocabulary) -> None:
    decoder = opened(ScriptedDecoder("The audio contains speech.", ""), vocabulary)
    assert said(decoder) == []
    assert decoder.counts == DoubtCounts(1, 0, 1)


def test_who_really_says_so_is_captioned_and_asked_about_once(vocabulary: Vocabulary) -> None:
    scripted = ScriptedDecoder(REAL, REAL)
    decoder = opened(scripted, vocabulary)
    assert said(decoder) == ids(REAL)
    assert said(decoder) == ids(REAL)
    assert decoder.counts == DoubtCounts(1, 0, 0)
    decoder.begin_window()
    assert said(decoder) == ids(REAL)
    assert decoder.counts == DoubtCounts(2, 0, 0)


def test_what_only_a_model_says_is_believed_where_it_was_heard_growing(
    vocabulary: Vocabulary,
) -> None:
    scripted = ScriptedDecoder("I", "")
    decoder = opened(scripted, vocabulary)
    said(decoder)
    scripted.first = scripted.again = REFUSAL
    assert said(decoder) == ids(REFUSAL)
    # Another beginning proves nothing, nor does one of before a commitment.
    for first in ("hello", "I"):
        decoder = opened(scripted, vocabulary)
        scripted.first, scripted.again = first, ""
        said(decoder, ids("hello") if first == "I" else ())
        scripted.first = scripted.again = REFUSAL
        assert said(decoder) == []


@pytest.mark.parametrize(("share", "is_believed"), [(0.95, True), (0.6, False)])
@pytest.mark.parametrize("text", [REFUSAL, REAL])
def test_heads_that_follow_the_audio_decide(
    vocabulary: Vocabulary, text: str, share: float, *, is_believed: bool
) -> None:
    decoder = opened(ScriptedDecoder(text, REFUSAL, share), vocabulary)
    assert said(decoder) == (ids(text) if is_believed else [])


def test_text_that_these_heads_did_not_look_at_is_asked_for_again(vocabulary: Vocabulary) -> None:
    text = "hello world nothing new"
    decoder = opened(ScriptedDecoder(text, "hello", 0.3), vocabulary)
    assert said(decoder) == ids("hello")
    decoder = opened(ScriptedDecoder(text, text, 0.3), vocabulary)
    assert said(decoder) == ids(text)  # the same twice: then the heads are wrong
    decoder = opened(ScriptedDecoder(text, "hello", 0.6), vocabulary)
    assert said(decoder) == ids(text)
    decoder = opened(ScriptedDecoder("hello world nothing", "hello", 0.3), vocabulary)
    assert said(decoder) == ids("hello world nothing")  # too little to be sure


def test_more_than_can_be_spoken_is_dropped_at_the_start_of_a_segment_only(
    vocabulary: Vocabulary,
) -> None:
    text = " ".join(["hello world"] * 6)
    decoder = opened(ScriptedDecoder(text, text), vocabulary)
    assert said(decoder, n_slots=1) == []
    assert said(decoder, n_slots=2) == ids(text)
    assert said(decoder, ids("hello"), n_slots=1) == ids(text)
    assert decoder.counts == DoubtCounts(1, 0, 1)


def test_english_is_believed_where_the_second_text_is_the_same(vocabulary: Vocabulary) -> None:
    text = "but I cannot come this I have no audio I"
    decoder = opened(ScriptedDecoder(text, text, 0.99), vocabulary)
    assert said(decoder, ids("hello"), language="de") == ids(text)
    decoder = opened(
        ScriptedDecoder(text, "an AI, The come today. but I this have", 0.99), vocabulary
    )
    assert said(decoder, ids("hello"), language="de") == []
    assert said(decoder, ids("hello"), language="en") == ids(text)
    assert said(decoder, ids("hello"), language=None) == ids(text)
    assert decoder.counts.n_decoded_again == 1


def test_repeats_are_decoded_again_and_keep_one_copy_otherwise(vocabulary: Vocabulary) -> None:
    decoder = opened(ScriptedDecoder("hello hello hello", "hello", is_looping=True), vocabulary)
    assert said(decoder) == ids("hello")
    decoder = opened(ScriptedDecoder("hello hello hello", "", is_looping=True), vocabulary)
    assert said(decoder) == ids("hello hello hello")
    assert decoder.counts == DoubtCounts(1, 0, 0)


def test_a_model_that_cannot_be_asked_more_strictly_is_not_doubted(vocabulary: Vocabulary) -> None:
    decoder = opened(ScriptedDecoder(REFUSAL, "hello"), vocabulary)
    plain = Frame((2,), (3,), (EOA,), (1,), frozenset({1}))
    assert said(decoder, frame=plain) == ids(REFUSAL)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(SENTENCES), st.sampled_from([*SENTENCES, ""])), max_size=8
    ),
    share=st.sampled_from([None, 0.2, 0.7, 0.95]),
)
def test_each_step_is_decoded_at_most_twice_and_says_one_of_both_or_nothing(
    vocabulary: Vocabulary, steps: list[tuple[str, str]], share: float | None
) -> None:
    scripted = ScriptedDecoder(share=share)
    decoder = opened(scripted, vocabulary)
    for number, (first, again) in enumerate(steps, start=1):
        scripted.first, scripted.again = first, again
        tokens = said(decoder)
        assert tokens in ([], ids(first), ids(again))
        counts = decoder.counts
        assert len(scripted.requests) == number + counts.n_decoded_again
        assert counts.n_replaced + counts.n_dropped <= counts.n_decoded_again <= number
        if first == again == REAL and share in {None, 0.95}:
            assert tokens == ids(REAL)
        if share == 0.7 and REFUSAL == first == again:
            assert tokens == []
