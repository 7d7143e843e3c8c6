"""Strings of spoken digits, pasted from single recordings: waveform, words and their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import samplerate
import soundfile

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

N_TEST_TAKES = 5  # takes 0 to 4 of each speaker and digit are never trained on
_PER_MS = SAMPLE_RATE_HZ / 1000.0
_MARGIN_MS = 300.0  # silence around a string of a given length
_LATEST_START_MS = 600.0
_NARROW_BAND_HZ = 4000.0
_UNEVEN_DB = 4.0  # how much louder or softer one digit is than the recording
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Recording:
    """One spoken digit at 16 kHz, its band still that of 8 kHz."""

    digit: int
    speaker: str
    samples: FloatArray


@dataclass(frozen=True)
class Conditions:
    """What a string sounds like.

    Attributes:
        pauses_ms: Shortest and longest usual pause between two digits.
        long_pause_share: Share of pauses that are drawn from up to ``long_pause_ms`` instead.
        long_pause_ms: Longest pause.
        snr_db: Range of the noise's level below the speech; drawn evenly.
        quiet_share: Share of strings without any added noise: digital silence in the pauses.
        gain_db: Range of the level of a whole string.
        tilt_db: Largest slope of the colouring of a whole string, over 0 to 4 kHz.
    """

    pauses_ms: tuple[float, float] = (60.0, 500.0)
    long_pause_share: float = 0.1
    long_pause_ms: float = 1500.0
    snr_db: tuple[float, float] = (12.0, 45.0)
    quiet_share: float = 0.3
    gain_db: tuple[float, float] = (-12.0, 6.0)
    tilt_db: float = 8.0


@dataclass(frozen=True)
class SpokenString:
    """A pasted string.

    Attributes:
        samples: Shape (n,), float32, 16 kHz.
        digits: The spoken digits, in order.
        start_ms: Where each digit's recording starts.
        end_ms: Where it ends.
    """

    samples: FloatArray
    digits: tuple[int, ...]
    start_ms: tuple[float, ...]
    end_ms: tuple[float, ...]


class DigitBank:
    """Recordings of one split, found by digit and speaker.

    Args:
        recordings: At least one of each digit.
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._by_digit: list[list[Recording]] = [
            [one for one in recordings if one.digit == digit] for digit in range(len(WORDS))
        ]
        if not all(self._by_digit):
            raise ValueError("A bank needs at least one recording of each digit.")
        self._by_both = {
            (one.digit, one.speaker): [
                other for other in self._by_digit[one.digit] if other.speaker == one.speaker
            ]
            for one in recordings
        }
        self.speakers = sorted({one.speaker for one in recordings})

    def draw(self, rng: np.random.Generator, digit: int, speaker: str | None) -> Recording:
        """Return one recording of a digit, by one speaker or by any."""
        pool = self._by_digit[digit]
        if speaker is not None:
            pool = self._by_both.get((digit, speaker), pool)
        return pool[int(rng.integers(len(pool)))]


def load_recordings(
    folder: Path, *, is_test: bool, speeds: Sequence[float] = (1.0,)
) -> list[Recording]:
    """Read one split of the Free Spoken Digit Dataset.

    Args:
        folder: Holds ``{digit}_{speaker}_{take}.wav``, 8 kHz.
        is_test: Takes 0 to 4; else all the others.
        speeds: Each recording comes once at each of these speeds (1.1 is faster and higher).

    Raises:
        FileNotFoundError: No recording of the split is in the folder.
    """
    recordings = []
    for path in sorted(folder.glob("*_*_*.wav")):
        digit, speaker, take = path.stem.split("_")
        if (int(take) < N_TEST_TAKES) != is_test:
            continue
        samples, rate_hz = soundfile.read(path, dtype="float32")
        for speed in speeds:
            ratio = SAMPLE_RATE_HZ / rate_hz / speed
            resampled = samplerate.resample(samples, ratio, "sinc_fastest")
            recordings.append(Recording(int(digit), speaker, resampled.astype(np.float32)))
    if not recordings:
        raise FileNotFoundError(f"{folder} holds no {{digit}}_{{speaker}}_{{take}}.wav.")
    return recordings


def _pause_ms(rng: np.random.Generator, conditions: Conditions) -> float:
    if rng.random() < conditions.long_pause_share:
        return float(rng.uniform(conditions.pauses_ms[1], conditions.long_pause_ms))
    # Paces differ between strings and within them; short pauses are as common as long ones.
    return float(rng.uniform(*conditions.pauses_ms))


def _coloured(rng: np.random.Generator, samples: FloatArray, tilt_db: float) -> FloatArray:
    """Return the samples with their spectrum tilted, as another microphone would."""
    slope_db = rng.uniform(-tilt_db, tilt_db)
    spectrum = np.fft.rfft(samples, _fast_length(len(samples)))
    share = np.linspace(0.0, 2.0, len(spectrum), dtype=np.float32).clip(max=1.0)
    spectrum *= 10.0 ** (slope_db * (share - 0.5) / 20.0)
    return np.fft.irfft(spectrum)[: len(samples)].astype(np.float32)


def _fast_length(n_samples: int) -> int:
    """Return the next power of two: a transform of any other length can take seconds."""
    return 1 << (n_samples - 1).bit_length()


