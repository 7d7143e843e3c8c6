from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Command, Opening, Stop
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.audiosocket import (
    CALL_ID,
    DIGIT,
    ERROR,
    HANGUP,
    RATES_HZ,
    AudioSocketDialect,
    frame,
)
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, audio_in, begin_in, survives

CALL = UUID("6f6c7a0e-8d0b-4b7e-9d3f-0a1b2c3d4e5f")
HELLO = frame(CALL_ID, CALL.bytes)
FRAMES = st.builds(
    frame,
    st.sampled_from([HANGUP, CALL_ID, DIGIT, ERROR, 0x77, *RATES_HZ]),
    st.binary(max_size=20) | st.just(CALL.bytes),
)


def opened() -> AudioSocketDialect:
    dialect = AudioSocketDialect()
    assert dialect.open(Opening()) == []
    return dialect


def test_a_frame_has_three_bytes_in_front() -> None:
    assert frame(0x10, b"ab") == b"\x10\x00\x02ab"
    assert frame(0x12, bytes(640))[:3] == b"\x12\x02\x80"


def test_the_first_audio_begins_a_stream_named_after_the_call() -> None:
    dialect = opened()
    assert dialect.hear(HELLO) == []
    begin, audio = dialect.hear(frame(0x10, b"\1\2" * 160))
    assert begin_in([begin]).fmt == AudioFormat(sample_rate_hz=8_000)
    assert begin_in([begin]).metadata == {"source": "audiosocket", "call": str(CALL)}
    assert audio == Audio(b"\1\2" * 160)


@pytest.mark.parametrize(("kind", "rate_hz"), RATES_HZ.items())
def test_every_rate_is_taken(kind: int, rate_hz: int) -> None:
    dialect = opened()
    heard = dialect.hear(HELLO)
    for _ in range(50):
        heard += dialect.hear(frame(kind, bytes(2 * (rate_hz // 50))))
    fmt = begin_in(heard).fmt
    assert fmt.sample_rate_hz == (rate_hz if rate_hz <= 48_000 else 16_000)
    second = fmt.bytes_per_second
    assert second * 0.99 < len(audio_in(heard)) <= second


@given(cuts=st.lists(st.integers(0, 400), max_size=30))
def test_bytes_may_be_split_anywhere(cuts: list[int]) -> None:
    pieces = [HELLO, *(frame(0x10, bytes([n, 0]) * 20) for n in range(9)), frame(DIGIT, b"5")]
    sent = b"".join([*pieces, frame(0x10, b"zz"), frame(HANGUP)])
    dialect = opened()
    heard: list[Command] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(sent)], strict=True):
        heard += dialect.hear(sent[start:end])
    assert audio_in(heard) == b"".join(bytes([n, 0]) * 20 for n in range(9)) + b"zz"
    assert heard[-1] == Stop()
    begin_in(heard)


def test_frames_that_come_together_are_one_piece_of_audio() -> None:
    heard = opened().hear(HELLO + frame(0x10, b"ab") + frame(0x10, b"cd"))
    assert heard[1:] == [Audio(b"abcd")]


@pytest.mark.parametrize("kind", [HANGUP, ERROR])
def test_a_hangup_and_an_error_end_the_stream(kind: int) -> None:
    dialect = opened()
    dialect.hear(HELLO + frame(0x10, b"ab"))
    assert dialect.hear(frame(kind, b"\x01") + frame(0x10, b"cd")) == [Stop()]


def test_digits_and_what_a_later_version_sends_are_left_out() -> None:
    dialect = opened()
    dialect.hear(HELLO)
    assert dialect.hear(frame(DIGIT, b"7") + frame(0x42, b"?")) == []


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n", frame(0x10, b"ab"), frame(CALL_ID, b"short"), frame(HANGUP)],
)
def test_what_is_no_audiosocket_is_refused_at_its_first_bytes(sent: bytes) -> None:
    with pytest.raises(MessageError) as caught:
        opened().hear(sent[:3])
    assert caught.value.code == "not_audiosocket"


def test_half_a_sample_and_another_rate_are_refused() -> None:
    for sent in (frame(0x10, b"abc"), frame(0x10, b"ab") + frame(0x12, b"ab")):
        with pytest.raises(MessageError):
            opened().hear(HELLO + sent)


def test_a_frame_that_never_ends_holds_no_more_than_its_length() -> None:
    dialect = opened()
    dialect.hear(HELLO + b"\x10\xff\xfe")
    for _ in range(63):
        dialect.hear(bytes(1_000))
    assert len(dialect._received) == 63_003
    assert len(audio_in(dialect.hear(bytes(5_000)))) == 0xFFFE


def test_silence_goes_back_at_the_calls_own_rate_every_second() -> None:
    dialect = opened()
    assert dialect.tick_every_s == 1.0
    assert dialect.tick() == [frame(0x10, bytes(320))]
    dialect.hear(HELLO + frame(0x12, b"ab"))
    assert dialect.tick() == [frame(0x12, bytes(640))]


def test_the_call_is_hung_up_at_the_end_and_when_it_is_refused() -> None:
    refusal = RefusalError(CloseCode.FULL, "full", "All taken.", "Try later.")
    assert opened().refuse(refusal).messages == [b"\0\0\0"]
    assert opened().done().messages == [b"\0\0\0"]


@FUZZED
@given(st.lists(FRAMES | st.binary(max_size=30) | st.text(max_size=5), max_size=12))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(AudioSocketDialect(), [HELLO, *heard])
    survives(AudioSocketDialect(), heard)
