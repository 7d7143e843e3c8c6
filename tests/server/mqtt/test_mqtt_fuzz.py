"""Whatever devices and Hermes send: orders, and no exception but the dialects' own error."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.server.mqtt.desk import Answer, Feed, Open
from audiokv.server.mqtt.device import DeviceRoute
from audiokv.server.mqtt.hermes_listening import HermesRoute
from audiokv.server.mqtt.topics import Topics
from audiokv.server.protocols.dialect import Audio, Begin, Stop
from audiokv.streaming.errors import MessageError
from tests.server.mqtt.test_hermes_listening import wav
from tests.server.protocols.fuzzing import FUZZED, objects

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Dialect

TOPICS = Topics("c", "i")
NAMES = st.sampled_from(["mic", "a b", "", "+", "x" * 300, "\0"])
VERBS = ["startListening", "stopListening", "toggleOn", "toggleOff"]
TOPIC = st.one_of(
    st.text(max_size=40),
    st.builds(TOPICS.from_device, NAMES, st.sampled_from(["start", "audio", "stop", "events"])),
    st.sampled_from([f"hermes/asr/{verb}" for verb in VERBS]),
    st.builds("hermes/audioServer/{}/audioFrame".format, NAMES),
)
STARTS = objects("type", "encoding", "sample_rate", "channels", "language", "prompt", "resume")
WISHES = objects("siteId", "sessionId", "lang", "stopOnSilence")
SAID = st.sampled_from([{"type": "start", "encoding": "alaw", "sample_rate": 8_000}])
BODY = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda values: json.dumps(values).encode(), st.one_of(STARTS, WISHES, SAID)),
    st.builds(wav, st.binary(max_size=20).filter(lambda audio: len(audio) % 2 == 0)),
)


@settings(FUZZED, max_examples=FUZZED.max_examples // 3)  # each is several messages
@given(st.lists(st.tuples(TOPIC, BODY), min_size=1, max_size=6))
def test_no_message_raises_anything_but_a_dialect_s_own_error(
    messages: list[tuple[str, bytes]],
) -> None:
    routes = (DeviceRoute(TOPICS), HermesRoute())
    connections: dict[str, Dialect] = {}
    for topic, body in messages:
        for route in routes:
            for order in route.take(topic, body) or []:
                message: str | bytes
                match order:
                    case Open(key, dialect, message):
                        connections[key] = dialect
                    case Feed(key, message):
                        pass
                    case Answer(publication):
                        json.loads(publication.payload)
                        continue
                if key in connections:
                    hear(connections, key, message)


def hear(connections: dict[str, Dialect], key: str, message: str | bytes) -> None:
    """Let a connection hear a message; its own error ends it, and it alone."""
    commands = None
    with suppress(MessageError):
        commands = connections[key].hear(message)
    if commands is None:
        del connections[key]
    else:
        assert all(isinstance(command, Begin | Audio | Stop) for command in commands)
