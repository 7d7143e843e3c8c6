from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import MAX_INTEGER, Fields, parse_object, shown


def test_an_object_is_parsed() -> None:
    assert parse_object('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("text", ["", "nul", "{", '{"a": Infinity}', '{"a": 1, "a": 1}'])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(MessageError, match="not valid JSON"):
        parse_object(text)


def test_what_is_not_an_object_is_refused() -> None:
    with pytest.raises(MessageError, match="must be a JSON object, not a list"):
        parse_object("[1]")


@given(
    st.text(max_size=200)
    | st.integers()
    | st.lists(st.text())
    | st.dictionaries(st.text(), st.text())
)
def test_a_quoted_value_is_short(value: object) -> None:
    assert 0 < len(shown(value)) <= 40


def test_each_kind_of_field_is_read_once() -> None:
    fields = Fields(
        "kind",
        {"t": "x", "o": "y", "l": ["z"], "w": 3, "f": 0.5, "s": 2, "b": True, "n": {}, "a": [{}]},
    )
    assert fields.text("t") == "x"
    assert fields.optional_text("o") == "y"
    assert fields.texts("l", max_items=1, max_chars=1) == ("z",)
    assert fields.whole("w") == 3
    assert fields.fraction("f") == 0.5
    assert fields.optional_seconds("s") == 2.0
    assert fields.truth("b") is True
    nested = fields.optional_nested("n")
    assert nested is not None
    nested.finish()
    assert len(fields.objects("a", max_items=1)) == 1
    fields.finish()
    with pytest.raises(MessageError, match='lacks the field "t"'):
        fields.text("t")


def test_defaults_stand_in_for_what_is_missing() -> None:
    fields = Fields("kind", {"null": None})
    assert fields.text("t", default="d") == "d"
    assert fields.optional_text("null") is None
    assert fields.optional_text("o") is None
    assert fields.texts("l", default=[], max_items=1, max_chars=1) == ()
    assert fields.whole("w", default=1) == 1
    assert fields.truth("b", default=False) is False
    assert fields.optional_seconds("s") is None
    assert fields.optional_nested("n") is None
    fields.finish()


@pytest.mark.parametrize("value", [1, None, [], "toolong", "\udc80"])
def test_a_string_is_a_short_string_of_whole_characters(value: object) -> None:
    with pytest.raises(MessageError, match="string"):
        Fields("kind", {"x": value}).text("x", max_chars=4)


@pytest.mark.parametrize("value", [True, 1.0, -1, MAX_INTEGER + 1, "1", None])
def test_a_whole_number_is_one(value: object) -> None:
    with pytest.raises(MessageError, match="whole number"):
        Fields("kind", {"x": value}).whole("x")


@pytest.mark.parametrize("value", [True, "1", None, -1, float("inf"), float("nan")])
def test_seconds_are_a_number(value: object) -> None:
    with pytest.raises(MessageError, match="seconds"):
        Fields("kind", {"x": value}).seconds("x")


@pytest.mark.parametrize("value", [[1, 2], "ab", [1]])
def test_a_list_of_strings_is_one(value: object) -> None:
    with pytest.raises(MessageError, match="Send a"):
        Fields("kind", {"x": value}).texts("x", max_items=1, max_chars=1)


@pytest.mark.parametrize(
    "value", [[], "ab", {"a": 1}, {"a": "b", "c": "d"}, {"long": "b"}, {"a": "\ud800"}]
)
def test_an_object_of_strings_is_one(value: object) -> None:
    with pytest.raises(MessageError, match="Send a"):
        Fields("kind", {"x": value}).optional_texts_by_name("x", max_items=1, max_chars=3)


def test_an_object_of_strings_may_be_missing() -> None:
    fields = Fields("kind", {"x": {"a": "b"}, "n": None})
    assert fields.optional_texts_by_name("x", max_items=1, max_chars=1) == {"a": "b"}
    assert fields.optional_texts_by_name("n", max_items=1, max_chars=1) is None
    assert fields.optional_texts_by_name("m", max_items=1, max_chars=1) is None
    fields.finish()


def test_a_truth_is_not_a_number() -> None:
    with pytest.raises(MessageError, match="true or false"):
        Fields("kind", {"x": 1}).truth("x")


def test_an_object_is_not_a_list() -> None:
    with pytest.raises(MessageError, match="an object"):
        Fields("kind", {"x": []}).nested("x")


@pytest.mark.parametrize("value", [{}, [{}, {}], [1]])
def test_a_list_of_objects_is_one(value: object) -> None:
    with pytest.raises(MessageError, match="objects"):
        Fields("kind", {"x": value}).objects("x", max_items=1)


def test_what_is_left_over_is_named() -> None:
    with pytest.raises(MessageError, match="no field 'extra'") as caught:
        Fields("kind", {"extra": 1}).finish()
    assert caught.value.code == "unknown_field"
