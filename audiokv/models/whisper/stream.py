"""One stream's window of audio and text before a Whisper model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from audiokv.models.base import Hypothesis
from audiokv.models.whisper.alignment import SLOT_MS, token_starts_ms
from audiokv.models.whisper.audio_budget import open_holder
from audiokv.models.whisper.decoding import DraftDecoder
from audiokv.models.whisper.features import IncrementalLogMel
from audiokv.models.whisper.guards import is_unspoken, loop_start, n_spoken, rewind_start
from audiokv.models.whisper.language import LanguageTracker
from audiokv.models.whisper.text import without_leading_mark
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.captions import Word
from audiokv.streaming.policy.marker import Talker

if TYPE_CHECKING:
    from audiokv.models.base import FloatArray, StreamOptions
    from audiokv.models.whisper.cross_cache import CrossCache
    from audiokv.models.whisper.network import Dimensions, WhisperNetwork
    from audiokv.models.whisper.text import TokenWord, WhisperText
    from audiokv.streaming.audio_cache import CacheCounters

SAMPLES_PER_MS = 16
COLUMN_MS = 10
SLOT_SAMPLES = SLOT_MS * SAMPLES_PER_MS
# Committed words with less of their audio are not decoded anew (measured: 0.25 to 0.5 are alike).
_MIN_HELD_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How much audio and text a decode covers.

    Attributes:
        padding_ms: Silence behind the audio; without it the decoder loops.
        trim_above_ms: Window length from which committed audio is let go.
        keep_ms: Committed audio kept before the revisable tail when the window is trimmed.
        max_prompt_tokens: Longest prompt, in tokens.
        max_previous_tokens: Longest text context from before the window, in tokens.
        cache: Bound of the audio the decoder may look at.
    """

    padding_ms: int = 2000
    trim_above_ms: int = 12_000
    keep_ms: int = 3000
    max_prompt_tokens: int = 100
    max_previous_tokens: int = 0
    cache: CacheOptions = field(default_factory=CacheOptions)


