from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.server.telephony.codecs import OPUS, PCMU
from audiokv.server.telephony.rtp_line import HOLD_MS, RtpLine
from audiokv.server.telephony.rtp_packet import RtpPacket
from audiokv.server.telephony.rtp_sender import Heard
from benchmarks.telephone_line import ENCODINGS, Leg, Network, Sent
from tests.server.telephony.fuzzing import audio_in, gaps_in

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command

SPOKEN_MS = 2_000
CODES = {name: encoding.payload_type for name, encoding in ENCODINGS.items()}
BY_TYPE = {0: PCMU, CODES["opus"]: OPUS}


@cache
def sent(leg: Leg, from_ms: int, until_ms: int) -> list[Sent]:
    """Return packets of a noise that is the same whoever sends it."""
    noise = np.random.default_rng(9).standard_normal(16 * 20_000).astype(np.float32) * 0.1
    return leg.send(noise[16 * from_ms : 16 * until_ms], from_ms)


def listened(arrived: list[Sent], *, clocked: bool = True) -> tuple[RtpLine, list[Command]]:
    line = RtpLine()
    said: list[Command] = []
    for one in arrived:
        packet = RtpPacket.parse(one.data)
        codec = BY_TYPE[packet.payload_type]
        said += line.push(Heard(packet, codec, one.at_ms if clocked else None))
    return line, said


def length_ms(said: list[Command]) -> float:
    return len(audio_in(said)) / 32 + sum(gaps_in(said))


def steady(packets: list[Sent]) -> list[Sent]:
    return Network().carry(packets, np.random.default_rng(1))


FIRST = Leg(source=1, sequence=10, timestamp=1_000)
SECOND = Leg(source=2, sequence=60_000, timestamp=77)


def test_another_sender_is_followed_without_a_gap_where_it_goes_on() -> None:
    packets = sent(FIRST, 0, 1_000) + sent(SECOND, 1_000, SPOKEN_MS)
    line, said = listened(steady(packets))
    said += line.flush()
    assert gaps_in(said) == []
    assert length_ms(said) == SPOKEN_MS


@pytest.mark.parametrize("silent_ms", [100, 3_000])
def test_the_silence_between_two_senders_is_told_by_arrival(silent_ms: int) -> None:
    packets = sent(FIRST, 0, 1_000) + sent(SECOND, 1_000 + silent_ms, 2_000 + silent_ms)
    line, said = listened(steady(packets))
    said += line.flush()
    assert gaps_in(said) == [silent_ms]
    assert length_ms(said) == 2_000 + silent_ms


def test_without_a_clock_another_sender_goes_on_at_once() -> None:
    packets = sent(FIRST, 0, 1_000) + sent(SECOND, 2_000, 3_000)
    line, said = listened(steady(packets), clocked=False)
    said += line.flush()
    assert gaps_in(said) == []
    assert length_ms(said) == 2_000


def test_a_change_to_a_codec_with_another_clock_is_one_of_the_sender() -> None:
    wide = Leg("opus", source=1, sequence=60, timestamp=5)
    packets = sent(FIRST, 0, 1_000) + sent(wide, 1_100, 2_100)
    line, said = listened(steady(packets))
    said += line.flush()
    assert gaps_in(said) == [100]
    assert length_ms(said) == 2_100


def test_a_sender_that_sets_its_clock_anew_is_followed_in_true_time() -> None:
    anew = Leg(source=1, sequence=10, timestamp=10**9)
    packets = sent(FIRST, 0, 1_000) + sent(anew, 1_500, 2_500)
    line, said = listened(steady(packets))
    said += line.flush()
    assert gaps_in(said) == [500]


def test_another_sender_is_heard_for_a_while_before_it_is_followed() -> None:
    _, said = listened(steady(sent(FIRST, 0, 1_000) + sent(SECOND, 1_000, 1_000 + HOLD_MS - 20)))
    assert length_ms(said) < 1_000
    _, said = listened(steady(sent(FIRST, 0, 1_000) + sent(SECOND, 1_000, 1_000 + HOLD_MS)))
    assert length_ms(said) > 1_000 + HOLD_MS - 5


