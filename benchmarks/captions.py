"""How late, how right and how steady captions are, through a running server and in real time.

Every recording with a text is sent to a real ``audiokv serve`` as a microphone would send it. The
definitions are in docs/results.md. Writes ``captions.json`` and ``captions.png`` into the results;
the exit status is 1 where a target is not met.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.columns import (
    Column,
    joined_column,
    live_column,
    peer_column,
    tell,
    virtual_columns,
)
from benchmarks.live_stream import TAIL_MS
from benchmarks.measures import percentiles
from benchmarks.plots import plot_captions
from benchmarks.recordings import add_recording_arguments, chosen_recordings
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.targets import judge
from benchmarks.truth import find_truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.recordings import Recording
    from benchmarks.scoring import Summary
    from benchmarks.truth import Truth

MODES = ("auto", "given")


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument(
        "--url", help="a server that runs already; by default one is started on a free port"
    )
    parser.add_argument(
        "--language", choices=MODES, default="auto", help="whether the language is told"
    )
    parser.add_argument("--both", action="store_true", help="measure both ways of --language")
    parser.add_argument(
        "--joined-seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="length of the one live stream a language; 0 leaves it out (default: %(default)s)",
    )
    parser.add_argument(
        "--no-comparison", action="store_true", help="leave out the columns in virtual time"
    )
    parser.add_argument(
        "--peer-python",
        type=Path,
        metavar="FILE",
        help="Python of an environment with whisperlivekit and faster-whisper, measured too",
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


async def measure(
    args: Namespace, recordings: Sequence[Recording], modes: Iterable[str]
) -> list[Column]:
    """Run every way of captioning that is asked for; the server's come first."""
    live: list[Column] = []
    compared: list[Column] = []
    if args.joined_seconds:
        live.append(
            await joined_column(recordings, args.joined_seconds * 1e3, args.model, args.url)
        )
    for mode in modes:
        live.append(await live_column(recordings, mode, args.model, args.url))
        if args.peer_python is not None:
            compared.append(await peer_column(recordings, mode, args.model, args.peer_python))
    if not args.no_comparison:
        for mode in modes:
            compared += virtual_columns(recordings, mode, args.model)
    return [*live, *compared]


def as_json(
    args: Namespace,
    columns: Sequence[Column],
    summaries: Mapping[str, Summary],
    truth: Mapping[str, Truth],
) -> dict[str, object]:
    """Return all figures for the results file."""
    misses = [ms for one in truth.values() for ms in one.alignment_errors_ms]
    return {
        "settings": {"model": args.model, "tail_ms": TAIL_MS, "n_recordings": len(truth)},
        "aligned_less_true_word_end_ms": {
            "signed": percentiles(misses),
            "absolute": percentiles([abs(ms) for ms in misses]),
        },
        "columns": {
            column.name: {
                **summaries[column.name].as_json(),
                "cost": column.cost,
                "recordings": [one.as_json() for one in summaries[column.name].scores],
            }
            for column in columns
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, judge; return the exit status."""
    args = parse_arguments(arguments)
    recordings = chosen_recordings(args)
    modes = MODES if args.both else (args.language,)
    origin = provenance()
    columns = asyncio.run(measure(args, recordings, modes))
    tell("offline decoding and alignment")
    truth = find_truth(args.model, recordings)
    summaries = {column.name: column.summary(recordings, truth) for column in columns}
    judged = [column.name for column in columns if column.name.startswith("audiokv, real")]
    verdicts = {name: judge(summaries[name]) for name in judged}
    content = as_json(args, columns, summaries, truth)
    content["verdicts"] = {name: [v.as_json() for v in found] for name, found in verdicts.items()}
    path = write_results("captions", content, origin, args.out)
    plot_captions(summaries, path.with_suffix(".png"))
    for name, found in verdicts.items():
        print(name, *(verdict.line() for verdict in found), sep="\n  ")
    for column in columns:
        print(_line(column, summaries[column.name]))
    return 0 if all(v.is_met for found in verdicts.values() for v in found) else 1


def _line(column: Column, summary: Summary) -> str:
    rates = ", ".join(
        f"{language} {100 * streaming.rate:.1f}"
        for language, (streaming, _) in summary.errors_by_language().items()
    )
    return (
        f"{column.name}\n"
        f"  errors % {rates}\n"
        f"  shown {summary.shown}  committed {summary.committed}  final {summary.finalised}\n"
        f"  erasure {summary.erasure:.3f} (strict {summary.strict_erasure:.3f}), "
        f"changed {summary.n_changed}, cost {column.cost}"
    )


if __name__ == "__main__":
    sys.exit(main())
