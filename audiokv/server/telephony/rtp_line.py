"""The audio of a call from packets of whoever sends it, each at its true place on the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Audio, Gap
from audiokv.server.telephony.codecs import CODECS
from audiokv.server.telephony.media_timeline import MAX_GAP_MS
from audiokv.server.telephony.packet_audio import PacketAudio
from audiokv.server.telephony.rtp_sender import MAX_WAIT_MS, RtpSender, in_order
from audiokv.server.telephony.transit import TransitFloor
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.protocols.dialect import Command
    from audiokv.server.telephony.reorder import Packet
    from audiokv.server.telephony.rtp_sender import Heard

HOLD_MS = 200  # audio of another sender that is heard before it is followed
_MAX_HELD = 64  # packets of another sender
_MAX_APART_MS = 1_000  # packets of another sender that are further apart begin a new attempt
_LEAST_GAP_MS = 10.0  # what arrival times say more finely is jitter
_SETTLING_MS = 2_000  # after which the least delay of a sender's packets is known
_MAX_TAKEN_BACK_MS = 60.0
_MAX_EARLY_MS = 2_000  # by which a network may hold back the packet before and not this one
_BY_NAME = {codec.name: codec for codec in CODECS}


class RtpLine:
    """Follows one sender at a time, and another once the one before is silent.

    A sender's own times place its packets. Where another sender lies (after a transfer, hold music,
    or a clock set anew), whose times say nothing about those before, the arrival of its packets
    tells: their least delay counts as that of the sender before. It is found too large at first;
    what the stream was let go on too far is taken back from later gaps.
    """

    def __init__(self) -> None:
        self._audio = PacketAudio()
        self._position_ms = 0.0  # end of the audio and gaps handed on
        self._sender: RtpSender | None = None
        self._begin_ms = 0.0  # where the sender's media time 0 lies
        self._floor = TransitFloor()
        self._true_floor_ms: float | None = None  # while the sender's own is not sure yet
        self._settled_at_ms = 0.0
        self._late_ms = 0.0  # by which the stream was let go on too far
        self._other: RtpSender | None = None
        self._held: list[Heard] = []  # of the other sender
        self._n_held_before = 0  # those before the sender's latest packet
        self._arrived_ms: float | None = None  # the sender's latest packet

    def push(self, heard: Heard) -> list[Command]:
        """Take a packet; return audio and gaps that are due."""
        if self._sender is None:
            self._sender = RtpSender(heard)
        if self._sender.has_sent(heard, self._max_ahead_ms(heard)):
            self._n_held_before = len(self._held)
            self._note(self._sender, heard)
            return self._placed(self._sender, self._sender.push(heard))
        self._hold(heard)
        lasts_ms = sum(one.duration_ms for one in self._held)
        is_sure = lasts_ms >= HOLD_MS and self._is_quiet()
        return self._follow(self._sender) if is_sure else []

    def _max_ahead_ms(self, heard: Heard) -> int:
        """Return how much later a packet of the sender can be: no pause is longer than it took."""
        if self._arrived_ms is None or heard.arrived_ms is None:
            return MAX_GAP_MS
        return min(MAX_GAP_MS, round(heard.arrived_ms - self._arrived_ms) + _MAX_EARLY_MS)

    def flush(self) -> list[Command]:
        """Return everything that waits: nothing may come for long."""
        if self._sender is None:
            return []
        rest = self._placed(self._sender, self._sender.flush())
        if self._is_quiet():
            rest += self._follow(self._sender)
        return [*rest, *self._released()]

    def _hold(self, heard: Heard) -> None:
        """Keep a packet of another sender until it is sure that it is followed."""
        if self._other is None or not self._other.has_sent(heard, _MAX_APART_MS):
            self._other = RtpSender(heard)
            self._held = []
            self._n_held_before = 0
        self._other.media_ms(heard)
        self._held.append(heard)
        if len(self._held) > _MAX_HELD:
            self._held.pop(0)
            self._n_held_before = max(0, self._n_held_before - 1)

    def _is_quiet(self) -> bool:
        """Whether only another sender was heard of late: nothing of the one before is under way."""
        return sum(one.duration_ms for one in self._held[self._n_held_before :]) >= MAX_WAIT_MS

    def _follow(self, before: RtpSender) -> list[Command]:
        """Turn to the other sender."""
        rest = self._placed(before, before.flush())
        packets, self._held, self._n_held_before = in_order(self._held), [], 0
        self._sender, self._other = RtpSender(packets[0]), None
        gap_ms = self._silence_before(self._sender, packets)
        rest += self._skipped(gap_ms)
        self._begin_ms = self._position_ms
        for heard in packets:
            self._note(self._sender, heard)
            rest += self._placed(self._sender, self._sender.push(heard))
        return rest

    def _silence_before(self, sender: RtpSender, packets: list[Heard]) -> int:
        """Return how much nobody sent before a new sender's first packet, in ms."""
        floor, self._floor = self._floor.least_ms, TransitFloor()
        own = TransitFloor()
        for heard in packets:
            if heard.arrived_ms is not None:
                own.note(heard.arrived_ms, sender.media_ms(heard))
                self._settled_at_ms = heard.arrived_ms + _SETTLING_MS
        self._true_floor_ms = None if floor is None else floor + self._late_ms
        if self._true_floor_ms is None or own.least_ms is None:
            return 0
        gap_ms = own.least_ms - self._true_floor_ms - self._position_ms
        return min(round(gap_ms), MAX_GAP_MS) if gap_ms >= _LEAST_GAP_MS else 0

    def _note(self, sender: RtpSender, heard: Heard) -> None:
        """Learn from a packet's arrival how far the sender's place is off."""
        media_ms = self._begin_ms + sender.media_ms(heard)
        if heard.arrived_ms is None:
            return
        self._arrived_ms = heard.arrived_ms
        self._floor.note(heard.arrived_ms, media_ms)
        if self._true_floor_ms is not None and heard.arrived_ms <= self._settled_at_ms:
            late_ms = self._true_floor_ms - (self._floor.least_ms or 0.0)
            self._late_ms = min(max(0.0, late_ms), _MAX_TAKEN_BACK_MS)

    def _placed(self, sender: RtpSender, packets: Iterable[Packet]) -> list[Command]:
        placed: list[Command] = []
        for packet in packets:
            codec = _BY_NAME[packet.codec]
            n_ticks = codec.ticks_of(packet.payload)
            placed += self._skipped(self._less_late(sender.missing_ms(packet, n_ticks)))
            lasts_ms = n_ticks * 1000 / codec.clock_hz
            try:
                audio = self._audio.push(codec, packet.payload)
            except MessageError:  # it is as good as lost
                placed += self._skipped(round(lasts_ms))
                continue
            self._position_ms += lasts_ms
            placed += [Audio(audio)] if audio else []
        return placed

    def _less_late(self, gap_ms: int) -> int:
        """Take back from a gap what the stream was let go on too far."""
        taken_ms = min(gap_ms, int(self._late_ms))
        if taken_ms:
            self._late_ms -= taken_ms
            self._begin_ms -= taken_ms
            self._floor.shift(taken_ms)
        return gap_ms - taken_ms

    def _skipped(self, gap_ms: int) -> list[Command]:
        if not gap_ms:
            return []
        self._position_ms += gap_ms
        return [*self._released(), Gap(gap_ms)]

    def _released(self) -> list[Command]:
        held_back = self._audio.flush()
        return [Audio(held_back)] if held_back else []
