from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Command, Finalize, Gap, Opening, Stop
from audiokv.server.telephony.media_stream import MediaStreamDialect, StreamHabits
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, audio_in, begin_in, gaps_in, messages, survives
from tests.server.telephony.media_messages import MULAW, WORDS, media, start

STOP = '{"event":"stop","stop":{"callSid":"CA1"}}'


def opened(habits: StreamHabits | None = None) -> MediaStreamDialect:
    dialect = MediaStreamDialect(habits or StreamHabits())
    dialect.open(Opening(query={"language": ("de",)}))
    dialect.hear('{"event":"connected","protocol":"Call","version":"1.0.0"}')
    return dialect


def started(habits: StreamHabits | None = None) -> MediaStreamDialect:
    dialect = opened(habits)
    dialect.hear(start())
    return dialect


def test_start_begins_the_stream() -> None:
    custom = {"language": "fr", "prompt": "Poubelle", "from": "+1"}
    begin = begin_in(opened().hear(start(customParameters=custom)))
    assert begin.fmt == AudioFormat(Encoding.MULAW, 8_000)
    assert (begin.language, begin.prompt, begin.channel_labels) == ("fr", "Poubelle", ())
    assert begin.metadata["call"] == "CA1"
    assert begin.metadata["stream"] == "MZ1"
    assert begin.metadata["from"] == "+1"


def test_what_start_leaves_out_is_the_providers_habit() -> None:
    habits = StreamHabits(encoding="audio/x-l16", rate_hz=16_000)
    begin = begin_in(opened(habits).hear('{"event":"start","start":{}}'))
    assert begin.fmt == AudioFormat()
    assert begin.language == "de"


def test_chunks_in_order_are_passed_on() -> None:
    dialect = started()
    assert dialect.hear(media(0)) == [Audio(bytes(160))]
    assert dialect.hear(media(1)) == [Audio(b"\1" * 160)]


def test_lost_chunks_are_a_gap_of_their_length() -> None:
    dialect = started()
    dialect.hear(media(0))
    assert dialect.hear(media(4)) == [Gap(60), Audio(b"\4" * 160)]


def test_lost_chunks_are_known_by_their_numbers_where_times_are_missing() -> None:
    dialect = started()
    for n, gaps in ((0, []), (1, []), (4, [40])):
        fields = json.loads(media(n))
        del fields["media"]["timestamp"]
        assert gaps_in(dialect.hear(json.dumps(fields))) == gaps


def test_a_silence_that_was_not_sent_is_a_gap() -> None:
    dialect = started()
    dialect.hear(media(0))
    fields = json.loads(media(1))
    fields["media"]["timestamp"] = "3020"
    assert gaps_in(dialect.hear(json.dumps(fields))) == [3_000]


def test_a_doubled_chunk_is_left_out() -> None:
    dialect = started()
    dialect.hear(media(0))
    assert dialect.hear(media(0)) == []


def test_chunks_without_numbers_and_times_are_passed_on() -> None:
    dialect = started()
    for _ in range(3):
        message = json.dumps({"event": "media", "media": {"payload": "/w=="}})
        assert dialect.hear(message) == [Audio(b"\xff")]


def test_order_is_restored_where_the_provider_does_not_keep_it() -> None:
    dialect = started(StreamHabits(reorder_ms=100))
    heard = [c for n in (0, 2, 3, 1, 4) for c in dialect.hear(media(n))]
    assert audio_in(heard) == b"".join(bytes([n]) * 160 for n in range(5))
    assert gaps_in(heard) == []


def test_what_waits_for_a_lost_chunk_comes_at_the_stop() -> None:
    dialect = started(StreamHabits(reorder_ms=100))
    dialect.hear(media(0))
    assert dialect.hear(media(2)) == []
    assert dialect.hear(STOP) == [Gap(20), Audio(b"\2" * 160), Stop()]


