from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import (
    Audio,
    Change,
    Command,
    Finalize,
    Gap,
    Opening,
    Reply,
    Stop,
)
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.audiohook import AudioHookDialect
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import (
    FUZZED,
    a_caption,
    begin_in,
    let_in,
    messages,
    survives,
    turn_away,
)

SESSION = "30b0e395-84d3-4570-ac13-9a62d8f514c0"
NO_CALL = "00000000-0000-0000-0000-000000000000"
BOTH = {"type": "audio", "format": "PCMU", "channels": ["external", "internal"], "rate": 8000}
ONE = {"type": "audio", "format": "PCMU", "channels": ["external"], "rate": 8000}
LINEAR = {"type": "audio", "format": "L16", "channels": ["external"], "rate": 8000}
WORDS = {
    "type",
    "open",
    "close",
    "ping",
    "update",
    "discarded",
    "parameters",
    "media",
    "format",
    "PCMU",
    "channels",
    "external",
    "internal",
    "rate",
    "seq",
    "id",
    "language",
}


def client(kind: str, seq: int = 1, **parameters: Any) -> str:
    values = {
        "version": "2",
        "id": SESSION,
        "type": kind,
        "seq": seq,
        "serverseq": 0,
        "position": "PT0S",
        "parameters": parameters,
    }
    return json.dumps(values)


def open_message(media: list[dict[str, Any]] | None = None, **changes: Any) -> str:
    participant = {"id": "p", "ani": "+1", "aniName": "Zoë", "dnis": "+2"}
    parameters = {
        "organizationId": "o",
        "conversationId": "c1",
        "participant": participant,
        "media": [BOTH, ONE, LINEAR] if media is None else media,
        "language": "de-AT",
    }
    return client("open", **{**parameters, **changes})


def dialect_of() -> AudioHookDialect:
    return AudioHookDialect(let_in)


def opened(media: list[dict[str, Any]] | None = None) -> AudioHookDialect:
    dialect = dialect_of()
    dialect.open(Opening("/call/audiohook"))
    dialect.hear(open_message(media))
    return dialect


def reply_in(commands: list[Command]) -> dict[str, Any]:
    (reply,) = (command for command in commands if isinstance(command, Reply))
    message = json.loads(reply.message)
    assert (message["version"], message["id"]) == ("2", SESSION)
    return dict(message)


def test_open_is_answered_with_the_choice_of_media() -> None:
    heard = dialect_of().hear(open_message([LINEAR, ONE, BOTH]))
    begin = begin_in(heard)
    assert begin.fmt == AudioFormat(Encoding.MULAW, 8_000, 2)
    assert begin.channel_labels == ("external", "internal")
    assert begin.language == "de"
    assert begin.metadata == {
        "call": "c1",
        "from": "+1",
        "to": "+2",
        "caller": "Zoë",
    }
    answer = reply_in(heard)
    assert (answer["type"], answer["seq"], answer["clientseq"]) == ("opened", 1, 1)
    assert answer["parameters"] == {"startPaused": False, "media": [BOTH]}


def test_one_side_is_taken_where_no_more_is_offered() -> None:
    begin = begin_in(dialect_of().hear(open_message([ONE])))
    assert (begin.fmt.channels, begin.channel_labels) == (1, ())


@pytest.mark.parametrize(
    "media",
    [[], [LINEAR], [{**ONE, "channels": []}], [{**ONE, "channels": ["external", "external"]}]],
)
def test_an_offer_without_mulaw_is_refused(media: list[dict[str, Any]]) -> None:
    with pytest.raises(MessageError) as caught:
        dialect_of().hear(open_message(media))
    assert caught.value.code == "no_media"


def test_a_trial_connection_opens_no_stream() -> None:
    dialect = dialect_of()
    heard = dialect.hear(open_message(conversationId=NO_CALL))
    assert reply_in(heard)["type"] == "opened"
    assert len(heard) == 1
    assert dialect.hear(client("close", 2, reason="end")) == [Stop()]


def test_audio_is_passed_on() -> None:
    assert opened().hear(b"\xff" * 1_600) == [Audio(b"\xff" * 1_600)]


def test_a_silence_on_the_line_ends_the_open_caption_once() -> None:
    assert dialect_of().miss(2_000) == []
    dialect = opened()
    for _ in range(2):
        dialect.hear(b"\xff")
        assert dialect.miss(2_000) == [Finalize()]
        assert dialect.miss(1_000) == []


def test_a_call_never_waits() -> None:
    assert not dialect_of().can_wait


def test_a_ping_is_answered() -> None:
    answer = reply_in(opened().hear(client("ping", 7)))
    assert (answer["type"], answer["seq"], answer["clientseq"]) == ("pong", 2, 7)


