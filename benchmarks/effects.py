"""What single ingredients of the policy do, each with and without it, in a number.

Two kinds of number. *Ledger*: the policy alone over one long cache, with slots marked from real
recordings; the attention is made up (recency times chance times the effect that is looked at), so
the number shows the mechanism, not what captions gain. *Captions*: errors of live sessions with
Whisper in virtual time at 20 % of the slots. Writes ``effects.json`` into the results.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_format import FRAME_SAMPLES
from audiokv.streaming.policy.assembly import open_driver
from audiokv.streaming.policy.language_shares import LanguageShares
from audiokv.streaming.policy.loudness import LoudnessGate
from audiokv.streaming.policy.marker import SlotMarker, Talker
from audiokv.streaming.policy.profiles import PROFILES, PolicyProfile
from audiokv.streaming.policy.registry import audiokv_policy
from benchmarks.measures import errors
from benchmarks.recordings import SAMPLES_PER_MS, add_recording_arguments, chosen_recordings
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.retention_policies import LIVE, Variant
from benchmarks.retention_speech import Clip
from benchmarks.retention_streaming import CacheBound, StreamingRunner
from benchmarks.retention_whisper import BoundedWhisper
from benchmarks.virtual_stream import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.streaming.policy.driver import PolicyDriver
    from audiokv.streaming.policy.marks import SlotMarks
    from benchmarks.recordings import FloatArray, Recording

SLOT_MS = 20
STEP_SLOTS = 10
LEDGER_SLOTS = 256
COMMIT_LAG_MS = 800
RETENTION = 0.2
QUIET_GAIN = 0.3
BURST_GAIN = 20.0
AFTER_BURST_MS = 1500
NO_BURST = PolicyProfile(burst_factor=float("inf"))
WITHOUT, WITH = "without", "with"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a stream: slots, and how much attention they draw."""

    marks: list[SlotMarks]
    gain: float = 1.0


def marked(parts: Sequence[tuple[FloatArray, Talker, float]]) -> list[Part]:
    """Return the slots of stretches of audio that follow each other."""
    marker, gate = SlotMarker(SLOT_MS), LoudnessGate()
    found = []
    for samples, talker, gain in parts:
        whole = samples[: len(samples) - len(samples) % (2 * FRAME_SAMPLES)]
        found.append(Part(marker.push(whole, gate.push(whole), talker), gain))
    return found


def drive(driver: PolicyDriver, parts: Sequence[Part], seed: int = 0) -> None:
    """Run slots through a driver; the newest two seconds draw attention, each at chance."""
    chance = np.random.default_rng(seed)
    gains: dict[int, float] = {}
    for part in parts:
        for first in range(0, len(part.marks), STEP_SLOTS):
            step = part.marks[first : first + STEP_SLOTS]
            gains |= dict.fromkeys((mark.start_ms for mark in step), part.gain)
            driver.append(step)
            driver.apply(driver.plan())
            ledger = driver.ledger
            age_s = (ledger.now_ms - ledger.end_ms) / 1e3
            gain = np.array([gains[int(start)] for start in ledger.start_ms])
            driver.observe(np.exp(-age_s) * gain * chance.gamma(2.0, 0.5, ledger.held))
            driver.commit_until(ledger.now_ms - COMMIT_LAG_MS)
            driver.settle()
            driver.apply(driver.plan_ahead())


def languages_held(recordings: Sequence[Recording], share: float) -> float:
    """Return how many slots the first language still has when it comes back."""
    english, german = (_of(recordings, language) for language in ("en", "de"))
    policy = replace(audiokv_policy(SLOT_MS, LIVE.profile), languages=LanguageShares(share))
    driver = open_driver(policy, LEDGER_SLOTS, SLOT_MS, LIVE)
    turns = [(english, "en"), *[(german, "de")] * 6]
    drive(driver, marked([(audio, Talker(None, code), 1.0) for audio, code in turns]))
    number = driver.ledger.languages.number("en")
    return float(np.count_nonzero(driver.ledger.language == number))


