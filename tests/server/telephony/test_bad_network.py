"""Ten minutes of a call over a bad network, in virtual time, from INVITE to BYE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from audiokv.server.telephony.sip import SipPort
from benchmarks.telephone_line import (
    BAD_NETWORK,
    ENCODINGS,
    OPUS_TYPE,
    Leg,
    Network,
    Sent,
    without,
)
from tests.server.doubles import ManualClock, until
from tests.server.running import running_server
from tests.server.telephony.calling import Follower
from tests.server.telephony.sip_caller import SipCaller
from tests.server.telephony.tone_words import (
    BEGIN_MS,
    WORD_MS,
    ToneRecognizer,
    tone_words,
    word_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.server.app import CaptionServer
    from audiokv.streaming.captions import Caption

PATIENCE_S = 300  # a limit where it hangs; the call itself is in virtual time
PACKET_MS = 20
BATCH = 50  # packets between two looks at the clock's alarms; a second
MOST_OFF_MS = 20

# Each leg: seconds from, seconds until, and how its sender counts. All but the third set their
# counters anew; the third goes on with those of the second, only its codec is another. Before the
# last one nothing is sent for three seconds.
LEGS = (
    (0, 200, Leg("pcmu", source=1, sequence=65_000, timestamp=2**32 - 4_000)),
    (200, 290, Leg("g722", source=2, sequence=40, timestamp=123_456)),
    (290, 420, Leg("pcma", source=2, sequence=40, timestamp=123_456)),
    (420, 440, Leg("opus", source=2, sequence=9, timestamp=77)),
    (443, 600, Leg("pcmu", source=1, sequence=2_000, timestamp=5)),
)
DEAD_S = (350, 353)
SILENT_S = {*range(*DEAD_S), *range(440, 443)}


class Call:
    """What was sent, what came of it, and where a change of codec is agreed on.

    Args:
        legs: Parts of the call.
        network: What happens to the packets.
        seed: Decides what.
    """

    def __init__(self, legs: Sequence[tuple[int, int, Leg]], network: Network, seed: int) -> None:
        chance = np.random.default_rng(seed)
        sent: list[Sent] = []
        for from_s, until_s, leg in legs:
            sent += leg.send(tone_words(from_s, until_s - from_s), 1000.0 * from_s)
        alive = without(sent, 1000 * DEAD_S[0] + PACKET_MS, 1000 * DEAD_S[1] + PACKET_MS)
        self.arrived = network.carry(alive, chance)
        spoken_ms = {one.data: one.at_ms - PACKET_MS for one in sent}
        self.came_ms = {spoken_ms[one.data] for one in self.arrived}
        self.begin_ms = spoken_ms[self.arrived[0].data]  # the stream's 0
        self.end_ms = 1000 * legs[-1][1]

    def n_heard(self, from_ms: int, until_ms: int) -> int:
        """Return how many of the packets of a time came."""
        return sum(at_ms in self.came_ms for at_ms in range(from_ms, until_ms, PACKET_MS))


async def held(server: CaptionServer, clock: ManualClock, call: Call, caller: SipCaller) -> None:
    """Let the packets come at their times; change the codec by a new offer before each leg."""
    port = server._others["sip_port"]
    assert isinstance(port, SipPort)
    (answered,) = port._calls.values()
    entry = next(iter(server.registry._by_name.values()))
    changes = [(1000 * from_s, leg) for from_s, _, leg in LEGS[1:]]
    for n, one in enumerate(call.arrived):
        if changes and one.at_ms >= changes[0][0]:
            payload_type = ENCODINGS[changes.pop(0)[1].encoding].payload_type
            assert await caller.invite(payload_type, maps=(f"{OPUS_TYPE} opus/48000/2",)) == 200
        clock._now_s = one.at_ms / 1000
        answered.wire.datagram_received(one.data, ("127.0.0.1", 9))
        if n % BATCH == BATCH - 1:
            await clock.advance(0)
            await until(answered.wire._waiting.empty)
            await until(lambda: entry.stream.lag_ms < 5_000)


@pytest.mark.slow
async def test_ten_minutes_stay_true_and_no_word_outside_the_gap_is_harmed() -> None:
    call = Call(LEGS, BAD_NETWORK, seed=5)
    clock = ManualClock()
    async with running_server(
        ToneRecognizer(), clock=clock, patience_s=PATIENCE_S, sip_port=0
    ) as server:
        follower = Follower(server)
        caller = SipCaller(server.other_ports["sip_port"])
        await caller.open()
        assert await caller.invite(0, 8) == 200
        await until(lambda: bool(follower.streams))
        await held(server, clock, call, caller)
        assert await caller.hang_up() == 200
        (heard,) = await follower.all_done(1)
        caller.close()
    assert heard.done is not None
    assert abs(heard.done.received_ms - (call.end_ms - call.begin_ms)) <= MOST_OFF_MS
    assert_true(heard.captions, call)


def assert_true(captions: Sequence[Caption], call: Call) -> None:
    """Each word whose audio came must stand where it was spoken, under its name."""
    words = [word for caption in captions if caption.is_final for word in caption.words]
    by_second = {round((word.start_ms + call.begin_ms - BEGIN_MS) / 1000): word for word in words}
    assert len(by_second) == len(words)
    n_checked = 0
    for second in range(call.end_ms // 1000):
        begin_ms = 1000 * second + BEGIN_MS
        if second in SILENT_S:
            assert second not in by_second
            continue
        word = by_second[second]
        assert word.text == word_name(second)
        if call.n_heard(begin_ms, begin_ms + PACKET_MS):
            assert abs(word.start_ms + call.begin_ms - begin_ms) <= MOST_OFF_MS
            n_checked += 1
        end_ms = begin_ms + WORD_MS
        if call.n_heard(end_ms - PACKET_MS, end_ms):
            assert abs(word.end_ms + call.begin_ms - end_ms) <= MOST_OFF_MS
    assert n_checked > 0.9 * len(words)