@given(order=st.permutations(range(6)), lost=st.sets(st.integers(1, 5)))
def test_any_order_gives_the_same_stream(order: list[int], lost: set[int]) -> None:
    dialect = started(StreamHabits(reorder_ms=200))
    dialect.hear(media(0))
    later = [n for n in order if n not in {0, *lost}]
    heard: list[Command] = [c for n in later for c in dialect.hear(media(n))]
    heard += dialect.hear(STOP)
    assert audio_in(heard) == b"".join(bytes([n]) * 160 for n in sorted(later))
    assert sum(gaps_in(heard)) == 20 * (max(later, default=0) - len(later))


def test_stop_ends_the_stream_once_and_nothing_follows() -> None:
    dialect = started()
    assert dialect.hear(STOP) == [Stop()]
    assert dialect.hear(STOP) == []
    assert dialect.hear(media(9)) == []


def test_a_silence_on_the_line_ends_the_open_caption_once() -> None:
    dialect = opened()
    assert dialect.miss(2_000) == []
    dialect = started()
    for n in range(2):
        dialect.hear(media(n))
        assert dialect.miss(2_000) == [Finalize()]
        assert dialect.miss(1_000) == []


def test_a_silence_on_the_line_gives_out_what_waited_for_a_lost_chunk() -> None:
    dialect = started(StreamHabits(reorder_ms=100))
    dialect.hear(media(0))
    assert dialect.hear(media(2)) == []
    assert dialect.miss(2_000) == [Gap(20), Audio(b"\2" * 160), Finalize()]


def test_two_tracks_become_two_channels() -> None:
    dialect = opened()
    begin = begin_in(dialect.hear(start(tracks=["inbound", "outbound"])))
    assert (begin.fmt.channels, begin.channel_labels) == (2, ("inbound", "outbound"))
    assert dialect.hear(media(0, b"ab")) == []
    assert dialect.hear(media(0, b"12", "outbound")) == [Audio(b"a1b2")]


def test_a_gap_of_one_track_is_silence_in_its_channel() -> None:
    dialect = opened()
    dialect.hear(start(tracks=["inbound", "outbound"]))
    heard = dialect.hear(media(0, track="outbound"))
    for n in (1, 2):
        heard += dialect.hear(media(n, track="outbound"))
    for n in (0, 2):
        heard += dialect.hear(media(n, b"x" * 160))
    woven = audio_in(heard)
    assert woven[0::2] == b"x" * 160 + b"\xff" * 160 + b"x" * 160
    assert woven[1::2] == bytes(160) + b"\1" * 160 + b"\2" * 160


def test_a_leg_that_pauses_while_the_other_speaks_loses_nothing_when_it_goes_on() -> None:
    dialect = opened()
    dialect.hear(start(tracks=["inbound", "outbound"]))
    heard = dialect.hear(media(0, b"a" * 160)) + dialect.hear(media(0, b"1" * 160, "outbound"))
    for n in range(1, 1_500):  # half a minute
        heard += dialect.hear(media(n, b"1" * 160, "outbound"))
    heard += dialect.hear(media(1_500, b"b" * 160))
    heard += dialect.hear(media(1_500, b"2" * 160, "outbound"))
    woven = audio_in(heard)
    assert gaps_in(heard) == []
    assert woven[0::2] == b"a" * 160 + b"\xff" * 160 * 1_499 + b"b" * 160
    assert woven[1::2] == b"1" * 160 * 1_500 + b"2" * 160


def test_a_leg_that_begins_later_loses_nothing() -> None:
    dialect = opened()
    dialect.hear(start(tracks=["inbound", "outbound"]))
    heard = [c for n in range(100) for c in dialect.hear(media(n, b"a" * 160))]
    heard += dialect.hear(media(100, b"1" * 160, "outbound"))
    heard += dialect.hear(media(100, b"b" * 160))
    woven = audio_in(heard)
    assert woven[0::2] == b"a" * 16_000 + b"b" * 160
    assert woven[1::2] == b"\xff" * 16_000 + b"1" * 160


def test_a_pause_of_both_legs_is_one_gap() -> None:
    dialect = opened()
    dialect.hear(start(tracks=["inbound", "outbound"]))
    heard: list[Command] = []
    for n in (0, 1_500):
        heard += dialect.hear(media(n, b"a" * 160))
        heard += dialect.hear(media(n, b"1" * 160, "outbound"))
    assert gaps_in(heard) == [1_499 * 20]
    assert audio_in(heard) == b"a1" * 320


