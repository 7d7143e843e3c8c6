from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from audiokv.models.calibrate import MIN_PROBABILITY, add_arguments, calibrate, run
from audiokv.models.head_scores.score_files import load_head_scores
from audiokv.models.recordings import Recording, TimedWord
from audiokv.models.whisper.word_alignment import AlignedSpeech, AlignedWord
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

N_SLOTS = 200


class FakeAligner:
    """A model of two heads: the first looks at what is said, the second at what follows it."""

    shape = (1, 2)
    max_ms = 1_000
    slot_ms = 20
    top_k = 24

    def __init__(self, probability: float = 1.0) -> None:
        self.probability = probability
        self.calls: list[tuple[int, str | None, str | None, Sequence[TimedWord]]] = []

    def align(
        self,
        samples: np.ndarray,
        language: str | None = None,
        text: str | None = None,
        words: Sequence[TimedWord] = (),
    ) -> AlignedSpeech:
        self.calls.append((len(samples), language, text, words))
        attention = np.zeros((1, 2, 3, N_SLOTS), np.float32)
        attention[0, 0, :2, 10:34] = 1.0
        attention[0, 1, :2, 28:52] = 1.0
        said = AlignedWord("a", 0, 2, 200, 679, self.probability)  # slots 10 to 33
        empty = AlignedWord("b", 2, 3, 680, 680, 1.0)
        return AlignedSpeech((said, empty), attention)


def recording(folder: Path, name: str, n_ms: int, **labels: Any) -> Recording:
    path = folder / name
    soundfile.write(path, np.zeros(16 * n_ms), 16_000)
    return Recording(path, **labels)


def test_a_head_scores_by_how_much_it_looks_at_the_word(tmp_path: Path) -> None:
    recordings = [recording(tmp_path, f"{i}.wav", 900, text="a b") for i in range(3)]
    scores, what = calibrate(FakeAligner(), recordings, "fake")
    assert scores == pytest.approx(np.array([[1.0, 0.25]]))
    assert (what.model, what.top_k, what.n_recordings) == ("fake", 24, 3)
    assert (what.n_words, what.n_steps) == (3, 6)
    assert what.rank_stability == pytest.approx(1.0)


def test_words_the_model_is_unsure_of_do_not_count(tmp_path: Path) -> None:
    recordings = [recording(tmp_path, "a.wav", 900)]
    unsure = FakeAligner(MIN_PROBABILITY - 0.01)
    with pytest.raises(ConfigError) as caught:
        calibrate(unsure, recordings, "fake")
    assert caught.value.code == "no_words"
    sure = FakeAligner(MIN_PROBABILITY)
    assert calibrate(sure, recordings, "fake")[1].n_words == 1


def test_labels_are_passed_on_and_long_recordings_without_any_are_cut(tmp_path: Path) -> None:
    words = (TimedWord("a", 0, 100),)
    recordings = [
        recording(tmp_path, "timed.wav", 500, words=words, language="es"),
        recording(tmp_path, "told.wav", 500, text="a b"),
        recording(tmp_path, "long.wav", 2_500, language="de"),
    ]
    aligner = FakeAligner()
    calibrate(aligner, recordings, "fake")
    assert [call[1:] for call in aligner.calls] == [
        ("es", None, words),
        (None, "a b", ()),
        *[("de", None, ())] * 3,
    ]
    assert sum(call[0] for call in aligner.calls[2:]) == 16 * 2_500
    assert max(call[0] for call in aligner.calls) <= 16 * aligner.max_ms
    calibrate(aligner, recordings, "fake", "fr")
    assert {call[1] for call in aligner.calls[5:]} == {"fr"}


def test_digits_give_scores_that_load(
    tmp_path: Path, speech_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "audio"
    folder.mkdir()
    spoken = [speech_folder / "digits" / f"{digit}_jackson_9.wav" for digit in (7, 3, 5, 1)]
    pause = np.zeros(2_000)
    parts = [part for path in spoken for part in (soundfile.read(path)[0], pause)]
    soundfile.write(folder / "string.wav", np.concatenate(parts), 8_000)
    (folder / "string.txt").write_text("seven three five one")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    out = tmp_path / "scores.json"
    args = parser.parse_args(["--audio", str(folder), "--out", str(out), "--language", "en"])
    assert args.model == "whisper-base"
    assert run(args) == 0
    assert "6 layers of 8 heads" in capsys.readouterr().out
    assert load_head_scores(str(out)).shape == (6, 8)
