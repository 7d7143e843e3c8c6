"""Follows one stream and publishes what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.streaming.captions import Caption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from audiokv.server.mqtt.stream_topics import CaptionMapping, Source, StreamTopics
    from audiokv.server.mqtt.unsent import Publication
    from audiokv.server.refusals import RefusalError
    from audiokv.server.worker import Said
    from audiokv.streaming.messages import Done, Progress, Ready


class StreamFollower:
    """A listener of one stream, from its opening to its end.

    Args:
        source: The stream.
        topics: Puts the stream's life on topics.
        mappings: Put its captions on topics.
        publish: Takes the messages; never waits.
        on_over: Called once, when the stream is over.
    """

    def __init__(
        self,
        source: Source,
        topics: StreamTopics,
        mappings: Sequence[CaptionMapping],
        *,
        publish: Callable[[Publication], None],
        on_over: Callable[[], None],
    ) -> None:
        self._source = source
        self._topics = topics
        self._mappings = mappings
        self._publish = publish
        self._on_over = on_over
        self._model = ""

    def begin(self, ready: Ready, past: Iterable[bytes]) -> None:
        """Tell that the stream is live; nothing was said before."""
        del past
        self._model = ready.model
        self._publish(self.live_state())

    def live_state(self) -> Publication:
        """Return the retained message that the stream is live."""
        return self._topics.opened(self._source, self._model)

    def hear(self, said: Said) -> None:
        """Publish a caption."""
        if isinstance(said.event, Caption):
            for mapping in self._mappings:
                for publication in mapping.caption(self._source, said.event, said.packed):
                    self._publish(publication)

    def report(self, progress: Progress) -> None:
        """Say nothing: progress is for the source."""

    def end(self, done: Done) -> None:
        """Tell that everything was said."""
        self._over(
            {"state": "ended", "received_ms": done.received_ms, "segments": done.segments},
        )

    def fail(self, refusal: RefusalError) -> None:
        """Tell that the stream ended early."""
        self._over({"state": "failed", "code": refusal.code})

    def stopped(self) -> list[Publication]:
        """Return the messages that the server goes away while the stream is live."""
        return self._topics.over(self._source.stream, {"state": "stopped"})

    def _over(self, state: dict[str, object]) -> None:
        for publication in self._topics.over(self._source.stream, state):
            self._publish(publication)
        self._on_over()
