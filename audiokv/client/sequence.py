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
        self._open: Caption | None = None
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
        self._open = None if placed.is_final else placed
        ends = [word.end_ms for word in placed.words if word.is_final]
        ends += [placed.end_ms] if placed.is_final else []
        self.committed_ms = max([self.committed_ms, *ends])
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

    def restart(self) -> Caption | None:
        """Go on with a new stream that counts from the beginning again.

        Returns:
            The open segment closed with its committed words, since nobody else will close it.
        """
        self._seq_offset += self._last_seq
        self._last_seq = 0
        closing = self._open and self._closed(self._open)
        if closing:
            self._seq_offset += 1
        self._segment_offset = self._n_segments
        self._open = None
        return closing

    @staticmethod
    def _closed(caption: Caption) -> Caption:
        words = tuple(word for word in caption.words if word.is_final)
        return replace(
            caption,
            seq=caption.seq + 1,
            revision=caption.revision + 1,
            is_final=True,
            end_ms=words[-1].end_ms if words else caption.start_ms,
            text=join_words(words),
            words=words,
        )