def test_a_close_ends_the_stream_and_is_answered_after_the_last_words() -> None:
    dialect = opened()
    assert dialect.hear(client("close", 2, reason="end")) == [Stop()]
    (last_words,) = dialect.say(a_caption())
    farewell = dialect.done()
    (closed,) = (json.loads(message) for message in farewell.messages)
    assert (closed["type"], closed["clientseq"]) == ("closed", 2)
    assert closed["seq"] == json.loads(last_words)["seq"] + 1
    assert farewell.close_code == CloseCode.DONE


@pytest.mark.parametrize("kind", ["discarded", "resumed"])
def test_what_genesys_discarded_is_a_gap(kind: str) -> None:
    dialect = opened()
    assert dialect.hear(client(kind, 2, start="PT1S", discarded="PT2.5S")) == [Gap(2_500)]
    assert dialect.hear(client(kind, 3, start="PT1S", discarded="PT0S")) == []
    for wrong in ("2.5", "PT-1S", "PT999999S"):
        with pytest.raises(MessageError):
            dialect.hear(client(kind, 4, discarded=wrong))


def test_a_new_language_is_taken_and_answered() -> None:
    heard = opened().hear(client("update", 2, language="fr-CA"))
    assert heard[0] == Change(language="fr")
    assert reply_in(heard)["type"] == "updated"


@pytest.mark.parametrize("kind", ["paused", "error", "something-new"])
def test_other_messages_are_left_out(kind: str) -> None:
    assert opened().hear(client(kind, 2)) == []


def test_captions_go_back_as_transcripts() -> None:
    (message,) = opened().say(a_caption("grüß Gott", speaker="internal"))
    assert "grüß" in str(message)
    event = json.loads(message)
    (entity,) = event["parameters"]["entities"]
    data = entity["data"]
    assert (event["type"], entity["type"]) == ("event", "transcript")
    assert (data["channel"], data["isFinal"]) == ("internal", True)
    assert (data["offset"], data["duration"]) == ("PT1.000S", "PT0.800S")
    (alternative,) = data["alternatives"]
    assert (alternative["confidence"], alternative["languages"]) == (0.8, ["en"])
    (interpretation,) = alternative["interpretations"]
    assert interpretation["transcript"] == "grüß Gott"
    assert interpretation["tokens"][1] == {
        "type": "word",
        "value": "Gott",
        "confidence": 0.7,
        "offset": "PT1.400S",
        "duration": "PT0.400S",
    }


def test_a_segment_keeps_its_id_from_partial_to_final() -> None:
    dialect = opened()
    (partial,), (final,) = dialect.say(a_caption(is_final=False)), dialect.say(a_caption())
    first, last = (json.loads(m)["parameters"]["entities"][0]["data"] for m in (partial, final))
    assert first["id"] == last["id"]
    assert (first["isFinal"], last["isFinal"]) == (False, True)


def test_a_speaker_that_is_not_known_is_the_side_that_is_heard() -> None:
    inside = {**ONE, "channels": ["internal"]}
    for dialect, side in ((opened(), "external"), (opened([inside]), "internal")):
        (message,) = dialect.say(a_caption())
        assert json.loads(message)["parameters"]["entities"][0]["data"]["channel"] == side
    assert opened().say(SpeechChange(is_on=True, at_ms=0)) == []


def test_a_stranger_and_a_fault_are_told_apart() -> None:
    stranger = RefusalError(CloseCode.NOT_AUTHORIZED, "bad_signature", "Wrong.", "Check it.")
    fault = RefusalError(CloseCode.FULL, "full", "All taken.", "Try later.")
    for refusal, reason in ((stranger, "unauthorized"), (fault, "error")):
        (message,) = (json.loads(m) for m in dialect_of().refuse(refusal).messages)
        assert message["type"] == "disconnect"
        assert message["parameters"]["reason"] == reason
        assert refusal.message in message["parameters"]["info"]


def test_who_connects_is_checked_by_the_opening() -> None:
    opening = Opening("/call/audiohook")
    checked: list[Opening] = []
    assert AudioHookDialect(checked.append).open(opening) == []
    assert checked == [opening]
    with pytest.raises(RefusalError):
        AudioHookDialect(turn_away).open(opening)


@pytest.mark.parametrize("message", [b"\xff", client("ping"), client("close"), "{}"])
def test_what_comes_before_open_is_refused(message: str | bytes) -> None:
    with pytest.raises(MessageError) as caught:
        dialect_of().hear(message)
    assert caught.value.code == "open_expected"


def test_a_second_open_is_refused() -> None:
    with pytest.raises(MessageError):
        opened().hear(open_message())


@FUZZED
@given(st.lists(messages(WORDS) | st.just(open_message()), max_size=6))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(dialect_of(), heard)
