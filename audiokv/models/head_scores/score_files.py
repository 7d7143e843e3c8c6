"""Head scores as files: one a model, the shipped ones beside this module."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FORMAT_VERSION = 1
SHIPPED = Path(__file__).parent
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the scores of a model come from.

    Attributes:
        model: Name of the model.
        top_k: Most attended positions that count at each step.
        n_recordings: Recordings heard.
        n_words: Words in them that counts were taken from.
        n_steps: Decoding steps of those words.
        rank_stability: Rank correlation of the scores from two halves of the recordings.
    """

    model: str
    top_k: int
    n_recordings: int
    n_words: int
    n_steps: int
    rank_stability: float


def save_head_scores(path: Path, scores: Floats, calibration: Calibration) -> None:
    """Write scores, shape (layers, heads), as JSON.

    Raises:
        ConfigError: The file cannot be written.
    """
    rows = ",\n".join(
        f"    {json.dumps([round(float(score), _DIGITS) for score in layer])}" for layer in scores
    )
    stated = {"version": FORMAT_VERSION, **asdict(calibration)}
    stated["rank_stability"] = round(calibration.rank_stability, _DIGITS)
    head = json.dumps(stated, indent=2).removesuffix("\n}")
    try:
        path.write_text(f'{head},\n  "scores": [\n{rows}\n  ]\n}}\n', encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            "cannot_write",
            f"The file {str(path)!r} cannot be written ({error.strerror}).",
            "Name a file in a folder that exists.",
        ) from error


def load_head_scores(model: str) -> Floats:
    """Return the scores of a model's heads, shape (layers, heads), at least 0.

    Args:
        model: Name of a model whose scores are shipped, such as ``whisper-base``, or a file that
            ``audiokv calibrate`` wrote.

    Raises:
        ConfigError: There are none for that model, or the file does not hold any.
    """
    shipped = sorted(path.stem for path in SHIPPED.glob("*.json"))
    path = SHIPPED / f"{model}.json" if model in shipped else Path(model)
    if not path.is_file():
        raise ConfigError(
            "unknown_head_scores",
            f"There are no head scores for {model!r}.",
            f"Name a file, or one of {', '.join(shipped)}; audiokv calibrate makes new ones.",
        )
    try:
        return _parsed(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "bad_head_scores",
            f"The file {str(path)!r} does not hold head scores: {error}.",
            "Make it again with audiokv calibrate.",
        ) from error


def _parsed(content: Mapping[str, Any]) -> Floats:
    if content["version"] != FORMAT_VERSION:
        raise ValueError(f"its version is {content['version']!r}")
    scores: Floats = np.array(content["scores"], np.float64)
    if scores.ndim != 2 or not scores.size:  # noqa: PLR2004  layers and heads
        raise ValueError(f"scores of shape {scores.shape} are not of layers and heads")
    if not (np.isfinite(scores) & (scores >= 0)).all():
        raise ValueError("a score is negative or not finite")
    return scores
