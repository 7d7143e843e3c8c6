"""Strings of digits decoded at once and heard live, by the same checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.digit_streams import alone
from benchmarks.measures import Errors, errors, final_text
from benchmarks.retention_statistics import N_RESAMPLES, Interval
from benchmarks.scoring import errors_as_json
from benchmarks.targets import ENGLISH_POINTS, Verdict
from tools.digits_data import WORDS, Conditions
from tools.digits_eval import test_strings, transcribe, whole_slots
from tools.digits_files import read_checkpoint
from tools.digits_mel import LogMel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.recordings import FloatArray
    from benchmarks.virtual_stream import VirtualListener
    from tools.digits_data import DigitBank, SpokenString

GROUPS = {"1 to 5": (1, 2, 3, 4, 5), "6 to 10": (6, 7, 8, 9, 10), "20": (20,)}
_SEED = 1993
_TAIL_PERCENTS = (2.5, 97.5)


class OfflineDigits:
    """Decodes whole strings greedily with transformers' own classes and cache.

    Args:
        folder: The checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._model, extractor = read_checkpoint(folder)
        self._mel = LogMel(extractor)

    def text(self, samples: FloatArray) -> str:
        """Return the words of audio of shape (n,), 16 kHz mono."""
        mel = self._mel(whole_slots(samples)[None])[0]
        return " ".join(WORDS[digit] for digit in transcribe(self._model, mel))


@dataclass(frozen=True, slots=True)
class Pair:
    """One string, heard both ways.

    Attributes:
        reference: What was said.
        offline_text: What is decoded at once.
        live_text: What the final captions say.
    """

    reference: str
    offline_text: str
    live_text: str

    @property
    def offline(self) -> Errors:
        """Errors of the text decoded at once."""
        return errors(self.reference, self.offline_text, "en")

    @property
    def live(self) -> Errors:
        """Errors of the captions."""
        return errors(self.reference, self.live_text, "en")


def strings_of_group(
    bank: DigitBank, lengths: Sequence[int], n_digits: int, seed: int
) -> list[SpokenString]:
    """Return strings of these lengths in turn, at least ``n_digits`` digits together."""
    repeated = list(lengths) * -(-n_digits // sum(lengths))
    return test_strings(seed, bank, repeated, Conditions())


def hear_both_ways(
    strings: Sequence[SpokenString], offline: OfflineDigits, listener: VirtualListener
) -> list[Pair]:
    """Return each string with what is made of it, each its own stream."""
    return [
        Pair(
            " ".join(WORDS[digit] for digit in string.digits),
            offline.text(string.samples),
            final_text(listener.listen(alone(string).samples, "en").arrivals),
        )
        for string in strings
    ]


def live_over_offline(pairs: Sequence[Pair]) -> Interval:
    """Return the error of the captions less that of offline decoding, in points.

    The interval comes from drawing strings with replacement; both ways are drawn together.
    """
    wrong = np.array([(one.live.total, one.offline.total) for one in pairs])
    said = np.array([one.live.n_reference for one in pairs])
    chance = np.random.default_rng(_SEED)
    counts = chance.multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), N_RESAMPLES)
    points = 100 * (counts @ (wrong[:, 0] - wrong[:, 1])) / (counts @ said)
    low, high = np.percentile(points, _TAIL_PERCENTS)
    measured = 100 * (wrong[:, 0].sum() - wrong[:, 1].sum()) / said.sum()
    return Interval(float(measured), float(low), float(high), len(pairs))


def comparison_as_json(groups: Mapping[str, Sequence[Pair]]) -> dict[str, object]:
    """Return the figures of each group of strings and of all of them."""
    everything = [pair for pairs in groups.values() for pair in pairs]
    return {name: _figures(pairs) for name, pairs in {**groups, "all": everything}.items()} | {
        "strings": [
            {"reference": one.reference, "offline": one.offline_text, "live": one.live_text}
            for one in everything
            if one.live_text != one.offline_text
        ]
    }


def _figures(pairs: Sequence[Pair]) -> dict[str, object]:
    interval = live_over_offline(pairs)
    return {
        "n_strings": len(pairs),
        "offline": errors_as_json(sum((one.offline for one in pairs), Errors())),
        "live": errors_as_json(sum((one.live for one in pairs), Errors())),
        "live_over_offline_points": {
            "difference": round(interval.difference, 2),
            "low": round(interval.low, 2),
            "high": round(interval.high, 2),
        },
    }


def comparison_verdicts(groups: Mapping[str, Sequence[Pair]]) -> list[Verdict]:
    """Judge the captions of each group and of all strings by offline decoding."""
    everything = [pair for pairs in groups.values() for pair in pairs]
    verdicts = []
    for name, pairs in {**groups, "all": everything}.items():
        interval = live_over_offline(pairs)
        live = sum((one.live for one in pairs), Errors())
        offline = sum((one.offline for one in pairs), Errors())
        verdicts.append(
            Verdict(
                f"strings of {name}: streaming error over offline error",
                round(interval.difference, 6),
                ENGLISH_POINTS,
                "points",
                f"{100 * live.rate:.1f} % beside {100 * offline.rate:.1f} % of "
                f"{live.n_reference}; interval {interval.low:+.1f} to {interval.high:+.1f}",
            )
        )
    return verdicts
