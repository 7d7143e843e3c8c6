from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.boundary import REFRACTORY_FRAMES, BoundaryDetector
from audiokv.streaming.policy.spectrum import BandSpectrum

if TYPE_CHECKING:
    from pathlib import Path


def steps(*levels_db: float, n_frames: int = 12) -> np.ndarray:
    bands = np.repeat(np.array(levels_db, np.float32), n_frames)
    return np.tile(bands[:, None], (1, 20))


def found(detector: BoundaryDetector, bands: np.ndarray) -> list[int]:
    return np.flatnonzero(detector.push(bands)).tolist()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 999))
def test_any_chunking_gives_the_same_boundaries(chunks: list[int], seed: int) -> None:
    bands = np.random.default_rng(seed).normal(-30, 8, (sum(chunks), 20)).astype(np.float32)
    whole = BoundaryDetector().push(bands)
    detector = BoundaryDetector()
    parts = [detector.push(part) for part in np.split(bands, np.cumsum(chunks)[:-1])]
    assert np.array_equal(np.concatenate(parts), whole)


def test_a_change_is_found_within_two_frames_and_once() -> None:
    assert found(BoundaryDetector(), steps(-60, -30, -50)) == [12, 24]
    assert found(BoundaryDetector(), steps(-30)) == []


def test_a_boundary_rests_before_the_next() -> None:
    bands = steps(*[-30.0, -60.0] * 20, n_frames=2)
    frames = found(BoundaryDetector(contrast=0.1), bands)
    assert min(np.diff(frames)) >= REFRACTORY_FRAMES


def test_the_least_change_counts() -> None:
    bands = steps(-40, -30)
    assert found(BoundaryDetector(min_change_db=4.0), bands) != []
    assert found(BoundaryDetector(min_change_db=11.0), bands) == []


def test_the_contrast_counts() -> None:
    # Change is usual here, and the last step is only somewhat larger.
    bands = np.concatenate([steps(*[-40.0, -30.0] * 40, n_frames=4), steps(-40.0, -25.0)])
    n_low = len(found(BoundaryDetector(contrast=1.0), bands))
    n_high = len(found(BoundaryDetector(contrast=4.0), bands))
    assert n_high < n_low


def test_steady_noise_has_no_boundaries() -> None:
    noise = (0.1 * np.random.default_rng(0).standard_normal(160 * 500)).astype(np.float32)
    assert found(BoundaryDetector(), BandSpectrum().push(noise)) == []


def test_speech_has_about_as_many_boundaries_as_phonemes(speech_folder: Path) -> None:
    samples, _ = soundfile.read(
        speech_folder / "librispeech" / "1089-134686-0000.flac", dtype="float32"
    )
    frames = samples[: len(samples) // 160 * 160]
    per_second = 100 * BoundaryDetector().push(BandSpectrum().push(frames)).mean()
    assert 6 <= per_second <= 16


@pytest.mark.parametrize(("min_change_db", "contrast"), [(0.0, 1.0), (1.0, 0.0)])
def test_thresholds_that_are_none_are_refused(min_change_db: float, contrast: float) -> None:
    with pytest.raises(ValueError, match="thresholds"):
        BoundaryDetector(min_change_db, contrast)
