"""The channels of one stream as one: a session each, and one run of events on one clock."""

from __future__ import annotations

from collections import deque
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS
from audiokv.streaming.captions import Caption, SpeechChange
from audiokv.streaming.echo_gate import EchoGate
from audiokv.streaming.errors import MessageError
from audiokv.streaming.recognition_counts import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance

    from audiokv.models.base import Hypothesis, RecognizerStream, StreamOptions
    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.captions import Event
    from audiokv.streaming.recognition_counts import RecognitionCounts
    from audiokv.streaming.session import Session

    _Counts = TypeVar("_Counts", bound=DataclassInstance)


def check_labels(labels: Sequence[str], n_channels: int) -> None:
    """Refuse labels that do not tell the channels apart.

    Args:
        labels: What the source named its channels; none is fine.
        n_channels: Channels of its audio.

    Raises:
        MessageError: ``bad_field``.
    """
    if labels and len(labels) != n_channels:
        raise MessageError(
            "bad_field",
            f"{len(labels)} channel_labels came for {n_channels} channels.",
            "Send one label for each channel, or none.",
        )
    names = {label.strip() for label in labels}
    if len(names) < len(labels) or "" in names:
        raise MessageError(
            "bad_field",
            f"The channel_labels {', '.join(map(repr, labels))} do not tell the channels apart.",
            "Send another label for each channel, none of them empty.",
        )


class ChannelSplitter:
    """Takes interleaved samples apart, however their bytes were cut.

    Args:
        sample_bytes: Bytes of one sample of one channel.
        n_channels: Channels that are interleaved.
    """

    def __init__(self, sample_bytes: int, n_channels: int) -> None:
        self._n_channels = n_channels
        self._sample = np.dtype(f"V{sample_bytes}")
        self._part = b""  # less than one sample of all channels

    def push(self, audio: bytes) -> list[bytes]:
        """Return the bytes of each channel, as many whole samples of one as of the other."""
        held = self._part + audio
        cut = len(held) - len(held) % (self._sample.itemsize * self._n_channels)
        self._part = held[cut:]
        samples = np.frombuffer(held[:cut], self._sample).reshape(-1, self._n_channels)
        return [samples[:, channel].tobytes() for channel in range(self._n_channels)]


class ChannelGroup:
    """What the worker runs for one stream: a session for each channel, most often just one.

    Channels are decoded on their own, so one on which nobody speaks costs no decode; what one gives
    back of another's voice is no speech of its own. Their events
    come in the order of the audio positions at which they were decided, the first channel before
    the second at the same one; captions are numbered on across the channels. The stream has a voice
    while any channel has one.

    Attributes:
        sessions: The sessions, one a channel, all of the same sample rate.

    Args:
        sessions: As above.
        splitter: Takes the stream's bytes apart, into as many parts as there are sessions.
    """

    def __init__(self, sessions: Sequence[Session], splitter: ChannelSplitter) -> None:
        self.sessions = tuple(sessions)
        self._splitter = splitter
        self._gate = EchoGate(len(self.sessions))
        self._order = _EventOrder(len(self.sessions))
        self._numbers = _Numbers()
        self._rested: list[Session] = []

    @property
    def processed_ms(self) -> int:
        """Position up to which everything has been decided on every channel."""
        return min(session.processed_ms for session in self.sessions)

    @property
    def received_ms(self) -> int:
        """End of the audio taken so far."""
        return self.sessions[0].received_ms

    @property
    def is_step_due(self) -> bool:
        """Whether the recogniser is to be run on a channel before anything else."""
        return bool(self._due_sessions())

    @property
    def is_done(self) -> bool:
        """Whether the stream was stopped and everything has been said."""
        return all(session.is_done for session in self.sessions)

    @property
    def due(self) -> list[RecognizerStream]:
        """Recogniser states to be decoded now, together where the recogniser can."""
        return [session.stream for session in self._due_sessions()]

    @property
    def cache_counters(self) -> CacheCounters | None:
        """What the audio caches of all channels hold together; None where they are not bounded."""
        counters = [session.cache_counters for session in self.sessions]
        known = [one for one in counters if one is not None]
        return _sum(known) if known else None

    @property
    def recognition(self) -> RecognitionCounts | None:
        """What went wrong and was put right on all channels; None while all is well."""
        return total(session.counts for session in self.sessions)

    def push(self, audio: bytes) -> None:
        """Take encoded audio, split anywhere.

        Raises:
            AudioFormatError: The samples are broken.
        """
        parts = zip(self.sessions, self._splitter.push(audio), strict=True)
        frames = [session.frame(part) for session, part in parts]
        for session, heard in zip(self.sessions, self._gate.push(frames), strict=True):
            session.take(heard)

    def finalize(self) -> None:
        """Ask for the open segments to end at the end of the audio pushed so far."""
        for session in self.sessions:
            session.finalize()

    def stop(self) -> None:
        """Ask for the stream to end after the audio pushed so far."""
        for session in self.sessions:
            session.stop()

    def update(self, options: StreamOptions) -> None:
        """Take new wishes of the source, from the end of the audio pushed so far."""
        for session in self.sessions:
            session.update(options)

    def be_late(self, lag_ms: int) -> None:
        """Tell the sessions how far the caller is behind real time."""
        for session in self.sessions:
            session.lag_ms = lag_ms

    def prepare(self) -> list[Event]:
        """Listen to what was pushed, on each channel up to its next recognition step."""
        for channel, session in enumerate(self.sessions):
            while session.can_advance:
                events = session.advance()
                self._order.put(channel, session.processed_ms, events)
        return self._say()

    def apply(self, hypotheses: Sequence[Hypothesis]) -> list[Event]:
        """Take the recognition of ``due``, in the same order."""
        due = self._due_sessions()
        for session, hypothesis in zip(due, hypotheses, strict=True):
            channel = self.sessions.index(session)
            self._order.put(channel, session.processed_ms, session.apply(hypothesis))
        self._rested = due
        return self._say()

    def rest(self) -> None:
        """Use the time after the captions of the last ``apply`` are out; may be left out."""
        for session in self._rested:
            session.rest()
        self._rested = []

    def _due_sessions(self) -> list[Session]:
        return [session for session in self.sessions if session.is_step_due]

    def _say(self) -> list[Event]:
        # A channel that waits for its step may yet say something at this very position.
        bounds = [s.processed_ms + (0 if s.is_step_due else FRAME_MS) for s in self.sessions]
        events = []
        for channel, event in self._order.take(bounds):
            numbered = self._numbers.number(channel, event)
            events += [] if numbered is None else [numbered]
        return events


