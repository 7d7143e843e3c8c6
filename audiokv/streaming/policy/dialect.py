"""Dialect priors: which spectral shapes matter more in a way of speaking."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.spectrum import N_BANDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from audiokv.streaming.captions import Word
    from audiokv.streaming.policy.arrays import Floats, Indices
    from audiokv.streaming.policy.spectrum import Bands

FORMAT_VERSION = 1
SMALLEST_FACTOR = 0.5
LARGEST_FACTOR = 2.0
TEMPLATE_SHARPNESS = 12.0
MAX_FRAMES = 20_000
N_ROUNDS = 20


@dataclass(frozen=True, slots=True, eq=False)
class DialectPrior:
    """Spectral templates of a dialect and the factor each puts on a score.

    Attributes:
        name: What the prior is loaded by.
        templates: Unit vectors of band energies without their level, shape (n, 20).
        factors: 0.5 to 2, shape (n,).

    Raises:
        ValueError: Shapes that do not fit, no template, values out of range or not finite.
    """

    name: str
    templates: Floats
    factors: Floats

    def __post_init__(self) -> None:
        """Refuse what cannot be applied."""
        n_templates = len(self.factors)
        if not n_templates or self.templates.shape != (n_templates, N_BANDS):
            raise ValueError(f"{self.templates.shape} templates for {n_templates} factors")
        if not np.isfinite(self.templates).all():
            raise ValueError("a template is not finite")
        if not ((self.factors >= SMALLEST_FACTOR) & (self.factors <= LARGEST_FACTOR)).all():
            raise ValueError(f"a factor is not {SMALLEST_FACTOR} to {LARGEST_FACTOR}")

    def factors_for(self, bands: Bands) -> Floats:
        """Return the factor on the score of each frame or slot.

        Args:
            bands: Band energies in dB, shape (n, 20).

        Returns:
            Shape (n,), 0.5 to 2: the templates' factors, weighted by likeness.
        """
        likeness = TEMPLATE_SHARPNESS * _shapes(bands) @ self.templates.T
        weights = np.exp(likeness - likeness.max(axis=-1, keepdims=True))
        factors: Floats = (weights @ self.factors) / weights.sum(axis=-1)
        return factors

    def save(self, path: Path) -> None:
        """Write the prior as JSON."""
        content = {
            "version": FORMAT_VERSION,
            "name": self.name,
            "templates": np.round(self.templates, 5).tolist(),
            "factors": np.round(self.factors, 5).tolist(),
        }
        path.write_text(json.dumps(content), encoding="utf-8")


@dataclass(frozen=True, slots=True, eq=False)
class LabelledFrames:
    """One recording to build a prior from.

    Attributes:
        bands: Band energies in dB, shape (n, 20).
        importance: How much each frame matters, at least 0, shape (n,).
    """

    bands: Bands
    importance: Floats


def word_importance(words: Sequence[Word], n_frames: int) -> Floats:
    """Return 1 for the 10 ms frames that a word covers and 0 for the others, shape (n_frames,)."""
    importance = np.zeros(n_frames)
    for word in words:
        importance[word.start_ms // FRAME_MS : -(-word.end_ms // FRAME_MS)] = 1.0
    return importance


def build_prior(
    name: str, recordings: Sequence[LabelledFrames], n_templates: int = 16
) -> DialectPrior:
    """Cluster the spectral shapes of recordings and rate each cluster.

    A template's factor is the mean importance of its frames over the mean of all frames, between
    0.5 and 2. Deterministic; of very long material every n-th frame is used.

    Args:
        name: Name of the prior.
        recordings: At least one frame in total.
        n_templates: Most clusters to make.

    Raises:
        ConfigError: There is no frame, or no frame matters.
    """
    bands = np.concatenate([np.empty((0, N_BANDS), np.float32), *(r.bands for r in recordings)])
    importance = np.concatenate([np.empty(0), *(r.importance for r in recordings)])
    stride = max(1, -(-len(bands) // MAX_FRAMES))
    shapes, importance = _shapes(bands[::stride]), importance[::stride]
    if importance.sum() <= 0:
        raise ConfigError(
            "empty_prior",
            f"The recordings for the dialect prior {name!r} hold no labelled speech.",
            "Give recordings with the times of their words.",
        )
    templates, nearest = _clusters(shapes, n_templates)
    n_frames = np.bincount(nearest, minlength=len(templates))
    totals = np.bincount(nearest, weights=importance, minlength=len(templates))
    used = n_frames > 0
    factors = totals[used] / n_frames[used] / importance.mean()
    return DialectPrior(name, templates[used], np.clip(factors, SMALLEST_FACTOR, LARGEST_FACTOR))


def load_prior(name: str, folder: Path) -> DialectPrior:
    """Read the prior ``folder/name.json``.

    Raises:
        ConfigError: There is none of that name, or the file is not a prior.
    """
    path = folder / f"{name}.json"
    known = sorted(file.stem for file in folder.glob("*.json"))
    if name not in known:
        raise ConfigError(
            "unknown_dialect",
            f"There is no dialect prior {name!r}.",
            f"Use one of {', '.join(known)}." if known else "Build one first.",
        )
    try:
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "bad_dialect",
            f"The file of the dialect prior {name!r} is not one: {error}.",
            "Build it again.",
        ) from error


def _parsed(content: dict[str, object]) -> DialectPrior:
    if content["version"] != FORMAT_VERSION:
        raise ValueError(f"its version is {content['version']!r}")
    return DialectPrior(
        str(content["name"]),
        np.array(content["templates"], np.float64),
        np.array(content["factors"], np.float64),
    )


def _shapes(bands: Bands) -> Floats:
    """Return band energies without their level, as unit vectors; a flat spectrum gives zeros."""
    shapes = bands - bands.mean(axis=-1, keepdims=True, dtype=np.float64)
    lengths = np.linalg.norm(shapes, axis=-1, keepdims=True)
    units: Floats = shapes / np.maximum(lengths, 1.0)
    return units


def _clusters(shapes: Floats, n_templates: int) -> tuple[Floats, Indices]:
    """Return unit templates by spherical k-means, and the nearest one of each shape."""
    chosen = [int(np.argmax(shapes @ shapes.mean(axis=0)))]
    likeness = shapes @ shapes[chosen[0]]
    while len(chosen) < min(n_templates, len(shapes)):
        # The shape least like any template so far: no random start, so no seed.
        chosen.append(int(np.argmin(likeness)))
        likeness = np.maximum(likeness, shapes @ shapes[chosen[-1]])
    templates = shapes[chosen]
    nearest = np.argmax(shapes @ templates.T, axis=1)
    for _ in range(N_ROUNDS):
        sums = np.zeros_like(templates)
        np.add.at(sums, nearest, shapes)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        templates = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), templates)
        nearest = np.argmax(shapes @ templates.T, axis=1)
    return templates, nearest
