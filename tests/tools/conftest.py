"""Stand-ins for the spoken digits: one tone a digit, two speakers, a test and a training take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from tools.digits_data import DigitBank, load_recordings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of 300 ms tones at 8 kHz, named as the data set names its digits."""
    folder = tmp_path_factory.mktemp("tones")
    at = np.arange(2400) / 8000.0
    for digit in range(10):
        for speaker, level in (("ann", 0.3), ("bob", 0.5)):
            for take in (0, 4, 5, 12):
                tone = level * np.sin(2 * np.pi * (300 + 200 * digit + take) * at)
                soundfile.write(folder / f"{digit}_{speaker}_{take}.wav", tone, 8000)
    return folder


@pytest.fixture(scope="session")
def bank(tones: Path) -> DigitBank:
    return DigitBank(load_recordings(tones, is_test=False))
