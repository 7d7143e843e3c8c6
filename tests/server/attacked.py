"""Every parser of what comes from outside, and how it is given inputs that no client would send."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from websockets.datastructures import Headers
from websockets.http11 import Request

from audiokv.server import http
from audiokv.server.access import AccessRules, Credentials, offered_subprotocols
from audiokv.server.config import ServerConfig
from audiokv.server.mqtt.desk import Answer, Feed, Open
from audiokv.server.mqtt.device import DeviceRoute
from audiokv.server.mqtt.hermes_listening import HermesRoute, read_listening, read_wav
from audiokv.server.mqtt.topics import Topics
from audiokv.server.protocols.deepgram_options import read_options
from audiokv.server.protocols.dialect import (
    Opening,
)
from audiokv.server.protocols.options import Options
from audiokv.server.protocols.routes import OWN_PORTS, PATHS, find_route
from audiokv.server.protocols.wyoming_events import EventReader
from audiokv.server.refusals import RefusalError
from audiokv.server.telephony.codecs import PayloadTypes
from audiokv.server.telephony.loose_json import Node
from audiokv.server.telephony.rtp import RtpDialect
from audiokv.server.telephony.rtp_packet import RtpPacket
from audiokv.server.telephony.wishes import Wishes
from audiokv.streaming.errors import AudioFormatError, MessageError
from audiokv.streaming.message_fields import parse_object
from audiokv.streaming.messages import Start, decode_client, decode_server
from tests.server.conversations import Conversation, converse, noted
from tests.server.mutations import Mutator
from tests.server.valid_messages import (
    EVENTS,
    HERMES,
    MESSAGES,
    NATIVE_CLIENT,
    NATIVE_SERVER,
    OPENINGS,
    rtp,
    wav,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Take = Callable[[Iterator[bytes]], int]

SECRET = "c2VjcmV0IHdvcmRz"  # noqa: S105  a test's, in base64
OPEN_TO_ALL = ServerConfig(port=0)
GUARDED = ServerConfig(
    port=0,
    token="correct-horse",  # noqa: S106  a test's
    twilio_auth_token=SECRET,
    plivo_auth_token=SECRET,
    audiohook_api_key="key",
    audiohook_client_secret=SECRET,
)
LANGUAGES = frozenset({"de", "en"})
_TOPICS = Topics("captions/v1", "audiokv")
_MANY = 100


def parse(parser: Callable[[str | bytes], object], seeds: tuple[str | bytes, ...]) -> Take:
    """Return what gives inputs to a function.

    Args:
        parser: Reads an input; its errors are `AudioKVError` of the kinds it documents.
        seeds: Valid inputs.
    """
    mutator = Mutator(seeds)

    def take(recipes: Iterator[bytes]) -> int:
        n_taken = 0
        for recipe in recipes:
            message = mutator.make(recipe)
            with noted([message]), suppress(MessageError, AudioFormatError, RefusalError):
                parser(message)
            n_taken += 1
        return n_taken

    return take


def as_text(data: str | bytes) -> str:
    """Return what a text message can hold of an input."""
    return data if isinstance(data, str) else data.decode(errors="replace")


def as_bytes(data: str | bytes) -> bytes:
    """Return an input as it goes over the wire."""
    return data.encode(errors="replace") if isinstance(data, str) else data


def read_native(data: str | bytes) -> None:
    """Read a message of a source, and the format it declares."""
    message = decode_client(as_text(data))
    if isinstance(message, Start):
        message.audio_format()


def read_fields(data: str | bytes) -> None:
    """Read every field of an object in every way, leniently."""
    names = ("a", "language", "rate")
    node = Node.parse(as_text(data))
    readers: tuple[Callable[[], object], ...] = (
        *(partial(read, *names) for read in (node.text, node.whole, node.truth, node.node)),
        *(partial(read, *names, max_items=_MANY) for read in (node.items, node.nodes)),
        *(partial(node.audio, *names, max_chars=_MANY), node.metadata),
    )
    for read in readers:
        with suppress(MessageError):
            read()
    json.dumps(node.metadata(), ensure_ascii=False).encode()


def read_all_options(data: str | bytes) -> None:
    """Read an option in every way."""
    values = parse_object(as_text(data))

    def options() -> Options:
        return Options("the message", values)

    for name in islice(values, 4):
        for read in (
            *(options().text, options().texts, options().nested),
            *(partial(options().whole, default=1), partial(options().flag, default=False)),
            partial(options().number, default=0.0, low=0.0, high=1.0),
            *(partial(options().choice, choices=("a",), default="a"), options().has_items),
        ):
            with suppress(MessageError):
                read(name)
    options().finish()


def read_events(data: str | bytes) -> None:
    """Read events of Wyoming, of which the bytes come in two pieces."""
    reader, raw = EventReader(), as_bytes(data)
    reader.push(raw[: len(raw) // 2])
    reader.push(raw[len(raw) // 2 :])


def opening_of(data: str | bytes) -> Opening:
    """Return how a connection was opened: an object with query and headers, or a raw query."""
    try:
        values = parse_object(as_text(data))
    except MessageError:
        values = {}
    query, headers = values.get("query"), values.get("headers")
    if not isinstance(query, dict):
        raw = as_bytes(data).decode("latin-1")
        query = {name: found[0] for name, found in parse_qs(raw, keep_blank_values=True).items()}
    shown = {str(name): (_as_sent(value),) for name, value in query.items()}
    named = headers.items() if isinstance(headers, dict) else ()
    return Opening(
        path="/v1/listen",
        query=shown,
        headers={str(name).lower(): _as_sent(value) for name, value in named},
        model="scripted",
        languages=LANGUAGES,
    )


def _as_sent(value: object) -> str:
    """Return a value as a query or a header can bring it: no half of a surrogate pair."""
    return str(value).encode(errors="replace").decode() if not isinstance(value, float) else "1e9"


def open_all(data: str | bytes, config: ServerConfig) -> None:
    """Open a connection of every protocol."""
    opening = opening_of(data)
    for route in (*PATHS.values(), *(own.route for own in OWN_PORTS)):
        with suppress(MessageError, RefusalError):
            Conversation(route.make(config), opening)


def read_listen_options(data: str | bytes) -> None:
    """Read the options of Deepgram."""
    read_options(opening_of(data), can_tell_speakers=True)


def check_access(data: str | bytes) -> None:
    """Check who connects by what the headers say."""
    headers = opening_of(data).headers
    AccessRules(GUARDED).check(
        Credentials(
            authorization=headers.get("authorization"),
            subprotocols=offered_subprotocols([headers.get("sec-websocket-protocol", "")]),
            origin=headers.get("origin"),
            host=headers.get("host"),
        )
    )


def ask_for_page(data: str | bytes) -> None:
    """Answer an HTTP request, and look for the protocol at its path."""
    request = Request(as_bytes(data).decode("latin-1"), Headers(), "GET")
    assert http.answer(request, {}, {}).status_code
    find_route(http.path_of(request))


@dataclass(frozen=True, slots=True)
class Desk:
    """Topics and bodies as a broker brings them, for devices and for Hermes."""

    topics: Mutator
    bodies: Mutator

    def take(self, recipes: Iterator[bytes]) -> int:
        """Let the routes of the broker take messages."""
        n_taken = 0
        routes = (DeviceRoute(_TOPICS), HermesRoute())
        open_now: dict[str, Conversation] = {}
        for recipe in recipes:
            topic = as_text(self.topics.make(recipe if recipe[7] % 4 == 0 else recipe[:1] * 8))
            topic = topic.encode(errors="replace").decode()  # MQTT's topics are UTF-8
            for route in routes:
                for order in route.take(topic, as_bytes(self.bodies.make(recipe))) or []:
                    _follow(order, open_now)
            n_taken += 1
        for conversation in open_now.values():
            conversation.end()
        return n_taken


def _follow(order: Open | Feed | Answer, open_now: dict[str, Conversation]) -> None:
    message: str | bytes
    match order:
        case Open(key, dialect, message):
            open_now[key] = Conversation(dialect, Opening())
        case Feed(key, message):
            pass
        case Answer(publication):
            json.loads(publication.payload)
            return
    if key in open_now and not open_now[key].hear(message):
        del open_now[key]


def _routed() -> dict[str, Take]:
    routes = {**PATHS, **{own.setting: own.route for own in OWN_PORTS}}
    listen = Opening(
        path="/v1/listen", query={"encoding": ("linear16",), "sample_rate": ("16000",)}
    )
    return {
        name: converse(
            partial(route.make, OPEN_TO_ALL),
            MESSAGES[name],
            listen if name == "/v1/listen" else Opening(path=name, languages=LANGUAGES),
        )
        for name, route in routes.items()
    }


def _call_audio() -> RtpDialect:
    """Return the audio of a call whose caller offered Opus as well."""
    types = PayloadTypes()
    assert types.learn(111, "opus", 48_000)
    return RtpDialect(Wishes(), types)


_TOPIC_SEEDS = (
    *(_TOPICS.from_device("mic", verb) for verb in ("start", "audio", "stop", "events")),
    *(
        f"hermes/asr/{verb}"
        for verb in ("startListening", "stopListening", "toggleOn", "toggleOff")
    ),
    *("hermes/audioServer/kitchen/audioFrame", _TOPICS.state("s-1")),
)

# By the name of what is attacked; the first ones are all routes there are.
ATTACKED: dict[str, Take] = {
    **_routed(),
    "rtp": converse(_call_audio, (rtp(1), rtp(2, 8), rtp(3, 9), rtp(4, 111), rtp(7)), Opening()),
    "rtp packet": parse(lambda data: RtpPacket.parse(as_bytes(data)), (rtp(1), rtp(2, 8))),
    "native client": parse(read_native, NATIVE_CLIENT),
    "native server": parse(lambda data: decode_server(as_text(data)), NATIVE_SERVER),
    "loose_json": parse(read_fields, ('{"a":"x","rate":8000,"language":{"a":[{}]}}',)),
    "options": parse(read_all_options, ('{"a":"x","b":8000,"c":{"a":[{}]},"d":["e"]}',)),
    "wyoming events": parse(read_events, EVENTS),
    "address": parse(partial(open_all, config=OPEN_TO_ALL), OPENINGS),
    "signatures": parse(partial(open_all, config=GUARDED), OPENINGS),
    "deepgram options": parse(read_listen_options, OPENINGS),
    "access": parse(check_access, OPENINGS),
    "http": parse(ask_for_page, ("/", "/v1/call/asterisk/1?language=en", "/v1/watch/s-1")),
    "topics": parse(lambda data: _TOPICS.device_and_verb(as_text(data)), _TOPIC_SEEDS),
    "state topics": parse(lambda data: _TOPICS.stream_of_state(as_text(data)), _TOPIC_SEEDS),
    "hermes wishes": parse(lambda data: read_listening(as_bytes(data)), (HERMES,)),
    "wav header": parse(
        lambda data: read_wav(as_bytes(data)), (wav(), wav(channels=2), wav(bits=8), wav(b""))
    ),
    "mqtt": Desk(
        Mutator(_TOPIC_SEEDS), Mutator((NATIVE_CLIENT[0], HERMES, wav(), "", b"\0\1"))
    ).take,
}
