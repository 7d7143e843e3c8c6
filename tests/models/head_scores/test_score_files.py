from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from audiokv.models.head_scores.hit_ratios import TOP_K
from audiokv.models.head_scores.score_files import (
    SHIPPED,
    Calibration,
    load_head_scores,
    save_head_scores,
)
from audiokv.models.weights import resolve_model
from audiokv.models.whisper.recognizer import WhisperFiles
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

CALIBRATION = Calibration("tiny", 24, 3, 40, 55, 0.91234567)


def test_scores_come_back_as_they_were_written(tmp_path: Path) -> None:
    scores = np.array([[0.25, 0.5, 0.12345], [0.0, 1.0, 0.75]])
    path = tmp_path / "tiny.json"
    save_head_scores(path, scores, CALIBRATION)
    assert np.allclose(load_head_scores(str(path)), scores, atol=1e-4)
    stated = json.loads(path.read_text())
    assert (stated["model"], stated["n_words"], stated["rank_stability"]) == ("tiny", 40, 0.9123)


def test_the_shipped_scores_fit_their_model_and_its_known_alignment_heads() -> None:
    files = WhisperFiles(resolve_model("whisper-base").folder)
    scores = load_head_scores("whisper-base")
    assert scores.shape == (files.dims.n_decoder_layers, files.dims.n_decoder_heads)
    is_known = np.zeros(scores.shape, np.bool_)
    is_known[tuple(np.transpose(files.alignment_heads))] = True
    # Whisper's authors chose theirs by other speech and another measure.
    assert scores[is_known].mean() > 2 * scores[~is_known].mean()
    in_best_third = scores >= np.quantile(scores, 2 / 3)
    assert in_best_third[is_known].mean() >= 0.75
    stated = json.loads((SHIPPED / "whisper-base.json").read_text())
    assert stated["top_k"] == TOP_K
    assert stated["n_words"] >= 250
    assert stated["rank_stability"] >= 0.95


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "bad_head_scores"),
        ("[]", "bad_head_scores"),
        ("{}", "bad_head_scores"),
        ('{"version": 2, "scores": [[1]]}', "bad_head_scores"),
        ('{"version": 1, "scores": [1, 2]}', "bad_head_scores"),
        ('{"version": 1, "scores": [[]]}', "bad_head_scores"),
        ('{"version": 1, "scores": [[1], [1, 2]]}', "bad_head_scores"),
        ('{"version": 1, "scores": [[-1]]}', "bad_head_scores"),
        ('{"version": 1, "scores": [[NaN]]}', "bad_head_scores"),
    ],
)
def test_a_file_without_scores_is_refused(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.json") as caught:
        load_head_scores(str(path))
    assert caught.value.code == code


def test_a_model_without_scores_is_told_what_there_is() -> None:
    with pytest.raises(ConfigError, match="whisper-base") as caught:
        load_head_scores("whisper-huge")
    assert caught.value.code == "unknown_head_scores"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.x\.json") as caught:
        save_head_scores(tmp_path / "nowhere" / "x.json", np.ones((1, 1)), CALIBRATION)
    assert caught.value.code == "cannot_write"
