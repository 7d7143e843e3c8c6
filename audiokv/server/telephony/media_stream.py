"""What Twilio's Media Streams and its relatives share: JSON messages with audio in base64.

``connected``, ``start`` with the call and its format, ``media`` with a chunk, a time and a payload,
``dtmf``, ``mark``, ``stop``; fields in camelCase or snake_case. Source: Twilio's reference of the
messages; each relative names its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Audio, Finalize, Gap, Stop
from audiokv.server.telephony.call_audio import CallAudio, encoding_named
from audiokv.server.telephony.loose_json import Node
from audiokv.server.telephony.media_timeline import MediaTimeline
from audiokv.server.telephony.quiet import QuietDialect
from audiokv.server.telephony.reorder import Packet, ReorderBuffer
from audiokv.server.telephony.tracks import TrackWeaver
from audiokv.server.telephony.wishes import Wishes, query_text
from audiokv.streaming.audio_format import SAMPLE_BYTES, SILENCE_BYTE
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.protocols.dialect import Command, Opening
    from audiokv.streaming.audio_format import AudioFormat

MAX_PAYLOAD_CHARS = 65_536
_TIMES_HZ = 1_000  # times come in milliseconds
_TRACKS = ("inbound", "outbound")
_ANY_TRACK = ("",)
_TOLD = {
    "stream": ("streamSid", "stream_sid", "streamId", "stream_id"),
    "call": ("callSid", "call_sid", "callId", "call_id", "call_control_id"),
    "from": ("from",),
    "to": ("to",),
    "direction": ("direction",),
}


@dataclass(frozen=True, slots=True)
class StreamHabits:
    """How one provider sends.

    Attributes:
        encoding: Its encoding, unless ``start`` names one.
        rate_hz: Its rate, unless ``start`` names one.
        reorder_ms: How long a missing chunk is waited for; 0 where the order is kept.
    """

    encoding: str = "audio/x-mulaw"
    rate_hz: int = 8_000
    reorder_ms: int = 0


class _Leg:
    """The chunks of one track, put in order and in time."""

    def __init__(self, habits: StreamHabits, fmt: AudioFormat) -> None:
        self._fmt = fmt
        self._buffer = ReorderBuffer(habits.reorder_ms)
        self._timeline = MediaTimeline(_TIMES_HZ)
        self._latest: int | None = None
        self._n_seen = 0

    def begin(self, start_ms: int) -> None:
        self._timeline.begin(start_ms)

    def push(self, chunk: int | None, start_ms: int | None, audio: bytes) -> list[Audio | Gap]:
        self._n_seen += 1
        number = self._n_seen if chunk is None else chunk
        return self._placed(self._buffer.push(Packet(number, start_ms, audio)))

    def flush(self) -> list[Audio | Gap]:
        return self._placed(self._buffer.flush())

    def _placed(self, packets: Iterable[Packet]) -> list[Audio | Gap]:
        placed: list[Audio | Gap] = []
        for packet in packets:
            n_lost = max(0, packet.sequence - (self._latest or packet.sequence - 1) - 1)
            self._latest = packet.sequence
            duration_ms = len(packet.payload) * _TIMES_HZ // self._fmt.bytes_per_second
            gap_ms = self._timeline.place(packet.start, duration_ms, n_lost)
            placed.extend([Gap(gap_ms)] if gap_ms else [])
            placed.append(Audio(packet.payload))
        return placed


class MediaStreamDialect(QuietDialect):
    """One stream of a call.

    Where ``start`` names both tracks, they become the two channels of the stream; where it names
    none, ``?tracks=both`` in the address does, and else the track of the first chunk is the one.

    Args:
        habits: How the provider sends.
    """

    def __init__(self, habits: StreamHabits) -> None:
        self._habits = habits
        self._wishes = Wishes()
        self._is_both_asked = False
        self._fmt: AudioFormat | None = None
        self._legs: dict[str, _Leg] = {}
        self._weaver: TrackWeaver | None = None
        self._is_stopped = False
        self._is_silent = False

    def open(self, opening: Opening) -> list[Command]:
        """Read ``language``, ``prompt`` and ``tracks`` of the address, where it may have a query.

        Raises:
            RefusalError: The client may not come in.
        """
        self._wishes = Wishes.of_opening(opening, self.source)
        self._is_both_asked = query_text(opening, "tracks") == "both"
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a message of the provider; events without meaning for captions are left out.

        Raises:
            MessageError: The message is none of the protocol, or comes out of turn.
        """
        if isinstance(message, bytes):
            raise MessageError(
                "text_expected",
                f"A binary message of {len(message)} bytes came.",
                "Send audio as base64 in a media message.",
            )
        fields = Node.parse(message)
        match fields.text("event"):
            case "start":
                return self._start(fields)
            case "media":
                return self._media(fields.node("media"))
            case "stop":
                return self._stop()
            case _:
                return []  # connected, dtmf (digits may be secret), mark, and what comes to be

    def miss(self, more_ms: int) -> list[Command]:
        """End the open caption: the silence itself is told by the time of the next chunk."""
        del more_ms
        is_new = self._fmt is not None and not self._is_silent
        self._is_silent = True
        return [*self._flushed(), Finalize()] if is_new else []

    def _start(self, fields: Node) -> list[Command]:
        if self._fmt is not None:
            raise MessageError("second_start", "start came twice.", "Use a new connection.")
        start = fields.node("start")
        kind = start.node("mediaFormat", "media_format")
        encoding = encoding_named(kind.text("encoding") or self._habits.encoding)
        rate_hz = kind.whole("sampleRate", "sample_rate") or self._habits.rate_hz
        named = [track for track in _TRACKS if track in _names(start)]
        tracks = named or list(_TRACKS if self._is_both_asked else _ANY_TRACK)
        is_both = len(tracks) == len(_TRACKS)
        leg_fmt = CallAudio(encoding, rate_hz).fmt
        if leg_fmt.sample_rate_hz != rate_hz:
            raise MessageError(
                "unsupported_audio", f"A stream of {rate_hz} Hz came.", "Send at most 48,000 Hz."
            )
        self._legs = {track: _Leg(self._habits, leg_fmt) for track in tracks}
        if is_both:
            self._weaver = TrackWeaver(rate_hz, SILENCE_BYTE[encoding] * SAMPLE_BYTES[encoding])
        self._fmt = CallAudio(encoding, rate_hz, 2 if is_both else 1).fmt
        told = {name: start.text(*spellings) for name, spellings in _TOLD.items()}
        told["stream"] = told["stream"] or fields.text(*_TOLD["stream"])
        custom = start.node("customParameters", "custom_parameters")
        wishes = self._wishes.joined(
            custom, {**custom.metadata(), **{n: v for n, v in told.items() if v}}
        )
        return [wishes.begin(self._fmt, _TRACKS if is_both else ())]

    def _media(self, media: Node) -> list[Command]:
        if self._fmt is None:
            raise MessageError("start_expected", "media came before start.", "Send start first.")
        if self._is_stopped:
            return []
        self._is_silent = False
        track = media.text("track").removesuffix("_track") or next(iter(self._legs))
        if self._legs.keys() == set(_ANY_TRACK):
            self._legs = {track: self._legs.pop(*_ANY_TRACK)}
        leg = self._legs.get(track)
        audio = media.audio("payload", max_chars=MAX_PAYLOAD_CHARS)
        if leg is None:  # a track that start did not announce
            return []
        start_ms = media.whole("timestamp")
        if start_ms is not None and self._weaver is not None:
            for each in self._legs.values():  # both legs count from the first chunk of either
                each.begin(start_ms)
        placed = leg.push(media.whole("chunk"), start_ms, audio)
        return self._woven(track, placed)

    def _woven(self, track: str, placed: list[Audio | Gap]) -> list[Command]:
        if self._weaver is None or self._fmt is None:
            return list(placed)
        number, rate_hz = _TRACKS.index(track), self._fmt.sample_rate_hz
        commands: list[Command] = []
        for piece in placed:
            n_leapt = 0
            if isinstance(piece, Gap):
                n_samples = piece.duration_ms * rate_hz // 1000
                woven, n_leapt = self._weaver.leap(number, n_samples)
            else:
                woven = self._weaver.push(number, piece.data)
            commands += [Audio(woven)] if woven else []
            commands += [Gap(n_leapt * 1000 // rate_hz)] if n_leapt else []
        return commands

    def _flushed(self) -> list[Command]:
        """Return what still waited for lost chunks."""
        return [c for track, leg in self._legs.items() for c in self._woven(track, leg.flush())]

    def _stop(self) -> list[Command]:
        if self._fmt is None:
            raise MessageError("start_expected", "stop came before start.", "Send start first.")
        if self._is_stopped:
            return []
        self._is_stopped = True
        rest = self._flushed()
        if self._weaver is not None and (tail := self._weaver.flush()):
            rest.append(Audio(tail))
        return [*rest, Stop()]


def _names(start: Node) -> list[str]:
    """Return the tracks a start announces, in any provider's spelling."""
    listed = [str(item).removesuffix("_track") for item in start.items("tracks", max_items=8)]
    return [*listed, start.text("track").removesuffix("_track")]
