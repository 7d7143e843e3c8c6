from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from audiokv.server.protocols.dialect import Audio, Begin, Finalize, Finalized, Opening, Stop, Taken
from audiokv.server.protocols.vosk import VoskDialect
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import Caption, Word
from audiokv.streaming.errors import MessageError
from tests.server.doubles import captions_in, speech, undisturbed
from tests.server.protocols.events import progress
from tests.server.protocols.fuzzing import ANYTHING, FUZZED
from tests.server.running import running_server

if TYPE_CHECKING:
    from audiokv.server.app import CaptionServer

TAKEN = Taken()
WORDS = (
    Word("one", 160, 300, 0.9, is_final=True),
    Word("two", 310, 480, 0.5, is_final=True),
)


def caption(*words: Word, is_final: bool = True) -> Caption:
    return Caption(
        seq=1,
        segment=0,
        revision=0,
        is_final=is_final,
        start_ms=0,
        end_ms=0,
        text="",
        language=None,
        speaker=None,
        words=words,
    )


def opened(*messages: str) -> VoskDialect:
    dialect = VoskDialect()
    assert dialect.open(Opening()) == []
    for message in messages:
        assert dialect.hear(message) == []
    return dialect


def configured(**config: object) -> VoskDialect:
    return opened(json.dumps({"config": config}))


def reply_to_audio(dialect: VoskDialect) -> dict[str, Any]:
    dialect.hear(b"\0\0")
    (reply,) = dialect.say(TAKEN)
    return dict(json.loads(reply))


# What a client sends


def test_audio_alone_begins_a_stream_at_8_khz() -> None:
    dialect = opened()
    begin, audio = dialect.hear(b"ab")
    assert begin == Begin(AudioFormat(sample_rate_hz=8_000))
    assert isinstance(audio, Audio)
    assert audio.data == b"ab"
    assert audio.max_ahead_ms
    assert len(dialect.hear(b"cd")) == 1


@pytest.mark.parametrize("rate", [16_000, 16_000.0, "16000"])
def test_config_sets_the_rate_and_is_not_answered(rate: object) -> None:
    dialect = configured(sample_rate=rate)
    assert dialect.hear(b"ab")[0] == Begin(AudioFormat(sample_rate_hz=16_000))
    assert dialect.hear('{"config":{"sample_rate":16000}}') == []
    with pytest.raises(MessageError, match="8000 Hz came after audio of 16000 Hz"):
        dialect.hear('{"config":{"sample_rate":8000}}')


@pytest.mark.parametrize("text", ['{"eof" : 1}', '{"eof":1}', ' {"eof": true} '])
def test_both_spellings_of_eof_end_the_stream(text: str) -> None:
    assert opened().hear(text) == [Stop()]


@pytest.mark.parametrize(
    "config",
    [
        {"phrase_list": ["yes", "no", "[unk]"]},
        {"model": "vosk-model-fr"},
        {"sample_rate": 4_000},
        {"sample_rate": "fast"},
        {"max_alternatives": -1},
        {"words": "some"},
    ],
)
def test_what_is_not_supported_is_refused_by_name(config: dict[str, object]) -> None:
    (name,) = config
    with pytest.raises(MessageError, match=name):
        configured(**config)


