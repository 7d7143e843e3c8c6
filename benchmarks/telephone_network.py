"""Ten minutes of a call over a bad network: are the words unharmed, and in their time?

5 % of the packets are lost, all are up to 60 ms late and overtake each other, some come twice; for
three seconds nothing comes; the codec changes four times, mostly with a sender that counts anew.
Real encoders, the server's own receiver, a session with real weights, virtual time. Writes
``telephone_network.json`` into the results; the exit status is 1 where a target is missed.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import StreamOptions
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from benchmarks.columns import tell
from benchmarks.measures import Errors, final_text, final_words, normalised, percentiles
from benchmarks.mixed_stream import mix, outcome, words_of_each
from benchmarks.recordings import SAMPLES_PER_MS, add_recording_arguments, chosen_recordings
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.scoring import errors_as_json
from benchmarks.soak import is_lag_steady, quarter_lags
from benchmarks.targets import Verdict
from benchmarks.telephone_call import received
from benchmarks.telephone_conditions import CONDITIONS, LEAD_MS, MULAW, utterances
from benchmarks.telephone_line import BAD_NETWORK, PACKET_MS, Leg, without
from benchmarks.virtual_stream import VirtualListener, one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from audiokv.streaming.captions import Word
    from benchmarks.mixed_stream import MixedStream, Outcome, Spoken
    from benchmarks.recordings import FloatArray, Recording
    from benchmarks.telephone_line import Sent
    from benchmarks.virtual_stream import VirtualRun

MINUTE_MS = 60_000
DEAD_MS = 3_000
MOST_OFF_MS = 20.0
MOST_POINTS = 3.0  # that the network may cost, outside the gap
LEGS = (
    Leg("pcmu", source=1, sequence=65_000, timestamp=2**32 - 4_000),
    Leg("g722", source=2, sequence=40, timestamp=123_456),
    Leg("pcma", source=2, sequence=40, timestamp=123_456),  # goes on with the counters before
    Leg("opus", source=3, sequence=9, timestamp=77),
    Leg("pcmu", source=1, sequence=2_000, timestamp=5),
)


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument("--minutes", type=float, default=10.0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


def sent_in_turns(samples: FloatArray) -> list[Sent]:
    """Return a call whose codec changes: each leg sends the same share of it."""
    n_packet = PACKET_MS * SAMPLES_PER_MS
    n_each = -(-len(samples) // (n_packet * len(LEGS))) * n_packet
    sent: list[Sent] = []
    for leg, first in zip(LEGS, range(0, len(samples), n_each), strict=False):
        sent += leg.send(samples[first : first + n_each], first / SAMPLES_PER_MS)
    return sent


def dead_from_ms(spoken: Sequence[Spoken]) -> float:
    """Return where the line goes dead: in the middle of a recording, past half of the call."""
    late = [one for one in spoken if one.start_ms > spoken[-1].end_ms / 2] or list(spoken)
    longest = max(late, key=lambda one: one.end_ms - one.start_ms)
    middle_ms = (longest.start_ms + longest.end_ms) / 2
    return middle_ms // PACKET_MS * PACKET_MS


@dataclass(frozen=True, slots=True)
class Alone:
    """What a recording becomes in a call of its own, over a network that loses nothing.

    Attributes:
        text: Its final text.
        words: Its words; times count from the recording's first sample.
    """

    text: str
    words: tuple[tuple[str, float], ...]


def alone(listener: VirtualListener, recordings: Sequence[Recording]) -> dict[str, Alone]:
    """Listen to each recording alone."""
    found = {}
    for utterance in utterances(recordings):
        run = listener.listen_to(CONDITIONS[MULAW](utterance), StreamOptions(language="en"))
        words = final_words(run.arrivals)
        found[utterance.recording.name] = Alone(
            final_text(run.arrivals),
            tuple((normalised(word.text), float(word.start_ms - LEAD_MS)) for word in words),
        )
    return found


def shifts_ms(words: Sequence[Word], spoken: Spoken, expected: Alone) -> list[float]:
    """Return how much later each word stands than its like in the recording alone.

    Args:
        words: What the call made of a recording.
        spoken: The recording at its place.
        expected: What it becomes alone.
    """
    texts = [normalised(word.text) for word in words]
    matcher = SequenceMatcher(None, [text for text, _ in expected.words], texts, autojunk=False)
    return [
        words[block.b + i].start_ms - spoken.start_ms - expected.words[block.a + i][1]
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    ]


@dataclass(frozen=True, slots=True)
class Report:
    """What a call over a bad network became.

    Attributes:
        outcomes: Of the recordings that the gap does not touch.
        shifts_ms: By quarter of them: how much later each word stands than alone.
        run: What the session said.
    """

    outcomes: Sequence[Outcome]
    shifts_ms: Sequence[Sequence[float]]
    run: VirtualRun

    @property
    def medians_ms(self) -> list[float]:
        """Median shift of each quarter."""
        return [round(float(np.median(one)), 1) if one else 0.0 for one in self.shifts_ms]

    def verdicts(self) -> list[Verdict]:
        """Return a verdict on every target."""
        mixed = sum((o.mixed for o in self.outcomes), Errors())
        single = sum((o.alone for o in self.outcomes), Errors())
        lags_ms = quarter_lags(self.run.steps)
        drift_ms = max(abs(one) for one in self.medians_ms)
        n_lost, n_doubled = (
            sum(getattr(o, name) for o in self.outcomes) for name in ("is_lost", "is_doubled")
        )
        return [
            Verdict("words stand apart from where they were spoken", drift_ms, MOST_OFF_MS, "ms"),
            Verdict(
                "errors over those of a good network",
                100 * (mixed.rate - single.rate),
                MOST_POINTS,
                "points",
            ),
            Verdict("recordings lost", n_lost, 0, note=f"of {len(self.outcomes)}"),
            Verdict("recordings doubled", n_doubled, 0),
            Verdict("lag grew", float(not is_lag_steady(lags_ms)), 0, note=f"{lags_ms} ms"),
        ]

    def as_json(self) -> dict[str, object]:
        """Return its figures."""
        return {
            "targets": [verdict.as_json() for verdict in self.verdicts()],
            "minutes": round(self.run.duration_ms / MINUTE_MS, 2),
            "errors": errors_as_json(sum((o.mixed for o in self.outcomes), Errors())),
            "errors_over_a_good_network": errors_as_json(
                sum((o.alone for o in self.outcomes), Errors())
            ),
            "word_shift_ms_median_by_quarter": self.medians_ms,
            "word_shift_ms": percentiles([abs(ms) for one in self.shifts_ms for ms in one]),
            "step_lag_ms_by_quarter": quarter_lags(self.run.steps),
            "recordings": [o.as_json() for o in self.outcomes],
        }


def report(
    stream: MixedStream, run: VirtualRun, expected: Mapping[str, Alone], dead_ms: float
) -> Report:
    """Hold what a call became against its recordings alone, those in the gap left out."""
    kept = [
        (one, words)
        for one, words in zip(
            stream.spoken, words_of_each(stream.spoken, run.arrivals), strict=True
        )
        if one.end_ms < dead_ms or one.start_ms > dead_ms + DEAD_MS
    ]
    outcomes = [outcome(one, words, expected[one.recording.name].text) for one, words in kept]
    quarters = np.array_split(np.arange(len(kept)), 4)
    shifts = [
        [
            shift
            for i in quarter
            for shift in shifts_ms(kept[i][1], kept[i][0], expected[kept[i][0].recording.name])
        ]
        for quarter in quarters
    ]
    return Report(outcomes, shifts, run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Listen, write, judge; return the exit status."""
    args = parse_arguments(arguments)
    origin = provenance()
    english = [one for one in chosen_recordings(args) if one.language == "en"]
    listener = VirtualListener(load_recognizer(args.model), SileroModel.load().open)
    one_thread()
    tell("each recording alone")
    expected = alone(listener, english)
    tell(f"{args.minutes:g} min over a bad network")
    stream = mix(english, args.minutes * MINUTE_MS, args.seed)
    dead_ms = dead_from_ms(stream.spoken)
    alive = without(sent_in_turns(stream.samples), dead_ms, dead_ms + DEAD_MS)
    arrived = BAD_NETWORK.carry(alive, np.random.default_rng(args.seed))
    run = listener.listen_to(received(arrived), StreamOptions(language="en"))
    found = report(stream, run, expected, dead_ms)
    settings = {"model": args.model, "seed": args.seed, "dead_from_ms": dead_ms}
    write_results("telephone_network", {"settings": settings, **found.as_json()}, origin, args.out)
    for verdict in found.verdicts():
        print(verdict.line())
    return 0 if all(verdict.is_met for verdict in found.verdicts()) else 1


if __name__ == "__main__":
    sys.exit(main())
