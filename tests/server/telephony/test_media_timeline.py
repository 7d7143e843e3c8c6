from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.media_timeline import MAX_GAP_MS, MediaTimeline
from audiokv.server.telephony.reorder import Packet, ReorderBuffer


def test_joining_packets_have_no_gap_and_the_first_sets_the_clock() -> None:
    timeline = MediaTimeline(1_000)
    assert [timeline.place(start, 20) for start in (5_000, 5_020, 5_040)] == [0, 0, 0]


def test_a_clock_that_was_set_counts_from_there() -> None:
    timeline = MediaTimeline(1_000)
    timeline.begin(5_000)
    assert [timeline.place(start, 20) for start in (5_100, 5_120)] == [100, 0]
    timeline.begin(0)
    assert timeline.place(5_140, 20) == 0


def test_a_missing_packet_is_a_gap_of_its_length() -> None:
    timeline = MediaTimeline(8_000)
    assert [timeline.place(start, 160) for start in (0, 320, 480, 1_600)] == [0, 20, 0, 120]


def test_unsteady_times_cut_nothing_but_do_not_add_up() -> None:
    timeline = MediaTimeline(1_000)
    starts = (0, 27, 41, 73, 85, 108, 120)
    assert [timeline.place(start, 20) for start in starts] == [0] * 7
    assert timeline.place(163, 20) == 23  # 140 was due; 163 is more than a packet late


def test_parts_of_a_millisecond_are_not_lost() -> None:
    timeline = MediaTimeline(44_100)
    gaps = []
    start = 0
    for _ in range(100):
        gaps.append(timeline.place(start, 441))
        start += 882 + 7  # a gap of 10.16 ms before each
    assert abs(sum(gaps) - 99 * (441 + 7) * 1000 / 44_100) < 1


def test_without_times_the_packets_lost_count() -> None:
    timeline = MediaTimeline(1_000)
    assert [timeline.place(None, 20, n_lost) for n_lost in (0, 0, 3, 0)] == [0, 0, 60, 0]


def test_lost_packets_count_only_without_times() -> None:
    timeline = MediaTimeline(1_000)
    assert [timeline.place(start, 20, 5) for start in (0, 20)] == [0, 0]


def test_a_clock_set_anew_is_followed_without_a_gap() -> None:
    timeline = MediaTimeline(1_000)
    starts = (1_000_000, 1_000_020, 0, 20, 40 + MAX_GAP_MS + 1, 60 + MAX_GAP_MS + 1)
    assert [timeline.place(start, 20) for start in starts] == [0] * 6


def test_the_longest_gap_is_still_one() -> None:
    timeline = MediaTimeline(1_000)
    assert [timeline.place(start, 20) for start in (0, 20 + MAX_GAP_MS)] == [0, MAX_GAP_MS]


def test_a_packet_without_length_is_no_endless_gap() -> None:
    timeline = MediaTimeline(1_000)
    assert [timeline.place(start, 0) for start in (0, 0, 5)] == [0, 0, 5]


@given(
    n_packets=st.integers(2, 400),
    loss=st.floats(0, 0.4),
    seed=st.integers(0, 2**16),
    jitter_ms=st.integers(0, 60),
)
def test_time_stays_true_over_loss_jitter_and_duplicates(
    n_packets: int, loss: float, seed: int, jitter_ms: int
) -> None:
    assert_true_time(n_packets, loss=loss, jitter_ms=jitter_ms, seed=seed)


def test_time_stays_true_over_ten_minutes_with_a_long_gap() -> None:
    assert_true_time(30_000, loss=0.05, jitter_ms=60, seed=7, away=range(9_000, 9_150))


def assert_true_time(
    n_packets: int, *, loss: float, jitter_ms: int, seed: int, away: range = range(0)
) -> None:
    """Send packets of 20 ms; each must lie where it was spoken, within 20 ms."""
    rng = random.Random(seed)  # noqa: S311  no secret
    arrivals = [(0.0, 0)]
    for n in range(1, n_packets):
        if rng.random() >= loss and n not in away:
            copies = 2 if rng.random() < 0.02 else 1
            arrivals += [(n * 20 + rng.uniform(0, jitter_ms), n) for _ in range(copies)]
    buffer, timeline = ReorderBuffer(100 * 8), MediaTimeline(8_000)
    stream_ms = 0
    heard: list[int] = []

    def hear(packets: list[Packet]) -> None:
        nonlocal stream_ms
        for one in packets:
            stream_ms += timeline.place(one.start, 160)
            assert abs(stream_ms - one.sequence * 20) <= 20
            stream_ms += 20
            heard.append(one.sequence)

    for _, n in sorted(arrivals):
        hear(buffer.push(Packet(n, n * 160, b"")))
    hear(buffer.flush())
    assert heard == sorted({n for _, n in arrivals})
