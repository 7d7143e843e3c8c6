from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.assembly import DriverOptions, open_driver
from audiokv.streaming.policy.guards import Guard, Guards
from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import Keeping, Pool, Reason, SlotMarks
from audiokv.streaming.policy.prefetch import NoPrefetch, RhythmPrefetch, StepPrefetch
from audiokv.streaming.policy.profiles import PROFILES, PolicyProfile
from audiokv.streaming.policy.registry import POLICY_NAMES
from audiokv.streaming.policy.smoothing import MedianTrendSmoother, NoSmoother, SpectralSmoother

if TYPE_CHECKING:
    from audiokv.streaming.policy.driver import PolicyDriver
    from audiokv.streaming.policy.prefetch import Prefetch

SLOT_MS = 20


class Loop:
    """A model loop with a make-believe model: the cache is the list of slots it should hold."""

    def __init__(self, driver: PolicyDriver, seed: int = 0) -> None:
        self.driver = driver
        self.cache: list[int] = []
        self.rng = np.random.default_rng(seed)
        self.at_slot = 0

    def drop(self, kept: np.ndarray) -> None:
        self.cache = [self.cache[row] for row in kept]

    def step(self, voice: list[bool], *, is_ahead: bool = True, committed_ms: int = 400) -> None:
        driver = self.driver
        marks = []
        for is_voice in voice:
            start_ms = self.at_slot * SLOT_MS
            self.cache.append(start_ms)
            self.at_slot += 1
            marks.append(
                SlotMarks(
                    start_ms,
                    start_ms + SLOT_MS,
                    is_voice=is_voice,
                    is_boundary=bool(self.rng.random() < 0.2),
                    language=("en", "de")[self.at_slot // 200 % 2],
                    speaker=("ann", "bob")[self.at_slot // 70 % 2],
                    power=0.1 if is_voice else 0.001,
                )
            )
        driver.append(marks)
        self.drop(driver.apply(driver.plan()))
        if driver.policy.name != "full":
            assert driver.ledger.held <= driver.budget.total_slots
        driver.observe(self.rng.random(driver.ledger.held) ** 3)
        driver.commit_until(self.at_slot * SLOT_MS - committed_ms)
        driver.settle()
        if is_ahead:
            self.drop(driver.apply(driver.plan_ahead()))
        # Sharing silence keeps the first of a run, so the starts still tell the slots.
        self.drop(driver.share_silence())
        assert self.cache == driver.ledger.start_ms.tolist()

    def speak(self, pattern: str, n_slots: int = 8, *, is_ahead: bool = True) -> None:
        voice = [slot == "v" for slot in pattern]
        for at in range(0, len(voice), n_slots):
            self.step(voice[at : at + n_slots], is_ahead=is_ahead)


def driver_of(
    total_slots: int = 100,
    policy: str = "audiokv",
    prefetch: Prefetch | None = None,
    profile: PolicyProfile = PROFILES["default"],
    high_water: float = 1.0,
) -> PolicyDriver:
    options = DriverOptions(profile, high_water, prefetch=prefetch or NoPrefetch())
    return open_driver(policy, total_slots, SLOT_MS, options)


OPTIONS = st.builds(
    DriverOptions,
    profile=st.sampled_from([*PROFILES.values()]),
    high_water=st.just(0.9),
    smoother=st.sampled_from([NoSmoother(), MedianTrendSmoother(), SpectralSmoother()]),
    prefetch=st.sampled_from([NoPrefetch(), StepPrefetch(), RhythmPrefetch()]),
)


@given(
    policy=st.sampled_from(POLICY_NAMES),
    total_slots=st.integers(1, 60),
    options=OPTIONS,
    steps=st.lists(st.lists(st.booleans(), max_size=12), max_size=20),
)
def test_the_budget_holds_after_every_step_and_the_cache_agrees(
    policy: str, total_slots: int, options: DriverOptions, steps: list[list[bool]]
) -> None:
    loop = Loop(open_driver(policy, total_slots, SLOT_MS, options))
    for number, step in enumerate(steps):
        loop.step(step)
        if number % 4 == 3:
            loop.driver.close_segment(loop.driver.ledger.now_ms)
    counts = loop.driver.ledger.counts()
    assert counts.seen == sum(map(len, steps))
    assert sum(counts.evicted.values()) == counts.seen - counts.held


@given(
    prefetch=st.sampled_from([NoPrefetch(), StepPrefetch(), RhythmPrefetch()]),
    steps=st.lists(st.lists(st.booleans(), max_size=8), max_size=25),
    total_slots=st.integers(40, 80),
)
def test_guarded_slots_never_leave_ahead_of_need(
    prefetch: Prefetch, steps: list[list[bool]], total_slots: int
) -> None:
    driver = driver_of(total_slots, prefetch=prefetch, high_water=0.5)
    loop = Loop(driver)
    for step in steps:
        loop.step(step, is_ahead=False)
        plan = driver.plan_ahead()
        n_keep = driver.ledger.held - len(plan.indices)
        guard = Guards(SLOT_MS).binding(driver.ledger, n_keep)
        assert (guard[plan.indices] == Guard.NONE).all()
        assert len(plan.indices) <= total_slots
        loop.drop(driver.apply(plan))


TALK = ("v" * 90 + "." * 30 + "v" * 40 + "." * 14) * 12


@pytest.mark.parametrize("prefetch", [StepPrefetch(), RhythmPrefetch()])
def test_no_hot_step_evicts_with_prefetch(prefetch: Prefetch) -> None:
    loop = Loop(driver_of(prefetch=prefetch))
    loop.speak(TALK)
    assert loop.driver.counts.n_hot == 0
    assert loop.driver.counts.n_between_steps > 0
    assert loop.driver.ledger.counts().evicted[Reason.FORCED, Pool.BUFFER] == 0


def test_hot_steps_evict_without_prefetch() -> None:
    loop = Loop(driver_of(prefetch=NoPrefetch()))
    loop.speak(TALK)
    assert loop.driver.counts.n_hot > 10
    assert loop.driver.counts.n_between_steps == 0


def test_the_rhythm_moves_evictions_into_pauses() -> None:
    phrases = ("v" * 24 + "." * 24) * 40
    by_rhythm, by_step = (
        Loop(driver_of(200, prefetch=prefetch))
        for prefetch in (RhythmPrefetch(0.5), StepPrefetch())
    )
    by_rhythm.speak(phrases)
    by_step.speak(phrases)
    assert by_rhythm.driver.counts.n_hot == 0
    assert by_rhythm.driver.counts.n_in_pauses > 0
    assert by_rhythm.driver.counts.n_between_steps == 0
    assert by_step.driver.counts.n_between_steps > 0


def test_making_room_for_a_step_keeps_the_budget_nearly_full() -> None:
    driver = driver_of(1000, prefetch=StepPrefetch())
    loop = Loop(driver)
    use = []
    for step in range(400):
        loop.step([True] * 8)
        if step > 150:
            use.append(driver.ledger.held / 1000)
    assert min(use) > 0.97


@pytest.mark.parametrize(("high_water", "held"), [(0.5, 50), (0.8, 80), (1.0, 100)])
def test_a_pause_brings_the_ledger_down_to_the_mark(high_water: float, held: int) -> None:
    loop = Loop(driver_of(high_water=high_water))
    loop.speak("v" * 100)
    for _ in range(40):
        loop.drop(loop.driver.apply(loop.driver.plan_ahead()))
    assert loop.driver.ledger.held == 100
    loop.driver.rhythm.hear(is_voice=False)
    for _ in range(10):
        loop.driver.rhythm.hear(is_voice=False)
    for _ in range(60):
        loop.drop(loop.driver.apply(loop.driver.plan_ahead()))
    assert loop.driver.ledger.held == held


def test_the_amount_is_that_of_the_profile() -> None:
    sizes = {}
    for sharpness in (0.0, 0.25):
        driver = driver_of(200, profile=PolicyProfile(sharpness=sharpness), high_water=0.25)
        driver.append([SlotMarks(at * 20, at * 20 + 20, is_voice=False) for at in range(100)])
        driver.observe(np.eye(100)[50])
        sizes[sharpness] = len(driver.plan_ahead().indices)
    assert sizes == {0.0: 1, 0.25: 26}


def test_the_hot_path_evicts_no_more_than_it_must() -> None:
    driver = driver_of(100, profile=PolicyProfile(sharpness=0.5))
    driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(103)])
    driver.observe(np.eye(103)[0])
    assert len(driver.plan().indices) == 3


