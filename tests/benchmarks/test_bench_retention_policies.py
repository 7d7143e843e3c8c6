from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from audiokv.models.whisper.audio_budget import AudioBudget
from audiokv.streaming.policy.assembly import open_driver
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.protocol import MergingPolicy
from audiokv.streaming.policy.registry import POLICY_NAMES
from benchmarks.retention_policies import ABLATIONS, LIVE, ORACLE, variants


def ledger() -> SlotLedger:
    filled = SlotLedger()
    filled.append([SlotMarks(20 * i, 20 * i + 20) for i in range(50)])
    return filled


def test_every_policy_is_known_by_its_name() -> None:
    found = variants([*POLICY_NAMES, ORACLE], 1)
    assert [one.name for one in found] == [*POLICY_NAMES, ORACLE]
    assert [one.policy(20).name for one in found] == [*POLICY_NAMES, ORACLE]
    assert [one.name for one in found if one.needs_keys] == ["keydiff"]


def test_lots_are_drawn_anew_for_each_seed() -> None:
    found = variants(["random", "uniform"], 3)
    assert [(one.name, one.seed) for one in found] == [
        ("random", 0),
        ("random", 1),
        ("random", 2),
        ("uniform", 0),
    ]
    choices = [tuple(one.policy(20).choose(ledger(), 25)) for one in found[:3]]
    assert len(set(choices)) == 3


def test_every_ablation_changes_one_thing() -> None:
    (plain,) = variants(["audiokv"], 1)
    for one in variants(list(ABLATIONS), 1):
        ours, theirs = one.policy(20), plain.policy(20)
        assert ours.name == "audiokv"
        of_driver = differing(one.options, plain.options) - {"profile"}
        of_profile = differing(one.options.profile, plain.options.profile)
        of_policy = differing(ours, theirs) | (
            {"class"} if type(ours) is not type(theirs) else set()
        )
        if one.name == "audiokv-no-commitment":  # two weights, one ingredient
            of_policy -= {"context_weight"}
        assert len(of_driver | of_profile | of_policy) == 1, one.name


def differing(first: object, second: object) -> set[str]:
    """Return the fields that differ."""
    names = [field.name for field in fields(second)]  # type: ignore[arg-type]  # dataclasses
    return {name for name in names if getattr(first, name) != getattr(second, name)}


def test_the_driver_is_opened_as_the_live_audio_cache_is() -> None:
    live = AudioBudget("audiokv", 100, 1).driver
    ours = open_driver(variants(["audiokv"], 1)[0].policy(20), 100, 20, LIVE)
    assert ours.budget == live.budget
    assert ours.policy == live.policy
    assert ours._prefetch == live._prefetch
    assert ours._amount == live._amount
    assert ours._scorer.voice_weight == live._scorer.voice_weight


def test_without_coverage_the_most_valued_slots_stay() -> None:
    filled = ledger()
    scores = np.random.default_rng(0).random(50)
    filled.set_scores(scores)
    (ranked,) = variants(["audiokv-no-coverage"], 1)
    policy = ranked.policy(20)
    gone = set(policy.choose(filled, 30))
    guarded = set(np.flatnonzero(policy.guards.binding(filled, 20)))  # type: ignore[attr-defined]
    free = [i for i in range(50) if i not in guarded]
    assert gone == set(sorted(free, key=lambda i: scores[i])[:30])
    assert gone != set(variants(["audiokv"], 1)[0].policy(20).choose(filled, 30))


def test_merging_is_a_baseline_of_its_own() -> None:
    merged, plain = (one.policy(20) for one in variants(["uniform+merged", "uniform"], 1))
    assert isinstance(merged, MergingPolicy)
    assert not isinstance(plain, MergingPolicy)
    assert np.array_equal(merged.choose(ledger(), 25), plain.choose(ledger(), 25))


def test_the_oracle_keeps_what_was_attended_most() -> None:
    filled = ledger()
    attention = np.random.default_rng(0).random(50)
    filled.attention.observe(attention, 0.3)
    (oracle,) = variants([ORACLE], 1)
    gone = oracle.policy(20).choose(filled, 30)
    assert set(gone) == set(np.argsort(attention)[:30])


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit, match="no policy 'belady'"):
        variants(["belady"], 1)