def test_a_sender_is_not_left_while_it_speaks() -> None:
    both = sorted(
        steady(sent(FIRST, 0, SPOKEN_MS)) + steady(sent(SECOND, 0, SPOKEN_MS)),
        key=lambda one: one.at_ms,
    )
    line, said = listened(both)
    said += line.flush()
    alone_line, alone = listened(steady(sent(FIRST, 0, SPOKEN_MS)))
    alone += alone_line.flush()
    assert audio_in(said) == audio_in(alone)


def test_stragglers_of_the_sender_before_are_left_out() -> None:
    first = sent(FIRST, 0, 1_000)
    late = [Sent(one.at_ms + 900, one.data) for one in first[-4:-1]]
    packets = [*first[:-4], first[-1], *sent(SECOND, 1_000, 3_000), *late]
    line, said = listened(sorted(steady(packets), key=lambda one: one.at_ms))
    said += line.flush()
    assert gaps_in(said) == [60]
    assert length_ms(said) == 3_000


def test_a_sender_that_comes_back_is_followed_again() -> None:
    packets = sent(FIRST, 0, 1_000) + sent(SECOND, 1_000, 5_000) + sent(FIRST, 6_000, 7_000)
    line, said = listened(steady(packets))
    said += line.flush()
    assert gaps_in(said) == [1_000]
    assert length_ms(said) == 7_000


def test_a_straggler_of_long_ago_says_nothing_of_a_sender_that_comes_back() -> None:
    first = sent(FIRST, 0, 1_000)
    straggler = Sent(first[-2].at_ms + 500, first[-2].data)
    parts = (
        steady([*first[:-2], first[-1]]),
        steady(sent(SECOND, 1_000, 5_000)),
        steady(sent(FIRST, 5_000, 6_000)),
    )
    line, said = listened(in_turn(*parts, [straggler]))
    said += line.flush()
    assert gaps_in(said) == [20]
    assert length_ms(said) == 6_000


def test_at_a_silence_another_sender_needs_no_more_packets() -> None:
    packets = sent(FIRST, 0, 1_000) + sent(SECOND, 1_000, 1_100)
    line, said = listened(steady(packets))
    said += line.flush()
    assert length_ms(said) == 1_100
    line, said = listened(steady(sent(FIRST, 0, 1_000) + sent(SECOND, 1_000, 1_060)))
    said += line.flush()
    assert length_ms(said) == 1_000  # too few to be sure of


def test_what_another_sender_may_have_waiting_is_bounded() -> None:
    line, _ = listened(steady(sent(FIRST, 0, 100)))
    for n in range(500):
        for leg, from_ms in ((SECOND, 20 * n), (FIRST, 100 + 20 * n)):
            (one,) = leg.send(np.zeros(320, np.float32), from_ms)
            line.push(Heard(RtpPacket.parse(one.data), PCMU, 20.0 * n))
    assert len(line._held) <= 64


@pytest.mark.parametrize("ahead_ms", [3_000, 599_000])
def test_a_stray_time_does_not_move_the_clock(ahead_ms: int) -> None:
    (stray,) = steady(
        sent(Leg(source=1, sequence=60, timestamp=1_000 + 8 * ahead_ms), 1_000, 1_020)
    )
    kept = in_turn(steady(sent(FIRST, 0, 1_000)), [stray], steady(sent(FIRST, 1_020, 2_000)))
    line, said = listened(kept)
    said += line.flush()
    assert gaps_in(said) == [20]
    assert length_ms(said) == 2_000


def test_a_long_pause_of_the_sender_is_told_whoever_else_was_heard() -> None:
    parts = (
        steady(sent(FIRST, 0, 1_000)),
        steady(sent(SECOND, 10_000, 10_060)),
        steady(sent(FIRST, 10_100, 11_000)),
    )
    line, said = listened(in_turn(*parts))
    assert gaps_in(said) == [9_100]
    said += line.flush()
    assert length_ms(said) == 11_000


def test_packets_that_a_network_held_back_are_the_senders_own() -> None:
    late = [Sent(max(one.at_ms, 2_000.0), one.data) for one in steady(sent(FIRST, 980, 4_000))]
    line, said = listened([*steady(sent(FIRST, 0, 980)), late[0], *late[91:98]])
    assert gaps_in(said) == [1_800]  # at once: another sender would be heard for a while
    said += line.flush()
    assert length_ms(said) == 2_940


