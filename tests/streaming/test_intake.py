from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.base import StreamOptions
from audiokv.streaming.intake import Ask, Intake

if TYPE_CHECKING:
    from audiokv.models.base import FloatArray


def frames(first: int, n_frames: int) -> FloatArray:
    return np.repeat(np.arange(first, first + n_frames, dtype=np.float32), 160)


def german() -> StreamOptions:
    return StreamOptions(language="de")


def test_frames_come_out_as_they_were_put_in() -> None:
    intake = Intake()
    assert intake.is_empty
    intake.put(frames(0, 3))
    intake.put(frames(0, 0))
    intake.put(frames(3, 1))
    assert (intake.position_ms, intake.end_ms, intake.is_empty) == (0, 40, False)
    for number in range(4):
        frame = intake.take_frame()
        assert frame.shape == (160,)
        assert set(frame.tolist()) == {number}
        assert intake.position_ms == 10 * (number + 1)
    assert (intake.end_ms, intake.is_empty) == (40, True)
    with pytest.raises(IndexError):
        intake.take_frame()


def test_a_request_waits_for_the_audio_before_it() -> None:
    intake = Intake()
    intake.put(frames(0, 2))
    intake.ask(Ask.FINALIZE)
    intake.put(frames(2, 1))
    assert intake.take_request() is None
    intake.take_frame()
    assert intake.take_request() is None
    intake.take_frame()
    assert intake.take_request() is Ask.FINALIZE
    assert intake.take_request() is None
    intake.take_frame()
    assert intake.is_empty


def test_a_request_alone_is_something_to_do() -> None:
    intake = Intake()
    intake.ask(Ask.STOP)
    assert not intake.is_empty
    assert intake.take_request() is Ask.STOP
    assert intake.is_empty


def test_at_one_place_the_last_of_each_kind_counts() -> None:
    intake = Intake()
    for request in (StreamOptions(prompt="a"), german(), Ask.FINALIZE, Ask.FINALIZE, Ask.STOP):
        intake.ask(request)
    taken = [intake.take_request() for _ in range(4)]
    assert taken == [german(), Ask.FINALIZE, Ask.STOP, None]


def test_at_different_places_each_counts() -> None:
    intake = Intake()
    intake.ask(Ask.FINALIZE)
    intake.put(frames(0, 1))
    intake.ask(Ask.FINALIZE)
    intake.ask(german())
    assert intake.take_request() is Ask.FINALIZE
    assert intake.take_request() is None
    intake.take_frame()
    assert [intake.take_request() for _ in range(2)] == [Ask.FINALIZE, german()]


@given(st.lists(st.one_of(st.integers(0, 5), st.sampled_from(Ask)), max_size=30))
def test_requests_come_in_order_at_their_place(actions: list[int | Ask]) -> None:
    intake = Intake()
    expected: list[tuple[int, Ask]] = []
    for action in actions:
        if isinstance(action, int):
            intake.put(frames(0, action))
        else:
            intake.ask(action)
            if expected[-1:] != [(intake.end_ms, action)]:
                expected.append((intake.end_ms, action))
    taken = []
    while not intake.is_empty:
        request = intake.take_request()
        if request is None:
            intake.take_frame()
        else:
            taken.append((intake.position_ms, request))
    assert taken == expected
