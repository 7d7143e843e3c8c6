"""Speech for ``audiokv calibrate`` that no test is scored on: strings of digits, and meetings.

    python -m benchmarks.calibration_speech DIR && audiokv calibrate --audio DIR --out FILE

Digits are the takes of the training split, one speaker a string, with pauses between them, so that
the times of the words are known exactly. The meeting is the one excerpt of the training set in
which the model hears words clearly, cut in two, so that both halves of a calibration hear some.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import soundfile

from benchmarks.recordings import DEFAULT_MANIFEST

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
FIRST_TRAINING_TAKE = 5
N_TAKES = 50
DIGITS_A_STRING = 9
PAUSE_MS = (120, 450)
RATE_HZ = 8_000
MEETING = "trn09.wav"
N_MEETING_PARTS = 2


def write_calibration_speech(speech: Path, folder: Path, n_strings: int, seed: int = 0) -> None:
    """Write recordings and their manifest.

    Args:
        speech: Folder with ``digits`` and ``meeting``.
        folder: Where to write; made where it is missing.
        n_strings: Strings of digits, taken in turn from all speakers.
        seed: Chooses digits, takes and pauses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    entries = []
    for number in range(n_strings):
        name = f"digits-{number:03}.wav"
        samples, words = digit_string(speech, SPEAKERS[number % len(SPEAKERS)], rng)
        soundfile.write(folder / name, samples, RATE_HZ, subtype="PCM_16")
        text = " ".join(str(word["word"]) for word in words)
        entries.append({"file": name, "language": "en", "text": text, "words": words})
    samples, rate_hz = soundfile.read(speech / "meeting" / MEETING)
    for number, part in enumerate(np.array_split(samples, N_MEETING_PARTS)):
        name = f"meeting-{number}.wav"
        soundfile.write(folder / name, part, rate_hz, subtype="PCM_16")
        entries.append({"file": name, "language": "en"})
    lines = "".join(f"{json.dumps(entry)}\n" for entry in entries)
    (folder / "manifest.jsonl").write_text(lines, "utf-8")


def digit_string(
    speech: Path, speaker: str, rng: np.random.Generator
) -> tuple[np.ndarray, list[dict[str, object]]]:
    """Return digits of one speaker with pauses, and where each lies."""
    parts: list[np.ndarray] = []
    words: list[dict[str, object]] = []
    n_samples = 0
    for digit in rng.integers(0, 10, DIGITS_A_STRING):
        pause = np.zeros(RATE_HZ * int(rng.integers(*PAUSE_MS)) // 1000)
        take = int(rng.integers(FIRST_TRAINING_TAKE, N_TAKES))
        spoken, _ = soundfile.read(speech / "digits" / f"{digit}_{speaker}_{take}.wav")
        start = n_samples + len(pause)
        n_samples = start + len(spoken)
        parts += [pause, spoken]
        words.append(
            {"word": WORDS[digit], "start_s": start / RATE_HZ, "end_s": n_samples / RATE_HZ}
        )
    return np.concatenate(parts), words


def main() -> None:
    """Write the speech into the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--speech",
        type=Path,
        default=DEFAULT_MANIFEST.parent,
        help="folder with digits and a meeting (default: %(default)s)",
    )
    parser.add_argument("--strings", type=int, default=30)
    args = parser.parse_args()
    write_calibration_speech(args.speech, args.folder, args.strings)


if __name__ == "__main__":
    main()
