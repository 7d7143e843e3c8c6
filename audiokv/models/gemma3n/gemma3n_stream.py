"""One stream before a Gemma-3n model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import Hypothesis
from audiokv.models.gemma3n.batch_requests import run_alone
from audiokv.models.gemma3n.checked_decoding import Asked, checked_decoder
from audiokv.models.gemma3n.prefix import Prefix, PrefixOptions, require_room
from audiokv.models.gemma3n.slot_alignment import token_spans
from audiokv.models.gemma3n.slot_source import SlotSource
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.gemma3n.tail_decoding import TailRequest
from audiokv.models.gemma3n.word_times import timed_words, without_loop
from audiokv.models.whisper.text import without_leading_mark
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.marker import Talker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.models.base import FloatArray, StreamOptions
    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.mel import MelFrontEnd
    from audiokv.models.gemma3n.model_settings import ModelSettings
    from audiokv.models.gemma3n.prompt_layout import Frame, PromptLayout, SpecialTokens
    from audiokv.models.gemma3n.slot_source import MarkedSlot
    from audiokv.models.gemma3n.speech_model import SpeechModel
    from audiokv.models.gemma3n.tail_decoding import Continuation
    from audiokv.models.gemma3n.vocabulary import Vocabulary
    from audiokv.models.whisper.text import TokenWord
    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.captions import Word

_SAMPLES_PER_MS = 16
_TOKENS_PER_SLOT = 2  # faster than any language is spoken: 12.5 tokens a second
_SPARE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How much audio and text a decode covers.

    Attributes:
        trim_above_ms: Length of a segment from which its committed audio is let go.
        keep_ms: Committed audio kept before the revisable text when that happens.
        max_window_ms: Longest segment; beyond it audio is let go whether committed or not.
        context_gap_ms: How much silence before a segment is heard too, if possible in one window.
        resets_norm: Whether the tower's running norm begins anew at each pause inside a window.
        cache: Bound of what is held. With a bound, audio and text of earlier segments stay in the
            cache as far as it allows; without, each segment begins with the prompt alone.
    """

    trim_above_ms: int = 25_000
    keep_ms: int = 3000
    max_window_ms: int = 30_000
    context_gap_ms: int = 2000
    resets_norm: bool = False
    cache: CacheOptions = field(default_factory=CacheOptions)


@dataclass(frozen=True, slots=True)
class GemmaModel:
    """What all streams of one model share.

    Attributes:
        speech: Its weights.
        front_end: Its mel front end.
        vocabulary: Its vocabulary.
        special: Its special tokens.
        layout: How it wants to be asked.
        settings: What else its folder says.
        slot_ms: Length of one audio slot.
    """

    speech: SpeechModel
    front_end: MelFrontEnd
    vocabulary: Vocabulary
    special: SpecialTokens
    layout: PromptLayout
    settings: ModelSettings
    slot_ms: int


@dataclass(frozen=True, slots=True)
class _Committed:
    tokens: tuple[int, ...]
    end_ms: int