def max_window_ms(dims: Dimensions, window: WindowOptions) -> int:
    """Return how much audio fits before the padding, at least half of what the model takes."""
    whole_ms = dims.max_source_positions * SLOT_MS
    return max(whole_ms - window.padding_ms, whole_ms // 2)


@dataclass(frozen=True, slots=True)
class WhisperModel:
    """What all streams of one model share.

    Attributes:
        network: Its weights.
        text: Its vocabulary.
        mel_filters: Its filter bank.
        suppressed: Text tokens never to be produced.
    """

    network: WhisperNetwork
    text: WhisperText
    mel_filters: torch.Tensor
    suppressed: list[int]


@dataclass(frozen=True, slots=True)
class _Committed:
    tokens: tuple[int, ...]
    end_ms: int


class WhisperStream:
    """Implements ``RecognizerStream``; see there.

    Args:
        model: The model.
        options: The source's wishes.
        window: Sizes of the window.
    """

    def __init__(self, model: WhisperModel, options: StreamOptions, window: WindowOptions) -> None:
        self._network = model.network
        self._text = model.text
        self._window = window
        self._mel = IncrementalLogMel(model.mel_filters)
        self._holder = open_holder(
            window.cache, model.network.dims, model.network.dtype, options.profile
        )
        self._decoder = DraftDecoder(model.network, model.text, model.suppressed)
        self._languages = list(model.text.language_ids)
        self._tracker = LanguageTracker(self._languages, options.language)
        self._prompt = self._prompt_tokens(options.prompt)
        self._previous: list[int] = []
        self._committed: list[_Committed] = []
        self._latest: list[tuple[TokenWord, Word]] = []
        self._draft: list[int] = []
        self._start_ms = 0
        self._segment_ms = 0
        self._committed_ms = 0  # end of the last committed word, in this window or before it

    def _prompt_tokens(self, prompt: str) -> list[int]:
        if not prompt.strip():
            return []
        return self._text.encode(" " + prompt.strip())[: self._window.max_prompt_tokens]

    @property
    def end_ms(self) -> int:
        """Where the window's audio ends on the stream's clock."""
        return self._start_ms + self._mel.n_samples // SAMPLES_PER_MS

    def open(self, at_ms: int) -> None:
        """Start a fresh window; the text so far stays as context."""
        self._remember([t for c in self._committed for t in c.tokens])
        self._mel.reset()
        self._decoder.forget()
        self._holder.open(at_ms)
        self._committed = []
        self._latest = []
        self._draft = []
        self._start_ms = at_ms
        self._segment_ms = at_ms

    def append(self, samples: FloatArray, speaker: str | None = None) -> None:
        """Add audio at the end of the window."""
        self._mel.append(torch.from_numpy(samples))
        self._holder.append(samples, Talker(speaker, self._tracker.current))
        limit_ms = max_window_ms(self._network.dims, self._window)
        if self.end_ms - self._start_ms > limit_ms:
            # Nothing was committed for long. What is new counts, or the stream would go deaf.
            self._let_go(self.end_ms - limit_ms + COLUMN_MS)

    def update(self, options: StreamOptions) -> None:
        """Take new wishes: language, prompt."""
        self._tracker.choose(options.language)
        self._prompt = self._prompt_tokens(options.prompt)

    def begin_segment(self, at_ms: int) -> None:
        """Note that a segment of speech begins."""
        self._segment_ms = max(at_ms, self._start_ms)
        self._tracker.begin_segment()
        self._holder.begin_segment(at_ms)

    def _remember(self, tokens: list[int]) -> None:
        kept = self._window.max_previous_tokens
        self._previous = [*self._previous, *tokens][-kept:] if kept else []

    def _encode(self) -> CrossCache:
        n_slots = max(1, self._mel.n_samples // SLOT_SAMPLES)
        padding = self._window.padding_ms // SLOT_MS
        limit = self._network.dims.max_source_positions
        n_slots = min(n_slots, limit)
        n_all = min(n_slots + padding, limit)
        encoded = self._network.encode(self._mel.features(2 * n_all))
        cross = self._network.cross_cache(encoded, n_slots, self._holder.hold())
        self._holder.see_keys(cross.keys)
        return cross

    def _detect_language(self, cross: CrossCache) -> None:
        """Listen for the language of the open segment, and start afresh where it changed."""
        segment_ms = self.end_ms - self._segment_ms
        if not self._languages or not self._tracker.wants(segment_ms):
            return
        before = self._tracker.current
        first = min((self._segment_ms - self._start_ms) // SLOT_MS, cross.n_audio_slots - 1)
        ids = list(self._text.language_ids.values())
        self._tracker.observe(self._decoder.language_logits(cross.since(first), ids), segment_ms)
        if self._tracker.current != before:
            self._draft = []

    def decode(self) -> Hypothesis:
        """Recognise the window as it stands."""
        cross = self._encode()
        self._detect_language(cross)
        language = self._tracker.current if self._languages else None
        forced = [t for c in self._committed for t in c.tokens]
        context = [*self._prompt, *self._previous]
        if context:
            context.insert(0, self._text.start_of_previous)
        context += [*self._text.start_tokens(language), *forced]
        decoded = self._decoder.decode(
            context, len(forced), self._draft, cross, self._n_settled_tokens()
        )
        self._holder.observe(decoded.attention)
        starts = token_starts_ms(decoded.attention, cross.held)[len(forced) :]
        tokens, scores = decoded.tokens, decoded.log_probabilities
        n_kept = min(
            loop_start(tokens, starts.tolist()),
            rewind_start(decoded.attention, len(forced)),
        )
        if is_unspoken(decoded.no_speech_probability, scores):
            n_kept = 0
        self._draft = tokens[:n_kept]
        grouped = without_leading_mark(self._text.words(tokens[:n_kept], language))
        self._latest = self._timed(grouped, starts.tolist(), scores)
        words = tuple(word for _, word in self._latest)
        words = words[: n_spoken(words)]
        if not self._languages:
            return Hypothesis(words, "en")
        return Hypothesis(words, language, self._tracker.confidence, self._tracker.is_settled)

    def _n_settled_tokens(self) -> int:
        """Return how many committed tokens stand up to the last one whose audio is gone."""
        n_tokens = n_settled = 0
        start_ms = self._start_ms
        for word in self._committed:
            n_tokens += len(word.tokens)
            if self._holder.held_share(start_ms, word.end_ms) < _MIN_HELD_SHARE:
                n_settled = n_tokens
            start_ms = word.end_ms
        return n_settled

    def _timed(
        self, grouped: list[TokenWord], starts_ms: list[int], scores: list[float]
    ) -> list[tuple[TokenWord, Word]]:
        floor = max(self._committed_ms, self._start_ms)
        timed = []
        first = 0
        for word in grouped:
            last = first + len(word.tokens)
            start = max(floor, self._start_ms + starts_ms[first])
            end = max(start, self._start_ms + starts_ms[last])
            confidence = math.exp(sum(scores[first:last]) / len(word.tokens))
            timed.append(
                (
                    word,
                    Word(
                        text=word.text,
                        start_ms=start,
                        end_ms=end,
                        confidence=round(min(confidence, 1.0), 3),
                        space_before=word.space_before,
                    ),
                )
            )
            first, floor = last, end
        return timed

    def commit(self, n_words: int) -> None:
        """Force the first words of the latest hypothesis from now on."""
        if n_words:
            self._tracker.settle()
        taken, self._latest = self._latest[:n_words], self._latest[n_words:]
        self._committed += [_Committed(w.tokens, timed.end_ms) for w, timed in taken]
        self._committed_ms = max([self._committed_ms, *(timed.end_ms for _, timed in taken)])
        self._draft = self._draft[sum(len(w.tokens) for w, _ in taken) :]
        self._holder.commit_until(self._committed_ms)
        self._trim()

    def _trim(self) -> None:
        """Let committed audio go where the window has grown long, between two words."""
        if self.end_ms - self._start_ms <= self._window.trim_above_ms or not self._committed:
            return
        newest = self._committed[-1].end_ms - self._window.keep_ms
        ends_ms = [c.end_ms for c in self._committed if c.end_ms <= newest]
        if ends_ms:
            self._let_go(ends_ms[-1])

    def _let_go(self, until_ms: int) -> None:
        n_gone = sum(c.end_ms <= until_ms for c in self._committed)
        gone, self._committed = self._committed[:n_gone], self._committed[n_gone:]
        self._remember([t for c in gone for t in c.tokens])
        grain_ms = self._holder.grain_ms
        gone_ms = (until_ms - self._start_ms) // grain_ms * grain_ms
        self._mel.drop(gone_ms // COLUMN_MS)
        self._start_ms += gone_ms
        self._decoder.forget()
        self._holder.forget_before(self._start_ms)
        self._segment_ms = max(self._segment_ms, self._start_ms)

    def rest(self) -> None:
        """Make room in the audio cache for the next step."""
        self._holder.rest()

    def cache_counters(self) -> CacheCounters | None:
        """Return what the audio cache holds; None without a budget."""
        return self._holder.counters()
