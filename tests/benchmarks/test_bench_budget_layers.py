from __future__ import annotations

import pytest
import torch

from benchmarks.budget_layers import DeviceClock, LayerBench, StepShape
from benchmarks.budget_parts import Known, Part
from benchmarks.gemma3n_sizes import build_model
from tests.benchmarks.test_bench_gemma3n_sizes import small_config

CPU = torch.device("cpu")
SHAPE = StepShape(prefix_slots=20, tail_tokens=6, word_tokens=1.5, most_word_tokens=4)


def bench(*, is_whole: bool, shape: StepShape = SHAPE) -> LayerBench:
    cut = build_model(small_config(), CPU, torch.float32, is_whole=is_whole, vocabulary=256)
    return LayerBench(cut, shape, repeats=2)


def by_name(parts: list[Part]) -> dict[str, Part]:
    return {part.name: part for part in parts}


@pytest.mark.parametrize("is_whole", [True, False])
def test_every_part_of_a_step_is_timed(*, is_whole: bool) -> None:
    made = bench(is_whole=is_whole)
    parts = by_name(made.parts())
    assert len(parts) == 5
    assert all(0 < part.typical_ms <= part.worst_ms for part in parts.values())
    known = Known.MEASURED if is_whole else Known.SCALED
    assert parts["tokens of the new word"].known is known
    assert parts["audio tower"].known is known
    assert parts["mel"].known is Known.MEASURED
    assert "6 tokens behind 20 slots" in parts["one pass over end of audio, text and draft"].note
    eviction = made.eviction_part()
    assert not eviction.is_on_the_way
    assert eviction.typical_ms > 0


def test_layers_that_are_not_built_are_counted() -> None:
    """Six of twelve layers are built; a clock that ticks once a reading makes that exact."""
    made = bench(is_whole=False)
    made._fill_prefix()

    class Ticking(DeviceClock):
        n_ticks = 0

        def now_ms(self) -> float:
            self.n_ticks += 1
            return float(self.n_ticks)

    made._clock = Ticking(CPU)
    found = made._pass_ms(made._append_one)
    # A pass reads the clock twice a built layer and once at its end; each layer takes one tick.
    assert found == [2 * 6 + 1 + (12 - 6)] * 2


def test_a_longer_tail_and_a_longer_word_cost_more() -> None:
    short = by_name(bench(is_whole=True).parts())
    wide = StepShape(prefix_slots=20, tail_tokens=400, word_tokens=30.0, most_word_tokens=60)
    long = by_name(bench(is_whole=True, shape=wide).parts())
    tail = "one pass over end of audio, text and draft"
    assert long[tail].typical_ms > short[tail].typical_ms
    word = "tokens of the new word"
    assert long[word].typical_ms > 3 * short[word].typical_ms
