"""The product as its users meet it: the commands, the page in a browser, real recognition."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import srt
import webvtt

from benchmarks.measures import Errors, errors
from tests.client.web.page_driver import run_page, write_microphone_wav
from tests.serving import PATIENCE_S, RealServer, send, serving, start_sending

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.weights, pytest.mark.slow]

SPOKEN = "librispeech/1089-134686-0000.flac"


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with serving() as running:
        yield running


def recordings(speech_folder: Path) -> list[dict[str, str]]:
    lines = (speech_folder / "manifest.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["text"]]


@pytest.mark.browser
def test_the_page_shows_what_the_microphone_hears(
    server: RealServer, speech_folder: Path, tmp_path: Path
) -> None:
    wav = write_microphone_wav(speech_folder / SPOKEN, tmp_path / "spoken.wav")
    screenshot = Path(os.environ.get("AUDIOKV_SCREENSHOT") or tmp_path / "page.png")
    shown = run_page(server.page, wav, seconds=11, screenshot=screenshot)
    reference = next(r["text"] for r in recordings(speech_folder) if r["file"] == SPOKEN)
    # The browser may miss the first tenths of a second of its fake microphone.
    assert errors(reference, shown, "en").rate <= 0.15, shown
    assert screenshot.stat().st_size > 10_000


def test_every_recording_becomes_captions_and_subtitles(
    server: RealServer, speech_folder: Path, tmp_path: Path
) -> None:
    spoken = recordings(speech_folder)
    send(
        server,
        *(speech_folder / r["file"] for r in spoken),
        *("--srt", tmp_path / "{stem}.srt", "--vtt", tmp_path / "{stem}.vtt"),
        *("--jsonl", tmp_path / "{stem}.jsonl"),
    )
    english = Errors(0, 0, 0, 0)
    for recording in spoken:
        stem = Path(recording["file"]).stem
        lines = (tmp_path / f"{stem}.jsonl").read_text().splitlines()
        text = " ".join(json.loads(line)["text"] for line in lines)
        found = errors(recording["text"], text, recording["language"])
        if recording["language"] == "en":
            english += found
        assert found.rate <= 0.6, (recording["file"], text)
        cues = list(srt.parse((tmp_path / f"{stem}.srt").read_text(encoding="utf-8")))
        assert cues
        assert len(webvtt.read(str(tmp_path / f"{stem}.vtt")).captions) == len(cues)
        assert "".join(" ".join(c.content for c in cues).split()) == "".join(text.split())
    assert english.rate <= 0.04


def test_two_languages_at_once_stay_apart(
    server: RealServer, speech_folder: Path, tmp_path: Path
) -> None:
    files = {"de": "multilingual/de.wav", "ja": "multilingual/ja.wav"}
    alone = {}
    for language, file in files.items():
        send(server, speech_folder / file, "--txt", tmp_path / f"{language}.txt")
        alone[language] = (tmp_path / f"{language}.txt").read_text()
    together = [
        start_sending(server, speech_folder / file, "--txt", tmp_path / f"{language}-2.txt")
        for language, file in files.items()
    ]
    assert [process.wait(PATIENCE_S) for process in together] == [0, 0]
    for language in files:
        assert (tmp_path / f"{language}-2.txt").read_text() == alone[language]
