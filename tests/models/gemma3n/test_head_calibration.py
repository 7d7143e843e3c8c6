from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from audiokv.models.calibrate import add_arguments, run
from audiokv.models.gemma3n.head_calibration import HeadReader
from audiokv.models.head_scores.score_files import load_head_scores
from audiokv.models.recordings import TimedWord
from audiokv.streaming.errors import ConfigError
from tests.models.gemma3n.conftest import sound

if TYPE_CHECKING:
    from pathlib import Path

WORDS = (TimedWord("w20", 100, 400), TimedWord("w33", 400, 900), TimedWord("w8", 900, 1_300))


@pytest.fixture(scope="module")
def reader(folder: Path) -> HeadReader:
    return HeadReader(folder)


def test_heads_of_full_attention_layers_are_read(reader: HeadReader) -> None:
    assert (reader.shape, reader.slot_ms, reader.top_k) == ((6, 4), 160, 3)
    speech = reader.align(sound(24_000), "en", None, WORDS)
    assert speech.attention.shape == (6, 4, 4, 10)
    sums = speech.attention.sum(axis=-1)
    assert (sums[[1, 3, 5]] > 0).all()
    assert (sums < 1).all()
    assert not sums[[0, 2, 4]].any()
    assert [(w.text, w.first_token, w.end_token) for w in speech.words] == [
        ("w20", 0, 1),
        ("w33", 1, 2),
        ("w8", 2, 3),
    ]
    # A word is recognised once its end was heard.
    assert [(w.start_ms, w.end_ms) for w in speech.words] == [
        (100, 880),
        (400, 1_380),
        (900, 1_780),
    ]


def test_what_is_said_decides_what_is_looked_at(reader: HeadReader) -> None:
    first = reader.align(sound(24_000), "en", None, WORDS).attention
    other = (WORDS[0], TimedWord("w40", 400, 900), WORDS[2])
    second = reader.align(sound(24_000), "en", None, other).attention
    np.testing.assert_allclose(first[:, :, :2], second[:, :, :2], atol=1e-5)
    assert np.abs(first[:, :, 2:] - second[:, :, 2:]).max() > 1e-3


def test_words_without_times_say_nothing_about_heads(reader: HeadReader) -> None:
    with pytest.raises(ConfigError, match="no times") as caught:
        reader.align(sound(24_000), "en", "w20 w33")
    assert caught.value.code == "word_times_missing"


def test_words_that_the_vocabulary_splits_otherwise_are_refused(reader: HeadReader) -> None:
    with pytest.raises(ConfigError, match="1 words of a recording are 2") as caught:
        reader.align(sound(24_000), "en", None, (TimedWord("w20 w33", 0, 900),))
    assert caught.value.code == "words_misfit"


def test_the_command_writes_a_file_and_names_the_heads(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    soundfile.write(tmp_path / "a.wav", sound(24_000), 16_000)
    labels = [
        {"word": w.text, "start_s": w.start_ms / 1000, "end_s": w.end_ms / 1000} for w in WORDS
    ]
    row = {"file": "a.wav", "words": labels}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(row))
    monkeypatch.setattr("audiokv.models.calibrate.GOOD_SCORE", 0.3)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    out = tmp_path / "scores.json"
    words = ["--model", str(folder), "--audio", str(tmp_path), "--out", str(out)]
    assert run(parser.parse_args(words)) == 0
    scores = load_head_scores(str(out))
    assert scores.shape == (6, 4)
    printed = capsys.readouterr().out.splitlines()
    assert "6 layers of 4 heads, from 3 words in 1 recordings" in printed[0]
    named = json.loads(printed[1].partition('alignment_heads": ')[2])
    assert named == [[i, j] for i in range(6) for j in range(4) if scores[i, j] >= 0.3]
    assert named