def test_the_rest_of_the_longer_track_comes_at_the_stop() -> None:
    dialect = opened()
    dialect.hear(start(tracks=["inbound", "outbound"]))
    dialect.hear(media(0, b"ab"))
    assert dialect.hear(STOP) == [Audio(b"a\xffb\xff"), Stop()]


def test_a_track_that_was_not_announced_is_left_out() -> None:
    dialect = started()
    assert dialect.hear(media(0, track="outbound")) == []


def test_a_track_alone_may_be_the_outbound_one() -> None:
    dialect = opened()
    begin = begin_in(dialect.hear(start(tracks=["outbound_track"])))
    assert begin.fmt.channels == 1
    assert dialect.hear(media(0, b"ab", "outbound")) == [Audio(b"ab")]


def test_the_first_chunk_tells_the_track_where_start_does_not() -> None:
    dialect = opened()
    dialect.hear(start(tracks=None))
    assert dialect.hear(media(0, b"ab", "outbound")) == [Audio(b"ab")]
    assert dialect.hear(media(0, b"cd", "inbound")) == []
    assert dialect.hear(media(1, b"ef", "outbound"))[-1] == Audio(b"ef")


def test_both_tracks_may_be_asked_for_by_the_address() -> None:
    dialect = MediaStreamDialect(StreamHabits())
    dialect.open(Opening(query={"tracks": ("both",)}))
    begin = begin_in(dialect.hear(start(tracks=None)))
    assert begin.channel_labels == ("inbound", "outbound")
    dialect.hear(media(0, b"ab", "inbound_track"))
    assert dialect.hear(media(0, b"12", "outbound_track")) == [Audio(b"a1b2")]


@pytest.mark.parametrize("event", ["dtmf", "mark", "connected", "something_new"])
def test_other_events_are_left_out(event: str) -> None:
    assert started().hear(json.dumps({"event": event, "dtmf": {"digit": "1"}})) == []


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\x01", "text_expected"),
        (media(0), "start_expected"),
        (STOP, "start_expected"),
        (start(mediaFormat={**MULAW, "encoding": "OPUS"}), "unsupported_codec"),
        (start(mediaFormat={**MULAW, "sampleRate": 100}), "unsupported_audio"),
        (start(mediaFormat={"encoding": "l16", "sampleRate": 96_000}), "unsupported_audio"),
        (start(mediaFormat=[]), "bad_field"),
    ],
)
def test_what_is_none_of_the_protocol_is_refused(message: str | bytes, code: str) -> None:
    with pytest.raises(MessageError) as caught:
        opened().hear(message)
    assert caught.value.code == code


@pytest.mark.parametrize("change", [{"payload": "?"}, {"chunk": -1}, {"timestamp": "soon"}])
def test_a_chunk_that_is_none_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(media(0))
    fields["media"].update(change)
    with pytest.raises(MessageError):
        started().hear(json.dumps(fields))


def test_a_second_start_is_refused() -> None:
    with pytest.raises(MessageError):
        started().hear(start())


@FUZZED
@given(st.lists(messages(WORDS) | st.sampled_from([start(), media(1), STOP]), max_size=8))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(MediaStreamDialect(StreamHabits(reorder_ms=100)), heard)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["inbound", "outbound"]),
            st.none() | st.integers(0, 2**53),
            st.none() | st.integers(0, 2**53),
            st.binary(max_size=6),
        ),
        max_size=20,
    )
)
def test_any_numbers_and_times_end_no_stream(
    chunks: list[tuple[str, int | None, int | None, bytes]],
) -> None:
    dialect = opened(StreamHabits(encoding="audio/x-l16", reorder_ms=100))
    both = start(tracks=["inbound", "outbound"], mediaFormat={})
    heard: list[str | bytes] = [both]
    for track, chunk, timestamp, audio in chunks:
        fields = json.loads(media(0, audio, track))
        fields["media"].update({"chunk": chunk, "timestamp": timestamp})
        heard.append(json.dumps(fields))
    survives(dialect, [*heard, STOP])
