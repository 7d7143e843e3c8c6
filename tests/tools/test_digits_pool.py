from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tools.digits_mel import LogMel
from tools.digits_pool import MelPool, Spoken, cut_window, make_extractor, make_pool, sounding

if TYPE_CHECKING:
    from pathlib import Path

    from tools.digits_data import DigitBank

SILENCE = 10


def numbered(n_frames: int = 160) -> MelPool:
    """A pool whose frames hold their own number, and whose digits last 200 ms each 400 ms."""
    mel = torch.arange(n_frames).repeat(128, 1).T[None].half()
    starts = tuple(100.0 + 400.0 * at for at in range(4))
    spoken = Spoken((1, 2, 3, 4), starts, tuple(start + 200.0 for start in starts))
    return MelPool(mel, [spoken])


def test_a_pool_is_made_once_for_its_seed(bank: DigitBank, tmp_path: Path) -> None:
    mel = LogMel(make_extractor(0, bank))
    first = make_pool(0, bank, mel, 2, tmp_path / "pool.pt")
    assert first.mel.shape == (2, 188 * 16, 128)
    kept = make_pool(0, bank, mel, 2, tmp_path / "pool.pt")
    anew = make_pool(0, bank, mel, 2, tmp_path / "other.pt")
    different = make_pool(1, bank, mel, 2, tmp_path / "third.pt")
    assert kept.spoken == first.spoken == anew.spoken != different.spoken
    assert torch.equal(kept.mel, first.mel)
    assert torch.equal(anew.mel, first.mel)


def test_a_window_has_its_length_and_the_digits_heard_in_it() -> None:
    rng = np.random.default_rng(0)
    pool = numbered()
    for _ in range(50):
        window = cut_window(rng, pool, 5)
        assert window.mel.shape == (80, 128)
        first_ms = float(window.mel[0, 0]) * 10.0
        heard = zip(pool.spoken[0].digits, pool.spoken[0].start_ms, strict=True)
        expected = [
            digit
            for digit, start in heard
            if first_ms <= start + 60 and start + 160 <= first_ms + 800
        ]
        assert list(window.digits) == expected
        assert all(start + first_ms in pool.spoken[0].start_ms for start in window.start_ms)


def test_windows_begin_at_the_start_of_the_string_and_elsewhere() -> None:
    rng = np.random.default_rng(0)
    firsts = [float(cut_window(rng, numbered(), 5).mel[0, 0]) for _ in range(60)]
    assert 5 < firsts.count(0.0) < 30
    assert max(firsts) > 60


def test_a_window_of_silence_has_no_digits() -> None:
    silent = MelPool(torch.zeros(1, 160, 128).half(), [Spoken((), (), ())])
    assert cut_window(np.random.default_rng(0), silent, 5).digits == ()


@pytest.mark.parametrize(("n_slots", "expected"), [(6, [10, 7, 7, 10, 10, 10]), (2, [10, 7])])
def test_the_sounding_digit_of_each_slot(n_slots: int, expected: list[int]) -> None:
    said = Spoken((7,), (100.0,), (400.0,))
    window = cut_window(
        np.random.default_rng(0), MelPool(torch.zeros(1, 96, 128).half(), [said]), 6
    )
    assert sounding(window, n_slots, SILENCE).tolist() == expected
