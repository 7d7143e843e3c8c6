"""How well telephone calls are captioned, and what is made of what is no speech in them.

Recordings go through real encoders, packets, the server's own receiver and a session with real
weights, in virtual time: at 16 kHz, as mu-law, and under what a line does to them. Then a long call
of recordings, pauses, hold tones, ringing, music and pressed keys. Writes ``telephone.json`` and
``telephone_hold.json``, each with a plot, into the results; the exit status is 1 where a target is
missed.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from audiokv.models.base import StreamOptions
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from benchmarks.columns import tell
from benchmarks.measures import (
    Errors,
    changed_commitments,
    errors,
    final_text,
    final_words,
    percentiles,
)
from benchmarks.recordings import add_recording_arguments, chosen_recordings
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.scoring import errors_as_json
from benchmarks.soak import is_lag_steady, quarter_lags
from benchmarks.targets import Verdict
from benchmarks.telephone_call import received
from benchmarks.telephone_conditions import CONDITIONS, ECHO, KEYS, MULAW, WIDE, utterances
from benchmarks.telephone_hold import long_call, outcomes, words_in_holds
from benchmarks.telephone_legs import TwoLegListener
from benchmarks.telephone_line import Leg, Network
from benchmarks.telephone_plot import plot_call, plot_rows
from benchmarks.virtual_stream import VirtualListener, one_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchmarks.measures import Arrival
    from benchmarks.recordings import Recording
    from benchmarks.telephone_conditions import Utterance
    from benchmarks.telephone_hold import LongCall
    from benchmarks.virtual_stream import Piece, VirtualRun

MOST_POINTS = 3.0  # that mu-law may cost
ECHO_KNOWN = f"{ECHO}, both sides in one stream"
MEMORY_SLACK_BYTES = 32 * 2**20
MINUTE_MS = 60_000
N_RESAMPLES = 10_000
_SEED = 20_261_130


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of the long call; 0 leaves it out"
    )
    parser.add_argument(
        "--conditions",
        nargs="+",
        choices=[*CONDITIONS, ECHO_KNOWN],
        default=[*CONDITIONS, ECHO_KNOWN],
    )
    parser.add_argument("--profile", default="default", help="of the streams")
    parser.add_argument("--seed", type=int, default=1, help="of the long call")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


@dataclass(slots=True)
class Row:
    """What one condition made of the recordings.

    Attributes:
        texts: Final text by recording.
        counted: Errors by recording.
        stray: Final words outside the speech, by recording.
    """

    texts: dict[str, str] = field(default_factory=dict)
    counted: dict[str, Errors] = field(default_factory=dict)
    stray: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> Errors:
        """Errors over all recordings."""
        return sum(self.counted.values(), Errors())

    def take(self, utterance: Utterance, arrivals: Sequence[Arrival]) -> None:
        """Take in the captions of a recording."""
        recording = utterance.recording
        text = final_text(arrivals)
        first_ms, last_ms = utterance.speech_ms
        self.texts[recording.name] = text
        self.counted[recording.name] = errors(recording.text, text, recording.language)
        self.stray[recording.name] = [
            word.text
            for word in final_words(arrivals)
            if not first_ms <= (word.start_ms + word.end_ms) / 2 <= last_ms
        ]

    def as_json(self, reference: Row | None) -> dict[str, object]:
        """Return it for the results file, held against a row of the same recordings."""
        against = None if reference is None else paired_points(self.counted, reference.counted)
        return {
            **errors_as_json(self.total),
            "n_words_outside_speech": sum(map(len, self.stray.values())),
            "points_over_16_khz": against,
            "texts": self.texts,
        }


def paired_points(
    first: Mapping[str, Errors], second: Mapping[str, Errors], n_resamples: int = N_RESAMPLES
) -> dict[str, float]:
    """Return how many points more errors the first has, with a bootstrap interval over recordings.

    Both are drawn together; percentile method (Efron and Tibshirani, 1993).

    Args:
        first: Errors by recording.
        second: Of the same recordings.
        n_resamples: How often is drawn.
    """
    names = sorted(first)
    wrong = np.array([[one[name].total for name in names] for one in (first, second)], float)
    said = np.array([first[name].n_reference for name in names], float)
    chance = np.random.default_rng(_SEED)
    drawn = chance.multinomial(len(names), np.full(len(names), 1 / len(names)), n_resamples)
    differences = 100 * (drawn @ (wrong[0] - wrong[1])) / np.maximum(drawn @ said, 1)
    low, high = np.percentile(differences, (2.5, 97.5))
    measured = 100 * (wrong[0] - wrong[1]).sum() / max(said.sum(), 1)
    found = {"difference": measured, "low": low, "high": high}
    return {name: round(float(value), 2) for name, value in found.items()}


def measure_rows(
    listener: VirtualListener, recordings: Sequence[Recording], names: Sequence[str], profile: str
) -> dict[str, Row]:
    """Listen to every recording under every condition."""
    rows: dict[str, Row] = {}
    spoken = utterances(recordings)
    for name in names:
        tell(name)
        row = rows[name] = Row()
        for utterance in spoken:
            wishes = StreamOptions(language=utterance.recording.language, profile=profile)
            run = listener.listen_to(CONDITIONS[name](utterance), wishes)
            row.take(utterance, run.arrivals)
        print(f"{name}: {100 * row.total.rate:.2f} % of {row.total.n_reference} words", flush=True)
    return rows


def measure_echo(legs: TwoLegListener, recordings: Sequence[Recording], profile: str) -> Row:
    """Listen to every recording with the other side's echo in it, the other side known."""
    row = Row()
    for utterance in utterances(recordings):
        row.take(utterance, legs.near_side(utterance, profile))
    print(
        f"{ECHO_KNOWN}: {100 * row.total.rate:.2f} % of {row.total.n_reference} words", flush=True
    )
    return row