@pytest.mark.parametrize("text", ["", "hello", "[]", "{}", '{"eof":1,"reset":1}', '{"config":3}'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(MessageError):
        opened().hear(text)


OPTIONS = st.dictionaries(
    st.sampled_from(
        ["sample_rate", "words", "partial_words", "max_alternatives", "phrase_list", "x"]
    ),
    ANYTHING,
    max_size=3,
)
MESSAGES = st.one_of(
    st.text(max_size=60),
    st.binary(max_size=20),
    ANYTHING.map(json.dumps),
    OPTIONS.map(lambda options: json.dumps({"config": options})),
    st.sampled_from(['{"eof" : 1}', '{"reset" : 1}', '{"config":', '{"config":{"words":0}}']),
)


@FUZZED
@given(st.lists(MESSAGES, max_size=6))
def test_whatever_comes_is_commands_or_a_message_error(messages: list[str | bytes]) -> None:
    dialect = opened()
    for message in messages:
        with suppress(MessageError):
            dialect.hear(message)


# What it hears


def test_each_audio_message_has_one_reply_and_nothing_else_has() -> None:
    dialect = opened()
    assert dialect.say(TAKEN) == []
    dialect.hear(b"ab")
    assert dialect.say(progress(10)) == []
    assert dialect.say(TAKEN) == ['{"partial": ""}']
    assert dialect.say(TAKEN) == []
    assert dialect.say(caption(WORDS[0], is_final=False)) == []
    assert reply_to_audio(dialect) == reply_to_audio(dialect) == {"partial": "one"}
    assert dialect.say(caption(*WORDS)) == []
    assert reply_to_audio(dialect) == {
        "result": [
            {"conf": 0.9, "start": 0.16, "end": 0.3, "word": "one"},
            {"conf": 0.5, "start": 0.31, "end": 0.48, "word": "two"},
        ],
        "text": "one two",
    }
    assert reply_to_audio(dialect) == {"partial": ""}


def test_lines_that_no_reply_had_room_for_come_together() -> None:
    dialect = opened()
    dialect.say(caption(WORDS[0]))
    dialect.say(caption(WORDS[1]))
    assert reply_to_audio(dialect)["text"] == "one two"


def test_words_can_be_left_out_and_partials_can_have_them() -> None:
    dialect = configured(words=0, partial_words=1)
    dialect.say(caption(WORDS[0], is_final=False))
    assert reply_to_audio(dialect) == {
        "partial": "one",
        "partial_result": [{"conf": 0.9, "start": 0.16, "end": 0.3, "word": "one"}],
    }
    dialect.say(caption(*WORDS))
    assert reply_to_audio(dialect) == {"text": "one two"}


def test_alternatives_have_their_own_form() -> None:
    dialect = configured(words=0, max_alternatives=3)
    dialect.say(caption(*WORDS))
    assert reply_to_audio(dialect) == {"alternatives": [{"confidence": 0.7, "text": "one two"}]}


def test_a_reset_is_answered_once_all_before_it_was_said_and_replies_keep_their_order() -> None:
    dialect = opened()
    dialect.hear(b"ab")
    dialect.say(TAKEN)
    assert dialect.hear('{"reset" : 1}') == [Finalize()]
    dialect.hear(b"cd")
    assert dialect.say(TAKEN) == []
    dialect.say(caption(*WORDS))
    replies = [json.loads(reply) for reply in dialect.say(Finalized())]
    assert [list(reply) for reply in replies] == [["result", "text"], ["partial"]]


def test_the_last_reply_has_the_rest() -> None:
    dialect = opened()
    dialect.hear(b"ab")
    dialect.say(TAKEN)
    dialect.hear('{"eof" : 1}')
    dialect.say(caption(*WORDS))
    farewell = dialect.done()
    assert [json.loads(message)["text"] for message in farewell.messages] == ["one two"]
    assert farewell.close_code == 1000


# With a server


async def lock_step(client: ClientConnection, message: str | bytes) -> dict[str, Any]:
    await client.send(message)
    return dict(json.loads(await client.recv()))


def url(server: CaptionServer) -> str:
    return f"ws://127.0.0.1:{server.other_ports['vosk_port']}/any/path"


async def test_a_lock_step_client_gets_each_line_as_it_is_spoken() -> None:
    audio = speech(1, seconds=5)
    expected = [c.text for c in captions_in(undisturbed(audio)) if c.is_final]
    assert len(expected) > 1
    async with running_server(vosk_port=0) as server, connect(url(server)) as client:
        await client.send('{"config":{"sample_rate":16000}}')
        cuts = range(0, len(audio), 6_400)
        replies = [await lock_step(client, audio[at : at + 6_400]) for at in cuts]
        assert all("partial" in reply or "result" in reply for reply in replies)
        lines = [reply["text"] for reply in replies if "text" in reply]
        last = await lock_step(client, '{"eof" : 1}')
        assert [*lines, last["text"]] == expected
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1000


async def test_a_reset_closes_the_line_and_the_stream_goes_on() -> None:
    audio = speech(2, seconds=1)
    async with running_server(vosk_port=0) as server, connect(url(server)) as client:
        await client.send('{"config":{"sample_rate":16000,"words":0}}')
        for _ in range(2):
            await lock_step(client, audio)
            assert (await lock_step(client, '{"reset" : 1}'))["text"]
        assert await lock_step(client, '{"eof":1}') == {"text": ""}


async def test_an_error_is_an_object_and_ends_the_connection() -> None:
    async with running_server(vosk_port=0) as server, connect(url(server)) as client:
        assert "phrase_list" in (await lock_step(client, '{"config":{"phrase_list":[]}}'))["error"]
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 4400
