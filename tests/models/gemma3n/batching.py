"""Streams in pairs for the tests of batching: the same history twice, to run alone and together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from hypothesis import strategies as st
from transformers.cache_utils import DynamicSlidingWindowLayer

from audiokv.models.gemma3n.batch_requests import ReadTail
from audiokv.models.gemma3n.prefix import Prefix, PrefixOptions
from audiokv.models.gemma3n.tail_decoding import TailDecoder
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.marks import SlotMarks

if TYPE_CHECKING:
    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.speech_model import Inputs, SpeechModel

SLOT_MS = 160
TAIL_SLOTS = 60
BOS, BOA, EOA = 2, 3, 56
_SLOTS_AT_ONCE = 5


@dataclass(frozen=True)
class History:
    """What a stream has been through.

    Attributes:
        n_slots: Slots read so far, a few at a time.
        budget: Slots it may hold, or None.
        policy: Name of its policy.
        seed: Of its audio.
    """

    n_slots: int
    budget: int | None
    policy: str
    seed: int


histories = st.builds(
    History,
    st.integers(0, 26),
    st.sampled_from([None, 12, 17]),
    st.sampled_from(["fifo", "uniform", "audiokv"]),
    st.integers(0, 9),
)


def slots(speech: SpeechModel, n_slots: int, seed: int) -> Inputs:
    """Random audio, already encoded."""
    generator = torch.Generator().manual_seed(seed)
    return speech.slots(torch.randn((1, n_slots, 24), generator=generator))


def marks(n_slots: int, first: int) -> list[SlotMarks]:
    """What is known about slots; every fourth is silent."""
    return [
        SlotMarks(SLOT_MS * i, SLOT_MS * (i + 1), is_voice=i % 4 != 2)
        for i in range(first, first + n_slots)
    ]


def lived(speech: SpeechModel, history: History) -> Prefix:
    """A prefix with such a history; with a budget its positions have gaps."""
    cache = CacheOptions(history.budget, history.policy)
    prefix = Prefix(speech, PrefixOptions(cache, SLOT_MS, TAIL_SLOTS))
    prefix.append_text([BOS], 0, is_prompt=True)
    prefix.append_text([BOA], 0)
    for i in range(0, history.n_slots, _SLOTS_AT_ONCE):
        n_new = min(_SLOTS_AT_ONCE, history.n_slots - i)
        prefix.append(slots(speech, n_new, 100 * history.seed + i), marks(n_new, i))
    return prefix


def with_shared_silence(speech: SpeechModel) -> Prefix:
    """A prefix in which one slot stands for a silence of five."""
    prefix = lived(speech, History(4, None, "fifo", 1))
    for first, is_voice in ((4, False), (9, True)):
        known = [replace(mark, is_voice=is_voice) for mark in marks(5, first)]
        prefix.append(slots(speech, 5, first), known)
    prefix.cache.share_silence()
    assert prefix.held == 2 + 4 + 1 + 5
    return prefix


def layers_of(prefix: Prefix) -> list[torch.Tensor]:
    """A copy of every key and value of every layer."""
    found = [
        part.clone()
        for layer in prefix.cache.producers
        for store in layer.stores
        for part in (store.keys(), store.values())
    ]
    for layer in prefix.cache.layers:
        if isinstance(layer, DynamicSlidingWindowLayer):
            found += [part.clone() for part in (layer.keys, layer.values) if part is not None]
    return found


def tail_logits(
    speech: SpeechModel, prefix: Prefix, parts: list[Inputs], *, again: bool
) -> Work[list[torch.Tensor]]:
    """Read parts in one tail, or each in a tail that begins anew; all logits of each."""
    given = []
    decoder = TailDecoder(speech, frozenset({1}), frozenset(), ((1, 2), (5, 0)))
    with prefix.tail():
        for number, part in enumerate(parts):
            if again and number:
                # The stream's own cache must be rolled back too where the tail lies in it.
                prefix.cache.rollback_tail()
                prefix.cache.open_tail()
            is_first = again or not number
            columns = np.arange(prefix.held)
            read = ReadTail(prefix, part, decoder, is_first, len(part), 1, columns)
            yield read
            given.append(speech.logits(read.hidden))
    return given
