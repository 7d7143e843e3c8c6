"""What speech goes through on its way to the telephone line, each condition a row of the table."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS, SAMPLE_RATE_HZ
from benchmarks.recordings import SAMPLES_PER_MS, near_silence, to_pcm
from benchmarks.sounds import white_noise
from benchmarks.telephone_call import received
from benchmarks.telephone_line import BAD_NETWORK, PACKET_MS, Leg, Network, Sent
from benchmarks.virtual_stream import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.recordings import FloatArray, Recording

LEAD_MS = 1_500  # of near-silence before the speech
TAIL_MS = 2_000  # and behind it
LOW_LEVEL_DB = -30.0
NOISE_DBFS = -50.0
ECHO_DB = -25.0
ECHO_DELAY_MS = 120
COMFORT_NOISE_TYPE = 13  # RFC 3389
_DTMF_HZ = ((697, 770, 852, 941), (1_209, 1_336, 1_477, 1_633))  # ITU-T Q.23
_DTMF_KEYS = "123A456B789C*0#D"
_TONE_MS, _TONE_PAUSE_MS, _TONE_AMPLITUDE = 100, 100, 0.2
_DIGITS = "4071#"
_SILENCE_RANGE_DB = 35.0  # packets this much under the loud ones are silence
_HANGOVER_PACKETS = 10


@dataclass(frozen=True, slots=True)
class Utterance:
    """A recording between near-silence, and what the other side says meanwhile.

    Attributes:
        recording: What is said.
        samples: Shape (n,), 16 kHz mono.
        other: What the other side says, as long.
    """

    recording: Recording
    samples: FloatArray
    other: FloatArray

    @property
    def speech_ms(self) -> tuple[int, int]:
        """Where the recording begins and ends."""
        return LEAD_MS, len(self.samples) // SAMPLES_PER_MS - TAIL_MS


def utterances(recordings: Sequence[Recording]) -> list[Utterance]:
    """Return each recording as an utterance; the one after it is what the other side says."""
    spoken = [recording.samples() for recording in recordings]
    found = []
    for i, recording in enumerate(recordings):
        lead = near_silence(LEAD_MS * SAMPLES_PER_MS, 2 * i)
        tail = near_silence(TAIL_MS * SAMPLES_PER_MS, 2 * i + 1)
        samples = np.concatenate([lead, spoken[i], tail])
        other = np.resize(spoken[(i + 1) % len(spoken)], len(samples))
        found.append(Utterance(recording, samples, other.astype(np.float32)))
    return found


def key_tones(keys: str) -> FloatArray:
    """Return the tones of keys pressed one after another (DTMF)."""
    at_s = np.arange(_TONE_MS * SAMPLES_PER_MS) / SAMPLE_RATE_HZ
    pause = np.zeros(_TONE_PAUSE_MS * SAMPLES_PER_MS, np.float32)
    parts: list[FloatArray] = []
    for key in keys:
        row, column = divmod(_DTMF_KEYS.index(key), len(_DTMF_HZ[1]))
        both = np.sin(2 * np.pi * _DTMF_HZ[0][row] * at_s)
        both += np.sin(2 * np.pi * _DTMF_HZ[1][column] * at_s)
        parts += [(_TONE_AMPLITUDE * both).astype(np.float32), pause]
    return np.concatenate(parts)


def amplified(samples: FloatArray, gain_db: float) -> FloatArray:
    """Return samples louder or softer."""
    return (samples * 10 ** (gain_db / 20)).astype(np.float32)


def _quiet(utterance: Utterance) -> FloatArray:
    return amplified(utterance.samples, LOW_LEVEL_DB)


def _noisy(utterance: Utterance) -> FloatArray:
    return utterance.samples + white_noise(len(utterance.samples), NOISE_DBFS)


def echoing(utterance: Utterance) -> FloatArray:
    """Return the speech with the other side's echo in it."""
    delay = np.zeros(ECHO_DELAY_MS * SAMPLES_PER_MS, np.float32)
    echo = np.concatenate([delay, utterance.other])[: len(utterance.samples)]
    return utterance.samples + amplified(echo, ECHO_DB)


def _keyed(utterance: Utterance) -> FloatArray:
    """Press keys before and after the speech."""
    tones = key_tones(_DIGITS)
    keyed = utterance.samples.copy()
    _, end_ms = utterance.speech_ms
    after = (end_ms + 500) * SAMPLES_PER_MS
    for first in (100 * SAMPLES_PER_MS, after):
        keyed[first : first + len(tones)] += tones
    return keyed


def suppressed(sent: Sequence[Sent], samples: FloatArray) -> list[Sent]:
    """Return what a sender sends that suppresses silence: comfort noise instead (RFC 3389).

    Args:
        sent: All packets.
        samples: What they carry, 16 kHz mono.
    """
    n_packet = PACKET_MS * SAMPLES_PER_MS
    padded = np.resize(np.append(samples, np.zeros(n_packet)), len(sent) * n_packet)
    levels = np.sqrt(np.square(padded.reshape(-1, n_packet)).mean(axis=1))
    is_loud = levels > np.percentile(levels, 95) * 10 ** (-_SILENCE_RANGE_DB / 20)
    kept: list[Sent] = []
    n_quiet = 0
    for one, loud in zip(sent, is_loud, strict=True):
        n_quiet = 0 if loud else n_quiet + 1
        if n_quiet <= _HANGOVER_PACKETS:
            kept.append(one)
        elif n_quiet == _HANGOVER_PACKETS + 1:
            head = bytes([one.data[0], COMFORT_NOISE_TYPE])
            kept.append(Sent(one.at_ms, head + one.data[2:12] + b"\x32"))
    return kept


def _wide(utterance: Utterance) -> Iterable[Piece]:
    """Return the audio as a microphone at the server has it."""
    audio = to_pcm(utterance.samples)
    n_bytes = 2 * FRAME_MS * SAMPLES_PER_MS
    return [
        Piece(FRAME_MS * (n + 1.0), audio[first : first + n_bytes])
        for n, first in enumerate(range(0, len(audio), n_bytes))
    ]


def _called(
    utterance: Utterance,
    *,
    encoding: str = "pcmu",
    heard: Callable[[Utterance], FloatArray] = lambda utterance: utterance.samples,
    network: Network | None = None,
    suppresses: bool = False,
) -> Iterable[Piece]:
    """Return the audio as the server has it from a telephone."""
    samples = heard(utterance)
    sent = Leg(encoding).send(samples)
    if suppresses:
        sent = suppressed(sent, samples)
    chance = np.random.default_rng(zlib.crc32(utterance.recording.name.encode()))
    return received((network or Network()).carry(sent, chance))


WIDE = "16 kHz"
MULAW = "mu-law 8 kHz"
ECHO = "mu-law, echo at -25 dB"
KEYS = "mu-law, keys pressed in pauses"
CONDITIONS: Mapping[str, Callable[[Utterance], Iterable[Piece]]] = {
    WIDE: _wide,
    MULAW: _called,
    "G.722": partial(_called, encoding="g722"),
    "Opus": partial(_called, encoding="opus"),
    "mu-law, 30 dB softer": partial(_called, heard=_quiet),
    "mu-law, 5 % lost, 60 ms jitter": partial(_called, network=BAD_NETWORK),
    "mu-law, noise at -50 dBFS": partial(_called, heard=_noisy),
    "mu-law, silence suppressed": partial(_called, suppresses=True),
    ECHO: partial(_called, heard=echoing),
    KEYS: partial(_called, heard=_keyed),
}
