from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tools.digits_model import AUDIO_TOKEN, BOA, BOS, DIGIT_0, EOA, EOS, PAD
from tools.digits_rows import IGNORED, HeardString, Row, RowPlan, compose_row, stack_rows

N_SLOTS = 40
POOL = [
    HeardString(
        digits=tuple((at + string) % 10 for at in range(8)),
        spelled_at=tuple(5 * at + 3 for at in range(8)),
        start_ms=tuple(160.0 * (5 * at + 1) for at in range(8)),
        n_slots=N_SLOTS,
    )
    for string in range(3)
]
PLAIN = RowPlan(n_slots=N_SLOTS, segment_shares=(1.0,), evicted_share=0.0, max_gap=2)
MIXED = RowPlan(n_slots=N_SLOTS, segment_shares=(0.2, 0.4, 0.4), evicted_share=0.5)


def row(seed: int, plan: RowPlan) -> Row:
    return compose_row(np.random.default_rng(seed), POOL, plan)


def segments(one: Row) -> list[tuple[int, int, int, int]]:
    """Where each segment's <boa>, <eoa> and <eos> stand, and its number of slots."""
    begins = np.flatnonzero(one.ids == BOA)
    ends = np.flatnonzero(one.ids == EOA)
    stops = np.flatnonzero(one.ids == EOS)
    return [
        (int(begin), int(end), int(stop), int(end - begin - 1))
        for begin, end, stop in zip(begins, ends, stops, strict=True)
    ]


@given(seed=st.integers(0, 2000))
def test_points_lead_to_the_slot_that_spells_the_next_word(seed: int) -> None:
    one = row(seed, MIXED)
    for begin, end, stop, _ in segments(one):
        learnt = one.targets[end:stop] != IGNORED
        points = one.points[end:stop]
        assert ((points >= 0) == (learnt & (one.targets[end:stop] != EOS))).all()
        for place, at in enumerate(points.tolist(), start=1):
            if at >= 0:
                assert begin < at < end
                assert one.counts[at] == place
                assert at == begin + 1 or one.counts[at - 1] == place - 1
    assert (one.points[one.ids == AUDIO_TOKEN] == -1).all()


def first_slots(one: Row) -> list[int]:
    """Where in its string each segment begins."""
    return [int(one.slots[begin + 1]) % N_SLOTS for begin, *_ in segments(one)]


@given(seed=st.integers(0, 2000))
def test_a_row_is_bos_and_whole_segments(seed: int) -> None:
    one = row(seed, MIXED)
    assert one.ids[0] == BOS
    assert sum(n_slots for *_, n_slots in segments(one)) == N_SLOTS
    at = 1
    for begin, end, stop, n_slots in segments(one):
        assert begin == at
        assert (one.ids[begin + 1 : end] == AUDIO_TOKEN).all()
        assert n_slots % 8 == 0
        assert ((one.ids[end + 1 : stop] >= DIGIT_0) & (one.ids[end + 1 : stop] < 14)).all()
        at = stop + 1
    assert at == len(one.ids)


