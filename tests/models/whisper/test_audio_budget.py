from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.whisper.audio_budget import AudioBudget, open_holder
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.marker import UNKNOWN_TALKER, Talker
from audiokv.streaming.policy.marks import Keeping, Reason
from audiokv.streaming.policy.registry import POLICY_NAMES

if TYPE_CHECKING:
    from tests.models.whisper.conftest import Tiny

SLOT_SAMPLES = 320
BOUNDED = tuple(name for name in POLICY_NAMES if name != "full")


def noise(n_samples: int, seed: int = 0) -> np.ndarray:
    samples = np.random.default_rng(seed).standard_normal(n_samples) * 0.1
    loud: np.ndarray = samples.astype(np.float32)
    return loud


class Window:
    """A budget and a plain account of what its window should be."""

    def __init__(self, policy: str = "audiokv", budget_slots: int = 12) -> None:
        self.budget = AudioBudget(policy, budget_slots, slot_bytes=10)
        self.budget_slots = budget_slots
        self.start_ms = self.n_samples = 0
        self.gone: set[int] = set()  # starts of slots that were seen and are not held
        self.taken_ms = 0  # end of the slots that were seen

    def open(self, at_ms: int) -> None:
        self.budget.open(at_ms)
        self.start_ms = self.taken_ms = at_ms
        self.n_samples = 0
        self.gone = set()

    def append(self, n_samples: int) -> None:
        self.budget.append(noise(n_samples, self.n_samples), Talker(language="en"))
        self.n_samples += n_samples

    def forget(self, n_slots: int) -> None:
        n_slots = min(n_slots, self.n_samples // SLOT_SAMPLES)
        self.start_ms += 20 * n_slots
        self.n_samples -= n_slots * SLOT_SAMPLES
        self.budget.forget_before(self.start_ms)
        self.taken_ms = max(self.taken_ms, self.start_ms)

    def hold(self) -> list[int]:
        n_slots = self.n_samples // SLOT_SAMPLES
        held = self.budget.hold()
        places = list(range(n_slots)) if held is None else held.places.tolist()
        assert places == sorted(set(places))
        assert all(0 <= place < n_slots for place in places)
        assert len(places) == self.budget.driver.ledger.held <= self.budget_slots
        assert held is None or len(places) < n_slots
        starts = {self.start_ms + 20 * place for place in places}
        assert not starts & self.gone
        self.taken_ms = self.start_ms + 20 * n_slots
        self.gone |= set(range(self.start_ms, self.taken_ms, 20)) - starts
        assert self.budget.driver.ledger.start_ms.tolist() == sorted(starts)
        return places

    def step(self) -> list[int]:
        places = self.hold()
        n_slots = self.n_samples // SLOT_SAMPLES
        keys = torch.randn(2, len(places) + 7, 4, generator=torch.Generator().manual_seed(n_slots))
        self.budget.see_keys([keys, keys + 1])
        attention = np.zeros((2, 3, n_slots), np.float32)
        attention[..., places] = np.random.default_rng(n_slots).random((2, 3, len(places)))
        self.budget.observe(attention)
        return places


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "step", "step", "rest", "forget", "commit", "open"]),
        st.integers(0, 12_000),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(ACTIONS, st.sampled_from(BOUNDED), st.integers(1, 40))
