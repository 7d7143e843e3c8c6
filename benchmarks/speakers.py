"""How well the voices of one channel are told apart, and what that costs.

A session runs with real voice activity and the real speaker encoder; a stand-in for the recogniser
commits a word every 200 ms, so that the labels of every segment come out. ``right``: share of the
captioned time with one true speaker whose label is the right one, labels matched to speakers one to
one as well as can be. ``purity``: the same with every label matched to its most frequent speaker,
unlabelled time left out. ``unlabelled``: share without a label.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.base import Hypothesis, RecognizerInfo
from audiokv.models.silero import SileroModel
from audiokv.models.speaker_encoder import SpeakerEncoder
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import Caption, Word
from audiokv.streaming.session import Session
from audiokv.streaming.speakers import SpeakerTracker
from benchmarks.recordings import DEFAULT_MANIFEST, to_pcm
from benchmarks.results_file import provenance, write_results
from benchmarks.speaker_turns import (
    ENGLISH,
    MEETINGS,
    OTHERS,
    digit_turns,
    meeting,
    shuffled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from audiokv.models.base import FloatArray, StreamOptions
    from audiokv.streaming.captions import Event
    from audiokv.streaming.voice_activity import VoiceDetector
    from benchmarks.speaker_turns import Conversation, Turn

WORD_MS = 200
GRAIN_MS = 10
INFO = RecognizerInfo("syllables", 20, frozenset({"en"}), aligns=True, max_window_ms=30_000)
TUNING_SEEDS, TEST_SEEDS = range(2), range(10, 14)
TUNING_TAKES, TEST_TAKES = range(5, 10), range(10, 50)


@dataclass
class Syllables:
    """Implements ``RecognizerStream``: a word every 200 ms from the segment's beginning."""

    committed_ms: int = 0
    end_ms: int = 0
    words: tuple[Word, ...] = ()

    def open(self, at_ms: int) -> None:
        """Begin a window."""
        self.end_ms = at_ms

    def begin_segment(self, at_ms: int) -> None:
        """Begin the words."""
        self.committed_ms = at_ms

    def append(self, samples: FloatArray, speaker: str | None = None) -> None:  # noqa: ARG002
        """Let time pass."""
        self.end_ms += len(samples) // 16

    def commit(self, n_words: int) -> None:
        """Go on behind the first words."""
        if n_words:
            self.committed_ms = self.words[n_words - 1].end_ms

    def update(self, options: StreamOptions) -> None:
        """Nothing to do."""

    def rest(self) -> None:
        """Nothing to do."""

    def cache_counters(self) -> None:
        """Nothing is bounded."""

    def decode(self) -> Hypothesis:
        """Return the words so far."""
        starts = range(self.committed_ms, self.end_ms - WORD_MS, WORD_MS)
        self.words = tuple(Word("na", at_ms, at_ms + WORD_MS, 0.9) for at_ms in starts)
        return Hypothesis(self.words, "en")


@dataclass
class TimedEncoder:
    """An encoder and the processor time of each of its calls."""

    encoder: SpeakerEncoder
    seconds: list[float] = field(default_factory=list)

    def embed(self, samples: FloatArray) -> FloatArray:
        """Embed and take the time."""
        began_s = time.thread_time()
        embedding = self.encoder.embed(samples)
        self.seconds.append(time.thread_time() - began_s)
        return embedding


def label(
    conversation: Conversation, detector: VoiceDetector, tracker: SpeakerTracker
) -> list[Caption]:
    """Return the final captions of a stream whose speakers are tracked."""
    stream = Syllables()
    session = Session(
        fmt=AudioFormat(), stream=stream, info=INFO, detector=detector, speaker=tracker
    )
    session.push(to_pcm(conversation.samples))
    session.stop()
    events: list[Event] = session.prepare()
    while session.is_step_due:
        events += session.apply(stream.decode())
        events += session.prepare()
        session.rest()
    return [event for event in events if isinstance(event, Caption) and event.is_final]


def best_matching(table: Sequence[Sequence[int]]) -> int:
    """Return the largest sum of entries with at most one in each row and column."""
    best = {0: 0}  # by the set of columns taken
    for row in table:
        reached = dict(best)
        for taken, total in best.items():
            for column, value in enumerate(row):
                if not taken >> column & 1:
                    now = taken | 1 << column
                    reached[now] = max(reached.get(now, 0), total + value)
        best = reached
    return max(best.values())


