from __future__ import annotations

import json

import numpy as np

from audiokv.server.wire import pack
from benchmarks.budget_parts import Known
from benchmarks.budget_transport import (
    display_part,
    frame_part,
    handover_part,
    listening_part,
    long_caption,
    packing_part,
    wire_parts,
)
from benchmarks.recordings import to_pcm
from tests.server.doubles import LoudnessDetector


def test_a_frame_is_waited_for_half_of_it_on_the_mean() -> None:
    part = frame_part()
    assert (part.typical_ms, part.worst_ms, part.known) == (5.0, 10.0, Known.RULE)


def test_the_screen_is_an_assumption_and_says_so() -> None:
    part = display_part()
    assert part.known is Known.ASSUMED
    assert 0 < part.typical_ms < part.worst_ms < 17
    assert "60 pictures" in part.note


def test_the_wire_is_measured_both_ways() -> None:
    frame, caption = wire_parts()
    for part in (frame, caption):
        assert part.known is Known.MEASURED
        assert 0 < part.typical_ms <= part.worst_ms < 1000
    assert frame.name != caption.name


def test_threads_framing_and_packing_are_measured() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 8000).astype(np.float32)
    for part in (
        handover_part(),
        listening_part(LoudnessDetector(), to_pcm(noise)),
        packing_part(),
    ):
        assert part.known is Known.MEASURED
        assert 0 < part.typical_ms <= part.worst_ms < 1000


def test_the_caption_is_one_a_client_could_get() -> None:
    message = json.loads(pack(long_caption()))
    assert message["type"] == "caption"
    assert len(message["words"]) == len(message["text"].split()) == 30
