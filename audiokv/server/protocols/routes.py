"""Which protocol is spoken where: by path on the main port, or on a port of its own.

A new protocol is one entry here. Nothing is ever guessed from what a client sends.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from audiokv.server.protocols.deepgram import DeepgramDialect
from audiokv.server.protocols.openai_realtime import OpenAIRealtimeDialect
from audiokv.server.protocols.vosk import VoskDialect
from audiokv.server.protocols.whisperlive import WhisperLiveDialect
from audiokv.server.protocols.wyoming import WyomingDialect
from audiokv.server.telephony.asterisk import AsteriskDialect
from audiokv.server.telephony.audiosocket import AudioSocketDialect
from audiokv.server.telephony.calls import make_audiohook, make_plivo, make_twilio
from audiokv.server.telephony.exotel import ExotelDialect
from audiokv.server.telephony.freeswitch import FreeSwitchDialect
from audiokv.server.telephony.jambonz_listen import JambonzListenDialect
from audiokv.server.telephony.jambonz_speech import JambonzSpeechDialect
from audiokv.server.telephony.sinch import SinchDialect
from audiokv.server.telephony.telnyx import TelnyxDialect
from audiokv.server.telephony.vonage import VonageDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from audiokv.server.config import ServerConfig
    from audiokv.server.protocols.dialect import Dialect


@dataclass(frozen=True, slots=True)
class Route:
    """A protocol over WebSockets.

    Attributes:
        make: Returns the state of one connection.
        checks_clients: Whether the dialect itself finds out, when it opens, who may connect (a
            provider's signature, say); else the server asks for its token.
        subprotocols: Those that may be granted to a client that offers them, best first.
    """

    make: Callable[[ServerConfig], Dialect]
    checks_clients: bool = False
    subprotocols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnPort:
    """A protocol that has a port of its own, at which every path will do.

    Attributes:
        setting: Name of the setting with the port's number; None there leaves the port closed.
        route: The protocol.
        is_websocket: Whether it is spoken over WebSockets; else over plain TCP, without a token.
    """

    setting: str
    route: Route
    is_websocket: bool


def _make_deepgram(config: ServerConfig) -> DeepgramDialect:
    return DeepgramDialect(can_tell_speakers=config.speakers, now=partial(datetime.now, UTC))


def _make_openai(_: ServerConfig) -> OpenAIRealtimeDialect:
    return OpenAIRealtimeDialect(f"sess_{secrets.token_hex(12)}")


# By path: the path itself and everything below it.
PATHS: Mapping[str, Route] = {
    "/v1/listen": Route(_make_deepgram, subprotocols=("token", "bearer")),
    "/v1/realtime": Route(_make_openai, subprotocols=("realtime",)),
    "/v1/call/asterisk": Route(lambda _: AsteriskDialect(), subprotocols=("media",)),
    "/v1/call/freeswitch": Route(
        lambda _: FreeSwitchDialect(), subprotocols=("audio.drachtio.org",)
    ),
    "/v1/call/jambonz": Route(
        lambda _: JambonzListenDialect(), subprotocols=("audio.jambonz.org",)
    ),
    "/v1/call/jambonz-stt": Route(lambda _: JambonzSpeechDialect()),
    "/v1/call/vonage": Route(lambda _: VonageDialect()),
    "/v1/call/sinch": Route(lambda _: SinchDialect()),
    "/v1/call/twilio": Route(make_twilio, checks_clients=True),
    "/v1/call/plivo": Route(make_plivo, checks_clients=True),
    "/v1/call/telnyx": Route(lambda _: TelnyxDialect()),
    "/v1/call/exotel": Route(lambda _: ExotelDialect()),
    "/v1/call/audiohook": Route(make_audiohook, checks_clients=True),
}

OWN_PORTS = (
    OwnPort("vosk_port", Route(lambda _: VoskDialect()), is_websocket=True),
    OwnPort("whisperlive_port", Route(lambda _: WhisperLiveDialect()), is_websocket=True),
    OwnPort("wyoming_port", Route(lambda _: WyomingDialect()), is_websocket=False),
    OwnPort("audiosocket_port", Route(lambda _: AudioSocketDialect()), is_websocket=False),
)


def find_route(path: str) -> Route | None:
    """Return the foreign protocol at a path of the main port, or None."""
    while path:
        if path in PATHS:
            return PATHS[path]
        path = path.rpartition("/")[0]
    return None