def score(captions: Sequence[Caption], turns: Sequence[Turn]) -> dict[str, float]:
    """Compare labels with the truth where exactly one person speaks and a caption stands."""
    speakers = sorted({turn.speaker for turn in turns})
    labels = sorted({caption.speaker for caption in captions if caption.speaker is not None})
    ends = [*(turn.end_ms for turn in turns), *(caption.end_ms for caption in captions)]
    n_grains = max(ends, default=0) // GRAIN_MS + 1
    true = np.zeros((len(speakers), n_grains), np.bool_)
    for turn in turns:
        at = slice(turn.start_ms // GRAIN_MS, turn.end_ms // GRAIN_MS)
        true[speakers.index(turn.speaker), at] = True
    said = np.full(n_grains, -2)
    for caption in captions:
        number = -1 if caption.speaker is None else labels.index(caption.speaker)
        said[caption.start_ms // GRAIN_MS : caption.end_ms // GRAIN_MS] = number
    counted = (true.sum(axis=0) == 1) & (said >= -1)
    table = [
        [int((counted & (said == number) & row).sum()) for row in true]
        for number in range(len(labels))
    ]
    n_counted, n_labelled = int(counted.sum()), sum(map(sum, table))
    return {
        "seconds": n_counted * GRAIN_MS / 1000,
        "n_speakers": len(speakers),
        "n_labels": len(labels),
        "right": best_matching(table) / max(1, n_counted),
        "purity": sum(max(row) for row in table) / max(1, n_labelled),
        "unlabelled": 1 - n_labelled / max(1, n_counted),
    }


def conversations(folder: Path) -> Iterator[tuple[str, Conversation]]:
    """Give the kinds of material, with what the thresholds were chosen on apart."""
    for name, seeds, takes in (
        ("tuning", TUNING_SEEDS, TUNING_TAKES),
        ("test", TEST_SEEDS, TEST_TAKES),
    ):
        for seed in seeds:
            yield f"4 English voices, {name}", shuffled(folder, ENGLISH, seed)
            yield f"8 voices, 5 languages, {name}", shuffled(folder, ENGLISH | OTHERS, seed)
            yield f"6 voices, digits at 8 kHz, {name}", digit_turns(folder, takes, seed)
    for file in MEETINGS:
        yield f"meeting {file}", meeting(folder, file)


def mean_by_time(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the means of several scores, weighted by their seconds."""
    seconds = [row["seconds"] for row in rows]
    total = sum(seconds)
    means = {"n_streams": len(rows), "seconds": round(total, 1)}
    for key in ("n_speakers", "n_labels"):
        means[key] = round(float(np.mean([row[key] for row in rows])), 2)
    for key in ("right", "purity", "unlabelled"):
        weighted = sum(row[key] * own for row, own in zip(rows, seconds, strict=True))
        means[key] = round(weighted / total, 3) if total else 0.0
    return means


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=DEFAULT_MANIFEST.parent, help="of the recordings")
    folder = parser.parse_args().folder
    origin = provenance(("audiokv", "torch", "resemblyzer", "onnxruntime", "numpy"))
    torch.set_num_threads(1)
    detectors, timed = SileroModel.load(), TimedEncoder(SpeakerEncoder.load())
    rows: dict[str, list[dict[str, float]]] = {}
    for name, conversation in conversations(folder):
        said = label(conversation, detectors.open(), SpeakerTracker(timed.embed))
        rows.setdefault(name, []).append(score(said, conversation.turns))
        print(name, rows[name][-1], flush=True)
    captioned_s = sum(row["seconds"] for own in rows.values() for row in own)
    results = {
        "labels": {name: mean_by_time(own) for name, own in rows.items()},
        "cost": {
            "ms_per_embedding_p50": round(1e3 * float(np.median(timed.seconds)), 2),
            "ms_per_embedding_p99": round(1e3 * float(np.quantile(timed.seconds, 0.99)), 2),
            "cpu_share_while_somebody_speaks": round(sum(timed.seconds) / captioned_s, 4),
        },
    }
    print(json.dumps(results, indent=1))
    write_results("speakers", results, origin)


if __name__ == "__main__":
    main()
