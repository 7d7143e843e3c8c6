"""The speech that retention is measured on: named sets of clips, each with its true text.

Everything is made from real recordings and fixed seeds, so two runs hear the same samples.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.digit_streams import StreamPlan, bank_of_test_takes, digit_stream
from benchmarks.measures import Errors, errors
from benchmarks.recordings import SAMPLES_PER_MS, Recording, read_manifest
from tools.digits_data import Conditions, string_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.recordings import FloatArray

DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
N_TEST_TAKES = 5  # of each speaker and digit; the others are for calibration and training
MAX_CLIP_MS = 26_000  # with 2 s of padding it fits Whisper's 30 s
NOISE_LEVELS_DB = (20, 10, 5)
_N_SHUFFLES = 3
_SPACED_LANGUAGES = ("en", "es", "de", "fr")
_LEAD_MS = 300
_WORD_PAUSE_MS = (150, 400)
_SENTENCE_PAUSE_MS = (300, 1500)
_N_STRINGS, _STRING_DIGITS = 30, 20
_STRING_CONDITIONS = Conditions(pauses_ms=(60.0, 200.0), long_pause_share=0.0)  # one segment
_N_STREAMS, _STREAM_MS = 15, 25_000
_STREAM_PLAN = StreamPlan(n_digits=(3, 9), gaps_ms=(300, 1500))


@dataclass(frozen=True, slots=True)
class Clip:
    """One thing to recognise.

    Attributes:
        name: Unique in its set.
        cluster: What it is resampled with: clips that share a recording are not independent.
        language: ISO 639-1 code its errors are counted in.
        told_language: What the recogniser is told, or None to have it detect the language.
        text: What is said.
        samples: Shape (n,), 16 kHz mono.
        spells_digits: Whether a numeral counts as the words of its digits.
    """

    name: str
    cluster: str
    language: str
    told_language: str | None
    text: str
    samples: FloatArray
    spells_digits: bool = False

    @property
    def duration_ms(self) -> int:
        """Length of the audio."""
        return len(self.samples) // SAMPLES_PER_MS

    def errors(self, heard: str) -> Errors:
        """Count the errors of what was heard."""
        return errors(self.text, spelled(heard) if self.spells_digits else heard, self.language)


def spelled(text: str) -> str:
    """Return a text with every numeral as the words of its digits."""
    return "".join(
        f" {DIGIT_WORDS[int(char)]} " if char.isascii() and char.isdigit() else char
        for char in text
    )


def read_speech(name: str, manifest: Path) -> list[Clip]:
    """Return the clips of a set.

    Args:
        name: One of ``SPEECH_NAMES``.
        manifest: The recordings; the digits lie in a folder beside it.

    Raises:
        SystemExit: There is no such set, or its recordings are missing.
    """
    maker = _SETS.get(name)
    if maker is None:
        raise SystemExit(f"There is no speech {name!r}. Use one of {', '.join(SPEECH_NAMES)}.")
    return list(maker(manifest))


def _english(manifest: Path) -> Iterator[Clip]:
    for recording in _in_languages(manifest, ["en"]):
        yield _clip(recording)


def _languages(manifest: Path) -> Iterator[Clip]:
    for recording in read_manifest(manifest):
        if recording.language != "en":
            yield _clip(recording)


def _pauses(manifest: Path) -> Iterator[Clip]:
    """English recordings in other orders, with pauses between them."""
    for shuffle in range(_N_SHUFFLES):
        for name, group in _groups(_in_languages(manifest, ["en"]), shuffle):
            yield _joined(name, group, "en", "en")


def _mixed(manifest: Path) -> Iterator[Clip]:
    """Recordings of four languages after one another; the recogniser has to follow."""
    for shuffle in range(_N_SHUFFLES):
        for name, group in _groups(_in_languages(manifest, _SPACED_LANGUAGES), shuffle):
            yield _joined(name, group, "en", None)


def _digits(manifest: Path) -> Iterator[Clip]:
    """Ten digits of one speaker in random order, every test take once."""
    folder = manifest.parent / "digits"
    speakers = sorted({path.stem.split("_")[1] for path in folder.glob("0_*.wav")})
    if not speakers:
        raise SystemExit(f"There are no digits in {folder}.")
    for speaker in speakers:
        for take in range(N_TEST_TAKES):
            name = f"digits/{speaker}-{take}"
            chance = _chance(name)
            order = chance.permutation(10)
            takes = [
                Recording(name, folder / f"{digit}_{speaker}_{take}.wav", "en", DIGIT_WORDS[digit])
                for digit in order
            ]
            yield Clip(
                name=name,
                cluster=name,
                language="en",
                told_language="en",
                text=" ".join(one.text for one in takes),
                samples=_with_pauses([one.samples() for one in takes], _WORD_PAUSE_MS, chance),
                spells_digits=True,
            )


def _digit_strings(manifest: Path) -> Iterator[Clip]:
    """Twenty digits with short pauses, so that all of a string is one segment."""
    bank = bank_of_test_takes(manifest.parent / "digits")
    for number in range(_N_STRINGS):
        name = f"digit-strings/{number}"
        spoken = string_of(_chance(name), bank, _STRING_DIGITS, _STRING_CONDITIONS)
        text = " ".join(DIGIT_WORDS[digit] for digit in spoken.digits)
        yield _spelled_clip(name, text, spoken.samples)


def _digit_streams(manifest: Path) -> Iterator[Clip]:
    """Several strings with pauses between them, so that a stream has several segments."""
    bank = bank_of_test_takes(manifest.parent / "digits")
    for number in range(_N_STREAMS):
        stream = digit_stream(bank, _STREAM_MS, number, _STREAM_PLAN)
        text = " ".join(string.text for string in stream.strings)
        yield _spelled_clip(f"digit-streams/{number}", text, stream.samples)


def _spelled_clip(name: str, text: str, samples: FloatArray) -> Clip:
    return Clip(name, name, "en", "en", text, samples, spells_digits=True)


def noisy(clip: Clip, snr_db: float) -> Clip:
    """Return a clip with white noise, at a level in dB under its root mean square."""
    noise = _chance(f"noise/{clip.name}").standard_normal(len(clip.samples))
    level = float(np.sqrt(np.mean(np.square(clip.samples)))) * 10 ** (-snr_db / 20)
    samples = (clip.samples + level * noise).astype(np.float32)
    return Clip(
        f"{clip.name}@{snr_db:g}dB",
        clip.cluster,
        clip.language,
        clip.told_language,
        clip.text,
        samples,
        clip.spells_digits,
    )


def _noise_set(snr_db: int) -> Callable[[Path], Iterator[Clip]]:
    return lambda manifest: (noisy(clip, snr_db) for clip in _english(manifest))


def _in_languages(manifest: Path, languages: Sequence[str]) -> list[Recording]:
    return [one for one in read_manifest(manifest) if one.language in languages]


def _clip(recording: Recording) -> Clip:
    return Clip(
        recording.name,
        recording.name,
        recording.language,
        recording.language,
        recording.text,
        recording.samples(),
    )


def _groups(recordings: list[Recording], shuffle: int) -> Iterator[tuple[str, list[Recording]]]:
    """Shuffle recordings and cut the row into groups that fit a clip."""
    order = _chance(f"shuffle/{shuffle}").permutation(len(recordings))
    group: list[Recording] = []
    length_ms, number = 0.0, 0
    for recording in (recordings[i] for i in order):
        own_ms = len(recording.samples()) / SAMPLES_PER_MS + _SENTENCE_PAUSE_MS[1]
        if group and length_ms + own_ms > MAX_CLIP_MS - _LEAD_MS:
            yield f"joined/{shuffle}-{number}", group
            group, length_ms, number = [], 0.0, number + 1
        group.append(recording)
        length_ms += own_ms
    if len(group) > 1:
        yield f"joined/{shuffle}-{number}", group


def _joined(name: str, group: list[Recording], language: str, told: str | None) -> Clip:
    samples = _with_pauses([one.samples() for one in group], _SENTENCE_PAUSE_MS, _chance(name))
    text = " ".join(one.text for one in group)
    return Clip(name, name, language, told, text, samples)


def _with_pauses(
    parts: Sequence[FloatArray], pause_ms: tuple[int, int], chance: np.random.Generator
) -> FloatArray:
    """Return parts with faint noise before and between them."""
    joined: list[FloatArray] = []
    for i, part in enumerate(parts):
        gap_ms = _LEAD_MS if i == 0 else int(chance.integers(*pause_ms))
        joined += [chance.normal(0.0, 3e-4, gap_ms * SAMPLES_PER_MS).astype(np.float32), part]
    return np.concatenate(joined)


def _chance(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(json.dumps(name).encode()))


_SETS: dict[str, Callable[[Path], Iterator[Clip]]] = {
    "english": _english,
    "pauses": _pauses,
    **{f"noise{snr_db}": _noise_set(snr_db) for snr_db in NOISE_LEVELS_DB},
    "digits": _digits,
    "digit-strings": _digit_strings,
    "digit-streams": _digit_streams,
    "languages": _languages,
    "mixed": _mixed,
}
SPEECH_NAMES = tuple(_SETS)
