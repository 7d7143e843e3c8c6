from __future__ import annotations

from typing import TYPE_CHECKING

import soundfile  # noqa: F401  loads before matplotlib, as in the benchmarks

from benchmarks.digit_plots import plot_digits
from tests.benchmarks.test_bench_digit_hour import made, right

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_becomes_a_picture(tmp_path: Path) -> None:
    run = made()
    plot_digits(run, right(run), tmp_path / "digits.png")
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
