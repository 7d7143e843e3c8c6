from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.labels import MAX_LABELS, UNKNOWN, Labels


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_equal_names_have_equal_numbers_and_numbers_lead_back(names: list[str | None]) -> None:
    labels = Labels()
    numbers = [labels.number(name) for name in names]
    assert [labels.name(number) for number in numbers] == names
    assert len(labels) == len({*names, None})


def test_names_past_the_limit_are_unknown_and_old_ones_stay() -> None:
    labels = Labels()
    for number in range(MAX_LABELS):
        labels.number(str(number))
    assert labels.number("one too many") == UNKNOWN
    assert labels.number("0") == 1
    assert len(labels) == MAX_LABELS + 1
