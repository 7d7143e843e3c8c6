from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from audiokv.models.base import StreamOptions
from audiokv.server.telephony.rtp_packet import RtpPacket
from benchmarks.mixed_stream import MixedStream, Spoken
from benchmarks.recordings import Recording
from benchmarks.telephone_call import received
from benchmarks.telephone_line import BAD_NETWORK, without
from benchmarks.telephone_network import (
    DEAD_MS,
    LEGS,
    Alone,
    alone,
    dead_from_ms,
    report,
    sent_in_turns,
    shifts_ms,
)
from benchmarks.virtual_stream import VirtualListener
from tests.benchmarks.making import words
from tests.server.doubles import LoudnessDetector
from tests.server.telephony.tone_words import ToneRecognizer, tone_words, word_name

N_WORDS = 3
PAUSE_MS = 1_000


def a_recording(folder: Path, number: int) -> Recording:
    path = folder / f"{number}.wav"
    soundfile.write(path, tone_words(N_WORDS * number, N_WORDS), 16_000)
    text = " ".join(word_name(N_WORDS * number + n) for n in range(N_WORDS))
    return Recording(f"{number}", path, "en", text)


@pytest.fixture
def stream(tmp_path: Path) -> MixedStream:
    recordings = [a_recording(tmp_path, number) for number in range(20)]
    pieces, spoken = [], []
    for n, recording in enumerate(recordings):
        start_ms = n * (1_000 * N_WORDS + PAUSE_MS) + PAUSE_MS
        spoken.append(Spoken(recording, start_ms, start_ms + 1_000 * N_WORDS, PAUSE_MS))
        pieces += [np.zeros(16 * PAUSE_MS, np.float32), recording.samples()]
    return MixedStream(np.concatenate(pieces), tuple(spoken))


@pytest.fixture
def listener() -> VirtualListener:
    return VirtualListener(ToneRecognizer(), LoudnessDetector, compute_s=lambda: 0.0)


def test_every_leg_sends_its_share(stream: MixedStream) -> None:
    packets = [RtpPacket.parse(one.data) for one in sent_in_turns(stream.samples)]
    assert len(packets) == len(stream.samples) / 320
    types = [packet.payload_type for packet in packets]
    turns = [n for n in range(1, len(types)) if types[n] != types[n - 1]]
    assert turns == [n * len(packets) // len(LEGS) for n in range(1, len(LEGS))]
    second = turns[1] - 1
    assert packets[second + 1].timestamp == packets[second].timestamp + 160


def test_the_line_goes_dead_within_a_recording_of_the_second_half(stream: MixedStream) -> None:
    at_ms = dead_from_ms(stream.spoken)
    assert any(one.start_ms < at_ms < one.end_ms for one in stream.spoken)
    assert at_ms > stream.spoken[-1].end_ms / 2
    assert at_ms % 20 == 0
    assert dead_from_ms(stream.spoken[:1]) < stream.spoken[0].end_ms


def test_words_survive_a_bad_network_at_their_places(
    stream: MixedStream, listener: VirtualListener
) -> None:
    recordings = [one.recording for one in stream.spoken]
    expected = alone(listener, recordings)
    assert [one.text for one in expected.values()] == [one.text for one in recordings]
    dead_ms = dead_from_ms(stream.spoken)
    alive = without(sent_in_turns(stream.samples), dead_ms, dead_ms + DEAD_MS)
    arrived = BAD_NETWORK.carry(alive, np.random.default_rng(2))
    run = listener.listen_to(received(arrived), StreamOptions(language="en"))
    found = report(stream, run, expected, dead_ms)
    assert len(found.outcomes) == len(recordings) - 2  # the gap touches two
    verdicts = {verdict.target: verdict for verdict in found.verdicts()}
    assert all(verdict.is_met for verdict in verdicts.values())
    late = [[ms + 21 for ms in one] for one in found.shifts_ms]
    late_report = type(found)(found.outcomes, late, found.run)
    assert not late_report.verdicts()[0].is_met
    assert found.as_json()["errors"] == found.as_json()["errors_over_a_good_network"]


def test_shifts_are_those_of_the_words_that_are_alike() -> None:
    spoken = Spoken(Recording("x", Path("x"), "en", "a b c"), 5_000.0, 6_000.0, 0.0)
    expected = Alone("A, b c", (("a", 0.0), ("b", 100.0), ("c", 200.0)))
    heard = words("a x c", start_ms=5_010)
    assert shifts_ms(heard, spoken, expected) == [10.0, 10.0]
