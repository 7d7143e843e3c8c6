"""The live Gemma-3n stream under any policy: on a tiny random model, and on spoken digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from audiokv.models.base import StreamOptions
from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.gemma3n_stream import WindowOptions
from audiokv.models.gemma3n.tower import StreamingTower
from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.registry import POLICY_NAMES
from benchmarks.measures import final_text
from benchmarks.retention_gemma import BoundedGemma, TowerOnce
from benchmarks.retention_held import CacheLog
from benchmarks.retention_policies import variants
from benchmarks.retention_speech import Clip, read_speech
from benchmarks.retention_streaming import CacheBound, StreamingRunner, with_tail
from benchmarks.virtual_stream import VirtualListener
from tests.models.gemma3n.conftest import sound, tiny_checkpoint, tiny_encoder, write_tokenizer
from tests.server.doubles import LoudnessDetector

if TYPE_CHECKING:
    from pathlib import Path

ROOMY_SLOTS = 300
FEW_SLOTS = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BoundedGemma:
    made = tmp_path_factory.mktemp("bounded-gemma")
    tiny_checkpoint().save_pretrained(made)
    write_tokenizer(made)
    return BoundedGemma(str(made))


@pytest.fixture
def runner(model: BoundedGemma) -> StreamingRunner:
    model.forget_audio()
    return StreamingRunner(model, LoudnessDetector)


@pytest.fixture(scope="module")
def clip() -> Clip:
    return Clip("a", "a", "en", "en", "some words", sound(3 * 16_000))


def bound(name: str, budget_slots: int) -> CacheBound:
    return CacheBound(variants([name], 1)[0], budget_slots)


def test_a_budget_nothing_exceeds_is_no_budget(runner: StreamingRunner, clip: Clip) -> None:
    text, log = runner.hear(clip, None)
    assert log.full_slots > FEW_SLOTS + 5
    for name in ("full", "audiokv", "keydiff"):
        assert runner.hear(clip, bound(name, ROOMY_SLOTS)) == (text, log)


def test_every_policy_keeps_the_prefix_within_the_budget(
    runner: StreamingRunner, model: BoundedGemma, clip: Clip
) -> None:
    names = [name for name in POLICY_NAMES if name != "full"]
    heard = runner.hear_each(clip, [bound(name, FEW_SLOTS) for name in names])
    for name, (_, log) in zip(names, heard, strict=True):
        held = log.held(log.full_slots, FEW_SLOTS, model.slot_bytes)
        held.check(name)
        assert held.mean_full_bytes > 0.8 * held.budget_bytes
        assert all(step.held_bytes == step.held_slots * model.slot_bytes for step in log.steps)
        assert all(step.held_slots <= step.present_slots for step in log.steps)


def test_streams_side_by_side_hear_what_each_hears_alone(
    runner: StreamingRunner, clip: Clip
) -> None:
    bounds = [bound("audiokv", FEW_SLOTS), bound("full", ROOMY_SLOTS), bound("fifo", 16)]
    assert runner.hear_each(clip, bounds) == [runner.hear(clip, one) for one in bounds]


def rows_held(model: BoundedGemma, name: str) -> list[int]:
    """Return the positions in the prefix after some seconds, half of them committed."""
    model.forget_audio()
    stream = model.open_stream(StreamOptions(), bound(name, FEW_SLOTS), CacheLog())
    stream.open(0)
    heard = sound(3 * 16_000)
    for first in range(0, len(heard), 3200):
        stream.append(heard[first : first + 3200])
        model.decode([stream])
        stream._prefix.commit_until(first // 32)
        stream.rest()
    held: list[int] = stream._prefix.cache.positions.tolist()
    return held


def test_policies_hold_different_slots(model: BoundedGemma) -> None:
    names = ("audiokv", "uniform", "streaming-llm", "random")
    held = [rows_held(model, name) for name in names]
    assert {len(rows) for rows in held} == {FEW_SLOTS}
    assert len({tuple(rows) for rows in held}) == len(names)


def test_ablations_of_policy_and_driver_hold_other_slots(model: BoundedGemma) -> None:
    plain = rows_held(model, "audiokv")
    without_guards = rows_held(model, "audiokv-no-guards")
    assert without_guards != plain
    assert len(without_guards) == len(plain)
    assert len(rows_held(model, "audiokv-rhythm-prefetch")) < len(plain)
    assert rows_held(model, "audiokv-no-prefetch") == plain  # so small a budget makes no room


def test_it_measures_what_the_product_does(
    runner: StreamingRunner, model: BoundedGemma, clip: Clip
) -> None:
    window = WindowOptions(cache=CacheOptions(FEW_SLOTS, "audiokv"))
    product = Gemma3nRecognizer(model.folder, "m", window)
    run = VirtualListener(product, LoudnessDetector).listen(with_tail(clip), "en")
    text, log = runner.hear(clip, bound("audiokv", FEW_SLOTS))
    assert text == final_text(run.arrivals)
    assert len(log.steps) == len(run.steps)


def test_audio_is_encoded_once_and_forgotten_when_told(
    runner: StreamingRunner, model: BoundedGemma, clip: Clip
) -> None:
    before = model.tower.n_encoded
    first = runner.hear(clip, bound("full", ROOMY_SLOTS))
    n_encoded = model.tower.n_encoded - before
    assert runner.hear(clip, bound("uniform", ROOMY_SLOTS)) == first
    assert model.tower.n_encoded - before == n_encoded
    model.forget_audio()
    assert runner.hear(clip, bound("full", ROOMY_SLOTS)) == first
    assert model.tower.n_encoded - before == 2 * n_encoded


def test_other_audio_after_the_same_is_encoded_as_by_the_tower_itself() -> None:
    tower = StreamingTower(tiny_encoder())
    once = TowerOnce(tower)
    start = torch.randn((1, 40, 128), generator=torch.Generator().manual_seed(1))
    for seed in (2, 3, 2):
        rest = torch.randn((1, 64, 128), generator=torch.Generator().manual_seed(seed))
        states = [tower.start(), once.start()]
        for mel in (start, rest):
            ours, states[1] = once.advance(states[1], mel)
            theirs, states[0] = tower.advance(states[0], mel)
            assert torch.equal(ours, theirs)
        assert torch.equal(once.finish(states[1]), tower.finish(states[0]))
    assert once.n_encoded == 1 + 2 + 2  # the start, and each of two endings with its last slot
    assert torch.equal(once.finish_each(states[1:])[0], tower.finish(states[0]))
    (pair,) = once.advance_each([once.start()], [start])
    assert torch.equal(pair[0], tower.advance(tower.start(), start)[0])


@pytest.mark.weights
@pytest.mark.slow
def test_spoken_digits_under_a_wrong_policy_are_visibly_worse(
    repository: Path, speech_folder: Path
) -> None:
    real = BoundedGemma(str(repository / "tests" / "models" / "gemma3n-digits"))
    runner = StreamingRunner(real, SileroModel.load().open)
    (string, *_) = read_speech("digit-strings", speech_folder / "manifest.jsonl")
    text, log = runner.hear(string, None)
    full = string.errors(text)
    assert full.rate <= 0.3
    assert log.full_slots > 50
    assert {step.held_slots == step.present_slots for step in log.steps} == {True}
    few = max(10, log.full_slots // 10)
    assert string.errors(runner.hear(string, bound("snapkv", few))[0]).total > full.total
    assert np.isfinite(real.slot_bytes)
