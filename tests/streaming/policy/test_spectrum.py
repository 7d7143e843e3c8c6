from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.spectrum import N_BANDS, BandSpectrum


def tone(frequency_hz: float, n_frames: int = 20, level: float = 0.5) -> np.ndarray:
    at_s = np.arange(n_frames * 160) / 16_000
    return (level * np.sin(2 * np.pi * frequency_hz * at_s)).astype(np.float32)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8))
def test_any_chunking_gives_the_same_bands(chunks: list[int]) -> None:
    n_frames = sum(chunks)
    samples = np.random.default_rng(n_frames).standard_normal(n_frames * 160).astype(np.float32)
    whole = BandSpectrum().push(samples)
    spectrum = BandSpectrum()
    parts = [spectrum.push(part) for part in np.split(samples, np.cumsum(chunks)[:-1] * 160)]
    assert whole.shape == (n_frames, N_BANDS)
    assert np.concatenate(parts) == pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize(("frequency_hz", "band"), [(200, 0), (1000, 6), (3000, 13), (7000, 19)])
def test_a_tone_peaks_in_its_band(frequency_hz: float, band: int) -> None:
    bands = BandSpectrum().push(tone(frequency_hz))
    assert abs(int(bands[5].argmax()) - band) <= 1


def test_bands_are_in_db_of_full_scale() -> None:
    loud = BandSpectrum().push(tone(1000, level=1.0))[5]
    soft = BandSpectrum().push(tone(1000, level=0.1))[5]
    assert loud.max() == pytest.approx(-3.0, abs=2.0)
    assert loud.max() - soft.max() == pytest.approx(20.0, abs=0.1)
    assert BandSpectrum().push(np.zeros(320, np.float32)) == pytest.approx(-80.0, abs=0.01)


def test_a_frame_sees_nothing_after_itself() -> None:
    samples = tone(1000)
    changed = samples.copy()
    changed[10 * 160 :] = 0.0
    before = slice(0, 10)
    assert np.array_equal(
        BandSpectrum().push(samples)[before], BandSpectrum().push(changed)[before]
    )


def test_parts_of_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="161 samples"):
        BandSpectrum().push(np.zeros(161, np.float32))
