"""Fan-out of one stream to its source and its viewers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.refusals import CloseCode, RefusalError, as_report
from audiokv.server.replay import ReplayBuffer, SentCaption
from audiokv.server.wire import pack
from audiokv.streaming.captions import Caption, Notice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.outbox import Outbox
    from audiokv.server.worker import Said
    from audiokv.streaming.messages import Done, Progress, Ready


class Hub:
    """Sends what a stream says to all who listen, and what was said to those who come later.

    The source gets every caption, also those said while it was away. A viewer gets every final, and
    partials while it keeps up.

    Args:
        replay: Memory of what was said.
    """

    def __init__(self, replay: ReplayBuffer | None = None) -> None:
        self._replay = replay or ReplayBuffer()
        self._viewers: set[Outbox] = set()
        self._source: Outbox | None = None
        self._done: bytes | None = None
        self.n_segments = 0

    @property
    def source(self) -> Outbox | None:
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
                    SentCaption(said.event.seq, is_final=said.event.is_final, packed=said.packed)
                )
            self._send(said)

    def _send(self, said: Said) -> None:
        if self._source is not None:
            self._source.put(said.packed)
        if isinstance(said.event, Notice):
            return
        is_partial = isinstance(said.event, Caption) and not said.event.is_final
        for viewer in self._viewers:
            if is_partial:
                viewer.put_partial(said.packed)
            else:
                viewer.put(said.packed)

    def report(self, progress: Progress) -> None:
        """Send how far the stream is to its source."""
        if self._source is not None:
            self._source.put(pack(progress))

    def attach_source(self, outbox: Outbox, ready: Ready, last_seq: int) -> None:
        """Make a connection the source; it gets what it missed since a caption.

        A connection that still was the source is told that another took over, and closed.
        """
        if self._source is not None:
            self._source.put(pack(as_report(_taken_over())))
            self._source.finish(CloseCode.NOT_ALLOWED, "taken over")
        self._source = outbox
        outbox.put_backlog([pack(ready), *self._replay.after(last_seq)])
        self._finish_if_done(outbox)

    def detach_source(self) -> None:
        """Forget the source's connection."""
        self._source = None

    def attach_viewer(self, outbox: Outbox, ready: Ready) -> None:
        """Add a viewer; it gets the finals so far."""
        outbox.put_backlog([pack(ready), *self._replay.for_newcomer()])
        self._viewers.add(outbox)
        self._finish_if_done(outbox)

    def detach_viewer(self, outbox: Outbox) -> None:
        """Forget a viewer."""
        self._viewers.discard(outbox)

    def end(self, done: Done) -> None:
        """Tell everyone that all has been said, now and whoever comes later."""
        self._done = pack(done)
        for outbox in self._everyone():
            self._finish_if_done(outbox)

    def _finish_if_done(self, outbox: Outbox) -> None:
        if self._done is not None:
            outbox.put(self._done)
            outbox.finish(CloseCode.DONE, "done")

    def fail(self, refusal: RefusalError) -> None:
        """Tell the source why its stream ended, and the viewers that it did."""
        if self._source is not None:
            self._source.put(pack(as_report(refusal)))
            self._source.finish(refusal.close_code, refusal.code)
        for viewer in self._viewers:
            viewer.put(pack(as_report(_stream_failed())))
            viewer.finish(CloseCode.INTERNAL, "stream_failed")

    def _everyone(self) -> list[Outbox]:
        return [*([] if self._source is None else [self._source]), *self._viewers]


def _taken_over() -> RefusalError:
    return RefusalError(
        CloseCode.NOT_ALLOWED,
        "taken_over",
        "Another connection resumed this stream.",
        "Use that connection, or start a new stream.",
    )


def _stream_failed() -> RefusalError:
    return RefusalError(
        CloseCode.INTERNAL,
        "stream_failed",
        "The stream ended by an error.",
        "Ask its source for a new stream.",
    )