@given(seed=st.integers(0, 2000))
def test_words_are_those_spelled_in_the_segments_own_slots(seed: int) -> None:
    one = row(seed, MIXED)
    for begin, end, stop, _ in segments(one):
        slots = one.slots[begin + 1 : end]
        assert (np.diff(slots) == 1).all()
        string = POOL[slots[0] // N_SLOTS]
        inside = {int(slot) % N_SLOTS for slot in slots}
        expected = [
            DIGIT_0 + digit
            for digit, at in zip(string.digits, string.spelled_at, strict=True)
            if at in inside
        ]
        assert one.ids[end + 1 : stop].tolist() == expected
        heard = [int(at) in string.spelled_at for at in slots % N_SLOTS]
        assert one.counts[begin + 1 : end].tolist() == np.cumsum(heard).tolist()
        assert one.counts[end:stop].tolist() == list(range(stop - end))
        assert one.counts[begin] == one.counts[stop] == IGNORED


@given(seed=st.integers(0, 2000))
def test_targets_are_the_next_tokens_after_those_given(seed: int) -> None:
    one = row(seed, MIXED)
    learnt = np.flatnonzero(one.targets != IGNORED)
    assert (one.targets[learnt] == one.ids[learnt + 1]).all()
    for _, end, stop, _ in segments(one):
        inside = learnt[(learnt >= end) & (learnt < stop)]
        assert (inside == np.arange(stop - len(inside), stop)).all()
        assert len(inside) >= 1
    plain = row(seed, PLAIN)
    _, end, stop, _ = segments(plain)[0]
    assert (plain.targets[end:stop] != IGNORED).all()


@given(seed=st.integers(0, 2000))
def test_segments_cut_from_the_middle_begin_between_two_digits(seed: int) -> None:
    plan = replace(MIXED, segment_shares=(0.0, 1.0), from_start_share=0.0)
    for first in first_slots(row(seed, plan)):
        assert all(
            not start < first <= at
            for start, at in zip(range(1, N_SLOTS, 5), range(3, N_SLOTS, 5), strict=True)
        )


def test_the_share_from_the_start_is_kept() -> None:
    halves = replace(PLAIN, segment_shares=(0.0, 1.0))
    firsts = {
        share: [
            slot
            for seed in range(40)
            for slot in first_slots(row(seed, replace(halves, from_start_share=share)))
        ]
        for share in (0.0, 1.0)
    }
    assert set(firsts[1.0]) == {0}
    assert firsts[0.0].count(0) < len(firsts[0.0]) / 2


def test_the_latest_digit_follows_the_count() -> None:
    one = row(0, PLAIN)
    slots = one.slots >= 0
    digits = POOL[one.slots[slots][0] // N_SLOTS].digits
    expected = [10 if count == 0 else digits[count - 1] for count in one.counts[slots]]
    assert one.latest[slots].tolist() == expected
    assert (one.latest[~slots] == IGNORED).all()


def test_without_eviction_everything_before_is_seen() -> None:
    one = row(3, replace(MIXED, evicted_share=0.0))
    assert (one.sees == np.tril(np.ones_like(one.sees))).all()


@given(seed=st.integers(0, 2000))
def test_eviction_hides_history_and_given_slots_only(seed: int) -> None:
    one = row(seed, replace(MIXED, evicted_share=1.0))
    assert not np.triu(one.sees, 1).any()
    assert one.sees.diagonal().all()
    assert one.sees[:, 0].all()
    for begin, end, stop, _ in segments(one):
        # Slots see every earlier slot of their own segment: those were there when they came.
        inside = one.sees[begin:end, begin:end]
        assert (inside == np.tril(np.ones_like(inside))).all()
        hidden = ~one.sees[end, begin + 1 : end]
        n_given = int((one.targets[end:stop] == IGNORED).sum())
        assert (one.counts[begin + 1 : end][hidden] < n_given).all()


def test_eviction_does_hide_something() -> None:
    evicted = [row(seed, replace(MIXED, evicted_share=1.0)) for seed in range(20)]
    assert any((np.tril(np.ones_like(one.sees)) & ~one.sees).any() for one in evicted)


def test_positions_jump_up_to_the_gap_and_only_before_segments() -> None:
    largest = {}
    for gap in (2, 4096):
        steps = [
            (int(step), int(one.ids[at + 1]))
            for seed in range(60)
            for one in [row(seed, replace(MIXED, max_gap=gap))]
            for at, step in enumerate(np.diff(one.positions))
        ]
        assert all(step == 1 or token == BOA for step, token in steps)
        largest[gap] = max(step for step, _ in steps)
    assert largest[2] <= 257
    assert 257 < largest[4096] <= 4097


def test_segment_shares_decide_how_many_there_are() -> None:
    plan = replace(MIXED, segment_shares=(0.0, 0.0, 1.0))
    assert {len(segments(row(seed, plan))) for seed in range(10)} == {3}


def test_stacked_rows_are_padded_and_padding_sees_itself_alone() -> None:
    rows = [row(seed, MIXED) for seed in range(4)]
    stacked = stack_rows(rows)
    longest = max(len(one.ids) for one in rows)
    assert stacked.ids.shape == (4, longest)
    shortest = min(range(4), key=lambda at: len(rows[at].ids))
    n_tokens = len(rows[shortest].ids)
    assert n_tokens < longest
    assert (stacked.ids[shortest, n_tokens:] == PAD).all()
    for name in ("targets", "counts", "latest"):
        assert (getattr(stacked, name)[shortest, n_tokens:] == IGNORED).all()
        assert (getattr(stacked, name)[shortest, :n_tokens] == getattr(rows[shortest], name)).all()
    assert (stacked.sees[shortest, :n_tokens, :n_tokens] == rows[shortest].sees).all()
    assert (stacked.sees[shortest, n_tokens:].sum(-1) == 1).all()
