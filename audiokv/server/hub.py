"""Fan-out of one stream to its source, its viewers, and whoever follows all streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.replay import ReplayBuffer, SentCaption
from audiokv.streaming.captions import Caption, Notice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.worker import Said
    from audiokv.streaming.messages import Done, Progress, Ready


class Listener(Protocol):
    """Who hears what one stream says, as events.

    Every method is called on the event loop and must return at once: whoever needs time queues.
    None may raise. An `Outbox` is a listener that speaks the native protocol to a connection;
    `StreamRegistry.follow` gives every stream that opens a listener, for a publisher or a store.
    """

    def begin(self, ready: Ready, past: Iterable[bytes]) -> None:
        """Begin to listen; called once, before anything else.

        Args:
            ready: The stream's name and what the listener may do.
            past: Captions already said that the listener missed, as native messages, in order;
                `decode_server` makes events of them. Empty for whoever listens from the start.
        """

    def hear(self, said: Said) -> None:
        """Hear an event. Only the source hears a `Notice`."""

    def report(self, progress: Progress) -> None:
        """Hear how far the stream is; only the source does."""

    def end(self, done: Done) -> None:
        """Hear that everything was said; the last call."""

    def fail(self, refusal: RefusalError) -> None:
        """Hear that the stream ended early, and why; the last call."""


class Hub:
    """Sends what a stream says to all who listen, and what was said to those who come later.

    The source gets every caption, also those said while it was away. A viewer gets every final, and
    partials while it keeps up.

    Args:
        replay: Memory of what was said.
    """

    def __init__(self, replay: ReplayBuffer | None = None) -> None:
        self._replay = replay or ReplayBuffer()
        self._viewers: set[Listener] = set()
        self._followers: list[Listener] = []
        self._source: Listener | None = None
        self._done: Done | None = None
        self.n_segments = 0

    @property
    def source(self) -> Listener | None:
        """The connection that sends the audio, or None while it is away."""
        return self._source

    @property
    def n_viewers(self) -> int:
        """Viewers connected."""
        return len(self._viewers)

    @property
    def last_seq(self) -> int:
        """Number of the latest caption."""
        return self._replay.last_seq

    def publish(self, news: Iterable[Said]) -> None:
        """Send what the stream said."""
        for said in news:
            if isinstance(said.event, Caption):
                self.n_segments += said.event.is_final
                self._replay.add(
                    SentCaption(
                        said.event.seq,
                        said.event.segment,
                        is_final=said.event.is_final,
                        packed=said.packed,
                    )
                )
            if self._source is not None:
                self._source.hear(said)
            if not isinstance(said.event, Notice):
                for listener in self._audience():
                    listener.hear(said)

    def report(self, progress: Progress) -> None:
        """Send how far the stream is to its source."""
        if self._source is not None:
            self._source.report(progress)

    def attach_source(self, listener: Listener, ready: Ready, last_seq: int) -> None:
        """Make a connection the source; it gets what it missed since a caption.

        A connection that still was the source is told that another took over, and closed.
        """
        if self._source is not None:
            self._source.fail(_taken_over())
        self._source = listener
        listener.begin(ready, self._replay.after(last_seq))
        self._finish_if_done(listener)

    def detach_source(self) -> None:
        """Forget the source's connection."""
        self._source = None

    def attach_viewer(self, listener: Listener, ready: Ready) -> None:
        """Add a viewer; it gets the finals so far."""
        self._begin(listener, ready)
        self._viewers.add(listener)

    def detach_viewer(self, listener: Listener) -> None:
        """Forget a viewer."""
        self._viewers.discard(listener)

    def attach_follower(self, listener: Listener, ready: Ready) -> None:
        """Add a part of the server that hears what viewers hear and does not count as one."""
        self._begin(listener, ready)
        self._followers.append(listener)

    def _begin(self, listener: Listener, ready: Ready) -> None:
        listener.begin(ready, self._replay.for_newcomer())
        self._finish_if_done(listener)

    def end(self, done: Done) -> None:
        """Tell everyone that all has been said, now and whoever comes later."""
        self._done = done
        for listener in self._everyone():
            self._finish_if_done(listener)

    def _finish_if_done(self, listener: Listener) -> None:
        if self._done is not None:
            listener.end(self._done)

    def fail(self, refusal: RefusalError) -> None:
        """Tell the source why its stream ended, and the others that it did."""
        if self._source is not None:
            self._source.fail(refusal)
        for listener in self._audience():
            listener.fail(_stream_failed())

    def _everyone(self) -> list[Listener]:
        return [*([] if self._source is None else [self._source]), *self._audience()]

    def _audience(self) -> list[Listener]:
        return [*self._viewers, *self._followers]


def _taken_over() -> RefusalError:
    return RefusalError(
        CloseCode.NOT_ALLOWED,
        "taken_over",
        "Another connection resumed this stream.",
        "Use that connection, or start a new stream.",
        close_reason="taken over",
    )


def _stream_failed() -> RefusalError:
    return RefusalError(
        CloseCode.INTERNAL,
        "stream_failed",
        "The stream ended by an error.",
        "Ask its source for a new stream.",
    )
