"""The captions of one segment of speech: committed words first, a revisable tail behind them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from audiokv.streaming.captions import Caption, Word, join_words

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class Segment:
    """Words of the open segment and what was shown of them.

    Attributes:
        start_ms: Where the segment's voice began.
        speaker: Who speaks, or None.
        committed: Words that never change again.
    """

    start_ms: int
    speaker: str | None = None
    committed: list[Word] = field(default_factory=list)
    _shown: tuple[Word, ...] = ()
    _revision: int = 0

    @property
    def is_shown(self) -> bool:
        """Whether a caption of this segment has gone out."""
        return self._revision > 0

    def commit(self, words: Sequence[Word]) -> None:
        """Add words to the committed ones."""
        self.committed.extend(replace(w, is_final=True) for w in words)

    def changed(self, tail: Sequence[Word]) -> bool:
        """Tell whether showing this tail would change what stands on the screen."""
        now = (*self.committed, *tail)
        return [(w.text, w.is_final) for w in now] != [(w.text, w.is_final) for w in self._shown]

    def caption(
        self,
        tail: Sequence[Word],
        *,
        seq: int,
        number: int,
        is_final: bool,
        language: str | None,
    ) -> Caption:
        """Return the next caption of the segment and remember it as shown."""
        words = (*self.committed, *self._in_order(tail))
        caption = Caption(
            seq=seq,
            segment=number,
            revision=self._revision,
            is_final=is_final,
            start_ms=words[0].start_ms if words else self.start_ms,
            end_ms=words[-1].end_ms if words else self.start_ms,
            text=join_words(words),
            language=language,
            speaker=self.speaker,
            words=words,
        )
        self._revision += 1
        self._shown = words
        return caption

    def _in_order(self, tail: Sequence[Word]) -> list[Word]:
        """Return the tail without overlaps: its words may stem from different hypotheses."""
        floor_ms = self.committed[-1].end_ms if self.committed else 0
        ordered = []
        for word in tail:
            start_ms = max(floor_ms, word.start_ms)
            floor_ms = max(start_ms, word.end_ms)
            ordered.append(replace(word, start_ms=start_ms, end_ms=floor_ms))
        return ordered
