"""One unbroken run of captions out of connections that break and streams that restart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from audiokv.streaming.captions import Caption, join_words

if TYPE_CHECKING:
    from audiokv.client.timeline import Timeline


class CaptionSequence:
    """Passes every caption on exactly once, numbered and timed on the source's clock.

    Args:
        timeline: Maps the server's clock to the source's.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._open: dict[int, Caption] = {}  # by segment: one, or one a channel
        self._last_seq = 0
        self._seq_offset = 0
        self._segment_offset = 0
        self._n_segments = 0
        self.committed_ms = 0

    @property
    def last_seq(self) -> int:
        """Number of the last caption as the server counts, 0 before the first."""
        return self._last_seq

    @property
    def n_segments(self) -> int:
        """Segments seen so far."""
        return self._n_segments

    def accept(self, caption: Caption) -> Caption | None:
        """Return a caption as the user is to see it, or None for one that came before."""
        if caption.seq <= self._last_seq:
            return None
        self._last_seq = caption.seq
        placed = self._place(caption)
        self._n_segments = max(self._n_segments, placed.segment + 1)
        self._open[placed.segment] = placed
        # What another channel has not committed yet would be lost behind this position.
        reached = min(_committed_ms(each) for each in self._open.values())
        if placed.is_final:
            del self._open[placed.segment]
        self.committed_ms = max(self.committed_ms, reached)
        return placed

    def _place(self, caption: Caption) -> Caption:
        start_ms, end_ms = self._timeline.start_ms, self._timeline.end_ms
        words = tuple(
            replace(
                word,
                start_ms=start_ms(word.start_ms),
                end_ms=max(start_ms(word.start_ms), end_ms(word.end_ms)),
            )
            for word in caption.words
        )
        return replace(
            caption,
            seq=caption.seq + self._seq_offset,
            segment=caption.segment + self._segment_offset,
            start_ms=start_ms(caption.start_ms),
            end_ms=max(start_ms(caption.start_ms), end_ms(caption.end_ms)),
            words=words,
        )

    def restart(self) -> list[Caption]:
        """Go on with a new stream that counts from the beginning again.

        Returns:
            The open segments closed with their committed words, since nobody else will close them.
        """
        self._seq_offset += self._last_seq
        self._last_seq = 0
        closing = []
        for caption in self._open.values():
            self._seq_offset += 1
            closing.append(_closed(caption, self._seq_offset))
        self._segment_offset = self._n_segments
        self._open = {}
        return closing


def _committed_ms(caption: Caption) -> int:
    """Return up to where the segment is said for good."""
    if caption.is_final:
        return caption.end_ms
    ends = [word.end_ms for word in caption.words if word.is_final]
    return ends[-1] if ends else 0  # where its first word begins is not settled either


def _closed(caption: Caption, seq: int) -> Caption:
    words = tuple(word for word in caption.words if word.is_final)
    return replace(
        caption,
        seq=seq,
        revision=caption.revision + 1,
        is_final=True,
        end_ms=words[-1].end_ms if words else caption.start_ms,
        text=join_words(words),
        words=words,
    )