@dataclass(slots=True)
class MemoryLog:
    """Memory of this process as a call goes on.

    Attributes:
        bytes_at: Position in ms and resident bytes.
    """

    bytes_at: list[tuple[float, int]] = field(default_factory=list)

    def watch(self, pieces: Iterable[Piece], every_ms: float = 5_000) -> Iterator[Piece]:
        """Pass audio on, noting the memory from time to time."""
        process = psutil.Process()
        next_ms = 0.0
        for piece in pieces:
            if piece.at_ms >= next_ms:
                self.bytes_at.append((piece.at_ms, process.memory_info().rss))
                next_ms = piece.at_ms + every_ms
            yield piece

    def by_quarter(self) -> list[int]:
        """Return the median of each quarter."""
        quarters = np.array_split([n_bytes for _, n_bytes in self.bytes_at], 4)
        return [int(np.median(quarter)) if quarter.size else 0 for quarter in quarters]


@dataclass(frozen=True, slots=True)
class HeldCall:
    """The long call and what was made of it.

    Attributes:
        call: What was in it.
        run: What the session said.
        memory: Memory while it ran.
        alone: What each recording alone becomes, by name.
    """

    call: LongCall
    run: VirtualRun
    memory: MemoryLog
    alone: Mapping[str, str]

    def as_json(self) -> dict[str, object]:
        """Return its figures."""
        found = outcomes(self.call, self.run.arrivals, self.alone)
        stray, n_shown = words_in_holds(self.run.arrivals, self.call.holds)
        held_ms = sum(hold.end_ms - hold.start_ms for hold in self.call.holds)
        return {
            "minutes": round(self.run.duration_ms / MINUTE_MS, 2),
            "n_recordings": len(found),
            "n_hold_parts": len(self.call.holds),
            "hold_minutes": round(held_ms / MINUTE_MS, 2),
            "final_words_in_hold_parts": stray,
            "n_captions_with_words_in_hold_parts": n_shown,
            "errors_in_call": errors_as_json(sum((o.mixed for o in found), Errors())),
            "errors_alone": errors_as_json(sum((o.alone for o in found), Errors())),
            "n_lost": sum(o.is_lost for o in found),
            "n_doubled": sum(o.is_doubled for o in found),
            "n_looping": sum(o.is_looping for o in found),
            "n_changed_committed": changed_commitments(self.run.arrivals),
            "step_lag_ms_by_quarter": quarter_lags(self.run.steps),
            "memory_bytes_by_quarter": self.memory.by_quarter(),
            "cpu_s_per_audio_s": round(self.run.compute_ms / self.run.duration_ms, 4),
            "step_ms": percentiles([step.compute_ms for step in self.run.steps]),
            "recordings": [o.as_json() for o in found],
        }


