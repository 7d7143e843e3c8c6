from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from audiokv.models.whisper.decoding import Decoded, DraftDecoder, is_repeating
from audiokv.models.whisper.network import SelfCache

if TYPE_CHECKING:
    from audiokv.models.whisper.cross_cache import CrossCache
    from tests.models.whisper.conftest import Tiny

SUPPRESSED = [3, 17, 299]
CLEAR_LEAD = 1e-4


@cache
def window(tiny: Tiny, n_slots: int = 60, seed: int = 0, n_padding: int = 10) -> CrossCache:
    generator = torch.Generator().manual_seed(seed)
    mel = torch.randn(80, 2 * (n_slots + n_padding), generator=generator)
    return tiny.network.cross_cache(tiny.network.encode(mel), n_slots)


def decoder(tiny: Tiny, suppressed: list[int] | None = None) -> DraftDecoder:
    return DraftDecoder(tiny.network, tiny.text, SUPPRESSED if suppressed is None else suppressed)


def start(tiny: Tiny) -> list[int]:
    return tiny.text.start_tokens("en")


def plain_greedy(
    tiny: Tiny, context: list[int], n_forced: int, cross: CrossCache, limit: int
) -> tuple[list[int], bool]:
    """Greedy decoding as it is defined: the whole text through the network for every token."""
    text = tiny.text
    tokens: list[int] = []
    while len(tokens) < limit:
        own = SelfCache(tiny.network.dims, tiny.network.dtype)
        hidden, _ = tiny.network.decode([*context, *tokens], 0, own, cross)
        logits = tiny.network.logits(hidden[-1:])[0]
        logits[SUPPRESSED] = -torch.inf
        logits[text.end_of_text + 1 :] = -torch.inf
        if not tokens and not n_forced:
            logits[[*text.blank, text.end_of_text]] = -torch.inf
        token = int(logits.argmax())
        if token == text.end_of_text:
            return tokens, True
        tokens.append(token)
        if is_repeating(tokens):
            break
    return tokens, False


def smallest_lead(
    tiny: Tiny, context: list[int], n_forced: int, cross: CrossCache, tokens: list[int]
) -> float:
    """Return by how much the best token beat the second where that was closest.

    Passes of different lengths sum in different orders, so a near tie may fall either way.
    """
    own = SelfCache(tiny.network.dims, tiny.network.dtype)
    hidden, _ = tiny.network.decode([*context, *tokens], 0, own, cross)
    logits = tiny.network.logits(hidden[len(context) - 1 :])
    logits[:, SUPPRESSED] = -torch.inf
    logits[:, tiny.text.end_of_text + 1 :] = -torch.inf
    if not n_forced:
        logits[0, [*tiny.text.blank, tiny.text.end_of_text]] = -torch.inf
    best = logits.topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).min())


def same(a: Decoded, b: Decoded) -> None:
    assert a.tokens == b.tokens
    assert a.is_complete == b.is_complete
    assert a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-4)
    assert a.no_speech_probability == pytest.approx(b.no_speech_probability, abs=1e-5)
    np.testing.assert_allclose(a.attention, b.attention, atol=1e-4)


SEEDS = st.integers(0, 5)


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, forced=st.lists(st.integers(20, 290), max_size=5))
def test_decoding_is_greedy(tiny: Tiny, seed: int, forced: list[int]) -> None:
    cross = window(tiny, seed=seed)
    context = [*start(tiny), *forced]
    found = decoder(tiny).decode(context, len(forced), [], cross)
    limit = 12 * 60 // 50 + 16 - len(forced)  # 12 tokens a second and 16 to spare
    tokens, is_complete = plain_greedy(tiny, context, len(forced), cross, limit)
    assume(smallest_lead(tiny, context, len(forced), cross, tokens) > CLEAR_LEAD)
    assert found.is_complete == is_complete
    # A text cut short gives its last token away: nothing says where that one ends.
    assert found.tokens == (tokens if is_complete else tokens[:-1])


@settings(deadline=None, max_examples=40)
@given(data=st.data(), seed=SEEDS, forced=st.lists(st.integers(20, 290), max_size=4))
def test_a_draft_changes_the_cost_and_never_the_result(
    tiny: Tiny, data: st.DataObject, seed: int, forced: list[int]
) -> None:
    cross = window(tiny, seed=seed)
    context = [*start(tiny), *forced]
    truth = decoder(tiny).decode(context, len(forced), [], cross)
    assume(smallest_lead(tiny, context, len(forced), cross, truth.tokens) > CLEAR_LEAD)
    # Random tokens, and drafts that are nearly right: words missing, added, changed.
    pieces = st.lists(st.integers(0, 339), max_size=3)
    draft = data.draw(st.lists(st.integers(0, 339), max_size=60))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(truth.tokens)))
        gone = data.draw(st.integers(0, 3))
        draft = [*truth.tokens[:at], *data.draw(pieces), *truth.tokens[at + gone :]]
    same(decoder(tiny).decode(context, len(forced), draft, cross), truth)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(SEEDS, st.lists(st.integers(0, 339), max_size=30)), max_size=4))
