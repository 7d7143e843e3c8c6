"""The small Gemma-3n on spoken digits: live against offline, and an hour under a budget of slots.

Strings of digits, each a live stream of its own, are held against greedy decoding of the same audio
at once. Then one long stream runs through a session in virtual time: its error, memory, step time
and cache, ten minutes by ten minutes, and whether any of it grows. Writes ``digit_strings.json``,
``digit_hour.json`` and ``digit_hour.png`` into the results; the exit status is 1 where a target is
not met.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_cache import CacheOptions
from benchmarks.columns import tell
from benchmarks.digit_comparison import (
    GROUPS,
    OfflineDigits,
    comparison_as_json,
    comparison_verdicts,
    hear_both_ways,
    strings_of_group,
)
from benchmarks.digit_figures import run_as_json, run_verdicts
from benchmarks.digit_hour import MINUTE_MS, Observed, hear
from benchmarks.digit_plots import plot_digits
from benchmarks.digit_streams import (
    DEFAULT_DIGITS,
    DIGITS_MODEL,
    bank_of_test_takes,
    digit_stream,
)
from benchmarks.measures import errors
from benchmarks.recordings import SAMPLES_PER_MS
from benchmarks.results_file import REPOSITORY, RESULTS, provenance, write_results
from benchmarks.virtual_stream import VirtualListener, one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.digit_streams import DigitStream
    from benchmarks.measures import Errors
    from benchmarks.targets import Verdict
    from tools.digits_data import DigitBank

SETTINGS_FILE = "audiokv.json"


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument(
        "--digits", type=Path, default=DEFAULT_DIGITS, metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "--checkpoint", type=Path, default=REPOSITORY / DIGITS_MODEL, help="default: %(default)s"
    )
    parser.add_argument(
        "--digits-a-group",
        type=int,
        default=400,
        metavar="N",
        help="at least so many in each group of lengths; 0 leaves the comparison out "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        help="of the long stream; 0 leaves it out (default: %(default)s)",
    )
    parser.add_argument("--budget-slots", type=int, default=256, metavar="N")
    parser.add_argument("--policy", default="audiokv", help="default: %(default)s")
    parser.add_argument(
        "--max-positions",
        type=int,
        default=4096,
        metavar="N",
        help="positions the checkpoint was trained for, if it does not say (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


def copy_with_positions(checkpoint: Path, max_positions: int, folder: Path) -> Path:
    """Copy a checkpoint, with a number of positions where it does not name one itself.

    Args:
        checkpoint: Its folder.
        max_positions: The number.
        folder: Where the copy goes; must not exist.
    """
    shutil.copytree(checkpoint, folder)
    file = folder / SETTINGS_FILE
    settings = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    file.write_text(json.dumps({"max_positions": max_positions} | settings), "utf-8")
    return folder


def measure_strings(
    args: Namespace, checkpoint: Path, bank: DigitBank, origin: Mapping[str, object]
) -> list[Verdict]:
    """Hear single strings live and offline; write the figures and return verdicts."""
    offline = OfflineDigits(checkpoint)
    recognizer = load_recognizer(str(checkpoint), CacheOptions())
    listener = VirtualListener(recognizer, SileroModel.load().open)
    groups = {}
    for name, lengths in GROUPS.items():
        strings = strings_of_group(bank, lengths, args.digits_a_group, args.seed)
        tell(f"{len(strings)} strings of {name}")
        groups[name] = hear_both_ways(strings, offline, listener)
    verdicts = comparison_verdicts(groups)
    content = {
        "settings": {"checkpoint": args.checkpoint.name, "seed": args.seed},
        "verdicts": [verdict.as_json() for verdict in verdicts],
        **comparison_as_json(groups),
    }
    write_results("digit_strings", content, origin, args.out)
    return verdicts


def measure_stream(
    args: Namespace, checkpoint: Path, bank: DigitBank, origin: Mapping[str, object]
) -> list[Verdict]:
    """Hear the long stream; write the figures, draw them and return verdicts."""
    cache = CacheOptions(args.budget_slots, args.policy)
    observed = Observed(load_recognizer(str(checkpoint), cache))
    listener = VirtualListener(observed, SileroModel.load().open)
    stream = digit_stream(bank, args.minutes * MINUTE_MS, args.seed)
    tell(f"{args.minutes:g} min with {stream.n_digits} digits")
    run = hear(stream, observed, listener, args.budget_slots)
    tell("the same strings offline")
    offline = errors_offline(stream, OfflineDigits(checkpoint))
    verdicts = run_verdicts(run, offline)
    content = {
        "settings": {
            "checkpoint": args.checkpoint.name,
            "policy": args.policy,
            "budget_slots": args.budget_slots,
            "seed": args.seed,
        },
        "verdicts": [verdict.as_json() for verdict in verdicts],
        **run_as_json(run, offline),
    }
    path = write_results("digit_hour", content, origin, args.out)
    plot_digits(run, offline, path.with_suffix(".png"))
    return verdicts


def errors_offline(stream: DigitStream, offline: OfflineDigits) -> list[Errors]:
    """Return the errors of decoding each string of a stream by itself, at once."""
    return [
        errors(
            one.text,
            offline.text(
                stream.samples[
                    round(one.start_ms * SAMPLES_PER_MS) : round(one.end_ms * SAMPLES_PER_MS)
                ]
            ),
            "en",
        )
        for one in stream.strings
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Listen, write, judge; return the exit status."""
    args = parse_arguments(arguments)
    origin = provenance()
    one_thread()
    bank = bank_of_test_takes(args.digits)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = copy_with_positions(
            args.checkpoint, args.max_positions, Path(scratch) / args.checkpoint.name
        )
        if args.digits_a_group:
            verdicts += measure_strings(args, checkpoint, bank, origin)
        if args.minutes:
            verdicts += measure_stream(args, checkpoint, bank, origin)
    for verdict in verdicts:
        print(verdict.line())
    return 0 if all(verdict.is_met for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