def hold_call(
    listener: VirtualListener, call: LongCall, alone: Mapping[str, str], profile: str
) -> HeldCall:
    """Listen to a long call in mu-law."""
    packets = Network().carry(Leg().send(call.stream.samples), np.random.default_rng(0))
    memory = MemoryLog()
    wishes = StreamOptions(language="en", profile=profile)
    return HeldCall(
        call, listener.listen_to(memory.watch(received(packets)), wishes), memory, alone
    )


def judge(rows: Mapping[str, Row]) -> list[Verdict]:
    """Return a verdict on every target that was measured."""
    verdicts = []
    if {WIDE, MULAW} <= rows.keys():
        points = paired_points(rows[MULAW].counted, rows[WIDE].counted)
        note = f"{points['low']} to {points['high']}"
        verdicts.append(
            Verdict("mu-law over 16 kHz", points["difference"], MOST_POINTS, "points", note)
        )
    for name, what in ((KEYS, "pressed keys"), (ECHO_KNOWN, "the other side's echo")):
        if name in rows:
            n_stray = sum(map(len, rows[name].stray.values()))
            verdicts.append(Verdict(f"words made of {what}", n_stray, 0))
    return verdicts


def judge_call(held: HeldCall) -> list[Verdict]:
    """Return a verdict on every target of the long call."""
    found = outcomes(held.call, held.run.arrivals, held.alone)
    stray, n_shown = words_in_holds(held.run.arrivals, held.call.holds)
    lags_ms, memory = quarter_lags(held.run.steps), held.memory.by_quarter()
    return [
        Verdict("final words in hold parts", len(stray), 0),
        Verdict("captions with a word in hold parts", n_shown, 0),
        Verdict("recordings lost", sum(o.is_lost for o in found), 0, note=f"of {len(found)}"),
        Verdict("recordings doubled", sum(o.is_doubled for o in found), 0),
        Verdict("recordings that loop", sum(o.is_looping for o in found), 0),
        Verdict("committed words changed", changed_commitments(held.run.arrivals), 0),
        Verdict("lag grew", float(not is_lag_steady(lags_ms)), 0, note=f"{lags_ms} ms"),
        Verdict(
            "memory at the end over the second quarter",
            float(memory[3] - memory[1]),
            MEMORY_SLACK_BYTES,
            "bytes",
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Listen, write, judge; return the exit status."""
    args = parse_arguments(arguments)
    origin = provenance()
    english = [one for one in chosen_recordings(args) if one.language == "en"]
    recognizer, open_detector = load_recognizer(args.model), SileroModel.load().open
    listener = VirtualListener(recognizer, open_detector)
    one_thread()
    names = [name for name in args.conditions if name in CONDITIONS]
    if args.minutes and MULAW not in names:
        names.append(MULAW)  # what each recording alone becomes
    settings = {"model": args.model, "profile": args.profile, "seed": args.seed}
    rows = measure_rows(listener, english, names, args.profile)
    if ECHO_KNOWN in args.conditions:
        legs = TwoLegListener(recognizer, open_detector)
        rows[ECHO_KNOWN] = measure_echo(legs, english, args.profile)
    verdicts = judge(rows)
    content: dict[str, object] = {
        "settings": settings,
        "targets": [verdict.as_json() for verdict in verdicts],
        "conditions": {name: row.as_json(rows.get(WIDE)) for name, row in rows.items()},
    }
    path = write_results("telephone", content, origin, args.out)
    plot_rows(rows, path.with_suffix(".png"))
    if args.minutes:
        tell(f"a call of {args.minutes:g} min")
        call = long_call(english, args.minutes * MINUTE_MS, args.seed)
        held = hold_call(listener, call, rows[MULAW].texts, args.profile)
        found = judge_call(held)
        content = {
            "settings": settings,
            "targets": [verdict.as_json() for verdict in found],
            **held.as_json(),
        }
        path = write_results("telephone_hold", content, origin, args.out)
        plot_call(held, path.with_suffix(".png"))
        verdicts += found
    for verdict in verdicts:
        print(verdict.line())
    return 0 if all(verdict.is_met for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
