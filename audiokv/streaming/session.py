"""One stream from its bytes to its captions, without a socket, a clock or a thread.

All decisions fall at positions of the sample clock, so the same audio gives the same captions
however it was split, delayed or resent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.streaming.captions import Notice, SpeechChange
from audiokv.streaming.framer import Framer
from audiokv.streaming.intake import Ask, Intake
from audiokv.streaming.recognition_counts import RecognitionCounts
from audiokv.streaming.segment import Segment
from audiokv.streaming.session_options import SessionOptions
from audiokv.streaming.speakers import FixedSpeaker
from audiokv.streaming.stabilizer import AlignedCommit, LocalAgreement, TailView
from audiokv.streaming.tape import Tape
from audiokv.streaming.voice_activity import VoiceActivity

if TYPE_CHECKING:
    from audiokv.models.base import (
        FloatArray,
        Hypothesis,
        RecognizerInfo,
        RecognizerStream,
        StreamOptions,
    )
    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.audio_format import AudioFormat
    from audiokv.streaming.captions import Event, Word
    from audiokv.streaming.intake import Request
    from audiokv.streaming.speakers import SpeakerSource
    from audiokv.streaming.voice_activity import VoiceDetector

_MAX_MERGED_MS = 4000  # longest step of a session that is late; the tape must hold it


class Session:
    """One stream; called by one thread at a time.

    Push audio, then call ``prepare``; when ``is_step_due``, decode ``stream`` and hand the result
    to ``apply``; repeat until ``prepare`` leaves no step due.

    Attributes:
        stream: The recogniser's state for this stream.
        lag_ms: How far the caller is behind real time; it alone has a clock and may say so.
        is_step_due: Whether the recogniser is to be run before anything else.

    Args:
        fmt: Format of the audio that will be pushed.
        stream: The recogniser's state for this stream.
        info: What the recogniser can do.
        detector: Voice detector with its own state.
        options: Timing.
        speaker: Tells who speaks; by default it is not known.
    """

    def __init__(  # noqa: PLR0913  its parts, each by name
        self,
        *,
        fmt: AudioFormat,
        stream: RecognizerStream,
        info: RecognizerInfo,
        detector: VoiceDetector,
        options: SessionOptions | None = None,
        speaker: SpeakerSource | None = None,
    ) -> None:
        self.stream = stream
        self._speaker = speaker or FixedSpeaker()
        self._options = options or SessionOptions()
        self._framer = Framer(fmt)
        self._voice = VoiceActivity(detector, self._options.voice)
        self._commit = AlignedCommit(self._options.commit) if info.aligns else LocalAgreement()
        self._view = TailView(self._options.show)
        gap_ms = self._options.context_gap_ms
        self._gap_ms = info.context_gap_ms if gap_ms is None else gap_ms
        kept_ms = max(self._gap_ms, self._options.restart_ms)
        longest_step_ms = max(self._options.step_ms, _MAX_MERGED_MS)
        self._tape = Tape(kept_ms + longest_step_ms + 2 * self._options.pre_roll_ms + 1000)
        self._intake = Intake()
        self._fed_ms = -1  # how far the window's audio reaches; -1 without a window
        self._window_ms = 0  # where the window began
        self._segment: Segment | None = None
        self._n_segments = 0
        self._seq = 0
        self._tail: tuple[Word, ...] = ()
        self._language: str | None = None
        self.counts = RecognitionCounts()
        self._decoded_ms = 0  # how far the last step heard; -1 where its result is outdated
        self._texted_ms = 0
        self._next_step_ms = 0
        self._is_closing = False
        self._begun_at_ms = 0
        self._closed_at_ms = 0
        self._is_stopping = False
        self.is_step_due = False
        self.lag_ms = 0

    @property
    def received_samples(self) -> int:
        """Samples per channel taken so far, at the source's rate."""
        return self._framer.received_samples

    @property
    def received_ms(self) -> int:
        """End of the audio taken so far."""
        return self._intake.end_ms

    @property
    def processed_ms(self) -> int:
        """Position up to which everything has been decided."""
        return self._intake.position_ms

    @property
    def can_advance(self) -> bool:
        """Whether there is something to do before, or without, a step of the recogniser."""
        return not self.is_step_due and not self._intake.is_empty

    @property
    def n_segments(self) -> int:
        """Segments that ended with a caption."""
        return self._n_segments

    @property
    def is_done(self) -> bool:
        """Whether the stream was stopped and everything has been said."""
        return self._is_stopping and not self.is_step_due and self._intake.is_empty

    @property
    def cache_counters(self) -> CacheCounters | None:
        """What the recogniser's audio cache holds; None where it is not bounded."""
        return self.stream.cache_counters()

    def push(self, audio: bytes) -> None:
        """Take encoded audio; raises as `frame` does."""
        self.take(self.frame(audio))

    def frame(self, audio: bytes) -> FloatArray:
        """Return the frames that audio completes; raises AudioFormatError for broken samples."""
        return self._framer.push(audio)

    def take(self, frames: FloatArray) -> None:
        """Take frames, shape (n * 160,), in place of as many that `frame` gave."""
        self._intake.put(frames)

    def finalize(self) -> None:
        """Ask for the open segment to end at the end of the audio pushed so far."""
        self._intake.ask(Ask.FINALIZE)

    def stop(self) -> None:
        """Ask for the stream to end after the audio pushed so far."""
        if not self._is_stopping:
            self._intake.put(self._framer.flush())
            self._intake.ask(Ask.STOP)
            self._is_stopping = True

    def update(self, options: StreamOptions) -> None:
        """Take new wishes of the source, from the end of the audio pushed so far."""
        self._intake.ask(options)

    def rest(self) -> None:
        """Use the time after a step's captions are out; may be left out."""
        self.stream.rest()
        self._speaker.rest()

    def prepare(self) -> list[Event]:
        """Listen to what was pushed, up to the next recognition step."""
        events: list[Event] = []
        while self.can_advance:
            events += self.advance()
        return events

    def advance(self) -> list[Event]:
        """Do one thing that ``can_advance`` tells of: answer a request or hear a frame."""
        request = self._intake.take_request()
        return self._listen(self._intake.take_frame()) if request is None else self._obey(request)

    def _obey(self, request: Request) -> list[Event]:
        now = self.processed_ms
        match request:
            case Ask.FINALIZE:
                return self._end_segment(now, must_hear_ms=now)
            case Ask.STOP:
                begun = [c.at_ms for c in self._voice.flush() if c.is_on and not self._segment]
                events = [event for at_ms in begun for event in self._begin_segment(at_ms)]
                return [*events, *self._end_segment(now, must_hear_ms=now)]
            case _:
                self.stream.update(request)
                self._decoded_ms = -1  # what was heard with the old wishes is not made final
                return []

    def _listen(self, frame: FloatArray) -> list[Event]:
        self._tape.append(frame)
        changes = self._voice.push(frame)
        now, options = self.processed_ms, self._options
        if self._voice.is_voice:
            self._speaker.hear(frame)
        if self._segment is None:
            begun = next((c.at_ms for c in changes if c.is_on), None)
            if begun is None and self._voice.is_voice:
                begun = self._closed_at_ms  # a segment was ended in mid-voice: it goes on
            return [] if begun is None else self._begin_segment(begun)
        silence_ms = self._voice.decided_ms - self._voice.last_voice_ms
        if not self._voice.is_voice and silence_ms >= options.pause_ms:
            return self._end_segment(
                self._voice.last_voice_ms,
                must_hear_ms=self._voice.last_voice_ms + options.settle_ms,
            )
        if now >= self._next_step_ms:
            self._request_step()
        return []

    def _begin_segment(self, at_ms: int) -> list[Event]:
        options = self._options
        at_ms = self._begun_at_ms = max(at_ms, self._closed_at_ms)
        self._segment = Segment(at_ms)
        self._tail = ()
        self._commit.restart()
        self._speaker.begin()
        self._view = TailView(options.show)
        # A detector misses words: where silence costs little, much of it is heard as well.
        pre_roll_ms = max(options.pre_roll_ms, self._gap_ms)
        start_ms = max(at_ms - pre_roll_ms, self._tape.start_ms, self._fed_ms)
        is_near = self._fed_ms >= self._tape.start_ms and at_ms - self._fed_ms <= self._gap_ms
        if not is_near or at_ms - self._window_ms > options.context_ms:
            self.stream.open(start_ms)
            self._fed_ms = self._window_ms = start_ms
        self.stream.begin_segment(at_ms)
        self._texted_ms = at_ms
        self._next_step_ms = self.processed_ms + options.step_ms
        return [SpeechChange(is_on=True, at_ms=at_ms)]

    def _request_step(self) -> None:
        self._speaker.step()
        self.stream.append(self._tape.read(self._fed_ms, self.processed_ms), self._speaker.label)
        self._fed_ms = self.processed_ms
        self.is_step_due = True
        step_ms = self._options.step_ms
        if self.lag_ms > self._options.max_lag_ms:
            merged_ms = min(self.lag_ms // 4, _MAX_MERGED_MS)
            step_ms = max(step_ms, merged_ms)  # bigger steps, and no speech lost
        self._next_step_ms = self.processed_ms + step_ms

    def apply(self, hypothesis: Hypothesis) -> list[Event]:
        """Take the recognition of ``stream`` as it was at the step that was due."""
        self.is_step_due = False
        segment = self._segment
        if segment is None:
            return []
        self._decoded_ms = self._fed_ms
        self.counts.observe(hypothesis)
        if hypothesis.language != self._language:
            # Words of the other language say nothing about these.
            self._language = hypothesis.language
            self._commit.restart()
            self._view = TailView(self._options.show)
        self._tail = hypothesis.words if self._is_credible(segment, hypothesis.words) else ()
        if hypothesis.words:
            self._texted_ms = self._fed_ms
        if self._is_closing:
            return self._close(segment)
        if hypothesis.is_settled:
            self._commit_words(segment, self._commit.observe(hypothesis.words, self._fed_ms))
        events: list[Event] = []
        if hypothesis.language_confidence >= self._options.show.language_confidence:
            shown = self._view.observe(self._tail, self._fed_ms)
            if segment.changed(shown):
                events += self._caption(segment, shown)
        if self.processed_ms - segment.start_ms >= self._options.max_segment_ms:
            events += self._split(segment)
        if self.processed_ms - self._texted_ms >= self._options.blank_ms:
            events += self._restart_window(segment)
        return events

    def _is_credible(self, segment: Segment, words: tuple[Word, ...]) -> bool:
        """Tell a short word from what a recogniser makes of a click or a breath."""
        voice_ms = self._voice.last_voice_ms - segment.start_ms
        if not words or segment.committed or voice_ms >= self._options.short_voice_ms:
            return True
        mean = sum(w.confidence for w in words) / len(words)
        return mean >= self._options.short_confidence

    def _commit_words(self, segment: Segment, n_words: int) -> None:
        if n_words:
            committed, self._tail = self._tail[:n_words], self._tail[n_words:]
            segment.commit(committed)
            self.stream.commit(n_words)
            self._view.advance(committed)

    def _split(self, segment: Segment) -> list[Event]:
        """End a segment that has grown long, at its last committed word; the audio goes on."""
        if not segment.committed:
            return []
        events = self._caption(segment, (), is_final=True)
        self._segment = Segment(segment.committed[-1].end_ms)
        return events

    def _restart_window(self, segment: Segment) -> list[Event]:
        said_ms = segment.committed[-1].end_ms if segment.committed else 0
        start_ms = max(self.processed_ms - self._options.restart_ms, self._tape.start_ms, said_ms)
        self.stream.open(start_ms)
        self._window_ms = self._fed_ms = start_ms
        self._texted_ms = self.processed_ms
        self.counts.n_restarts += 1
        self._commit.restart()
        return [
            Notice(
                "no_words",
                f"Voice but no words for {self._options.blank_ms} ms; listening afresh.",
            )
        ]

    def _end_segment(self, at_ms: int, must_hear_ms: int) -> list[Event]:
        """End the open segment, after one more step where the last one heard too little."""
        segment = self._segment
        if segment is None:
            return []
        self._is_closing = True
        self._closed_at_ms = max(at_ms, self._begun_at_ms)
        if self._decoded_ms < min(must_hear_ms, self.processed_ms):
            self._request_step()
            return []
        return self._close(segment)

    def _close(self, segment: Segment) -> list[Event]:
        self._is_closing = False
        self._commit_words(segment, len(self._tail))
        events: list[Event] = []
        if segment.committed or segment.is_shown:
            events += self._caption(segment, (), is_final=True)
        self._segment = None
        return [*events, SpeechChange(is_on=False, at_ms=self._closed_at_ms)]

    def _caption(
        self, segment: Segment, tail: tuple[Word, ...], *, is_final: bool = False
    ) -> list[Event]:
        self._seq += 1
        segment.speaker = self._speaker.conclude() if is_final else self._speaker.label
        caption = segment.caption(
            tail,
            seq=self._seq,
            number=self._n_segments,
            is_final=is_final,
            language=self._language,
        )
        self._n_segments += is_final
        return [caption]
