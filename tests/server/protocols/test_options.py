from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.options import Options
from audiokv.streaming.errors import MessageError
from tests.server.protocols.fuzzing import ANYTHING, FUZZED


def options(**values: object) -> Options:
    return Options("the test", values)


def refused(call: Any) -> str:
    with pytest.raises(MessageError) as caught:
        call()
    assert caught.value.remedy
    return caught.value.message


@pytest.mark.parametrize("value", [8_000, 8_000.0, "8000", "8000.0"])
def test_a_number_may_be_written_in_many_ways(value: object) -> None:
    assert options(rate=value).whole("rate", default=0) == 8_000
    assert options(rate=value).number("rate", default=0, low=0, high=10_000) == 8_000


@pytest.mark.parametrize("value", ["fast", True, 8_000.5, -1, 10, "nan", "inf", 10**400, [], {}])
def test_a_number_is_whole_and_in_its_range(value: object) -> None:
    assert "rate" in refused(lambda: options(rate=value).whole("rate", default=0, low=100))


@pytest.mark.parametrize("value", ["x", -0.1, 1.1, "nan", None, True])
def test_a_fraction_is_in_its_range(value: object) -> None:
    given_options = options(threshold=value, other=value)
    if value is None:
        assert given_options.number("threshold", default=0.5, low=0, high=1) == 0.5
    else:
        refused(lambda: given_options.number("threshold", default=0.5, low=0, high=1))


@pytest.mark.parametrize(
    ("value", "flag"), [(True, True), (1, True), ("TRUE", True), (0, False), ("no", False)]
)
def test_a_switch_may_be_written_in_many_ways(value: object, *, flag: bool) -> None:
    assert options(words=value).flag("words", default=not flag) is flag


@pytest.mark.parametrize("value", ["some", 2, 1.0, [], {}])
def test_a_switch_is_on_or_off(value: object) -> None:
    assert "words" in refused(lambda: options(words=value).flag("words", default=True))


def test_a_choice_is_one_of_a_few() -> None:
    assert options().choice("task", ("a", "b"), default="a") == "a"
    assert options(task="b").choice("task", ("a", "b"), default="a") == "b"
    for value in ("c", 1, ["a"]):
        assert "task" in refused(lambda v=value: options(task=v).choice("task", "a", default="a"))


def test_texts_are_bounded_and_can_be_sent_on() -> None:
    assert options(text="hi").text("text") == "hi"
    assert options().text("text", default="x") == "x"
    for value in ("x" * 2_001, "\ud800", 1, ["x"]):
        refused(lambda v=value: options(text=v).text("text"))
    assert options(texts=["a", "b"]).texts("texts") == ("a", "b")
    assert options().texts("texts") == ()
    for values in ("ab", ["a", 1], ["a"] * 4):
        refused(lambda v=values: options(texts=v).texts("texts", max_items=3))


def test_options_can_be_nested_and_renamed() -> None:
    outer = options(inner={"rate": 1}, old=2)
    assert outer.nested("inner").whole("rate", default=0) == 1
    outer.nested("missing").finish()
    outer.rename("old", "new")
    outer.rename("absent", "new")
    assert outer.whole("new", default=0) == 2
    outer.finish()
    refused(lambda: options(inner=[]).nested("inner"))


def test_what_is_asked_about_an_option() -> None:
    asked = options(a="TRUE", b=None, c=[], d=[1], e=3)
    assert asked.has("a")
    assert not asked.has("b")
    assert asked.is_null("b")
    assert not asked.is_null("x")
    assert asked.is_text("a", "true", "false")
    assert not asked.has_items("c")
    assert asked.has_items("d")
    assert asked.takes("e", 3)
    assert asked.takes("absent", 3)
    assert not options(e=4).takes("e", 3)


def test_an_option_that_nobody_read_is_not_supported() -> None:
    left = options(known=1, dropped=2, unknown=3)
    left.whole("known", default=0)
    left.drop("dropped", "absent")
    assert "'unknown'" in refused(left.finish)
    left.drop("unknown")
    left.finish()


READERS = (
    lambda o: o.whole("a", default=0),
    lambda o: o.number("a", default=0, low=0, high=1),
    lambda o: o.flag("a", default=False),
    lambda o: o.text("a"),
    lambda o: o.texts("a"),
    lambda o: o.choice("a", ("x",), default="x"),
    lambda o: o.nested("a").finish(),
    lambda o: o.has_items("a"),
    lambda o: o.takes("a", 1),
    lambda o: o.is_text("a", "x"),
    lambda o: o.finish(),
)


@FUZZED
@given(ANYTHING, st.text(max_size=50), st.sampled_from(READERS))
def test_any_value_is_read_or_refused(value: object, name: str, read: Any) -> None:
    with suppress(MessageError):
        read(Options("the test", {"a": value, name: value}))
