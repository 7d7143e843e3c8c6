from __future__ import annotations

import json
from pathlib import Path

import pytest

from audiokv.client.outputs import CaptionFile, Outputs, check_outputs
from audiokv.streaming.captions import Caption, Word
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.subtitles import PlainText


def caption_of(text: str, seq: int = 1, start_ms: int = 0, *, is_final: bool = True) -> Caption:
    word = Word(text, start_ms, start_ms + 500, 0.9, is_final=is_final)
    return Caption(seq, seq - 1, 0, is_final, start_ms, start_ms + 500, text, "en", None, (word,))


def test_a_name_with_stem_gives_a_file_for_each_recording(tmp_path: Path) -> None:
    outputs = Outputs({"txt": str(tmp_path / "{stem}.txt")})
    for stem in ("one", "two"):
        outputs.begin(stem)
        outputs.add(caption_of(stem))
        outputs.end(1_000)
    outputs.close()
    assert (tmp_path / "one.txt").read_text() == "one\n"
    assert (tmp_path / "two.txt").read_text() == "two\n"


def test_a_common_file_goes_on_with_times_and_numbers_shifted(tmp_path: Path) -> None:
    outputs = Outputs({"jsonl": str(tmp_path / "all.jsonl"), "srt": str(tmp_path / "all.srt")})
    for stem in ("one", "two"):
        outputs.begin(stem)
        outputs.add(caption_of("tentative", is_final=False))
        outputs.add(caption_of(stem, seq=3, start_ms=100))
        outputs.end(60_000)
    outputs.begin("silent")
    outputs.end(5)
    outputs.close()
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(line["seq"], line["segment"], line["start_ms"]) for line in lines] == [
        (3, 2, 100),
        (6, 5, 60_100),
    ]
    assert lines[1]["words"][0]["end_ms"] == 60_600
    assert "00:01:00,100 --> " in (tmp_path / "all.srt").read_text()


def test_finished_sentences_are_on_disk_before_the_end(tmp_path: Path) -> None:
    outputs = Outputs({"txt": str(tmp_path / "live.txt")})
    outputs.begin("microphone")
    outputs.add(caption_of("said"))
    assert (tmp_path / "live.txt").read_text() == "said\n"
    outputs.close()


def test_the_asked_for_language_is_that_of_the_file(tmp_path: Path) -> None:
    outputs = Outputs({"vtt": str(tmp_path / "a.vtt")}, "de")
    outputs.begin("a")
    outputs.close()
    assert (tmp_path / "a.vtt").read_text() == "WEBVTT Language: de\n\n"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        Outputs({"srt": str(tmp_path / "nowhere" / "a.srt")})
    with pytest.raises(ConfigError, match="nowhere"):
        Outputs({"srt": str(tmp_path / "nowhere" / "{stem}.srt")}).begin("a")


def test_a_full_disk_is_an_error_and_every_file_is_still_closed() -> None:
    file = CaptionFile(Path("/dev/full"), PlainText())
    with pytest.raises(ConfigError, match="/dev/full"):
        file.add(caption_of("said"))


def test_one_bad_file_does_not_keep_the_others_open(tmp_path: Path) -> None:
    class Bad(PlainText):
        def finish(self) -> str:
            raise ValueError("no end")

    outputs = Outputs({"txt": str(tmp_path / "a.txt"), "srt": str(tmp_path / "a.srt")})
    outputs._common[1]._format = Bad()
    first = outputs._common[0]
    outputs.add(caption_of("said"))
    with pytest.raises(ValueError, match="no end"):
        outputs.close()
    assert first._file.closed


def test_outputs_may_not_overwrite_a_recording_or_each_other(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "x.txt", tmp_path / "b" / "x.txt"
    with pytest.raises(ConfigError, match=r"x\.txt"):
        check_outputs({"txt": str(one)}, [one])
    with pytest.raises(ConfigError, match=r"x\.srt"):
        check_outputs({"srt": str(tmp_path / "{stem}.srt")}, [one, other])
    with pytest.raises(ConfigError):
        check_outputs({"srt": "same", "vtt": "same"}, [one])
    check_outputs({"srt": str(tmp_path / "{stem}.srt"), "vtt": "all.vtt"}, [one])
