"""Audio of small devices: start, audio and stop on topics of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.mqtt.desk import Feed, Open, addressed
from audiokv.server.mqtt.stream_topics import json_payload
from audiokv.server.mqtt.topics import is_good_level
from audiokv.server.mqtt.unsent import AT_MOST_ONCE, Publication
from audiokv.server.protocols.dialect import Audio, Begin, Farewell, PlainDialect, Stop
from audiokv.server.refusals import as_report
from audiokv.server.wire import pack
from audiokv.streaming.errors import AudioFormatError, MessageError
from audiokv.streaming.messages import (
    AUTO_LANGUAGE,
    Done,
    ErrorReport,
    Notice,
    Ready,
    Start,
    decode_client,
)

if TYPE_CHECKING:
    from audiokv.server.mqtt.desk import Order
    from audiokv.server.mqtt.topics import Topics
    from audiokv.server.protocols.dialect import Command, Event, Opening
    from audiokv.server.refusals import RefusalError

MAX_NAME_CHARS = 64
STOP = "stop"
_DEFAULT_START = '{"type":"start","encoding":"pcm_s16le","sample_rate":16000}'


class DeviceDialect(PlainDialect):
    """One stream of a device: a native ``start``, audio, and the end.

    Args:
        device: The device's level in its topics.
        topics: The server's topics.
    """

    def __init__(self, device: str, topics: Topics) -> None:
        self._device = device
        self._topics = topics

    def open(self, opening: Opening) -> list[Command]:
        """Wait for the start."""
        del opening
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take the start, audio, or the stop."""
        if isinstance(message, bytes):
            return [Audio(message)]
        return [Stop()] if message == STOP else [self._begin(message)]

    def _begin(self, text: str) -> Begin:
        start = decode_client(text)
        if not isinstance(start, Start) or start.resume is not None:
            raise MessageError(
                "start_expected",
                "The message on the topic of starts was none, or wanted to resume.",
                "Send a start as docs/mqtt.md shows it.",
            )
        try:
            fmt = start.audio_format()
        except AudioFormatError as error:
            raise MessageError(error.code, error.message, error.remedy) from error
        return Begin(
            fmt,
            language=None if start.language == AUTO_LANGUAGE else start.language,
            prompt=start.prompt,
            profile=start.profile,
            channel_labels=start.channel_labels,
            metadata={"device": self._device},
        )

    def say(self, event: Event) -> list[str | bytes]:
        """Tell the stream's name, warnings and the end; captions have topics of their own."""
        match event:
            case Ready():
                captions = f"{self._topics.base}/{event.stream}"
                ready = {"type": "ready", "stream": event.stream, "captions": captions}
                return self._said(json_payload(dict(ready)))
            case Notice() | Done():
                return self._said(pack(event))
            case _:
                return []

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Tell why the stream ends."""
        return Farewell(self._said(pack(as_report(refusal))), refusal.close_code, refusal.code)

    def _said(self, body: bytes) -> list[str | bytes]:
        return [addressed(self._topics.to_device(self._device), body).decode()]


class DeviceRoute:
    """Sorts what devices send; ``start`` with an empty body means 16 kHz, 16 bit, mono.

    Args:
        topics: The server's topics.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.subscriptions = tuple(
            topics.from_device("+", verb) for verb in ("start", "audio", "stop")
        )

    def take(self, topic: str, payload: bytes) -> list[Order] | None:
        """Return what a device asks for."""
        found = self._topics.device_and_verb(topic)
        if found is None:
            return None
        device, verb = found
        key = f"device {device}"
        if len(device) > MAX_NAME_CHARS or not is_good_level(device):
            return []
        match verb:
            case "start":
                # Not UTF-8: decoded with marks that no JSON has, so that the dialect refuses it.
                text = payload.decode(errors="replace") or _DEFAULT_START
                return [Open(key, DeviceDialect(device, self._topics), text)]
            case "audio":
                return [Feed(key, payload, self._no_start(device))]
            case "stop":
                return [Feed(key, STOP)]
            case _:
                return []

    def sent(self, key: str, topic: str) -> list[Order]:
        """Nothing follows from what is told a device."""
        del key, topic
        return []

    def _no_start(self, device: str) -> Publication:
        report = ErrorReport("no_start", "Audio came without a start.", "Send start first.")
        # Not kept: only the newest counts, or a device that goes on would fill the queue.
        return Publication(self._topics.to_device(device), pack(report), qos=AT_MOST_ONCE)