def test_earlier_windows_leave_no_trace(tiny: Tiny, history: list[tuple[int, list[int]]]) -> None:
    used = decoder(tiny)
    for seed, draft in history:
        used.decode(start(tiny), 0, draft, window(tiny, seed=seed))
        used.language_logits(window(tiny, seed=seed), [342, 343])
    cross = window(tiny, seed=9)
    same(used.decode(start(tiny), 0, [], cross), decoder(tiny).decode(start(tiny), 0, [], cross))


@cache
def longest(tiny: Tiny) -> tuple[CrossCache, Decoded]:
    """A window with a long text that the model itself ends."""
    ended = [
        (cross, found)
        for cross in (window(tiny, seed=seed) for seed in range(12))
        if (found := decoder(tiny).decode(start(tiny), 0, [], cross)).is_complete
    ]
    return max(ended, key=lambda pair: len(pair[1].tokens))


def test_a_right_draft_costs_one_pass(tiny: Tiny) -> None:
    cross, truth = longest(tiny)
    assert len(truth.tokens) >= 4
    assert truth.n_forwards == len(truth.tokens) + 1
    again = decoder(tiny).decode(start(tiny), 0, truth.tokens, cross)
    assert again.n_forwards == 1
    same(again, truth)


def test_a_draft_with_one_wrong_token_costs_two_passes(tiny: Tiny) -> None:
    cross, truth = longest(tiny)
    for draft in (
        [*truth.tokens[:2], 5, *truth.tokens[3:]],  # changed
        [*truth.tokens[:2], 5, *truth.tokens[2:]],  # one too many
    ):
        found = decoder(tiny).decode(start(tiny), 0, draft, cross)
        same(found, truth)
        assert found.n_forwards <= 3
    missing = decoder(tiny).decode(start(tiny), 0, [*truth.tokens[:2], *truth.tokens[3:]], cross)
    same(missing, truth)
    assert missing.n_forwards < truth.n_forwards


def test_a_draft_too_long_is_cut_where_the_text_ends(tiny: Tiny) -> None:
    cross, truth = longest(tiny)
    found = decoder(tiny).decode(start(tiny), 0, [*truth.tokens, 50, 51, 52], cross)
    same(found, truth)
    assert found.n_forwards == 1


@cache
def endless(tiny: Tiny, n_slots: int = 60) -> CrossCache:
    """A window whose text reaches the limit of length."""
    for seed in range(60):
        cross = window(tiny, n_slots, seed=seed)
        if not decoder(tiny).decode(start(tiny), 0, [], cross).is_complete:
            return cross
    raise AssertionError("the random model ends every text")


@pytest.mark.parametrize("n_slots", [10, 60])
def test_text_is_no_longer_than_the_audio_allows(tiny: Tiny, n_slots: int) -> None:
    cross = endless(tiny, n_slots)
    found = decoder(tiny).decode(start(tiny), 0, [], cross)
    limit = n_slots * 12 // 50 + 16
    assert len(found.tokens) == limit - 1
    assert found.n_forwards == limit
    assert found.attention.shape == (3, limit, n_slots)
    # The limit holds with a draft that the model would follow beyond it.
    longer = plain_greedy(tiny, start(tiny), 0, cross, limit + 5)[0]
    same(decoder(tiny).decode(start(tiny), 0, longer, cross), found)


def test_forced_text_counts_towards_the_limit(tiny: Tiny) -> None:
    cross = window(tiny, n_slots=10)
    forced = [30 + i for i in range(18)]
    found = decoder(tiny).decode([*start(tiny), *forced], 18, [], cross)
    assert found.n_forwards == 1
    assert len(found.tokens) == 0


def test_the_position_limit_of_the_model_holds(tiny: Tiny) -> None:
    previous = [30 + i % 200 for i in range(80)]
    context = [tiny.text.start_of_previous, *previous, *start(tiny)]
    room = tiny.network.dims.max_target_positions - len(context) - 1
    for seed in range(5):
        draft = [100 + i for i in range(40)]
        found = decoder(tiny).decode(context, 0, draft, window(tiny, seed=seed))
        assert len(found.tokens) <= room


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, suppressed=st.lists(st.integers(0, 339), max_size=200))
def test_suppressed_tokens_are_never_produced(tiny: Tiny, seed: int, suppressed: list[int]) -> None:
    cross = window(tiny, seed=seed)
    wanted = decoder(tiny, []).decode(start(tiny), 0, [], cross).tokens
    barred = {*suppressed, *wanted[:2]}
    found = decoder(tiny, sorted(barred)).decode(start(tiny), 0, wanted, cross)
    assert not barred & set(found.tokens)
    assert all(token < tiny.text.end_of_text for token in found.tokens)


def test_text_never_begins_blank_or_empty(tiny: Tiny) -> None:
    for seed in range(8):
        found = decoder(tiny, []).decode(start(tiny), 0, [], window(tiny, seed=seed))
        assert found.tokens[:1] not in ([], tiny.text.blank)


