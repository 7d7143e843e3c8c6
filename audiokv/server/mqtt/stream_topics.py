"""What a stream says, as messages on its own topics."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from audiokv.server.mqtt.unsent import AT_MOST_ONCE, Publication

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.server.mqtt.topics import Topics
    from audiokv.streaming.captions import Caption

PARTIAL_EXPIRY_S = 5
FINAL_EXPIRY_S = 3_600


@dataclass(frozen=True, slots=True)
class Source:
    """Where captions come from.

    Attributes:
        stream: Public name of the stream.
        metadata: What the source's protocol says about it.
    """

    stream: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class CaptionMapping(Protocol):
    """One way of putting captions on topics."""

    def caption(self, source: Source, caption: Caption, packed: bytes) -> list[Publication]:
        """Return the messages of a caption.

        Args:
            source: Its stream.
            caption: The caption.
            packed: The same as a native message.
        """


class StreamTopics:
    """Captions as the native protocol writes them, and the life of each stream.

    Args:
        topics: The server's topics.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def caption(self, source: Source, caption: Caption, packed: bytes) -> list[Publication]:
        """Return a caption's message: a final waits for the broker, a partial does not."""
        stream = source.stream
        if caption.is_final:
            topic = self._topics.final(stream)
            return [Publication(topic, packed, stream, expiry_s=FINAL_EXPIRY_S)]
        topic = self._topics.partial(stream)
        return [Publication(topic, packed, stream, qos=AT_MOST_ONCE, expiry_s=PARTIAL_EXPIRY_S)]

    def opened(self, source: Source, model: str) -> Publication:
        """Return the retained message that a stream is live, recognised by a model."""
        state: dict[str, object] = {"state": "live", "stream": source.stream, "model": model}
        if source.metadata:
            state["metadata"] = dict(source.metadata)
        return self._state(source.stream, state, is_retained=True)

    def over(self, stream: str, state: dict[str, object]) -> list[Publication]:
        """Return the message about a stream's end, and the one that clears its retained state.

        Args:
            stream: The stream.
            state: What subscribers are told; ``state`` is ``ended``, ``failed`` or ``stopped``.
        """
        return [
            self._state(stream, {**state, "stream": stream}, is_retained=False),
            self.cleared(stream),
        ]

    def cleared(self, stream: str) -> Publication:
        """Return the message that makes the broker forget a stream's retained state."""
        return Publication(self._topics.state(stream), b"", stream, is_retained=True)

    def _state(self, stream: str, state: dict[str, object], *, is_retained: bool) -> Publication:
        return Publication(
            self._topics.state(stream), json_payload(state), stream, is_retained=is_retained
        )


def json_payload(values: dict[str, object]) -> bytes:
    """Return an object as the body of a message."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
