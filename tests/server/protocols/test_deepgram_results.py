from __future__ import annotations

import json
from typing import Any

from audiokv.server.protocols.deepgram_options import ListenOptions
from audiokv.server.protocols.deepgram_results import ResultWriter, packed
from audiokv.server.protocols.dialect import Begin
from audiokv.streaming.audio_format import AudioFormat
from tests.server.protocols.events import caption

BEGIN = Begin(AudioFormat())


def writer(**options: Any) -> ResultWriter:
    made = ResultWriter(ListenOptions(BEGIN, **options), "scripted")
    made.request_id = "s-1"
    return made


def alternative(message: str) -> dict[str, Any]:
    (only,) = json.loads(message)["channel"]["alternatives"]
    return dict(only)


def test_a_result_has_all_that_clients_read() -> None:
    message = writer().result(caption("Hello, you"), is_speech_final=True)
    assert json.loads(message) == {
        "type": "Results",
        "channel_index": [0, 1],
        "duration": 0.2,
        "start": 0.1,
        "is_final": True,
        "speech_final": True,
        "from_finalize": False,
        "channel": {
            "alternatives": [
                {
                    "transcript": "hello you",
                    "confidence": 0.5,
                    "words": [
                        {"word": "hello", "start": 0.1, "end": 0.2, "confidence": 0.5},
                        {"word": "you", "start": 0.2, "end": 0.3, "confidence": 0.5},
                    ],
                }
            ]
        },
        "metadata": {
            "request_id": "s-1",
            "model_info": {"name": "scripted", "version": "1", "arch": "scripted"},
            "model_uuid": "scripted",
        },
    }


def test_punctuation_comes_where_asked() -> None:
    shown = alternative(writer(is_punctuated=True).result(caption("Hello, you!")))
    assert shown["transcript"] == "Hello, you!"
    assert [w["punctuated_word"] for w in shown["words"]] == ["Hello,", "you!"]
    assert [w["word"] for w in shown["words"]] == ["hello", "you"]


def test_profane_words_are_masked_where_asked() -> None:
    said = caption("Shit, Scunthorpe shiitake bullshit bitches")
    shown = alternative(writer(is_masked=True).result(said))
    assert shown["transcript"] == "s*** scunthorpe shiitake bullshit b****es"
    assert shown["words"][0]["word"] == "s***"
    assert alternative(writer().result(said))["transcript"].startswith("shit scun")


def test_a_word_of_punctuation_only_stays() -> None:
    assert alternative(writer().result(caption("don't …")))["transcript"] == "don't …"


def test_speakers_are_numbered_as_they_come() -> None:
    out = writer(has_speakers=True)
    numbers = [
        alternative(out.result(caption("hi", speaker=label)))["words"][0]["speaker"]
        for label in ("B", "A", "B", None)
    ]
    assert numbers == [0, 1, 0, 2]
    assert "speaker" not in alternative(writer().result(caption("hi", speaker="B")))["words"][0]


def test_languages_come_where_several_are_expected() -> None:
    assert alternative(writer(is_multilingual=True).result(caption("hi")))["languages"] == ["en"]
    assert "languages" not in alternative(writer().result(caption("hi")))


def test_channels_are_named() -> None:
    out = writer(n_channels=2)
    assert json.loads(out.result(caption("hi"), channel=1))["channel_index"] == [1, 2]
    empty = json.loads(out.empty(1_500, channel=1, from_finalize=True))
    assert empty["channel_index"] == [1, 2]
    assert (empty["start"], empty["duration"], empty["from_finalize"]) == (1.5, 0, True)
    assert empty["channel"]["alternatives"][0]["transcript"] == ""
    assert json.loads(out.speech_started(90)) == {
        "type": "SpeechStarted",
        "channel": [0, 2],
        "timestamp": 0.09,
    }
    assert json.loads(out.utterance_end(2_395)) == {
        "type": "UtteranceEnd",
        "channel": [0, 2],
        "last_word_end": 2.395,
    }


def test_the_metadata_tells_what_the_stream_was() -> None:
    metadata = json.loads(writer(n_channels=2).metadata("ab12", "2026-01-01T00:00:00Z", 12_300))
    assert metadata["type"] == "Metadata"
    assert (metadata["duration"], metadata["channels"]) == (12.3, 2)
    assert (metadata["sha256"], metadata["created"]) == ("ab12", "2026-01-01T00:00:00Z")
    assert (metadata["request_id"], metadata["models"]) == ("s-1", ["scripted"])


def test_a_message_names_its_type_first() -> None:
    assert packed("Results", ä=1) == '{"type": "Results", "ä": 1}'
