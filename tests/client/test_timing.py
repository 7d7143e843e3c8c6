from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.client.timing import Backoff, LoopClock, Patience


def test_waits_double_up_to_the_longest_and_begin_again_after_success() -> None:
    backoff = Backoff(first_s=0.25, most_s=2.0, pick=lambda: 1.0)
    assert [backoff.next_s() for _ in range(5)] == [0.25, 0.5, 1.0, 2.0, 2.0]
    backoff.reset()
    assert backoff.next_s() == 0.25


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_waits_are_spread_between_half_and_all_of_the_longest(picks: list[float]) -> None:
    backoff = Backoff(first_s=1.0, most_s=8.0, pick=iter(picks).__next__)
    longest_s = 1.0
    for _ in picks:
        assert longest_s / 2 <= backoff.next_s() <= longest_s
        longest_s = min(8.0, longest_s * 2)


def test_patience_counts_from_the_first_failure_in_a_row() -> None:
    patience = Patience(10.0)
    assert not patience.ends_before(100.0, 1.0)
    assert not patience.ends_before(109.0, 1.0)
    assert patience.ends_before(109.5, 1.0)


def test_success_renews_patience() -> None:
    patience = Patience(10.0)
    patience.ends_before(100.0, 0.0)
    patience.note_success()
    assert not patience.ends_before(200.0, 10.0)


async def test_the_clock_of_the_loop_goes_on_while_one_sleeps() -> None:
    clock = LoopClock()
    before_s = clock.now_s()
    await clock.sleep(0.001)
    assert clock.now_s() > before_s
