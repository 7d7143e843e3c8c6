from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.loose_json import MAX_TEXT_CHARS, Node, printable
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_READERS: dict[str, Callable[[Node], object]] = {
    "text": lambda node: node.text("x"),
    "whole": lambda node: node.whole("x"),
    "truth": lambda node: node.truth("x"),
    "node": lambda node: node.node("x").metadata(),
    "items": lambda node: node.items("x", max_items=2),
    "nodes": lambda node: node.nodes("x", max_items=2),
    "audio": lambda node: node.audio("x", max_chars=8),
    "metadata": lambda node: node.metadata(),
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def test_fields_are_found_under_any_of_their_names() -> None:
    node = Node.parse('{"call_sid": "a", "n": "12", "on": true, "deep": {"m": 3}}')
    assert node.text("callSid", "call_sid") == "a"
    assert node.whole("count", "n") == 12
    assert node.truth("on")
    assert node.node("deep").whole("m") == 3


def test_missing_and_null_fields_are_empty() -> None:
    node = Node.parse('{"x": null}')
    for name in ("x", "y"):
        assert node.text(name) == ""
        assert node.whole(name) is None
        assert node.truth(name) is False
        assert node.node(name).metadata() == {}
        assert node.items(name, max_items=1) == []


def test_a_null_spelling_does_not_hide_another() -> None:
    assert Node.parse('{"a": null, "b": "c"}').text("a", "b") == "c"


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        ("text", 1),
        ("text", "x" * (MAX_TEXT_CHARS + 1)),
        ("whole", "x"),
        ("whole", -1),
        ("whole", "1" * 17),
        ("whole", True),
        ("whole", 1.5),
        ("truth", "true"),
        ("node", []),
        ("items", {}),
        ("items", [1, 2, 3]),
        ("nodes", [1]),
        ("audio", None),
        ("audio", "AAA"),
        ("audio", "AA\nAA"),
        ("audio", "A" * 9),
        ("audio", "ä==="),
    ],
)
def test_a_wrong_value_is_refused_by_name(reader: str, value: object) -> None:
    with pytest.raises(MessageError) as caught:
        ALL_READERS[reader](Node({"x": value}, "start"))
    assert '"x" of "start"' in caught.value.message


def test_text_may_be_longer_where_it_says_so() -> None:
    assert len(Node({"x": "a" * 300}, "m").text("x", max_chars=300)) == 300


def test_audio_is_decoded() -> None:
    assert Node({"x": "/wA="}, "media").audio("x", max_chars=8) == b"\xff\x00"


def test_metadata_keeps_plain_values_short_and_few() -> None:
    values: dict[str, object] = {str(n): n for n in range(40)}
    assert len(Node(values, "m").metadata()) == 16
    odd: dict[str, object] = {"n" * 99: "v" * 999, "list": [1], "none": None}
    assert Node(odd, "m").metadata() == {"n" * 64: "v" * MAX_TEXT_CHARS}


@pytest.mark.parametrize("text", ["", "[]", "1", "{", '{"a":1,"a":2}', '{"a":NaN}'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(MessageError):
        Node.parse(text)


@given(JSON_VALUES)
def test_every_reader_meets_every_value_with_its_own_error_only(value: object) -> None:
    try:
        node = Node.parse(json.dumps({"x": value}))
    except MessageError:
        return  # NaN and infinity are no JSON
    for read in ALL_READERS.values():
        try:
            read(node)
        except MessageError as error:
            assert error.remedy  # noqa: PT017  any value may be wrong, none may be anything else


@given(st.text(st.characters() | st.characters(categories=["Cs"])))
def test_printable_text_can_always_be_sent(text: str) -> None:
    printable(text).encode()
