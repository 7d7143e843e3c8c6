from __future__ import annotations

import pytest

from audiokv.server.protocols.dialect import Begin, Opening
from audiokv.server.telephony.loose_json import Node
from audiokv.server.telephony.wishes import Wishes, plain_language, query_text
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import MAX_PROMPT_CHARS


@pytest.mark.parametrize(
    ("tag", "code"),
    [("en-US", "en"), ("pt_BR", "pt"), ("DE", "de"), ("", None), ("auto", None), ("multi", None)],
)
def test_a_language_tag_is_reduced_to_its_language(tag: str, code: str | None) -> None:
    assert plain_language(tag) == code


def test_the_address_tells_language_and_prompt() -> None:
    opening = Opening(query={"language": ("de-AT", "en"), "prompt": ("Knopf",)})
    assert Wishes.of_opening(opening) == Wishes("de", "Knopf")
    assert Wishes.of_opening(Opening()) == Wishes()


def test_the_address_tells_who_calls_and_the_protocol_its_name() -> None:
    opening = Opening(query={"from": ("+1",), "direction": ("in",), "other": ("x",), "to": ("",)})
    wishes = Wishes.of_opening(opening, "asterisk")
    assert wishes.metadata == {"source": "asterisk", "from": "+1", "direction": "in"}


def test_values_of_the_address_are_cut() -> None:
    opening = Opening(query={"prompt": ("x" * 9_999,), "rate": ()})
    assert len(Wishes.of_opening(opening).prompt) == MAX_PROMPT_CHARS
    assert len(query_text(opening, "prompt")) == 256
    assert query_text(opening, "rate") == ""


def test_what_the_source_says_goes_before_the_address() -> None:
    wishes = Wishes("de", "Knopf", {"call": "1"})
    said = Node({"language": "fr-CA", "prompt": "Poubelle"}, "start")
    joined = wishes.joined(said, {"from": "+1", "to": ""})
    assert joined == Wishes("fr", "Poubelle", {"call": "1", "from": "+1"})
    assert wishes.joined(Node({}, "start"), {}) == wishes


def test_a_wish_that_is_no_text_is_refused() -> None:
    with pytest.raises(MessageError):
        Wishes().joined(Node({"language": 3}, "start"), {})


def test_wishes_open_a_stream() -> None:
    begin = Wishes("de", "Knopf", {"call": "1"}).begin(AudioFormat(), ("a", "b"))
    assert begin == Begin(
        AudioFormat(),
        language="de",
        prompt="Knopf",
        profile="telephony",
        channel_labels=("a", "b"),
        metadata={"call": "1"},
    )