def test_the_ledger_and_the_window_keep_in_step(
    actions: list[tuple[str, int]], policy: str, budget_slots: int
) -> None:
    window = Window(policy, budget_slots)
    for kind, number in actions:
        match kind:
            case "append":
                window.append(number)
            case "step":
                window.step()
            case "rest":
                window.budget.rest()
                ledger = window.budget.driver.ledger
                window.gone |= set(range(window.start_ms, window.taken_ms, 20)) - set(
                    ledger.start_ms.tolist()
                )
            case "forget":
                window.forget(number % 50)
            case "commit":
                window.budget.commit_until(window.start_ms + number // 16)
            case _:
                window.open(number // 10 * 10)
                window.budget.begin_segment(window.start_ms)
        counters = window.budget.counters()
        assert counters is not None
        assert counters.held_slots <= budget_slots
        assert counters.held_bytes == 10 * counters.held_slots
        evicted = window.budget.driver.ledger.counts().evicted
        assert sum(evicted.values()) == counters.seen_slots - counters.held_slots
    window.step()


def test_all_slots_are_held_while_there_is_room() -> None:
    window = Window(budget_slots=50)
    for _ in range(5):
        window.append(3_200)
        assert window.budget.hold() is None
    window.append(SLOT_SAMPLES)
    assert window.hold() != list(range(51))


@pytest.mark.parametrize(("policy", "merges"), [("audiokv", True), ("uniform", False)])
def test_slots_stand_for_others_where_the_policy_says_so(policy: str, *, merges: bool) -> None:
    window = Window(policy, 20)
    window.append(SLOT_SAMPLES * 60)
    held = window.budget.hold()
    assert held is not None
    assert (held.owners is not None) == merges
    if held.owners is not None:
        assert held.owners[held.places].tolist() == list(range(20))


def test_the_held_share_of_a_stretch() -> None:
    window = Window("fifo", 10)
    window.open(1010)
    window.append(SLOT_SAMPLES * 20)
    assert window.hold() == list(range(10, 20))
    shares = [
        window.budget.held_share(1010 + start, 1010 + end)
        for start, end in (
            (0, 200),
            (200, 400),
            (100, 300),
            (190, 220),
            (210, 210),
            (0, 400),
        )
    ]
    assert shares == pytest.approx([0.0, 1.0, 0.5, 0.5, 1.0, 0.5])


def test_the_newest_slot_does_not_come_back_when_nothing_new_is_heard() -> None:
    window = Window("tova", 100)
    for _ in range(10):
        window.append(SLOT_SAMPLES * 10)
        assert window.budget.hold() is None
    attention = np.ones((1, 1, 100), np.float32)
    attention[..., -1] = 0
    window.budget.observe(attention)
    window.budget.rest()
    held = window.budget.hold()
    assert held is not None
    assert 99 not in held.places


def test_audio_that_left_the_window_is_not_counted_as_evicted() -> None:
    window = Window(budget_slots=50)
    window.append(SLOT_SAMPLES * 30)
    window.hold()
    window.forget(10)
    assert window.hold() == list(range(20))
    evicted = window.budget.driver.ledger.counts().evicted
    assert {reason for (reason, _), n in evicted.items() if n} == {Reason.EXPIRED}
    counters = window.budget.counters()
    assert counters is not None
    assert (counters.seen_slots, counters.held_slots) == (30, 20)


def test_slots_say_where_voice_boundaries_languages_and_speakers_are() -> None:
    budget = AudioBudget("audiokv", 200, 10)
    silence = np.zeros(SLOT_SAMPLES * 20, np.float32)
    budget.append(np.concatenate((silence, noise(SLOT_SAMPLES * 20))), Talker("agent", "de"))
    budget.append(np.zeros(7, np.float32), Talker(None, "en"))  # completes nothing
    budget.append(silence, Talker("caller", "en"))
    budget.hold()
    ledger = budget.driver.ledger
    assert ledger.is_voice.tolist() == [False] * 20 + [True] * 20 + [False] * 20
    assert ledger.is_boundary[20:22].any()
    languages = [ledger.languages.name(number) for number in ledger.language.tolist()]
    assert languages == ["de"] * 40 + ["en"] * 20
    speakers = [ledger.speakers.name(number) for number in ledger.speaker.tolist()]
    assert speakers == ["agent"] * 40 + ["caller"] * 20


def test_the_last_slot_of_a_segment_is_guarded_when_the_next_begins() -> None:
    budget = AudioBudget("audiokv", 200, 10)
    budget.append(noise(SLOT_SAMPLES * 30), UNKNOWN_TALKER)
    budget.hold()
    budget.begin_segment(400)
    keeping = budget.driver.ledger.keeping
    assert np.flatnonzero(keeping == Keeping.SEGMENT_END).tolist() == [19]


def test_attention_and_commitments_reach_the_held_slots() -> None:
    window = Window("uniform", 10)
    window.append(SLOT_SAMPLES * 30)
    places = window.hold()
    attention = np.zeros((2, 4, 30), np.float32)
    attention[0, :, places[3]] = 1.0
    window.budget.observe(attention)
    window.budget.commit_until(window.start_ms + 20 * places[5])
    ledger = window.budget.driver.ledger
    assert ledger.attention.latest.tolist() == [0.5 * (i == 3) for i in range(10)]
    assert ledger.is_committed.tolist() == [i < 5 for i in range(10)]


def test_keydiff_goes_by_the_keys_of_the_held_slots() -> None:
    window = Window("keydiff", 10)
    window.append(SLOT_SAMPLES * 10)
    window.hold()
    keys = torch.ones(2, 15, 4)
    keys[:, 4] = -1.0  # one unlike the rest
    keys[:, 10:] = 9.0  # padding says nothing
    window.budget.see_keys([keys])
    similarity = window.budget.driver.ledger.attention.key_similarity
    assert similarity.tolist() == pytest.approx([1.0] * 4 + [-1.0] + [1.0] * 5)
    other = Window("uniform", 10)
    other.append(SLOT_SAMPLES * 10)
    other.hold()
    other.budget.see_keys([keys])
    assert not other.budget.driver.ledger.attention.key_similarity.any()


def test_wrong_wishes_are_refused(tiny: Tiny) -> None:
    with pytest.raises(ConfigError):
        AudioBudget("coin", 10, 10)
    with pytest.raises(ConfigError):
        open_holder(CacheOptions(10), tiny.network.dims, torch.float32, "shouting")
