from __future__ import annotations

import numpy as np
import pytest

from benchmarks.telephone_call import MISSING_AFTER_MS, heard, received
from benchmarks.telephone_line import ENCODINGS, Leg, Network, Sent, without

TONE = (0.3 * np.sin(2 * np.pi * 440 * np.arange(4 * 16_000) / 16_000)).astype(np.float32)


def came(sent: list[Sent]) -> list[Sent]:
    return Network().carry(sent, np.random.default_rng(1))


@pytest.mark.parametrize("name", ENCODINGS)
def test_all_that_is_sent_is_heard(name: str) -> None:
    samples = heard(came(Leg(name).send(TONE)))
    assert samples.shape == TONE.shape
    assert np.abs(np.abs(samples[8_000:-8_000]).max() - 0.3) < 0.03


def test_gaps_are_zeros_of_their_length_and_end_the_caption() -> None:
    arrived = came(without(Leg().send(TONE), 1_020, 3_520))
    samples = heard(arrived)
    assert samples.shape == TONE.shape
    assert not samples[16_000:56_000].any()
    (end,) = (piece for piece in received(arrived) if piece.finalizes)
    assert end.at_ms == 1_000 + 30 + MISSING_AFTER_MS


def test_a_shorter_gap_ends_no_caption() -> None:
    pieces = received(came(without(Leg().send(TONE), 1_020, 2_980)))
    assert not any(piece.finalizes for piece in pieces)


def test_audio_comes_when_its_packet_does() -> None:
    pieces = [piece for piece in received(came(Leg().send(TONE))) if piece.audio]
    assert [piece.at_ms for piece in pieces[:3]] == [50, 70, 90]
