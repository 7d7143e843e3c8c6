from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import AudioFormatError, MessageError
from audiokv.streaming.messages import (
    MAX_PROMPT_CHARS,
    Caption,
    ClientMessage,
    Done,
    ErrorReport,
    Finalize,
    Keepalive,
    Limits,
    Notice,
    Progress,
    Ready,
    Resume,
    ServerMessage,
    SpeechChange,
    Start,
    Stop,
    Update,
    Word,
    decode_client,
    decode_server,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTERS = CacheCounters(
    "uniform", 9, 5, 6, PoolSlots(3, 1, 1), Evictions(0, 2, 1), 5_120,
    LeftSlots(0, 3, 1, 0), ChosenSlots(1, 2, 0),
)  # fmt: skip
PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=16)
wholes = st.integers(0, 2**53 - 1)
seconds = st.floats(0, 2**53 - 1)
words = st.builds(Word, texts, wholes, wholes, st.floats(0, 1), st.booleans(), st.booleans())

client_messages: st.SearchStrategy[ClientMessage] = st.one_of(
    st.builds(
        Start,
        encoding=names,
        sample_rate=wholes,
        channels=wholes,
        language=names,
        profile=names,
        prompt=texts,
        channel_labels=st.lists(names, max_size=2).map(tuple),
        resume=st.none() | st.builds(Resume, names, wholes),
    ),
    st.builds(Update, st.none() | names, st.none() | texts, st.none() | names),
    st.sampled_from([Finalize(), Keepalive(), Stop()]),
)
server_messages: st.SearchStrategy[ServerMessage] = st.one_of(
    st.builds(
        Ready,
        stream=names,
        model=texts,
        languages=st.lists(names, max_size=4).map(tuple),
        limits=st.builds(Limits, wholes, seconds, seconds, wholes),
        resume_token=st.none() | names,
        resumed=st.booleans(),
        received_samples=wholes,
        metadata=st.none() | st.dictionaries(names, texts, max_size=3),
    ),
    st.builds(
        Caption,
        wholes,
        wholes,
        wholes,
        st.booleans(),
        wholes,
        wholes,
        texts,
        st.none() | names,
        st.none() | texts,
        st.lists(words, max_size=4).map(tuple),
    ),
    st.builds(SpeechChange, st.booleans(), wholes),
    st.builds(
        Progress,
        wholes,
        wholes,
        wholes,
        wholes,
        st.none()
        | st.builds(
            CacheCounters,
            names,
            wholes,
            wholes,
            wholes,
            st.builds(PoolSlots, wholes, wholes, wholes),
            st.builds(Evictions, wholes, wholes, wholes),
            wholes,
            st.builds(LeftSlots, wholes, wholes, wholes, wholes),
            st.builds(ChosenSlots, wholes, wholes, wholes),
        ),
    ),
    st.builds(Notice, texts, texts, texts),
    st.builds(ErrorReport, texts, texts, texts, st.none() | seconds),
    st.builds(Done, wholes, wholes),
)
EMPTY_CAPTION = Caption(
    seq=1,
    segment=0,
    revision=0,
    is_final=False,
    start_ms=0,
    end_ms=10,
    text="",
    language=None,
    speaker=None,
    words=(),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(client_messages)
def test_every_field_of_a_clients_message_survives_the_wire(message: ClientMessage) -> None:
    assert decode_client(encode(message)) == message


@given(server_messages)
def test_every_field_of_a_servers_message_survives_the_wire(message: ServerMessage) -> None:
    assert decode_server(encode(message)) == message


@given(st.text())
def test_random_text_raises_only_message_errors(text: str) -> None:
    for decode in (decode_client, decode_server):
        with pytest.raises(MessageError):
            decode(text)


@given(st.one_of(client_messages, server_messages), st.data())
def test_a_damaged_message_is_decoded_or_refused(
    message: ClientMessage | ServerMessage, data: st.DataObject
) -> None:
    values = json.loads(encode(message))
    field = data.draw(st.sampled_from(sorted(values)) | st.text())
    values[field] = data.draw(json_values)
    for decode in (decode_client, decode_server):
        with suppress(MessageError):
            decode(json.dumps(values))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        '{"type": "stop", "x": ' + "[" * 100_000 + "}",
        '{"type": "start", "sample_rate": ' + "9" * 5_000 + "}",
        '{"type": "start", "sample_rate": NaN}',
        '{"type": "stop", "type": "stop"}',
    ],
)
def test_what_is_not_json_is_called_so(text: str) -> None:
    with pytest.raises(MessageError) as caught:
        decode_client(text)
    assert caught.value.code == "bad_json"


def test_deep_nesting_that_still_parses_is_refused_without_recursion() -> None:
    for depth in range(100, 1_200, 7):
        text = '{"type": ' + "[" * depth + "]" * depth + "}"
        with pytest.raises(MessageError):
            decode_client(text)


def _start(**changes: object) -> str:
    return json.dumps({"type": "start", "encoding": "pcm_s16le", "sample_rate": 16_000, **changes})


def _caption(**changes: object) -> str:
    fields = json.loads(encode(EMPTY_CAPTION))
    return json.dumps({**fields, **changes})


