"""One stream before any language model that hears: audio appended, text decoded on a tail.

The loop of the Gemma-3n recogniser without its words and its server: whole slots join a prefix
under a budget, and each decode reads the slots that may still change, the marks behind the audio,
the committed text and a draft on a tail that is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.gemma3n.tail_decoding import TailDecoder, TailRequest
from audiokv.streaming.policy.marker import UNKNOWN_TALKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.models.audio_llm.hearing_model import AudioSource, HearingModel
    from audiokv.models.base import FloatArray
    from audiokv.models.gemma3n.prefix import Prefix
    from audiokv.models.gemma3n.prompt_layout import Frame
    from audiokv.models.gemma3n.tail_decoding import Continuation
    from audiokv.streaming.policy.marker import Talker

_SAMPLES_PER_MS = 16


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """What a loop writes.

    Attributes:
        frame: Tokens around audio and text.
        unspoken: Tokens that are never produced.
        max_tokens: Longest text of one decode behind the committed one.
        heads: Layer and head of those whose attention is wanted; all where none is named.
    """

    frame: Frame
    unspoken: frozenset[int] = frozenset()
    max_tokens: int = 32
    heads: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class _Segment:
    """What a segment has so far."""

    source: AudioSource
    start_ms: int
    n_slots: int = 0
    end_ms: int = 0
    committed: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)


class LiveLoop:
    """Runs one stream.

    Args:
        model: The model.
        prefix: Its cache.
        open_source: Gives an encoder of audio that begins at a position of the stream, in ms.
        options: What it writes.
    """

    def __init__(
        self,
        model: HearingModel,
        prefix: Prefix,
        open_source: Callable[[int], AudioSource],
        options: LoopOptions,
    ) -> None:
        self.prefix = prefix
        self._options = options
        self._open_source = open_source
        self._decoder = TailDecoder(model, options.frame.stops, options.unspoken, options.heads)
        self._n_samples = 0
        self._is_begun = False
        self._segment = self._open_segment()

    @property
    def heard_ms(self) -> int:
        """End of the audio pushed so far."""
        return self._n_samples // _SAMPLES_PER_MS

    @torch.inference_mode()
    def hear(self, samples: FloatArray, talker: Talker = UNKNOWN_TALKER) -> int:
        """Take audio in and read the slots it completes, for good.

        Args:
            samples: Shape (n,), 16 kHz mono, directly following what was heard before.
            talker: Who speaks.

        Returns:
            How many slots were complete.
        """
        if not self._is_begun:
            self.prefix.append_text(self._options.frame.opening, 0, is_prompt=True)
            self._begin_segment()
        self._n_samples += len(samples)
        whole = self._segment.source.push(samples, talker)
        if whole:
            inputs = Inputs.joined([inputs for inputs, _ in whole])
            self.prefix.append(inputs, [marks for _, marks in whole])
            self._segment.n_slots += len(inputs)
            self._segment.end_ms = whole[-1][1].end_ms
        return len(whole)

    @torch.inference_mode()
    def decode(self) -> Continuation:
        """Continue the committed text as the audio heard so far has it; nothing is kept of it.

        The next decode takes the result for a draft.

        Raises:
            ValueError: Nothing was heard yet.
        """
        if not self._is_begun:
            raise ValueError("nothing was heard yet")
        segment, prefix = self._segment, self.prefix
        unfinished = segment.source.unfinished()
        n_own = sum(len(part) for part in unfinished)
        request = TailRequest(
            audio=Inputs.joined(unfinished) if unfinished else None,
            n_own_slots=n_own,
            after_audio=self._options.frame.after_audio,
            forced=tuple(segment.committed),
            draft=tuple(segment.draft),
            max_tokens=self._options.max_tokens,
            n_spoken_slots=segment.n_slots + n_own,
        )
        found = self._decoder.decode(prefix, request, prefix.audio_rows(segment.start_ms))
        segment.draft = list(found.tokens)
        return found

    def commit(self, n_tokens: int, until_ms: int) -> None:
        """Force the first tokens of the latest text from now on.

        Args:
            n_tokens: How many.
            until_ms: Where on the stream's clock the last of them ends.
        """
        segment = self._segment
        segment.committed += segment.draft[:n_tokens]
        segment.draft = segment.draft[n_tokens:]
        self.prefix.commit_until(until_ms)

    @torch.inference_mode()
    def end_segment(self) -> list[int]:
        """Put the committed text behind its audio, for good, and begin afresh behind it.

        Audio that no slot was complete with is left out.

        Returns:
            The segment's tokens.
        """
        if not self._is_begun:
            return []
        segment, frame = self._segment, self._options.frame
        text = (*frame.after_audio, *segment.committed, *frame.between)
        self.prefix.append_text(text, segment.end_ms)
        self._segment = self._open_segment()
        self._begin_segment()
        return segment.committed

    def rest(self) -> None:
        """Make room in the cache for the next step."""
        self.prefix.rest()

    def _open_segment(self) -> _Segment:
        return _Segment(self._open_source(self.heard_ms), self.heard_ms, end_ms=self.heard_ms)

    def _begin_segment(self) -> None:
        self._is_begun = True
        self.prefix.append_text(self._options.frame.before_audio, self._segment.start_ms)
        self.prefix.guard_last(self._segment.start_ms)
