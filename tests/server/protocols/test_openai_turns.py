from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from audiokv.server.protocols.openai_turns import Turns
from audiokv.streaming.captions import SpeechChange
from tests.server.protocols.events import caption

if TYPE_CHECKING:
    from audiokv.server.protocols.openai_turns import Events

ON = SpeechChange(is_on=True, at_ms=90)
OFF = SpeechChange(is_on=False, at_ms=400)


def turns(silence_ms: int | None = 400) -> Turns:
    return Turns(pause_ms=450, silence_ms=silence_ms)


def kinds(events: Events) -> list[str]:
    """Return the last parts of the events' types, without the ways to say that an item exists."""
    return [kind.rpartition(".")[2] for kind, _ in events if "conversation.item.a" not in kind]


def only(events: Events, kind: str) -> dict[str, object]:
    (fields,) = [fields for name, fields in events if name.endswith(kind)]
    return fields


def test_a_turn_ends_with_its_silence() -> None:
    spoken = turns()
    events = spoken.change(ON)
    assert only(events, "speech_started") == {"audio_start_ms": 90, "item_id": "item_1"}
    assert spoken.hear(caption("hi you", is_final=False)) == []
    deltas = spoken.hear(caption("hi you", is_final=False, n_final=1))
    deltas += spoken.hear(caption("hi you"))
    assert [fields["delta"] for _, fields in deltas] == ["hi", " you"]
    end = spoken.change(OFF)
    assert kinds(end) == ["speech_stopped", "committed", "created", "done", "completed"]
    assert only(end, "speech_stopped")["audio_end_ms"] == 400
    assert only(end, "committed") == {"previous_item_id": None, "item_id": "item_1"}
    completed = only(end, "completed")
    assert completed["transcript"] == "hi you"
    assert completed["usage"] == {"type": "duration", "seconds": 0.31}


def test_items_know_the_one_before() -> None:
    spoken = turns()
    for segment in range(2):
        spoken.hear(caption("hi", segment=segment))
        events = spoken.change(OFF)
    assert only(events, "committed") == {"previous_item_id": "item_1", "item_id": "item_2"}
    assert only(events, "item.done")["previous_item_id"] == "item_1"


def test_a_longer_silence_is_waited_for() -> None:
    spoken = turns(silence_ms=1_000)
    spoken.change(ON)
    spoken.hear(caption("hi"))
    assert spoken.change(OFF) == []
    assert spoken.move(1_399) == []
    assert kinds(spoken.move(1_400))[-1] == "completed"
    assert spoken.move(9_000) == []


def test_speech_within_that_silence_goes_on_with_the_turn() -> None:
    spoken = turns(silence_ms=1_000)
    spoken.hear(caption("hi"))
    spoken.change(OFF)
    assert spoken.change(SpeechChange(is_on=True, at_ms=800)) == []
    assert spoken.move(2_000) == []
    assert only(spoken.hear(caption("you", segment=1)), "delta")["delta"] == " you"
    spoken.change(SpeechChange(is_on=False, at_ms=3_000))
    assert only(spoken.move(4_000), "completed")["transcript"] == "hi you"


def test_a_long_turn_spans_captions_without_a_pause() -> None:
    spoken = turns()
    spoken.change(ON)
    spoken.hear(caption("hi"))
    assert kinds(spoken.hear(caption("you", segment=1))) == ["delta"]
    assert only(spoken.change(OFF), "completed")["transcript"] == "hi you"


def test_a_noise_is_a_turn_without_words() -> None:
    spoken = turns()
    spoken.change(ON)
    assert only(spoken.change(OFF), "completed")["transcript"] == ""
    assert spoken.change(OFF) == []


def test_a_commit_ends_the_open_turn_where_silence_has_not() -> None:
    spoken = turns(silence_ms=1_000)
    spoken.change(ON)
    spoken.has_audio = True
    assert spoken.commit() == []
    assert not spoken.has_audio
    spoken.hear(caption("hi"))
    spoken.change(OFF)
    assert only(spoken.finalized(), "completed")["transcript"] == "hi"


def test_a_commit_is_not_answered_twice() -> None:
    spoken = turns()
    spoken.change(ON)
    spoken.commit()
    spoken.hear(caption("hi"))
    assert kinds(spoken.change(OFF))[-1] == "completed"
    assert spoken.finalized() == []


def test_a_commit_of_silence_is_answered_too() -> None:
    spoken = turns()
    spoken.commit()
    events = spoken.finalized()
    assert kinds(events) == ["committed", "created", "done", "completed"]
    assert only(events, "completed")["transcript"] == ""


def test_without_turn_detection_only_a_commit_ends_a_turn() -> None:
    spoken = turns(silence_ms=None)
    assert spoken.change(ON) == []
    assert kinds(spoken.hear(caption("hi"))) == ["delta"]
    assert spoken.change(OFF) == []
    assert spoken.move(99_000) == []
    assert kinds(spoken.commit()) == ["committed", "created", "done"]
    assert kinds(spoken.hear(caption("you", segment=1))) == ["delta"]
    (completed,) = spoken.finalized()
    assert completed[1]["transcript"] == "hi you"


def test_commits_on_their_way_keep_their_words() -> None:
    spoken = turns(silence_ms=None)
    names = [only(spoken.commit(), "committed")["item_id"] for _ in range(2)]
    assert names == ["item_1", "item_2"]
    spoken.hear(caption("one"))
    (first,) = spoken.finalized()
    spoken.hear(caption("two", segment=1))
    (second,) = spoken.finalized()
    assert [(e[1]["item_id"], e[1]["transcript"]) for e in (first, second)] == [
        ("item_1", "one"),
        ("item_2", "two"),
    ]
    assert kinds(spoken.hear(caption("three", segment=2))) == ["delta"]


@pytest.mark.parametrize("silence_ms", [400, None])
def test_what_was_cleared_is_not_heard(silence_ms: int | None) -> None:
    spoken = turns(silence_ms)
    spoken.change(ON)
    spoken.has_audio = True
    spoken.clear()
    assert not spoken.has_audio
    assert spoken.hear(caption("hi")) == []
    assert spoken.change(OFF) == []
    assert spoken.finalized() == []
    fresh = spoken.hear(caption("you", segment=1))
    assert only(fresh, "delta")["delta"] == "you"


def test_a_clear_does_not_touch_what_was_committed() -> None:
    spoken = turns(silence_ms=None)
    spoken.commit()
    spoken.clear()
    spoken.hear(caption("one"))
    (completed,) = spoken.finalized()
    assert completed[1]["transcript"] == "one"
    assert spoken.hear(caption("two", segment=1)) == []
    assert spoken.finalized() == []


def test_the_end_of_the_stream_ends_the_turn() -> None:
    spoken = turns()
    assert spoken.end() == []
    spoken.hear(caption("hi"))
    assert only(spoken.end(), "completed")["transcript"] == "hi"