def test_what_fills_an_empty_cache_is_no_measure_of_a_step() -> None:
    driver = driver_of(100, prefetch=StepPrefetch())
    driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(90)])
    driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(90, 98)])
    assert len(driver.plan_ahead().indices) == 6


def test_full_keeps_everything() -> None:
    loop = Loop(driver_of(10, "full"))
    loop.speak("v" * 100)
    assert loop.driver.ledger.held == 100
    assert not loop.driver.plan()
    assert loop.driver.counts.n_hot == 0


def test_a_plan_is_void_once_the_ledger_changed() -> None:
    driver = driver_of(4)
    driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(6)])
    plan = driver.plan()
    driver.apply(plan)
    with pytest.raises(ValueError, match="made for 6 slots, not 4"):
        driver.apply(plan)


def test_the_noise_sets_how_fast_importance_follows() -> None:
    importance = {}
    for noise_power in (0.00001, 0.1):
        driver = driver_of()
        driver.append(
            [
                SlotMarks(0, 20, is_voice=False, power=noise_power),
                SlotMarks(20, 40, power=0.1 + noise_power),
                SlotMarks(40, 60),
            ]
        )
        driver.observe(np.array([1.0, 0.0, 0.0]))
        driver.observe(np.array([0.0, 0.0, 0.0]))
        importance[noise_power] = driver.ledger.attention.importance[0]
    assert importance == pytest.approx({0.00001: 0.8, 0.1: 0.5})


