"""What captions do over minutes of silence, noise and music, and of speech between long pauses.

Runs sessions with real weights in virtual time. Writes ``soak.json`` into the results; the exit
status is 1 where a word was shown that nobody said, a sentence was lost, doubled or looped, or the
stream was later at its end than at its start.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from benchmarks.columns import tell, wished_language
from benchmarks.measures import (
    Errors,
    changed_commitments,
    final_text,
    n_words_ever_shown,
    percentiles,
)
from benchmarks.mixed_stream import mix, outcome, words_of_each
from benchmarks.recordings import (
    SAMPLES_PER_MS,
    add_recording_arguments,
    chosen_recordings,
    near_silence,
)
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.scoring import errors_as_json
from benchmarks.sounds import SOUNDS
from benchmarks.virtual_stream import VirtualListener, one_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.recordings import Recording
    from benchmarks.virtual_stream import Step, VirtualRun

MINUTE_MS = 60_000
TAIL_MS = 2000
LAG_GROWTH = 1.25  # how much later the last quarter's median step may be than the first's
LAG_SLACK_MS = 50.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold.

    Attributes:
        name: What was put in, and what is asked.
        is_met: Whether it holds.
        detail: The figure.
    """

    name: str
    is_met: bool
    detail: str

    def as_json(self) -> dict[str, object]:
        """Return it for the results file."""
        return {"check": self.name, "is_met": self.is_met, "detail": self.detail}


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument(
        "--sound-minutes", type=float, default=10.0, help="of each sound (default: %(default)s)"
    )
    parser.add_argument(
        "--speech-minutes", type=float, default=5.0, help="of speech (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of order and pauses")
    parser.add_argument(
        "--language", choices=("auto", "given"), default="auto", help="given: English streams only"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


def soak_sounds(listener: VirtualListener, minutes: float) -> tuple[dict[str, object], list[Check]]:
    """Listen to every sound; return figures and checks."""
    figures: dict[str, object] = {}
    checks: list[Check] = []
    for name, make in SOUNDS.items():
        tell(f"{minutes:g} min of {name}")
        run = listener.listen(make(int(minutes * MINUTE_MS) * SAMPLES_PER_MS))
        n_words = n_words_ever_shown(run.arrivals)
        figures[name] = {
            "minutes": minutes,
            "n_words_shown": n_words,
            "text": final_text(run.arrivals),
            **_cost(run),
        }
        checks.append(Check(f"{name}: no word shown", n_words == 0, f"{n_words} words"))
    return figures, checks


def _cost(run: VirtualRun) -> dict[str, object]:
    return {
        "n_steps": len(run.steps),
        "cpu_s_per_audio_s": round(run.compute_ms / run.duration_ms, 4),
        "step_ms": percentiles([step.compute_ms for step in run.steps]),
    }


def soak_speech(
    name: str, listener: VirtualListener, recordings: Sequence[Recording], args: Namespace
) -> tuple[dict[str, object], list[Check]]:
    """Listen to recordings between pauses, all in one stream; return figures and checks."""
    stream = mix(recordings, args.speech_minutes * MINUTE_MS, args.seed)
    language = recordings[0].language if args.language == "given" else None
    tell(f"{name}: {len(stream.spoken)} recordings in one stream")
    run = listener.listen(stream.samples, language)
    alone = {
        recording.name: final_text(
            listener.listen(
                np.concatenate([recording.samples(), near_silence(TAIL_MS * SAMPLES_PER_MS)]),
                wished_language(recording, args.language),
            ).arrivals
        )
        for recording in recordings
    }
    outcomes = [
        outcome(spoken, words, alone[spoken.recording.name])
        for spoken, words in zip(
            stream.spoken, words_of_each(stream.spoken, run.arrivals), strict=True
        )
    ]
    lags = quarter_lags(run.steps)
    figures: dict[str, object] = {
        "minutes": round(run.duration_ms / MINUTE_MS, 2),
        "errors_in_stream": errors_as_json(sum((o.mixed for o in outcomes), Errors())),
        "errors_alone": errors_as_json(sum((o.alone for o in outcomes), Errors())),
        "n_changed_committed": changed_commitments(run.arrivals),
        "step_lag_ms_by_quarter": lags,
        **_cost(run),
        "recordings": [o.as_json() for o in outcomes],
    }
    n_lost = sum(o.is_lost for o in outcomes)
    n_doubled = sum(o.is_doubled for o in outcomes)
    n_looping = sum(o.is_looping for o in outcomes)
    return figures, [
        Check(f"{name}: no sentence lost", not n_lost, f"{n_lost} of {len(outcomes)}"),
        Check(f"{name}: no sentence doubled", not n_doubled, f"{n_doubled} of {len(outcomes)}"),
        Check(f"{name}: no loop", not n_looping, f"{n_looping} of {len(outcomes)}"),
        Check(
            f"{name}: no committed word changed",
            not figures["n_changed_committed"],
            str(figures["n_changed_committed"]),
        ),
        Check(f"{name}: lag at the end as at the start", is_lag_steady(lags), f"{lags} ms"),
    ]


def quarter_lags(steps: Sequence[Step]) -> list[float]:
    """Return the median lag in ms of each quarter of the steps."""
    quarters = np.array_split([step.lag_ms for step in steps], 4)
    return [round(float(np.median(quarter)), 1) if quarter.size else 0.0 for quarter in quarters]


def is_lag_steady(quarters_ms: Sequence[float]) -> bool:
    """Tell whether the last quarter is about as late as the first."""
    return quarters_ms[-1] <= quarters_ms[0] * LAG_GROWTH + LAG_SLACK_MS


def main(arguments: Sequence[str] | None = None) -> int:
    """Listen, write, judge; return the exit status."""
    args = parse_arguments(arguments)
    recordings = chosen_recordings(args)
    origin = provenance()
    listener = VirtualListener(load_recognizer(args.model), SileroModel.load().open)
    one_thread()
    speech: dict[str, object] = {}
    checks: list[Check] = []
    english = [r for r in recordings if r.language == "en"]
    streams = {"English": english}
    if args.language == "auto" and len(english) < len(recordings):
        streams["all languages"] = recordings
    for name, chosen in streams.items():
        if chosen:
            speech[name], found = soak_speech(name, listener, chosen, args)
            checks += found
    sounds, found = soak_sounds(listener, args.sound_minutes)
    checks += found
    content = {
        "settings": {"model": args.model, "seed": args.seed, "language": args.language},
        "checks": [check.as_json() for check in checks],
        "speech": speech,
        "sounds": sounds,
    }
    write_results("soak", content, origin, args.out)
    for check in checks:
        print("met     " if check.is_met else "NOT MET ", check.name, f"({check.detail})")
    return 0 if all(check.is_met for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
