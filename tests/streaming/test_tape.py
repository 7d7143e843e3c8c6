from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.tape import Tape


@given(st.lists(st.integers(0, 100), max_size=20))
def test_any_stretch_that_is_kept_reads_as_it_was_written(lengths: list[int]) -> None:
    tape = Tape(kept_ms=5)
    written = np.arange(sum(lengths), dtype=np.float32)
    done = 0
    for length in lengths:
        tape.append(written[done : done + length])
        done += length
    end_ms = done // 16
    for from_ms in range(tape.start_ms, end_ms):
        read = tape.read(from_ms, end_ms)
        assert read.tolist() == written[from_ms * 16 : end_ms * 16].tolist()


def test_keeps_no_more_than_asked_and_names_what_is_gone() -> None:
    tape = Tape(kept_ms=10)
    tape.append(np.zeros(16 * 25, dtype=np.float32))
    assert tape.start_ms == 15
    assert tape.read(15, 25).size == 160
    with pytest.raises(ValueError, match="14 ms"):
        tape.read(14, 25)