def noise(rng: np.random.Generator, n_samples: int) -> FloatArray:
    """Return white to brownish noise of mean square 1, full band or only up to 4 kHz."""
    white = rng.standard_normal(_fast_length(n_samples), dtype=np.float32)
    spectrum = np.fft.rfft(white)
    hz = np.linspace(1.0, SAMPLE_RATE_HZ / 2, len(spectrum))
    spectrum *= np.maximum(hz, 100.0) ** -rng.uniform(0.0, 1.0)
    if rng.random() < 0.5:  # noqa: PLR2004  half the strings: the noise came before 8 kHz sampling
        spectrum[hz > _NARROW_BAND_HZ] = 0.0
    made: FloatArray = np.fft.irfft(spectrum)[:n_samples].astype(np.float32)
    made /= np.sqrt(np.mean(made**2))
    return made


def speech_level(samples: FloatArray) -> float:
    """Return the root mean square of the louder parts, 0.1 where all is silent."""
    loud = np.abs(samples) > np.abs(samples).max() * 0.05
    return float(np.sqrt(np.mean(samples[loud] ** 2))) if loud.any() else 0.1


def _room(rng: np.random.Generator, mixed: FloatArray, conditions: Conditions) -> FloatArray:
    """Return a string with colouring, noise and level of its own."""
    if conditions.tilt_db > 0.0:
        mixed = _coloured(rng, mixed, conditions.tilt_db)
    is_quiet = rng.random() < conditions.quiet_share
    if not is_quiet:
        level = speech_level(mixed)
        snr_db = rng.uniform(*conditions.snr_db)
        mixed = mixed + noise(rng, len(mixed)) * level * 10.0 ** (-snr_db / 20.0)
    gain = 10.0 ** (rng.uniform(*conditions.gain_db) / 20.0)
    heard: FloatArray = (mixed * gain).clip(-1.0, 1.0).astype(np.float32)
    return heard


def fill(
    rng: np.random.Generator, bank: DigitBank, n_samples: int, conditions: Conditions
) -> SpokenString:
    """Return a string of exactly ``n_samples`` with as many digits as fit.

    One string in four is left partly empty, so that long silence is heard too.
    """
    share = rng.uniform(0.2, 1.0) if rng.random() < 0.25 else 1.0  # noqa: PLR2004
    tape = _Tape(n_samples, rng.uniform(0.0, _LATEST_START_MS))
    speaker = _one_speaker_or_all(rng, bank)
    while True:
        digit = int(rng.integers(len(WORDS)))
        recording = bank.draw(rng, digit, speaker)
        if tape.at + len(recording.samples) > n_samples * share:
            return tape.finished(rng, conditions)
        tape.paste(rng, recording)
        tape.pause(_pause_ms(rng, conditions))


def string_of(
    rng: np.random.Generator, bank: DigitBank, n_digits: int, conditions: Conditions
) -> SpokenString:
    """Return a string of ``n_digits`` digits with 300 ms of room on both sides."""
    speaker = _one_speaker_or_all(rng, bank)
    drawn = [bank.draw(rng, int(rng.integers(len(WORDS))), speaker) for _ in range(n_digits)]
    pauses_ms = [_pause_ms(rng, conditions) for _ in drawn[1:]]
    n_silent = 2 * round(_MARGIN_MS * _PER_MS) + sum(round(one * _PER_MS) for one in pauses_ms)
    tape = _Tape(n_silent + sum(len(one.samples) for one in drawn), _MARGIN_MS)
    for one, pause_ms in zip(drawn, [*pauses_ms, 0.0], strict=True):
        tape.paste(rng, one)
        tape.pause(pause_ms)
    return tape.finished(rng, conditions)


def _one_speaker_or_all(rng: np.random.Generator, bank: DigitBank) -> str | None:
    if rng.random() < 0.5:  # noqa: PLR2004  half the strings have one speaker
        return bank.speakers[int(rng.integers(len(bank.speakers)))]
    return None


class _Tape:
    """Silence that recordings are pasted into, one after the other."""

    def __init__(self, n_samples: int, start_ms: float) -> None:
        self.at = round(start_ms * _PER_MS)
        self._mixed = np.zeros(n_samples, np.float32)
        self._digits: list[int] = []
        self._start_ms: list[float] = []
        self._end_ms: list[float] = []

    def paste(self, rng: np.random.Generator, recording: Recording) -> None:
        """Add a recording, some dB louder or softer than the last."""
        end = self.at + len(recording.samples)
        level = 10.0 ** (rng.uniform(-_UNEVEN_DB, _UNEVEN_DB) / 20.0)
        self._mixed[self.at : end] += recording.samples * level
        self._digits.append(recording.digit)
        self._start_ms.append(self.at / _PER_MS)
        self._end_ms.append(end / _PER_MS)
        self.at = end

    def pause(self, pause_ms: float) -> None:
        """Leave silence before the next recording."""
        self.at += round(pause_ms * _PER_MS)

    def finished(self, rng: np.random.Generator, conditions: Conditions) -> SpokenString:
        """Return everything pasted, as it sounds under the conditions."""
        return SpokenString(
            _room(rng, self._mixed, conditions),
            tuple(self._digits),
            tuple(self._start_ms),
            tuple(self._end_ms),
        )
