from __future__ import annotations

import pytest

from benchmarks.stopwatch import Stopwatch


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def read(self) -> float:
        return self.now_s


class Cook:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def chop(self, seconds: float) -> str:
        self._clock.now_s += seconds
        return "chopped"

    def serve(self) -> str:
        self._clock.now_s += 2.0
        return self.chop(0.5)

    def burn(self) -> None:
        self._clock.now_s += 1.0
        raise OSError("burnt")


def watched() -> tuple[Cook, Stopwatch]:
    clock = Clock()
    return Cook(clock), Stopwatch(clock.read)


PARTS = [(Cook, "chop", "knife"), (Cook, "serve", "table"), (Cook, "burn", "fire")]


def test_what_runs_in_an_inner_part_counts_there_only() -> None:
    cook, watch = watched()
    watch.begin_row()
    with watch.watching(PARTS):
        assert cook.serve() == "chopped"
        cook.chop(0.25)
    assert watch.rows == [{"knife": 750.0, "table": 2000.0}]
    assert watch.calls == [{"knife": 2, "table": 1}]


def test_rows_are_apart_and_nothing_is_kept_between_them() -> None:
    cook, watch = watched()
    with watch.watching(PARTS):
        cook.chop(9.0)
        watch.begin_row()
        cook.chop(1.0)
        watch.end_row()
        cook.chop(9.0)
        watch.begin_row()
    assert watch.rows == [{"knife": 1000.0}, {}]


def test_classes_are_as_before_afterwards() -> None:
    before = Cook.__dict__["chop"]
    cook, watch = watched()
    watch.begin_row()
    with pytest.raises(OSError, match="burnt"), watch.watching(PARTS):
        cook.burn()
    assert Cook.__dict__["chop"] is before
    assert watch.rows == [{"fire": 1000.0}]


def test_a_method_that_does_not_exist_is_an_error() -> None:
    _, watch = watched()
    with pytest.raises(AttributeError), watch.watching([(Cook, "boil", "pot")]):
        pass