def test_forced_text_may_end_at_once(tiny: Tiny) -> None:
    cross, truth = longest(tiny)
    context = [*start(tiny), *truth.tokens]
    found = decoder(tiny).decode(context, len(truth.tokens), [], cross)
    assert found.tokens == []
    assert found.is_complete
    # Its attention rows are those of the forced tokens and of the end, as if just decoded.
    np.testing.assert_allclose(found.attention, truth.attention, atol=1e-4)


def test_confidence_and_silence_are_those_of_the_network(tiny: Tiny) -> None:
    cross, _ = longest(tiny)
    previous = [tiny.text.start_of_previous, 33, 34]
    context = [*previous, *start(tiny)]
    found = decoder(tiny).decode(context, 0, [], cross)
    hidden, _ = tiny.network.decode(
        [*context, *found.tokens], 0, SelfCache(tiny.network.dims, torch.float32), cross
    )
    logits = tiny.network.logits(hidden)
    no_speech = logits[len(previous)].softmax(dim=-1)[tiny.text.no_speech]
    assert found.no_speech_probability == pytest.approx(float(no_speech), abs=1e-5)
    logits[:, SUPPRESSED] = -torch.inf
    logits[:, tiny.text.end_of_text + 1 :] = -torch.inf
    second = logits[len(context)].log_softmax(dim=-1)[found.tokens[1]]
    assert found.log_probabilities[1] == pytest.approx(float(second), abs=1e-4)


def test_languages_are_read_after_the_start_alone(tiny: Tiny) -> None:
    cross = window(tiny)
    ids = [344, 342]
    found = decoder(tiny).language_logits(cross, ids)
    own = SelfCache(tiny.network.dims, torch.float32)
    hidden, _ = tiny.network.decode([tiny.text.start], 0, own, cross)
    assert found.tolist() == tiny.network.logits(hidden)[0, ids].tolist()


def test_only_many_repetitions_at_the_end_are_repeating() -> None:
    assert not is_repeating([])
    assert not is_repeating([7, 7, 7, 7])
    assert is_repeating([7, 7, 7, 7, 7])
    assert is_repeating([1, 2, *[3, 4, 5] * 5])
    assert not is_repeating([*[3, 4, 5] * 5, 6])
    assert is_repeating([1, *list(range(8)) * 5])
    assert not is_repeating(list(range(9)) * 5)


def test_settled_tokens_keep_what_they_were_computed_from(tiny: Tiny) -> None:
    told = decoder(tiny)
    forced = [5, 6, 7, 8]
    context = [*start(tiny), *forced]
    before = told.decode(context, len(forced), [], window(tiny))
    own = told._model.own  # the cache is what this is about
    kept, n_first = own.keys.clone(), len(start(tiny)) + 3
    after = told.decode(context, len(forced), [], window(tiny, 70, seed=1), n_settled=3)
    assert torch.equal(own.keys[:, :, :n_first], kept[:, :, :n_first])
    assert not torch.equal(own.keys[:, :, n_first], kept[:, :, n_first])
    assert after.no_speech_probability == before.no_speech_probability
    # What a settled token looked at is what it looked at then.
    np.testing.assert_array_equal(after.attention[:, :3, :60], before.attention[:, :3])
    assert not after.attention[:, :3, 60:].any()


@pytest.mark.parametrize("n_settled", [0, 4])
def test_on_the_same_audio_settled_tokens_change_nothing(tiny: Tiny, n_settled: int) -> None:
    told = decoder(tiny)
    forced = [5, 6, 7, 8]
    context = [*start(tiny), *forced]
    first = told.decode(context, len(forced), [], window(tiny))
    again = told.decode(context, len(forced), [], window(tiny), n_settled)
    assert again.tokens == first.tokens
    np.testing.assert_allclose(again.attention, first.attention, atol=1e-5)


def test_nothing_is_settled_in_another_window_or_another_text(tiny: Tiny) -> None:
    forced, other = [5, 6, 7, 8], window(tiny, 70, seed=1)
    context = [*start(tiny), *forced]
    anew = decoder(tiny).decode(context, len(forced), [], other)
    told = decoder(tiny)
    told.decode(context, len(forced), [], window(tiny))
    told.forget()
    forgotten = told.decode(context, len(forced), [], other, n_settled=4)
    np.testing.assert_array_equal(forgotten.attention, anew.attention)
    told.decode([*tiny.text.start_tokens("de"), *forced], len(forced), [], window(tiny))
    translated = told.decode(context, len(forced), [], other, n_settled=4)
    np.testing.assert_array_equal(translated.attention, anew.attention)


def test_detecting_the_language_leaves_nothing_settled(tiny: Tiny) -> None:
    forced, other = [5, 6, 7, 8], window(tiny, 70, seed=1)
    context = [*start(tiny), *forced]
    anew = decoder(tiny).decode(context, len(forced), [], other)
    told = decoder(tiny)
    told.decode(context, len(forced), [], window(tiny))
    told.language_logits(other, [tiny.text.language_ids["en"]])
    after = told.decode(context, len(forced), [], other, n_settled=4)
    np.testing.assert_array_equal(after.attention, anew.attention)