def test_a_set_alpha_reaches_the_record_and_the_heads() -> None:
    heads = HeadRecord(1, 2)
    options = DriverOptions(PolicyProfile(alpha=0.25))
    driver = open_driver("adakv", 10, SLOT_MS, options, SlotLedger(heads=heads))
    driver.append([SlotMarks(0, 20)])
    for weight in (1.0, 0.0):
        driver.observe(np.array([weight]), np.full((1, 2, 1), weight))
    assert driver.ledger.attention.importance.tolist() == [0.75]
    assert heads.importance.tolist() == [[[0.75], [0.75]]]
    driver.observe(np.array([0.75]))
    assert heads.importance.tolist() == [[[0.75], [0.75]]]


def test_weights_per_head_need_a_record() -> None:
    driver = driver_of()
    driver.append([SlotMarks(0, 20)])
    with pytest.raises(ValueError, match="no record per head"):
        driver.observe(np.ones(1), np.ones((1, 1, 1)))
    assert driver.ledger.attention.n_probes == 0


def test_settling_promotes_and_releases() -> None:
    driver = driver_of(20)  # 12 base, 6 buffer, 2 reserve
    driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(20)])
    driver.observe(np.ones(20))
    driver.close_segment(160)
    assert driver.ledger.keeping[7] == Keeping.SEGMENT_END
    promoted = driver.settle()
    # Of 15 in the buffer 9 exceed its share, but only 6 are old enough; the reserve is over its
    # own share by the sinks, so the segment end is let go.
    assert promoted.tolist() == [4, 5, 6, 7, 8, 9]
    assert driver.ledger.keeping[7] == Keeping.NONE
    assert (driver.ledger.pool[promoted] == Pool.BASE).all()


def test_silence_is_shared_once_it_is_past_the_minimum_retention() -> None:
    driver = driver_of()
    driver.append([SlotMarks(at * 20, at * 20 + 20, is_voice=False) for at in range(20)])
    kept = driver.share_silence()
    assert kept.tolist() == [0, 1, 2, 3, 4, *range(10, 20)]
    assert driver.ledger.multiplicity[4] == 6


def test_the_prompt_is_no_step_and_no_speech() -> None:
    driver = driver_of(10, prefetch=StepPrefetch())
    driver.append([SlotMarks(0, 0, is_prompt=True)] * 10)
    assert driver.rhythm.is_pause
    assert not driver.plan_ahead()


@pytest.mark.slow
def test_a_hundred_thousand_steps_leave_the_memory_as_it_was() -> None:
    driver = driver_of(64, prefetch=StepPrefetch())
    weights = np.random.default_rng(0).random(200) ** 3

    def run(steps: range) -> None:
        for step in steps:
            start_ms = step * SLOT_MS
            speaker = f"speaker {step // 500}"
            driver.append(
                [SlotMarks(start_ms, start_ms + 20, is_voice=step % 7 < 5, speaker=speaker)]
            )
            driver.apply(driver.plan())
            assert driver.ledger.held <= 64
            if step % 8 == 0:
                driver.observe(weights[: driver.ledger.held])
                driver.commit_until(start_ms - 400)
                driver.settle()
                driver.apply(driver.plan_ahead())
                driver.share_silence()
            if step % 50 == 0:
                driver.close_segment(start_ms)

    run(range(50_000))
    n_bytes, n_blocks = driver.ledger.n_bytes, sys.getallocatedblocks()
    run(range(50_000, 100_000))
    assert driver.ledger.seen == 100_000
    assert driver.ledger.n_bytes == n_bytes
    # A hundred new speakers have a name each; one block a step would be 50,000.
    assert sys.getallocatedblocks() - n_blocks < 2_000
