from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.reorder import (
    MAX_HELD,
    RESTART_RUN,
    Packet,
    ReorderBuffer,
    Unwrapper,
)

PACKET_MS = 20


def packet(sequence: int, start: int | None = None) -> Packet:
    return Packet(sequence, sequence * PACKET_MS if start is None else start, b"%d" % sequence)


def numbers(packets: list[Packet]) -> list[int]:
    return [one.sequence for one in packets]


def passed(buffer: ReorderBuffer, sequences: list[int]) -> list[int]:
    return [n for sequence in sequences for n in numbers(buffer.push(packet(sequence)))]


def test_packets_in_order_pass_at_once() -> None:
    buffer = ReorderBuffer(100)
    assert [numbers(buffer.push(packet(n))) for n in (7, 8, 9)] == [[7], [8], [9]]


def test_swapped_packets_are_put_in_order() -> None:
    assert passed(ReorderBuffer(100), [0, 2, 1, 4, 5, 3]) == [0, 1, 2, 3, 4, 5]


def test_a_lost_packet_is_waited_for_no_longer_than_asked() -> None:
    for wait, n_held in ((0, 1), (40, 3), (100, 6)):
        buffer = ReorderBuffer(wait)
        released = [numbers(buffer.push(packet(n))) for n in (0, *range(2, 12))]
        assert released[n_held] == list(range(2, 2 + n_held)), wait
        assert not any(released[1:n_held])


def test_duplicates_and_what_is_too_late_are_dropped_and_counted() -> None:
    buffer = ReorderBuffer(0)
    assert passed(buffer, [0, 0, 2, 1, 2, 3]) == [0, 2, 3]
    assert buffer.n_dropped == 3


def test_a_doubled_packet_that_waits_is_dropped() -> None:
    buffer = ReorderBuffer(100)
    assert passed(buffer, [0, 2, 2, 1]) == [0, 1, 2]
    assert buffer.n_dropped == 1


def test_without_times_the_number_held_is_the_limit() -> None:
    buffer = ReorderBuffer(100)
    buffer.push(packet(0))
    for n in range(2, MAX_HELD + 1):
        assert not buffer.push(Packet(n, None, b""))
    assert len(buffer.push(Packet(MAX_HELD + 1, None, b""))) == MAX_HELD


def test_a_source_that_starts_over_is_followed() -> None:
    buffer = ReorderBuffer(100)
    passed(buffer, [1_000, 1_001])
    assert passed(buffer, list(range(RESTART_RUN + 3))) == list(
        range(RESTART_RUN - 1, RESTART_RUN + 3)
    )


def test_what_was_held_comes_before_a_source_that_starts_over() -> None:
    buffer = ReorderBuffer(100)
    passed(buffer, [1_000, 1_002])
    assert passed(buffer, list(range(RESTART_RUN)))[0] == 1_002


def test_a_stream_of_duplicates_is_no_new_start() -> None:
    buffer = ReorderBuffer(100)
    doubled = [n for n in range(3 * RESTART_RUN) for _ in range(2)]
    assert passed(buffer, doubled) == list(range(3 * RESTART_RUN))


def test_flush_gives_the_rest_in_order_and_later_packets_follow_it() -> None:
    buffer = ReorderBuffer(1_000)
    passed(buffer, [0, 3, 2])
    assert numbers(buffer.flush()) == [2, 3]
    assert passed(buffer, [1, 3, 4]) == [4]
    assert not buffer.flush()


@given(st.data())
def test_no_packet_within_the_jitter_is_lost_or_doubled(data: st.DataObject) -> None:
    n_packets = data.draw(st.integers(1, 120))
    lost = data.draw(st.sets(st.integers(1, n_packets)))
    jitter = data.draw(st.lists(st.integers(0, 60), min_size=n_packets, max_size=n_packets))
    # The first to arrive decides where the stream begins, so it is not delayed here.
    arrivals = [(n * PACKET_MS + (jitter[n] if n else 0), n) for n in range(n_packets)]
    arrivals += data.draw(st.lists(st.sampled_from(arrivals), max_size=10))
    heard = [n for _, n in sorted(arrivals) if n not in lost]
    buffer = ReorderBuffer(60)
    out = passed(buffer, heard) + numbers(buffer.flush())
    assert out == [n for n in range(n_packets) if n not in lost]


@given(st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(0, 10**6)), max_size=300))
def test_whatever_comes_the_buffer_stays_small_and_gives_each_out_once(
    pairs: list[tuple[int, int | None]],
) -> None:
    buffer = ReorderBuffer(100)
    n_out = 0
    for sequence, start in pairs:
        n_out += len(buffer.push(Packet(sequence, start, b"")))
        assert len(buffer._held) < MAX_HELD
    assert n_out + len(buffer.flush()) + buffer.n_dropped == len(pairs)


def test_a_counter_that_wraps_goes_on() -> None:
    counter = Unwrapper(16)
    assert [counter.extend(n) for n in (65_534, 65_535, 0, 65_533, 2)] == [
        65_534,
        65_535,
        65_536,
        65_533,
        65_538,
    ]


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(-400, 400), max_size=50))
def test_any_counter_is_extended_by_its_true_steps(first: int, steps: list[int]) -> None:
    counter = Unwrapper(32)
    true = counter.extend(first)
    highest = true
    for step in steps:
        true = highest + step
        assert counter.extend(true % 2**32) == true
        highest = max(highest, true)
