from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.live_audio import PIECE_MS, LiveAudio
from audiokv.streaming.audio_format import AudioFormat

if TYPE_CHECKING:
    from audiokv.server.live_stream import LiveStream

PACKET = bytes(320)  # 20 ms


class CountingStream:
    """A stream that notes what it is given, with a lag that the test sets."""

    fmt = AudioFormat(sample_rate_hz=8_000)

    def __init__(self) -> None:
        self.lag_ms = 0
        self.taken: list[bytes | int] = []

    def accept(self, audio: bytes) -> None:
        self.taken.append(audio)

    def lose(self, duration_ms: int) -> None:
        self.taken.append(duration_ms)

    def live(self) -> LiveStream:
        return cast("LiveStream", self)


def test_audio_goes_on_while_there_is_room() -> None:
    stream, live = CountingStream(), LiveAudio(1_000)
    stream.lag_ms = 1_000
    live.take(stream.live(), b"ab")
    assert stream.taken == [b"ab"]


def test_what_there_is_no_room_for_becomes_a_gap_in_pieces() -> None:
    stream, live = CountingStream(), LiveAudio(1_000)
    stream.lag_ms = 1_001
    for _ in range(80):
        live.take(stream.live(), PACKET)
    assert stream.taken == []
    stream.lag_ms = 501
    live.take(stream.live(), PACKET)  # not yet: audio would be dropped again at once
    assert stream.taken == []
    stream.lag_ms = 500
    for _ in range(4):
        live.take(stream.live(), PACKET)
    assert stream.taken == [PIECE_MS, 81 * 20 + 2 * 20 - PIECE_MS, PACKET, PACKET]


def test_less_than_a_millisecond_is_no_gap_and_does_not_hold_audio_up() -> None:
    stream, live = CountingStream(), LiveAudio(1_000)
    stream.lag_ms = 2_000
    live.take(stream.live(), b"abcd")
    stream.lag_ms = 0
    live.take(stream.live(), b"efgh")
    live.take(stream.live(), b"ijkl")
    assert stream.taken == [b"ijkl"]


@given(st.lists(st.tuples(st.integers(0, 2_500), st.integers(1, 700)), max_size=40))
def test_audio_and_gaps_together_keep_the_time(moments: list[tuple[int, int]]) -> None:
    stream, live = CountingStream(), LiveAudio(2_000)
    n_sent = 0
    for lag_ms, n_bytes in moments:
        stream.lag_ms = lag_ms
        live.take(stream.live(), bytes(n_bytes))
        n_sent += n_bytes
    stream.lag_ms = 0
    for _ in range(200):
        live.take(stream.live(), PACKET)
        n_sent += len(PACKET)
    n_taken = sum(len(one) if isinstance(one, bytes) else one * 16 for one in stream.taken)
    assert n_sent - 16 * (len(moments) + 1) < n_taken <= n_sent
