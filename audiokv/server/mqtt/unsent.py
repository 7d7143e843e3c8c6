"""What is still to be published: finals wait for the broker, partials do not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

MAX_MESSAGES = 20_000
MAX_BYTES = 16_000_000
AT_LEAST_ONCE = 1
AT_MOST_ONCE = 0


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """One message for the broker; compared by identity, since two may have the same content.

    Attributes:
        topic: Full topic name.
        payload: The body.
        stream: Stream it belongs to, or the empty string.
        qos: MQTT's quality of service, 0 or 1.
        is_retained: Whether the broker keeps it for later subscribers.
        expiry_s: Seconds after which the broker may forget it, or None.
        content_type: MIME type of the body.
    """

    topic: str
    payload: bytes
    stream: str = ""
    qos: int = AT_LEAST_ONCE
    is_retained: bool = False
    expiry_s: int | None = None
    content_type: str = "application/json"

    @property
    def n_bytes(self) -> int:
        """Bytes of topic and body."""
        return len(self.topic) + len(self.payload)


class UnsentQueue:
    """Messages in the order in which the broker must get them, bounded.

    A kept message stays until `confirm`. A partial waits only while nothing newer makes it
    superfluous: a later partial on its topic, or a kept message of its stream.

    Full policy: the oldest kept messages go first, counted in ``n_dropped``.

    Args:
        max_messages: Kept messages at most.
        max_bytes: Their bytes at most; the newest one stays even if it alone is larger.
    """

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._kept: deque[Publication] = deque()
        self._kept_bytes = 0
        self._confirmed: set[Publication] = set()  # kept ones behind one that is not
        self._partials: dict[str, Publication] = {}  # by topic, in the order they came
        self.n_dropped = 0

    def __len__(self) -> int:
        """Return how many messages wait, partials included."""
        return len(self._kept) + len(self._partials)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the messages that must arrive."""
        return self._kept_bytes

    def has_kept(self, topic: str) -> bool:
        """Return whether a message that must arrive waits for a topic."""
        return any(publication.topic == topic for publication in self._kept)

    def put(self, publication: Publication) -> None:
        """Add a message that must arrive."""
        self._forget_partials(publication.stream)
        self._kept.append(publication)
        self._kept_bytes += publication.n_bytes
        while len(self._kept) > 1 and (
            len(self._kept) > self._max_messages or self._kept_bytes > self._max_bytes
        ):
            self._pop()
            self.n_dropped += 1

    def put_partial(self, publication: Publication) -> None:
        """Add a message that a later one makes superfluous."""
        self._partials.pop(publication.topic, None)
        self._partials[publication.topic] = publication

    def batch(self, n_max: int) -> list[Publication]:
        """Return what to send next, in order: kept messages first, at most so many."""
        kept = list(islice((p for p in self._kept if p not in self._confirmed), n_max))
        return kept or list(islice(self._partials.values(), n_max))

    def confirm(self, publication: Publication) -> None:
        """Forget a message that the broker now has; one not known (any more) is ignored."""
        if self._partials.get(publication.topic) is publication:
            del self._partials[publication.topic]
        elif publication in self._kept:
            self._confirmed.add(publication)
        while self._kept and self._kept[0] in self._confirmed:
            self._confirmed.discard(self._pop())

    def _pop(self) -> Publication:
        publication = self._kept.popleft()
        self._kept_bytes -= publication.n_bytes
        return publication

    def forget_partials(self) -> None:
        """Forget every partial: the connection is gone, and they will be old when it is back."""
        self._partials.clear()

    def _forget_partials(self, stream: str) -> None:
        outdated = [t for t, p in self._partials.items() if p.stream == stream]
        for topic in outdated:
            del self._partials[topic]
