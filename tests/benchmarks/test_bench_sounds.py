from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sounds import SOUNDS, digital_silence, hold_tone, music, ringing_tone, white_noise


@pytest.mark.parametrize("name", SOUNDS)
def test_every_sound_is_audio_of_the_length_asked_for(name: str) -> None:
    sound = SOUNDS[name](50_000)
    assert sound.dtype == np.float32
    assert sound.shape == (50_000,)
    assert np.abs(sound).max() <= 1.5  # loud noise may clip on the wire
    assert np.array_equal(sound, SOUNDS[name](50_000))


def test_noise_has_its_level() -> None:
    for level_dbfs in (-60.0, -26.0):
        rms = np.sqrt(np.mean(np.square(white_noise(160_000, level_dbfs))))
        assert abs(20 * np.log10(rms) - level_dbfs) < 0.1
    assert not digital_silence(100).any()


def test_tones_come_and_go() -> None:
    hold = hold_tone(5 * 16_000)
    assert np.abs(hold[: 16 * 400]).max() > 0.2
    assert not hold[16 * 410 : 16 * 590].any()
    assert np.abs(hold[16 * 610 : 16 * 990]).max() > 0.2
    assert not hold[16 * 1010 :].any()
    ringing = ringing_tone(6 * 16_000)
    assert np.abs(ringing[:32_000]).max() > 0.2
    assert not ringing[32_100:].any()


def test_music_sounds_all_the_time() -> None:
    seconds = music(10 * 16_000).reshape(10, -1)
    assert (np.sqrt(np.mean(np.square(seconds), axis=1)) > 0.03).all()
