from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.marks import Reason
from tests.models.audio_llm.families import FAMILIES, greedy, open_loop, tensors_of
from tests.models.gemma3n.conftest import sound

if TYPE_CHECKING:
    from audiokv.models.audio_llm.live_loop import LiveLoop
    from tests.models.audio_llm.families import Family, Samples

SECONDS = 16_000
POLICIES = ("audiokv", "streaming-llm", "uniform")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    made: Family = FAMILIES[request.param]()
    return made


def hear_in(loop: LiveLoop, samples: Samples, cuts: list[int]) -> int:
    """Hear a clip in pieces; returns the slots that were complete."""
    edges = [0, *sorted(cuts), len(samples)]
    return sum(loop.hear(samples[start:end]) for start, end in pairwise(edges) if end > start)


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(1, 3 * SECONDS), max_size=4), st.integers(1, 4))
def test_a_live_stream_says_what_the_class_says_of_the_clip(
    family: Family, cuts: list[int], seed: int
) -> None:
    clip = sound(3 * SECONDS + 700, seed)
    loop = open_loop(family)
    cuts = [min(cut, len(clip)) for cut in cuts]
    for start, end in pairwise([0, *sorted(cuts), len(clip)]):
        if end > start:
            loop.hear(clip[start:end])
            loop.decode()  # its text is the next one's draft
    expected = greedy(family, clip, [], 8)
    found = loop.decode()
    assert found.tokens == (expected if found.is_complete else expected[: len(found.tokens)])
    assert len(found.tokens) >= min(len(expected), 7)


def test_committed_text_is_kept_and_continued(family: Family) -> None:
    clip = sound(3 * SECONDS, 5)
    loop = open_loop(family)
    loop.hear(clip)
    first = loop.decode().tokens
    loop.commit(2, loop.heard_ms)
    assert greedy(family, clip, first[:2], 5) == loop.decode().tokens[:5]


def test_a_decode_leaves_the_cache_bit_for_bit(family: Family) -> None:
    loop = open_loop(family)
    loop.hear(sound(3 * SECONDS, 1))
    before, seen, held = tensors_of(loop), loop.prefix.cache.seen, loop.prefix.held
    for _ in range(3):
        loop.decode()
    after = tensors_of(loop)
    assert (loop.prefix.cache.seen, loop.prefix.held) == (seen, held)
    assert len(before) == len(after) >= 2
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_slots_are_appended_once_and_none_is_lost(family: Family) -> None:
    clip = sound(5 * SECONDS, 2)
    whole, pieces = open_loop(family), open_loop(family)
    n_slots = hear_in(whole, clip, [])
    assert n_slots == hear_in(pieces, clip, list(range(333, len(clip), 4321))) > 20
    found, expected = tensors_of(pieces), tensors_of(whole)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)
    rows = whole.prefix.audio_rows(0)
    starts_ms = whole.prefix.starts_ms(rows)
    assert len(rows) == n_slots
    assert starts_ms[0] == 0
    assert np.all(np.diff(starts_ms) > 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_budget_is_held_at_every_step(family: Family, policy: str) -> None:
    budget = 48
    loop = open_loop(family, CacheOptions(budget, policy))
    clip = sound(12 * SECONDS, 3)
    held = []
    for start in range(0, len(clip), SECONDS):
        loop.hear(clip[start : start + SECONDS])
        loop.decode()
        loop.rest()
        held.append(loop.prefix.held)
    assert max(held) <= budget
    assert max(held) > budget // 2
    assert loop.prefix.cache.seen > 2 * budget


def test_a_budget_that_nothing_exceeds_changes_nothing(family: Family) -> None:
    clip = sound(3 * SECONDS, 4)
    bounded, free = open_loop(family, CacheOptions(400, "audiokv")), open_loop(family)
    for loop in (bounded, free):
        loop.hear(clip)
    assert bounded.decode().tokens == free.decode().tokens


def test_positions_move_back_without_changing_a_word(family: Family) -> None:
    clip = sound(5 * SECONDS, 6)
    loop = open_loop(family)
    loop.hear(clip)
    model, prefix = family.model, loop.prefix
    inputs = model.tokens([*family.frame.after_audio, 7, 9, 11])

    @torch.inference_mode()
    def logits() -> torch.Tensor:
        with prefix.tail():
            return model.logits(prefix.run_in_tail(inputs))

    before, seen = logits(), prefix.cache.seen
    with torch.inference_mode():
        gone = np.arange(2, 20)
        prefix.cache.ledger.evict(gone, Reason.FORCED)
        prefix.cache.keep(np.delete(np.arange(prefix.held), gone))
        gappy = logits()
        prefix.cache.reanchor()
    assert prefix.cache.seen < seen
    torch.testing.assert_close(logits(), gappy, atol=2e-4, rtol=0)
    assert float((gappy - before).abs().max()) > 1e-2  # what was dropped mattered


def test_a_stream_goes_on_past_the_models_positions(family: Family) -> None:
    loop = open_loop(family, CacheOptions(40, "streaming-llm"), max_positions=150)
    clip = sound(16 * SECONDS, 7)
    for start in range(0, len(clip), 2 * SECONDS):
        loop.hear(clip[start : start + 2 * SECONDS])
        loop.decode()
    assert loop.prefix.n_reanchors >= 2
    assert loop.prefix.cache.seen < 150


def test_the_segment_before_stands_before_the_next_one(family: Family) -> None:
    window = 4 * SECONDS  # whole windows, so that every slot of the segment is in the cache
    clips = [sound(window + 60, 8), sound(window + 60, 9)]
    loop = open_loop(family)
    loop.hear(clips[0])
    loop.decode()
    loop.commit(3, loop.heard_ms)
    said = loop.end_segment()
    assert len(said) == 3
    loop.hear(clips[1])
    n_next = 4
    text: list[int] = []
    for _ in range(n_next):
        logits = family.class_logits(clips, [said, text])[-1].clone()
        logits[list(family.unspoken)] = -torch.inf
        text.append(int(logits.argmax()))
    found = loop.decode().tokens
    assert found[:n_next] == [token for token in text if token not in family.frame.stops]


def test_nothing_can_be_said_before_anything_was_heard(family: Family) -> None:
    with pytest.raises(ValueError, match="nothing was heard"):
        open_loop(family).decode()
    assert open_loop(family).end_segment() == []
