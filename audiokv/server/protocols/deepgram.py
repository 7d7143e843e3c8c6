"""Deepgram's live transcription, ``/v1/listen``.

Source: Deepgram's API reference of the streaming endpoint and its guides on endpointing, interim
results, ``Finalize``, ``KeepAlive`` and closing a stream.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.server.protocols.deepgram_options import read_options
from audiokv.server.protocols.deepgram_results import ResultWriter, packed
from audiokv.server.protocols.dialect import (
    Audio,
    Farewell,
    Finalize,
    Finalized,
    PlainDialect,
    Stop,
)
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.captions import Caption, SpeechChange
from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import parse_object, shown
from audiokv.streaming.messages import Done, Progress, Ready

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from audiokv.server.protocols.dialect import Command, Event, Opening

IDLE_TIMEOUT_S = 10.0
_IDLE_REASON = (
    "NET-0001: The server did not receive audio data or a text message within the timeout window."
)
_CLOSE_CODES = {
    CloseCode.BAD_MESSAGE: 1008,
    CloseCode.BAD_AUDIO: 1008,
    CloseCode.IDLE: 1011,
    CloseCode.NOT_AUTHORIZED: 1008,
}


@dataclass(slots=True)
class _Held:
    """A final caption that is told once it is known what it ends."""

    caption: Caption
    is_speech_final: bool


class DeepgramDialect(PlainDialect):
    """One connection of a Deepgram client.

    Args:
        can_tell_speakers: Whether the server tells speakers apart.
        now: Tells the time of day, for the stream's metadata.
    """

    idle_timeout_s: float | None = IDLE_TIMEOUT_S

    def __init__(self, *, can_tell_speakers: bool, now: Callable[[], datetime]) -> None:
        self._can_tell_speakers = can_tell_speakers
        self._created = now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._writer: ResultWriter | None = None
        self._pause_ms = 0
        self._digest = hashlib.sha256()
        self._duration_ms = 0
        self._n_finalizes = 0
        self._held: dict[int, _Held] = {}  # by channel
        self._quiet_since_ms: int | None = None  # the end of speech that has not been told
        self._last_word_ms: int | None = None  # the end of a final word whose gap was not told
        self._open_channels: set[int] = set()  # with words that are not final

    def open(self, opening: Opening) -> list[Command]:
        """Begin the stream that the address asks for.

        Raises:
            MessageError: An option is not supported.
        """
        self._pause_ms = opening.pause_ms
        options = read_options(opening, can_tell_speakers=self._can_tell_speakers)
        self._writer = ResultWriter(options, opening.model)
        return [options.begin]

    def hear(self, message: str | bytes) -> list[Command]:
        """Take audio, ``KeepAlive``, ``Finalize`` or ``CloseStream``.

        Raises:
            MessageError: The text is none of these.
        """
        if isinstance(message, bytes):
            self._digest.update(message)
            return [Audio(message)] if message else [Stop()]
        match parse_object(message).get("type"):
            case "KeepAlive":
                return []
            case "Finalize":
                self._n_finalizes += 1
                return [Finalize()]
            case "CloseStream":
                return [Stop()]
            case kind:
                raise MessageError(
                    "unknown_type",
                    f"The message type {shown(kind)} is not known here.",
                    "Send audio, KeepAlive, Finalize or CloseStream.",
                )

    def say(self, event: Event) -> list[str | bytes]:
        """Return results, and the events that were asked for."""
        match event:
            case Ready():
                self._out.request_id = event.stream
            case Caption():
                return self._hold(event) if event.is_final else self._interim(event)
            case SpeechChange():
                return self._change(event)
            case Progress():
                self._duration_ms = event.received_ms
                return [*self._let_go(), *self._end_gaps(event.processed_ms)]
            case Finalized():
                return self._answer_finalize()
            case Done():
                self._n_finalizes = 0
                return self._let_go()
            case _:
                pass
        return []

    # Final results wait for the next event: it tells whether they end the speech.

    def _hold(self, caption: Caption) -> list[str | bytes]:
        channel = self._channel(caption)
        messages = self._release(channel)
        self._open_channels.discard(channel)
        if caption.words:
            self._last_word_ms = caption.words[-1].end_ms
        # On several channels a change of speech tells of all at once, so a segment's end counts.
        options = self._out.options
        is_ended = options.n_channels > 1 and options.endpointing_ms is not None
        self._held[channel] = _Held(caption, is_speech_final=is_ended)
        return messages

    def _interim(self, caption: Caption) -> list[str | bytes]:
        messages = self._let_go()
        if caption.words:
            self._open_channels.add(self._channel(caption))
        options = self._out.options
        if options.is_interim:
            messages.append(self._out.result(caption, channel=self._channel(caption)))
        return messages

    def _change(self, change: SpeechChange) -> list[str | bytes]:
        if change.is_on:
            messages = self._let_go()
            self._quiet_since_ms = None
            if self._out.options.has_vad_events:
                messages.append(self._out.speech_started(change.at_ms))
            return messages
        wanted_ms = self._out.options.endpointing_ms
        is_heard = wanted_ms is not None and wanted_ms <= self._pause_ms
        for held in self._held.values():
            held.is_speech_final = is_heard
        if wanted_ms is not None and not is_heard and self._held:
            self._quiet_since_ms = change.at_ms
        return self._let_go()

    def _let_go(self) -> list[str | bytes]:
        """Return the results that wait, unless `Finalize` is about to be answered with them."""
        if self._n_finalizes:
            return []
        return [message for channel in sorted(self._held) for message in self._release(channel)]

    def _release(self, channel: int, *, from_finalize: bool = False) -> list[str | bytes]:
        held = self._held.pop(channel, None)
        if held is None:
            return []
        caption, is_speech_final = held.caption, held.is_speech_final
        return [
            self._out.result(
                caption,
                channel=channel,
                is_speech_final=is_speech_final,
                from_finalize=from_finalize,
            )
        ]

    def _answer_finalize(self) -> list[str | bytes]:
        """Return a result of each channel, empty where nothing was open: clients wait for it."""
        self._n_finalizes -= 1
        messages: list[str | bytes] = []
        for channel in range(self._out.options.n_channels):
            messages += self._release(channel, from_finalize=True) or [
                self._out.empty(self._duration_ms, channel=channel, from_finalize=True)
            ]
        return messages

    def _end_gaps(self, processed_ms: int) -> list[str | bytes]:
        """Return what silence up to a position means."""
        messages: list[str | bytes] = []
        options = self._out.options
        quiet_ms, gap_ms = self._quiet_since_ms, options.utterance_end_ms
        if quiet_ms is not None and processed_ms - quiet_ms >= (options.endpointing_ms or 0):
            self._quiet_since_ms = None
            messages.append(self._out.empty(quiet_ms, is_speech_final=True))
        last_ms = self._last_word_ms
        if gap_ms is None or last_ms is None or self._open_channels:
            return messages
        if processed_ms - last_ms >= gap_ms:
            self._last_word_ms = None
            messages.append(self._out.utterance_end(last_ms))
        return messages

    @property
    def _out(self) -> ResultWriter:
        if self._writer is None:
            raise ValueError("say() before open()")
        return self._writer

    def _channel(self, caption: Caption) -> int:
        return int(caption.speaker or 0) if self._out.options.n_channels > 1 else 0

    def done(self) -> Farewell:
        """Tell what the stream was, and close as agreed."""
        digest = self._digest.hexdigest()
        return Farewell([self._out.metadata(digest, self._created, self._duration_ms)], 1000)

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Tell why; who sent nothing for long is just closed, as Deepgram's clients expect."""
        code = _CLOSE_CODES.get(refusal.close_code, int(refusal.close_code))
        if refusal.close_code == CloseCode.IDLE:
            return Farewell([], code, f"{_IDLE_REASON} See https://dpgr.am/net0001")
        is_audio = refusal.close_code == CloseCode.BAD_AUDIO
        reason = "DATA-0000" if is_audio else refusal.close_reason
        text = f"{refusal.message} {refusal.remedy}"
        error = packed(
            "Error",
            variant=reason,
            description=text,
            message=refusal.code,
            err_code=reason,
            err_msg=text,
        )
        return Farewell([error], code, f"{reason}: {text}")
