from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from benchmarks.measures import final_text
from benchmarks.recordings import Recording
from benchmarks.telephone import ECHO_KNOWN, Row, judge, measure_echo
from benchmarks.telephone_conditions import utterances
from benchmarks.telephone_legs import TwoLegListener
from tests.server.doubles import LoudnessDetector
from tests.server.telephony.tone_words import ToneRecognizer, tone_words, word_name

if TYPE_CHECKING:
    from pathlib import Path


def recordings(folder: Path) -> list[Recording]:
    """Return two recordings of two tone words each."""
    found = []
    for n in range(2):
        path = folder / f"{n}.wav"
        soundfile.write(path, 3 * tone_words(30 * n, 2), 16_000)  # its echo is a voice too
        text = f"{word_name(30 * n)} {word_name(30 * n + 1)}"
        found.append(Recording(f"{n}", path, "en", text))
    return found


def test_the_near_side_has_its_words_and_none_of_the_echo(tmp_path: Path) -> None:
    spoken = recordings(tmp_path)
    row = measure_echo(TwoLegListener(ToneRecognizer(), LoudnessDetector), spoken, "default")
    assert row.total.total == 0
    assert row.texts == {one.name: one.text for one in spoken}
    assert [v.is_met for v in judge({ECHO_KNOWN: row})] == [True]
    assert not judge({ECHO_KNOWN: Row({}, {}, {"0": ["x"]})})[0].is_met


def test_without_the_other_side_there_is_nothing_to_tell_an_echo_by(tmp_path: Path) -> None:
    utterance = utterances(recordings(tmp_path))[0]
    alone = replace(utterance, other=np.zeros_like(utterance.other))
    legs = TwoLegListener(ToneRecognizer(), LoudnessDetector)
    assert final_text(legs.near_side(alone)) == utterance.recording.text