def test_an_empty_line_has_nothing_to_say() -> None:
    assert RtpLine().flush() == []


def late_at_first(packets: list[Sent], n_late: int = 20, by_ms: int = 40) -> list[Sent]:
    """Return packets that come steadily, the first ones late."""
    came = steady(packets)
    return [Sent(one.at_ms + by_ms * (n < n_late), one.data) for n, one in enumerate(came)]


def in_turn(*parts: list[Sent]) -> list[Sent]:
    return sorted((one for part in parts for one in part), key=lambda one: one.at_ms)


@pytest.mark.parametrize(("by_ms", "gaps"), [(9, []), (10, [10])])
def test_a_few_milliseconds_are_jitter_and_no_gap(by_ms: int, gaps: list[int]) -> None:
    parts = (steady(sent(FIRST, 0, 1_000)), late_at_first(sent(SECOND, 1_000, 2_000), by_ms=by_ms))
    _, said = listened(in_turn(*parts))
    assert gaps_in(said) == gaps


def test_what_the_stream_was_let_go_on_too_far_is_taken_back_from_later_gaps() -> None:
    second = sent(SECOND, 1_000, 3_000)
    kept = [*second[:30], *second[31:50], *second[52:]]
    line, said = listened(in_turn(steady(sent(FIRST, 0, 1_000)), late_at_first(kept)))
    said += line.flush()
    assert gaps_in(said) == [40, 20]  # of 20 ms lost and then 40 ms
    assert length_ms(said) == 3_000


def test_what_was_not_taken_back_yet_is_known_when_the_next_sender_comes() -> None:
    third = sent(Leg(source=3, sequence=1, timestamp=1), 5_000, 8_000)
    kept = [*third[:40], *third[43:]]
    parts = (
        steady(sent(FIRST, 0, 1_000)),
        late_at_first(sent(SECOND, 1_000, 5_000)),
        steady(kept),
    )
    line, said = listened(in_turn(*parts))
    said += line.flush()
    assert gaps_in(said) == [40, 20]  # of 60 ms lost
    assert length_ms(said) == 8_000


def test_no_more_is_taken_back_than_jitter_explains() -> None:
    second = sent(SECOND, 1_000, 3_000)
    kept = [*second[:40], *second[45:]]
    parts = (steady(sent(FIRST, 0, 1_000)), late_at_first(kept, by_ms=150))
    line, said = listened(in_turn(*parts))
    said += line.flush()
    assert gaps_in(said) == [150, 40]  # of 100 ms lost: 60 at most


def test_a_network_that_is_faster_later_says_nothing_of_where_a_sender_began() -> None:
    second = sent(SECOND, 1_000, 6_000)
    kept = [*second[:200], *second[203:]]
    parts = (steady(sent(FIRST, 0, 1_000)), late_at_first(kept, n_late=150))
    line, said = listened(in_turn(*parts))
    said += line.flush()
    assert gaps_in(said) == [40, 60]


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**16),
    silent_ms=st.sampled_from([0, 20, 60, 500, 3_000]),
    loss=st.sampled_from([0.0, 0.05, 0.1]),
)
def test_the_stream_is_true_soon_after_another_sender_came(
    seed: int, silent_ms: int, loss: float
) -> None:
    chance = np.random.default_rng(seed)
    network = Network(loss=loss, jitter_ms=60.0, doubling=0.02)
    after_ms = 4_000 + silent_ms
    packets = sent(FIRST, 0, 4_000) + sent(SECOND, after_ms, after_ms + 6_000)
    arrived = network.carry(packets, chance)
    left_ms = {one.data: one.at_ms for one in packets}
    # The first packet that came is the stream's beginning, the last one spoken its end.
    true_ms = max(left_ms[one.data] for one in arrived) - (left_ms[arrived[0].data] - 20)
    line, said = listened(arrived)
    said += line.flush()
    # Arrival times of its first packets place a sender, as well as jitter lets them. Too late a
    # place is put right in the first gaps; a line that loses nothing has none.
    assert abs(length_ms(said) - true_ms) <= (20 if loss else 40)
