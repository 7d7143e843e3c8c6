from __future__ import annotations

import numpy as np
import pytest

from audiokv.streaming.policy.guards import Guard, Guards
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks


def stream(n_audio: int, *boundaries: int, slot_ms: int = 20, n_sinks: int = 0) -> SlotLedger:
    ledger = SlotLedger(n_sinks=n_sinks)
    ledger.append(
        [
            SlotMarks(at * slot_ms, (at + 1) * slot_ms, is_boundary=at in boundaries)
            for at in range(n_audio)
        ]
    )
    return ledger


def guarded(guards: Guards, ledger: SlotLedger, guard: Guard) -> list[int]:
    return np.flatnonzero(guards.rate(ledger) == guard).tolist()


@pytest.mark.parametrize(
    ("slot_ms", "min_retention_ms", "n_young"),
    [(20, 200, 10), (20, 210, 11), (20, 0, 1), (160, 200, 2), (80, 200, 3), (40, 80, 2)],
)
def test_young_slots_are_guarded(slot_ms: int, min_retention_ms: int, n_young: int) -> None:
    guards = Guards(slot_ms, min_retention_ms)
    young = guarded(guards, stream(30, slot_ms=slot_ms), Guard.YOUNG)
    assert young == list(range(30 - n_young, 30))


@pytest.mark.parametrize(("boundary_frames", "reach"), [(10, 5), (4, 2), (0, 1), (5, 3)])
def test_uncommitted_slots_near_a_boundary_are_guarded(boundary_frames: int, reach: int) -> None:
    guards = Guards(20, 0, boundary_frames)
    ledger = stream(60, 10, 40)
    ledger.commit_until(20 * 20)
    near = guarded(guards, ledger, Guard.NEAR_BOUNDARY)
    assert near == list(range(40 - reach, 40 + reach + 1))


def test_nothing_is_near_a_boundary_where_there_is_none() -> None:
    assert guarded(Guards(20), stream(30), Guard.NEAR_BOUNDARY) == []


def test_slots_before_the_first_and_after_the_last_boundary_count_too() -> None:
    near = guarded(Guards(20, 0, 4), stream(20, 1, 17), Guard.NEAR_BOUNDARY)
    assert near == [0, 1, 2, 3, 15, 16, 17, 18]


def test_the_stronger_guard_counts() -> None:
    ledger = SlotLedger(n_sinks=1)
    ledger.append([SlotMarks(0, 0, is_prompt=True)])
    ledger.append([SlotMarks(at * 20, at * 20 + 20, is_boundary=at == 3) for at in range(20)])
    ledger.mark_segment_end(90)
    ledger.mark_segment_end(260)
    ledger.mark_segment_end(400)
    guard = Guards(20, min_retention_ms=60, boundary_frames=2).rate(ledger)
    assert guard.tolist() == [
        Guard.PROMPT,
        Guard.SINK,
        *[Guard.NONE] * 1,
        *[Guard.NEAR_BOUNDARY] * 3,
        *[Guard.NONE] * 7,
        Guard.SEGMENT_END,
        *[Guard.NONE] * 4,
        *[Guard.YOUNG] * 3,
    ]


def test_an_empty_ledger_has_no_guards() -> None:
    assert len(Guards(20).rate(SlotLedger())) == 0


def test_guards_bind_strongest_first_while_they_fit() -> None:
    ledger = SlotLedger(n_sinks=2)
    ledger.append([SlotMarks(0, 0, is_prompt=True)] * 3)
    ledger.append([SlotMarks(at * 20, at * 20 + 20, is_boundary=at == 10) for at in range(40)])
    ledger.mark_segment_end(100)
    guards = Guards(20, min_retention_ms=80, boundary_frames=6, max_share=0.5)
    bound = {}
    for n_keep in (43, 20, 18, 16, 10, 6):
        kinds, counts = np.unique(guards.binding(ledger, n_keep), return_counts=True)
        bound[n_keep] = {Guard(kind).name: int(n) for kind, n in zip(kinds, counts, strict=True)}
        del bound[n_keep]["NONE"]
    every = {"SEGMENT_END": 1, "NEAR_BOUNDARY": 7, "YOUNG": 4, "SINK": 2, "PROMPT": 3}
    strong = {name: n for name, n in every.items() if name != "NEAR_BOUNDARY"}
    assert bound[43] == every
    assert bound[20] == strong  # the boundary's do not fit; a segment end still does
    assert bound[18] == {name: strong[name] for name in ("YOUNG", "SINK", "PROMPT")}
    assert bound[16] == {"SEGMENT_END": 1, "SINK": 2, "PROMPT": 3}
    assert bound[10] == {"SINK": 2, "PROMPT": 3}
    assert bound[6] == {"PROMPT": 3}


def test_the_share_is_the_one_given() -> None:
    ledger = stream(20)
    assert guarded_within(Guards(20, 100, max_share=0.5), ledger, 10) == [15, 16, 17, 18, 19]
    assert guarded_within(Guards(20, 100, max_share=0.4), ledger, 10) == []


def guarded_within(guards: Guards, ledger: SlotLedger, n_keep: int) -> list[int]:
    return np.flatnonzero(guards.binding(ledger, n_keep)).tolist()


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="guards' share"):
        Guards(20, max_share=share)


@pytest.mark.parametrize("windows", [(-1, 10), (200, -1)])
def test_negative_windows_are_refused(windows: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="cannot be covered"):
        Guards(20, *windows)