def quiet_score(recordings: Sequence[Recording], *, labels: bool) -> float:
    """Return the mean score of a speaker who draws little attention, over the other one's."""
    loud, quiet = _two_voices(recordings)
    driver = open_driver("audiokv", LEDGER_SLOTS, SLOT_MS, LIVE)
    parts = marked(
        [
            (audio[: 2000 * SAMPLES_PER_MS], Talker(name if labels else None), gain)
            for _ in range(6)
            for audio, name, gain in ((loud, "loud", 1.0), (quiet, "quiet", QUIET_GAIN))
        ]
    )
    drive(driver, parts)
    starts = {mark.start_ms for part in parts if part.gain < 1 for mark in part.marks}
    is_quiet = np.array([int(start) in starts for start in driver.ledger.start_ms])
    is_heard = driver.ledger.is_voice
    scores = driver.ledger.score
    return float(scores[is_quiet & is_heard].mean() / scores[~is_quiet & is_heard].mean())


def score_after_burst(recordings: Sequence[Recording], profile: PolicyProfile) -> float:
    """Return the mean score of the speech after a burst, over that without a burst."""
    audio = _of(recordings, "en")
    means = []
    for gain in (BURST_GAIN, 1.0):
        driver = open_driver("audiokv", LEDGER_SLOTS, SLOT_MS, replace(LIVE, profile=profile))
        burst_ms = 300 * SAMPLES_PER_MS
        after = audio[burst_ms : burst_ms + 2000 * SAMPLES_PER_MS]
        turns = [(audio, 1.0), (audio[:burst_ms], gain), (after, 1.0)]
        drive(driver, marked([(part, Talker("one"), weight) for part, weight in turns]))
        ledger = driver.ledger
        is_after = ledger.end_ms > ledger.now_ms - AFTER_BURST_MS
        means.append(float(ledger.score[is_after].mean()))
    return means[0] / means[1]


def stutter_score(recordings: Sequence[Recording], profile: PolicyProfile) -> float:
    """Return the mean score of repeated syllables over that of the other speech."""
    audio = _of(recordings, "en")
    syllable = audio[1000 * SAMPLES_PER_MS : 1100 * SAMPLES_PER_MS]
    turns: list[tuple[FloatArray, Talker, float]] = []
    for first in range(0, len(audio), 600 * SAMPLES_PER_MS):
        turns.append((audio[first : first + 600 * SAMPLES_PER_MS], Talker("one"), 1.0))
        turns.append((syllable, Talker("one"), 4.0))
    parts = marked(turns)
    driver = open_driver("audiokv", LEDGER_SLOTS, SLOT_MS, replace(LIVE, profile=profile))
    drive(driver, parts)
    starts = {mark.start_ms for part in parts if part.gain > 1 for mark in part.marks}
    is_spike = np.array([int(start) in starts for start in driver.ledger.start_ms])
    scores = driver.ledger.score
    return float(scores[is_spike].mean() / scores[~is_spike].mean())


def _of(recordings: Sequence[Recording], language: str) -> FloatArray:
    return next(one for one in recordings if one.language == language).samples()


def _two_voices(recordings: Sequence[Recording]) -> tuple[FloatArray, FloatArray]:
    english = [one for one in recordings if one.language == "en"]
    first = english[0]
    other = next(one for one in english if Path(one.name).parent != Path(first.name).parent)
    return first.samples(), other.samples()


def ledger_effects(recordings: Sequence[Recording]) -> dict[str, dict[str, float]]:
    """Return every mechanism's number without it and with it."""
    default, stutter = PROFILES["default"], PROFILES["stutter"]
    return {
        "language shares: slots of a language that comes back after 30 s of another": {
            WITHOUT: languages_held(recordings, 0.0),
            WITH: languages_held(recordings, default.language_share),
        },
        "speaker baselines: score of a speaker with 0.3 of the attention, over the other's": {
            WITHOUT: quiet_score(recordings, labels=False),
            WITH: quiet_score(recordings, labels=True),
        },
        "burst reset: score of the speech after a burst, over that without a burst": {
            WITHOUT: score_after_burst(recordings, NO_BURST),
            WITH: score_after_burst(recordings, default),
        },
        "stutter window: score of repeated syllables over that of other speech": {
            WITHOUT: stutter_score(recordings, default),
            WITH: stutter_score(recordings, stutter),
        },
    }


@dataclass(frozen=True, slots=True)
class Trial:
    """Live sessions without and with an ingredient.

    Attributes:
        name: The ingredient.
        clips: What is heard.
        without: The policy without it.
        with_it: The policy with it.
    """

    name: str
    clips: list[Clip]
    without: Variant
    with_it: Variant


