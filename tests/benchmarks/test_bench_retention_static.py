from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.policy.registry import POLICY_NAMES
from benchmarks.retention_policies import ABLATIONS, ORACLE, variants
from benchmarks.retention_rows import Cell, Table
from benchmarks.retention_speech import Clip
from benchmarks.retention_static import (
    CacheShape,
    HeldAudio,
    StaticRunner,
    WatchedAudio,
    budget_slots,
    slot_marks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.retention_batch import RowCache

N_SLOTS = 60
N_PROMPT = 3
SHAPE = CacheShape((2, 3), slot_bytes=12)
BOUNDED = [name for name in (*POLICY_NAMES, ORACLE, *ABLATIONS) if name != "full"]
CHANCE = np.random.default_rng(0)
CLIP = Clip("a", "a", "en", "en", "w w", CHANCE.standard_normal(320 * N_SLOTS).astype(np.float32))
MARKS = slot_marks(CLIP, N_SLOTS)


def attention(seed: int = 0) -> np.ndarray:
    weights: np.ndarray = np.random.default_rng(seed).random((*SHAPE.heads, N_SLOTS))
    return weights.astype(np.float32)


def held_audio(name: str, budget: int, n_text: int | None = None) -> HeldAudio:
    (variant,) = variants([name], 1)
    cache = HeldAudio(variant, MARKS, SHAPE, budget, n_text)
    cache.observe(attention())
    cache.observe_keys([torch.randn(SHAPE.heads[1], N_SLOTS + 5, 4) for _ in range(2)])
    cache.keep_to_budget()
    return cache


@pytest.mark.parametrize("name", BOUNDED)
@settings(max_examples=5, deadline=None)
@given(budget=st.integers(1, N_SLOTS))
def test_every_policy_takes_the_same_bytes(name: str, budget: int) -> None:
    cache = held_audio(name, budget)
    assert np.count_nonzero(cache.is_held) == budget * 6
    assert cache.make_room(attention(1))
    held = cache.log.held(N_SLOTS, budget, SHAPE.slot_bytes)
    assert held.max_bytes == held.budget_bytes


@pytest.mark.parametrize("name", BOUNDED)
def test_text_displaces_audio_at_constant_bytes(name: str) -> None:
    cache = held_audio(name, 20, N_PROMPT)
    before = cache.is_held
    for i in range(20 - N_PROMPT - 1):
        assert cache.make_room(attention(i))
        assert not (cache.is_held & ~before).any(), "what has left comes back"
        before = cache.is_held
    assert not cache.make_room(attention())  # the text alone fills the budget
    held = cache.log.held(N_SLOTS, 20, SHAPE.slot_bytes)
    assert held.max_bytes == held.budget_bytes == held.mean_full_bytes
    assert held.n_steps == 20 - N_PROMPT


def test_without_counted_text_nothing_leaves_later() -> None:
    cache = held_audio("tova", 20)
    before = cache.is_held.copy()
    assert all(cache.make_room(attention(i)) for i in range(30))
    assert np.array_equal(cache.is_held, before)


def test_policies_choose_differently_and_by_what_they_are_shown() -> None:
    kept = {name: held_audio(name, 20).is_held.tobytes() for name in ("fifo", "uniform", "h2o")}
    assert len(set(kept.values())) == 3
    assert held_audio("fifo", 20).is_held[0, 0].nonzero()[0].tolist() == list(range(40, 60))
    shown = held_audio("tova", 20).is_held[0, 0]
    best = attention().mean(axis=(0, 1)).argsort()[-20:]
    assert set(shown.nonzero()[0]) == set(best)


def test_marks_are_those_of_whole_slots() -> None:
    assert len(MARKS) == N_SLOTS
    assert [mark.start_ms for mark in MARKS[:3]] == [0, 20, 40]
    assert {mark.language for mark in MARKS} == {"en"}


def test_budgets_round_and_leave_a_slot_for_audio() -> None:
    assert budget_slots(268, 40) == 107
    assert budget_slots(10, 1) == 1
    assert budget_slots(60, 5, n_text=4) == 5


@dataclass(frozen=True)
class FakeDecoded:
    tokens: list[int]
    is_complete: bool = True


@dataclass(frozen=True)
class FakeCross:
    keys: tuple[torch.Tensor, ...] = (torch.ones(3, N_SLOTS + 5, 4),) * 2


@dataclass(frozen=True)
class FakeHeard:
    cross: FakeCross = FakeCross()
    prompt: tuple[int, ...] = (0,) * N_PROMPT
    n_slots: int = N_SLOTS

    @property
    def attention(self) -> np.ndarray:
        return np.stack([attention(i) for i in range(N_PROMPT)], axis=2)


class FakeModel:
    """Says one word a slot its first head holds, up to three; ends by itself below that."""

    heads = SHAPE.heads
    slot_bytes = SHAPE.slot_bytes

    def __init__(self) -> None:
        self.n_heard = 0

    def hear(self, _clip: Clip) -> FakeHeard:
        self.n_heard += 1
        return FakeHeard()

    def decode(self, _heard: FakeHeard, rows: Sequence[RowCache]) -> list[FakeDecoded]:
        texts = []
        for row in rows:
            n_words = 0
            while n_words < 3 and row.make_room(attention(n_words)):
                n_words += 1
            texts.append(FakeDecoded([1] * n_words, is_complete=n_words == 3))
        return texts

    def text(self, tokens: list[int], _language: str) -> str:
        return "w " * len(tokens)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    opened = Table.open("P", "m", "s", tmp_path)
    opened.begin({"date": "now"}, {})
    return opened


def run(table: Table, names: Sequence[str], model: FakeModel, *, counts_text: bool) -> None:
    runner = StaticRunner(model, counts_text=counts_text)  # type: ignore[arg-type]  # a double
    list(runner.rows([CLIP], variants(names, 2), [40, 5], table))


def test_all_missing_cells_of_a_clip_are_measured_and_none_twice(table: Table) -> None:
    model = FakeModel()
    run(table, ["uniform", "random", "oracle"], model, counts_text=False)
    assert len(table.rows) == 1 + 2 * 4
    assert table.rows[Cell("a", "full", 0, 100)].held.max_bytes == 12 * N_SLOTS
    run(table, ["uniform", "random", "oracle"], model, counts_text=False)
    assert model.n_heard == 1


def test_a_text_that_fills_the_budget_counts_as_cut(table: Table) -> None:
    run(table, ["uniform"], FakeModel(), counts_text=True)
    tight = table.rows[Cell("a", "uniform", 0, 5)]
    assert tight.held.budget_slots == N_PROMPT + 1
    assert tight.is_collapsed
    assert not table.rows[Cell("a", "uniform", 0, 40)].is_collapsed


def test_the_oracle_is_shown_the_text_and_the_others_the_prompt(table: Table) -> None:
    full = WatchedAudio(SHAPE, N_SLOTS)
    for seed in (5, 6):
        assert full.make_room(attention(seed))
    assert np.array_equal(full.seen[1], attention(6))
    run(table, ["oracle", "h2o"], FakeModel(), counts_text=False)
    texts = np.sum([attention(i) for i in range(3)], axis=0).mean(axis=(0, 1))
    (variant,) = variants(["oracle"], 1)
    cache = HeldAudio(variant, MARKS, SHAPE, 10)
    for seed in range(3):
        cache.observe(attention(seed))
    cache.keep_to_budget()
    assert set(cache.is_held[0, 0].nonzero()[0]) == set(texts.argsort()[-10:])