class _EventOrder:
    """Merges the events of several channels by position, once none earlier can come.

    Args:
        n_channels: How many.
    """

    def __init__(self, n_channels: int) -> None:
        self._waiting: list[deque[tuple[int, Event]]] = [deque() for _ in range(n_channels)]

    def put(self, channel: int, at_ms: int, events: Sequence[Event]) -> None:
        """Add events that a channel decided at a position, not before its last ones."""
        self._waiting[channel].extend((at_ms, event) for event in events)

    def take(self, bounds_ms: Sequence[int]) -> list[tuple[int, Event]]:
        """Return what may go out, each with its channel.

        Args:
            bounds_ms: Earliest position of what each channel has not said yet.
        """
        taken: list[tuple[int, Event]] = []
        while True:
            _, channel = min(
                (waiting[0][0] if waiting else bounds_ms[channel], channel)
                for channel, waiting in enumerate(self._waiting)
            )
            if not self._waiting[channel]:
                return taken
            taken.append((channel, self._waiting[channel].popleft()[1]))


class _Numbers:
    """Numbers captions and segments across channels, and joins the channels' voices into one."""

    def __init__(self) -> None:
        self._seq = 0
        self._n_segments = 0
        self._open: dict[int, int] = {}  # number of each channel's open segment
        self._n_voices = 0
        self._changed_ms = 0

    def number(self, channel: int, event: Event) -> Event | None:
        """Return an event as the stream says it; None where the stream as a whole says nothing."""
        match event:
            case Caption():
                return self._caption(channel, event)
            case SpeechChange():
                return self._change(event)
            case _:
                return event

    def _caption(self, channel: int, caption: Caption) -> Caption:
        self._seq += 1
        if channel not in self._open:
            self._open[channel] = self._n_segments
            self._n_segments += 1
        number = self._open[channel]
        if caption.is_final:
            del self._open[channel]
        return replace(caption, seq=self._seq, segment=number)

    def _change(self, change: SpeechChange) -> SpeechChange | None:
        before = self._n_voices
        self._n_voices += 1 if change.is_on else -1
        if before and self._n_voices:
            return None
        # A voice is found later than it began: never say a change before the last one.
        self._changed_ms = max(self._changed_ms, change.at_ms)
        return replace(change, at_ms=self._changed_ms)


def _sum(counts: Sequence[_Counts]) -> _Counts:
    """Add up every number of records of one kind; names are those of the first."""
    sums: dict[str, object] = {}
    for field in fields(counts[0]):
        values = [getattr(one, field.name) for one in counts]
        if is_dataclass(values[0]):
            sums[field.name] = _sum(values)
        elif not isinstance(values[0], str):
            sums[field.name] = sum(values)
    return replace(counts[0], **sums)
