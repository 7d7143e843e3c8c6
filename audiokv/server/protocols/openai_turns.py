"""The turns of an OpenAI Realtime session: from captions to conversation items."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.streaming.captions import join_words

if TYPE_CHECKING:
    from audiokv.streaming.captions import Caption, SpeechChange, Word

Events = list[tuple[str, dict[str, object]]]

_TRANSCRIPTION = "conversation.item.input_audio_transcription"


@dataclass(slots=True)
class _Item:
    """One turn.

    Attributes:
        name: Its identifier.
        start_ms: Where it began.
        end_ms: End of its last word, or of its speech.
        is_heard: Whether the client was told where its speech began.
        text: What has been sent of it.
    """

    name: str
    start_ms: int
    end_ms: int
    is_heard: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit on its way through the stream.

    Attributes:
        item: What it committed, where the client ends turns itself.
        n_ended: Turns that had ended when it came.
    """

    item: _Item | None
    n_ended: int


@dataclass(frozen=True, slots=True)
class _Clear:
    """A clear on its way through the stream."""


class Turns:
    """Makes items of captions; a turn ends by silence, or when the client commits it.

    A turn may span several captions: pauses shorter than the client's idea of silence, and long
    speech without one, do not end it. For each commit and each clear the caller finalizes the
    stream, and calls `finalized` when that is done.

    Attributes:
        silence_ms: Silence that ends a turn, or None where only the client ends turns.
        has_audio: Whether audio came that no commit has covered.

    Args:
        pause_ms: Silence after which the stream ends a caption.
        silence_ms: As above.
    """

    def __init__(self, *, pause_ms: int, silence_ms: int | None) -> None:
        self.silence_ms = silence_ms
        self.has_audio = False
        self._pause_ms = pause_ms
        self._names = itertools.count(1)
        self._item: _Item | None = None
        self._last_name: str | None = None
        self._segment = -1
        self._n_sent = 0  # words of the segment that were sent
        self._quiet_since_ms: int | None = None
        self._n_ended = 0
        self._asked: deque[_Commit | _Clear] = deque()

    def hear(self, caption: Caption) -> Events:
        """Return the deltas of a caption's newly committed words."""
        if caption.segment != self._segment:
            self._segment, self._n_sent = caption.segment, 0
        n_committed = sum(word.is_final for word in caption.words)
        fresh = caption.words[self._n_sent : n_committed]
        self._n_sent = max(self._n_sent, n_committed)
        match self._asked[0] if self._asked else None:
            case _Clear():
                return []
            case _Commit(item=_Item() as item):
                return _extended(item, fresh)
        events: Events = []
        if self._item is None:
            self._item, events = self._started(caption.start_ms)
        if fresh:
            self._quiet_since_ms = None
        return events + _extended(self._item, fresh)

    def change(self, change: SpeechChange) -> Events:
        """Return what the beginning or the end of speech means."""
        if self.silence_ms is None or isinstance(next(iter(self._asked), None), _Clear):
            return []
        if change.is_on:
            self._quiet_since_ms = None
            if self._item is not None:
                return []
            self._item, events = self._started(change.at_ms)
            return events
        if self._item is None:
            return []
        self._item.end_ms = max(self._item.end_ms, change.at_ms)
        self._quiet_since_ms = change.at_ms
        return self.move(change.at_ms + self._pause_ms)

    def move(self, processed_ms: int) -> Events:
        """Return the end of the turn where it has been silent for long enough."""
        since_ms = self._quiet_since_ms
        if since_ms is None or self.silence_ms is None or self._item is None:
            return []
        return self._end_open() if processed_ms - since_ms >= self.silence_ms else []

    def commit(self) -> Events:
        """Take the client's wish to end the turn at the audio so far."""
        self.has_audio = False
        if self.silence_ms is not None:
            self._asked.append(_Commit(None, self._n_ended))  # its caption ends the turn
            return []
        item, self._item = self._item or self._new(0), None
        self._asked.append(_Commit(item, self._n_ended))
        return self._closed(item)

    def clear(self) -> None:
        """Take the client's wish to forget the audio that no commit has covered."""
        self.has_audio = False
        if not self._asked:
            self._item = self._quiet_since_ms = None
        self._asked.append(_Clear())

    def finalized(self) -> Events:
        """Return what follows from all having been said up to the oldest commit or clear."""
        match self._asked.popleft():
            case _Commit(item=_Item() as item):
                return [_completed(item)]
            case _Commit(n_ended=n_ended) if n_ended == self._n_ended:
                self._item = self._item or self._new(0)
                return self._end_open()
        return []

    def end(self) -> Events:
        """Return the end of the turn that is open, where there is one."""
        return self._end_open() if self._item else []

    def _new(self, at_ms: int, *, is_heard: bool = False) -> _Item:
        return _Item(f"item_{next(self._names)}", at_ms, at_ms, is_heard)

    def _started(self, at_ms: int) -> tuple[_Item, Events]:
        is_heard = self.silence_ms is not None
        item = self._new(at_ms, is_heard=is_heard)
        started: dict[str, object] = {"audio_start_ms": at_ms, "item_id": item.name}
        return item, [("input_audio_buffer.speech_started", started)] if is_heard else []

    def _closed(self, item: _Item) -> Events:
        """Return that an item's audio is complete."""
        events: Events = []
        if item.is_heard:
            stopped: dict[str, object] = {"audio_end_ms": item.end_ms, "item_id": item.name}
            events.append(("input_audio_buffer.speech_stopped", stopped))
        place: dict[str, object] = {"previous_item_id": self._last_name}
        self._last_name = item.name
        events.append(("input_audio_buffer.committed", {**place, "item_id": item.name}))
        shown = {
            "id": item.name,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        kinds = (f"conversation.item.{kind}" for kind in ("created", "added", "done"))
        return events + [(kind, {**place, "item": shown}) for kind in kinds]

    def _end_open(self) -> Events:
        item, self._item, self._quiet_since_ms = self._item, None, None
        if item is None:
            return []
        self._n_ended += 1
        return [*self._closed(item), _completed(item)]


def _extended(item: _Item, words: tuple[Word, ...]) -> Events:
    if not words:
        return []
    text = join_words(words)
    if item.text and words[0].space_before:
        text = f" {text}"
    item.text += text
    item.end_ms = max(item.end_ms, words[-1].end_ms)
    return [(f"{_TRANSCRIPTION}.delta", {"item_id": item.name, "content_index": 0, "delta": text})]


def _completed(item: _Item) -> tuple[str, dict[str, object]]:
    completed: dict[str, object] = {
        "item_id": item.name,
        "content_index": 0,
        "transcript": item.text,
        "usage": {"type": "duration", "seconds": (item.end_ms - item.start_ms) / 1000},
    }
    return f"{_TRANSCRIPTION}.completed", completed