def _progress(**changes: object) -> str:
    """A progress whose cache has one fault."""
    message = json.loads(encode(Progress(1, 16, 1, 0, COUNTERS)))
    message["cache"].update(changes)
    return json.dumps(message)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "bad_message"),
        ("1", "bad_message"),
        ('"start"', "bad_message"),
        ("{}", "unknown_type"),
        ('{"type": 3}', "unknown_type"),
        ('{"type": "ready"}', "unknown_type"),
        ('{"type": "start"}', "missing_field"),
        ('{"type": "stop", "now": true}', "unknown_field"),
        (_start(codec="opus"), "unknown_field"),
        (_start(version=2), "unsupported_version"),
        (_start(sample_rate="16000"), "bad_field"),
        (_start(sample_rate=True), "bad_field"),
        (_start(sample_rate=16_000.0), "bad_field"),
        (_start(sample_rate=-1), "bad_field"),
        (_start(sample_rate=2**53), "bad_field"),
        (_start(prompt="x" * (MAX_PROMPT_CHARS + 1)), "bad_field"),
        (_start(prompt="half \ud83d of a pair"), "bad_field"),
        (_start(prompt=["AudioKV"]), "bad_field"),
        (_start(channel_labels=["a", "b", "c"]), "bad_field"),
        (_start(channel_labels="ab"), "bad_field"),
        (_start(channel_labels=[1]), "bad_field"),
        (_start(resume="r-1"), "bad_field"),
        (_start(resume={"token": "r-1"}), "missing_field"),
        (_start(resume={"token": "r-1", "last_seq": 0, "offset": 1}), "unknown_field"),
    ],
)
def test_each_fault_of_a_client_has_its_code(text: str, code: str) -> None:
    with pytest.raises(MessageError) as caught:
        decode_client(text)
    assert caught.value.code == code
    assert caught.value.message
    assert caught.value.remedy
    str(caught.value).encode()


@pytest.mark.parametrize(
    "text",
    [
        _caption(final=1),
        _caption(words={}),
        _caption(words=["He"]),
        _caption(words=[{"text": "He"}]),
        _caption(speaker=7),
        json.dumps({"type": "error", "code": "full", "message": "", "retry_after_s": "soon"}),
        json.dumps({"type": "error", "code": "full", "message": "", "retry_after_s": -1}),
        _progress(pools={"base": 1, "buffer": 1}),
        _progress(n_evictions={"hot": 0, "between_steps": 0, "in_pauses": 0, "ever": 0}),
        _progress(held_bytes=-1),
        _progress(evicted=1),
        json.dumps({"type": "ready", "stream": "s", "model": "m", "languages": [], "limits": []}),
    ],
)
def test_each_fault_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(MessageError):
        decode_server(text)


@pytest.mark.parametrize("confidence", [True, "1", -0.1, 1.1])
def test_a_confidence_is_a_number_from_0_to_1(confidence: object) -> None:
    word = {"text": "He", "start_ms": 0, "end_ms": 1, "confidence": confidence, "final": True}
    with pytest.raises(MessageError):
        decode_server(_caption(words=[word]))


def test_nulls_of_optional_fields_count_as_missing() -> None:
    assert decode_client(_start(resume=None)) == Start("pcm_s16le", 16_000)
    assert decode_client('{"type": "update", "language": null}') == Update()
    text = '{"type": "error", "code": "c", "message": "m", "retry_after_s": null}'
    assert decode_server(text) == ErrorReport("c", "m")


def test_a_number_that_is_not_finite_cannot_be_encoded() -> None:
    word = Word("He", 0, 10, float("nan"))
    with pytest.raises(ValueError, match="JSON"):
        encode(replace(EMPTY_CAPTION, words=(word,)))


def test_start_gives_its_audio_format() -> None:
    start = Start("mulaw", 8_000, channels=2)
    assert start.audio_format() == AudioFormat(Encoding.MULAW, 8_000, 2)
    assert start.audio_format().encoding is Encoding.MULAW


@pytest.mark.parametrize(
    ("start", "code"),
    [
        (Start("mp3", 16_000), "unknown_encoding"),
        (Start("alaw", 4_000), "bad_sample_rate"),
        (Start("alaw", 8_000, channels=3), "bad_channels"),
    ],
)
def test_start_refuses_audio_that_cannot_be_decoded(start: Start, code: str) -> None:
    with pytest.raises(AudioFormatError) as caught:
        start.audio_format()
    assert caught.value.code == code


def _examples(section: str) -> list[str]:
    chapter = re.split(r"^## ", PROTOCOL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = [part for part in chapter if part.startswith(section)]
    return re.findall(r"```json\n(.*?)\n```", text, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("section", "decode", "kinds"),
    [
        ("From the client", decode_client, {Start, Update, Finalize, Keepalive, Stop}),
        (
            "From the server",
            decode_server,
            {Ready, Caption, SpeechChange, Progress, Notice, ErrorReport, Done},
        ),
    ],
)
def test_the_examples_of_the_specification_are_the_protocol(
    section: str,
    decode: Callable[[str], ClientMessage | ServerMessage],
    kinds: set[type],
) -> None:
    examples = _examples(section)
    messages = [decode(example) for example in examples]
    assert {type(message) for message in messages} == kinds
    for example, message in zip(examples, messages, strict=True):
        shown = json.loads(example)
        assert shown.items() <= json.loads(encode(message)).items()
