from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from benchmarks.recordings import Recording
from benchmarks.telephone_conditions import utterances
from benchmarks.telephone_preset import (
    NO_BOUND_SLOTS,
    PresetRunner,
    parse_arguments,
    row_name,
)
from tests.server.doubles import LoudnessDetector
from tests.server.telephony.tone_words import ToneRecognizer, ToneStream, tone_words, word_name

if TYPE_CHECKING:
    from pathlib import Path

    from audiokv.models.base import StreamOptions
    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.captions import Word


class _Bounded(ToneRecognizer):
    """Hears nothing in a small budget, unless the preset is that of telephony."""

    opened: list[tuple[int, str]]

    def __init__(self, budget_slots: int, opened: list[tuple[int, str]]) -> None:
        super().__init__()
        self._budget_slots = budget_slots
        self.opened = opened

    def open_stream(self, options: StreamOptions) -> ToneStream:
        self.opened.append((self._budget_slots, options.profile))
        stream = _BoundedStream(options)
        stream.is_deaf = self._budget_slots < 15 and options.profile == "default"
        return stream


class _BoundedStream(ToneStream):
    is_deaf = False

    @property
    def is_bounded(self) -> bool:
        return True

    def cache_counters(self) -> CacheCounters | None:
        return super().cache_counters()  # the double says that it holds 90 slots

    def hear(self) -> tuple[Word, ...]:
        heard = super().hear()
        if self.is_deaf:
            self.words = ()
            return ()
        return heard


def test_each_preset_is_heard_under_each_budget(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, tone_words(3, 1), 16_000)
    spoken = utterances([Recording("a", path, "en", word_name(3))])
    opened: list[tuple[int, str]] = []
    runner = PresetRunner(lambda slots: _Bounded(slots, opened), LoudnessDetector)
    found = runner.table(spoken, ["default", "telephony"], [20, 10])
    assert opened == [
        (NO_BOUND_SLOTS, "default"),
        (18, "default"),
        (18, "telephony"),
        (9, "default"),
        (9, "telephony"),
    ]
    n_wrong = {row: counted["a"].total for row, counted in found.items()}
    assert n_wrong == {
        "full": 0,
        "20 %, default": 0,
        "20 %, telephony": 0,
        "10 %, default": 1,
        "10 %, telephony": 0,
    }
    assert row_name(20, "default") in found


def test_the_command_line() -> None:
    args = parse_arguments(["--retention", "40", "--profiles", "noisy"])
    assert (args.retention, args.profiles) == ([40], ["noisy"])
    with pytest.raises(SystemExit):
        parse_arguments(["--profiles", "unknown"])
    assert np.all(np.array(parse_arguments([]).retention) == (20, 10))