class Gemma3nStream:
    """Implements ``RecognizerStream``; see there.

    Audio is only taken in by ``append``; the model runs in ``decode``.

    Args:
        model: The model.
        options: The source's wishes.
        window: Sizes of the window.

    Raises:
        ConfigError: The budget fits neither prompt nor model, or there is no such profile.
    """

    def __init__(self, model: GemmaModel, options: StreamOptions, window: WindowOptions) -> None:
        self._model = model
        self._window = window
        self._prefix = Prefix(
            model.speech,
            PrefixOptions(
                window.cache,
                model.slot_ms,
                profile=options.profile,
                max_positions=model.settings.max_positions,
            ),
        )
        self._frame = self._frame_for(options)
        self._options = options
        self._decoder = checked_decoder(model, self._frame.stops)
        self._has_prompt = False  # whether the prefix begins with the prompt in force
        self._closing: tuple[tuple[int, ...], int] | None = None  # text of the segment before
        self.n_restarts = 0
        self._begin_window(0)

    @property
    def end_ms(self) -> int:
        """Where the audio taken in ends on the stream's clock."""
        return self._start_ms + self._n_samples // _SAMPLES_PER_MS

    @property
    def n_reanchors(self) -> int:
        """How often positions were moved back before the model's limit."""
        return self._prefix.n_reanchors

    def open(self, at_ms: int) -> None:
        """Start a fresh window.

        With a bound the window before stays in the cache, its committed text behind it, unless its
        audio is to be heard again: then something went wrong with it.
        """
        goes_on = self._prefix.is_bounded and self._has_prompt and at_ms >= self.end_ms
        if goes_on:
            self._close_segment()
        else:
            self.n_restarts += self._has_prompt and at_ms < self.end_ms
            self._has_prompt = False
        self._begin_window(at_ms)

    def _frame_for(self, options: StreamOptions) -> Frame:
        frame = self._model.layout.frame(options)
        require_room(self._window.cache.budget_slots, len(frame.opening) + len(frame.before_audio))
        return frame

    def _begin_window(self, at_ms: int) -> None:
        model = self._model
        self._decoder.begin_window()
        self._source = SlotSource(model.speech, model.front_end, at_ms)
        self._start_ms = at_ms  # of the segment's first slot
        self._n_samples = 0
        self._waiting: list[tuple[FloatArray, str | None]] = []
        self._slots: list[MarkedSlot] = []  # of the segment, to read them again
        self._committed: list[_Committed] = []
        self._committed_ms = at_ms
        self._latest: list[tuple[TokenWord, Word]] = []
        self._draft: list[int] = []
        self._has_segment = False  # whether the prefix has the segment's opening

    def begin_segment(self, at_ms: int) -> None:
        """Note that a segment of speech begins."""
        self._prefix.guard_last(at_ms)
        self._decoder.begin_segment()
        if self._window.resets_norm:
            self._source.forget_level()

    def append(self, samples: FloatArray, speaker: str | None = None) -> None:
        """Add audio at the end of the window."""
        self._waiting.append((samples, speaker))
        self._n_samples += len(samples)

    def update(self, options: StreamOptions) -> None:
        """Take new wishes; a changed prompt is read, and the segment after it again.

        Raises:
            ConfigError: The new prompt does not fit the budget.
        """
        frame = self._frame_for(options)
        self._options = options
        if frame != self._frame:
            self._frame = frame
            self._has_prompt = False

    def decode(self) -> Hypothesis:
        """Recognise the window as it stands."""
        return run_alone(self.decoding())

    def decoding(self) -> Work[Hypothesis]:
        """The work of ``decode``, for a runner that lets streams share passes."""
        try:
            yield from self._hear()
            self._let_go()
            yield from self._read_prompt()
        except BaseException:  # also a shared pass that failed: what it read is read again
            self._has_prompt = self._has_segment = False
            raise
        continuation = yield from self._continue()
        spans_ms = self._spans_ms(continuation)
        has_clear_times = bool(self._model.settings.alignment_heads)
        self._draft = without_loop(continuation, spans_ms, has_clear_times=has_clear_times)
        language = self._language
        words = without_leading_mark(
            self._model.vocabulary.words(self._forced, self._draft, language)
        )
        timed = timed_words(words, spans_ms, continuation.log_probabilities, self._committed_ms)
        self._latest = list(zip(words, timed, strict=True))
        return self._decoder.marked(Hypothesis(tuple(timed), language))

    def commit(self, n_words: int) -> None:
        """Force the first words of the latest hypothesis from now on."""
        taken, self._latest = self._latest[:n_words], self._latest[n_words:]
        self._committed += [_Committed(word.tokens, timed.end_ms) for word, timed in taken]
        self._committed_ms = max([self._committed_ms, *(timed.end_ms for _, timed in taken)])
        self._draft = self._draft[sum(len(word.tokens) for word, _ in taken) :]
        self._prefix.commit_until(self._committed_ms)

    def rest(self) -> None:
        """Make room in the cache for the next step."""
        self._prefix.rest()

    def cache_counters(self) -> CacheCounters | None:
        """Return what the cache holds; None without a budget."""
        return self._prefix.counters()

    @property
    def _language(self) -> str | None:
        languages = self._model.settings.languages
        only = next(iter(languages)) if languages and len(languages) == 1 else None
        return self._options.language or only

    @property
    def _forced(self) -> list[int]:
        return [token for word in self._committed for token in word.tokens]

    def _hear(self) -> Work[None]:
        """Encode what was appended and read the slots that are complete."""
        whole: list[MarkedSlot] = []
        while self._waiting:
            samples, speaker = self._waiting[0]
            made = yield from self._source.pushing(samples, Talker(speaker, self._language))
            del self._waiting[0]
            self._slots += made
            whole += made
        if self._has_prompt and self._has_segment and whole:
            yield from self._read(whole)

    def _read(self, slots: list[MarkedSlot]) -> Work[None]:
        inputs = Inputs.joined([slot for slot, _ in slots])
        yield from self._prefix.appending(inputs, [mark for _, mark in slots])

    def _read_prompt(self) -> Work[None]:
        """Bring prompt and segment into the prefix where they are not there already."""
        if self._has_prompt and self._has_segment:
            return
        if not self._has_prompt:
            self._prefix.restart()
            yield from self._prefix.appending_text(self._frame.opening, 0, is_prompt=True)
            self._has_prompt = True
        elif self._closing is not None:
            yield from self._prefix.appending_text(*self._closing)
        self._closing = None
        yield from self._prefix.appending_text(self._frame.before_audio, self._start_ms)
        self._prefix.guard_last(self._start_ms)
        self._has_segment = True
        if self._slots:
            yield from self._read(self._slots)
        self._prefix.commit_until(self._committed_ms)

    def _close_segment(self) -> None:
        """Put the segment's text behind its audio, for good, with the next decode."""
        if self._has_segment:
            end_ms = self._slots[-1][1].end_ms if self._slots else self._start_ms
            text = (*self._frame.after_audio, *self._forced, *self._frame.between)
            self._closing = (text, end_ms)

    def _let_go(self) -> None:
        """Begin again behind committed words where the segment has grown long."""
        length_ms = self.end_ms - self._start_ms
        if length_ms <= self._window.trim_above_ms:
            return
        newest_ms = self._committed_ms - self._window.keep_ms
        cuts = [word.end_ms for word in self._committed if word.end_ms <= newest_ms]
        until_ms = cuts[-1] if cuts else self._start_ms
        if length_ms > self._window.max_window_ms:
            # Nothing was committed for long. What is new counts, or the stream would go deaf.
            until_ms = max(until_ms, self.end_ms - self._window.trim_above_ms)
        kept = [slot for slot in self._slots if slot[1].end_ms > until_ms]
        if len(kept) == len(self._slots):
            return
        gone_ms = self._slots[-len(kept) - 1][1].end_ms - self._start_ms
        self._slots = kept
        self._start_ms += gone_ms
        self._n_samples -= gone_ms * _SAMPLES_PER_MS
        self._committed = [word for word in self._committed if word.end_ms > until_ms]
        self._has_prompt = self._has_segment = False

    def _continue(self) -> Work[Continuation]:
        speech, frame = self._model.speech, self._frame
        tail = yield from self._source.finishing()
        n_own = sum(len(part) for part in tail)
        n_slots = len(self._slots) + n_own
        n_padding = max(0, self._model.settings.pad_to_slots - n_slots)
        if n_padding:
            tail.append(speech.padding(n_padding))
        spoken_ms = self.end_ms - self._committed_ms
        request = TailRequest(
            audio=Inputs.joined(tail) if tail else None,
            n_own_slots=n_own,
            after_audio=frame.after_audio,
            forced=self._forced,
            draft=self._draft,
            max_tokens=max(1, n_slots * _TOKENS_PER_SLOT + _SPARE_TOKENS - len(self._forced)),
            n_spoken_slots=spoken_ms // self._model.slot_ms,
        )
        rows = self._prefix.audio_rows(self._start_ms)
        asked = Asked(frame, self._language)
        return (yield from self._decoder.decoding(self._prefix, request, rows, asked))

    def _spans_ms(self, continuation: Continuation) -> NDArray[np.int64]:
        """Return where each new token begins and ends, shape (tokens, 2)."""
        rows = self._prefix.audio_rows(self._start_ms)
        n_own = continuation.attention.shape[-1] - len(rows)
        own_ms = self._start_ms + (len(self._slots) + np.arange(n_own)) * self._model.slot_ms
        columns_ms = np.concatenate((self._prefix.starts_ms(rows), own_ms))
        if not len(columns_ms):
            return np.full((len(continuation.tokens), 2), self._start_ms)
        spans = token_spans(continuation.attention)[len(self._forced) :]
        edges_ms: NDArray[np.int64] = columns_ms[spans] + [0, self._model.slot_ms]
        return edges_ms.clip(self._committed_ms, max(self.end_ms, self._committed_ms))