def _variant(name: str, profile: PolicyProfile, share: float | None = None) -> Variant:
    options = replace(LIVE, profile=profile)

    def policy(slot_ms: int) -> object:
        made = audiokv_policy(slot_ms, profile)
        return made if share is None else replace(made, languages=LanguageShares(share))

    return Variant(name, policy, options=options)  # type: ignore[arg-type]  # a policy


def trials(recordings: Sequence[Recording]) -> list[Trial]:
    """Return the live sessions to compare."""
    default, stutter = PROFILES["default"], PROFILES["stutter"]
    plain = _variant("plain", default)
    english = [one for one in recordings if one.language == "en"]
    spanish = [one for one in recordings if one.language == "es"]
    pairs = [_clip("two languages", [english[0], *spanish, english[1]], told=None)]
    bursts = [_changed(one, _with_bursts) for one in english]
    stutters = [_changed(one, _with_stutter) for one in english]
    return [
        Trial("language shares", pairs, _variant("no shares", default, 0.0), plain),
        Trial("burst reset", bursts, _variant("no reset", NO_BURST), plain),
        Trial("stutter profile", stutters, plain, _variant("stutter", stutter)),
    ]


def _clip(name: str, said: Sequence[Recording], told: str | None) -> Clip:
    gap = np.zeros(250 * SAMPLES_PER_MS, np.float32)  # shorter than the pause that ends a segment
    pieces = [piece for one in said for piece in (one.samples(), gap)]
    text = " ".join(one.text for one in said)
    return Clip(name, name, "en", told, text, np.concatenate(pieces))


def _changed(recording: Recording, change: Callable[[FloatArray], FloatArray]) -> Clip:
    samples = change(recording.samples())
    return Clip(recording.name, recording.name, "en", "en", recording.text, samples)


def _with_bursts(samples: FloatArray) -> FloatArray:
    """Add a clap of 60 ms, as loud as can be, every two seconds."""
    chance = np.random.default_rng(0)
    loud = samples.copy()
    for first in range(1000 * SAMPLES_PER_MS, len(loud) - 1600, 2000 * SAMPLES_PER_MS):
        n_burst = 60 * SAMPLES_PER_MS
        burst = chance.uniform(-0.9, 0.9, n_burst) * np.linspace(1, 0, n_burst)
        loud[first : first + n_burst] += burst.astype(np.float32)
    return np.clip(loud, -1, 1)


def _with_stutter(samples: FloatArray) -> FloatArray:
    """Say 120 ms three times, every second and a half."""
    pieces: list[FloatArray] = []
    every, part = 1500 * SAMPLES_PER_MS, 120 * SAMPLES_PER_MS
    for first in range(0, len(samples), every):
        piece = samples[first : first + every]
        pieces += [piece[:part], piece[:part], piece]
    return np.concatenate(pieces)


def caption_effects(
    recordings: Sequence[Recording], model: str
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the errors of live sessions without and with each ingredient."""
    whisper = BoundedWhisper(model, torch.bfloat16)
    runner = StreamingRunner(whisper, SileroModel.load().open)
    one_thread()
    results: dict[str, dict[str, dict[str, int]]] = {}
    for trial in trials(recordings):
        counts = {WITHOUT: [0, 0], WITH: [0, 0]}
        for clip in trial.clips:
            _, log = runner.hear(clip, None)
            slots = max(1, round(RETENTION * log.full_slots))
            for side, variant in ((WITHOUT, trial.without), (WITH, trial.with_it)):
                text, _ = runner.hear(clip, CacheBound(variant, slots))
                found = errors(clip.text, text, clip.language)
                counts[side][0] += found.total
                counts[side][1] += found.n_reference
            whisper.forget_audio()
        results[trial.name] = {
            side: {"errors": wrong, "words": said} for side, (wrong, said) in counts.items()
        }
    return results


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write."""
    args = parse_arguments(arguments)
    recordings = chosen_recordings(args)
    origin = provenance()
    content: dict[str, object] = {
        "ledger": ledger_effects(recordings),
        "captions": caption_effects(recordings, args.model),
    }
    print(json.dumps(content, indent=1))
    write_results("effects", content, origin, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
