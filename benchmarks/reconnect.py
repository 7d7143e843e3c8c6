"""Whether a stream whose connection is cut again and again says what an undisturbed one says.

A real server, real time, our own client. Several recordings run in one stream; ten times, at random
moments, every connection is aborted and none is let through for three seconds. Writes
``reconnect.json`` into the results; the exit status is 1 where the final words differ from those of
the undisturbed run.
"""

from __future__ import annotations

import asyncio
import random
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.streaming.audio_format import AudioFormat
from benchmarks.columns import tell
from benchmarks.live_stream import LiveRun, Speech, split, stream_in_real_time
from benchmarks.measures import changed_commitments, final_text, final_words
from benchmarks.mixed_stream import mix
from benchmarks.recordings import add_recording_arguments, chosen_recordings, to_pcm
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.server_process import serving
from benchmarks.wire import wired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.wire import Wire

FIRST_CUT_S = 1.0
END_MARGIN_S = 1.0
BACK_S = 5.0  # the client has that long to come back before the next cut


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument(
        "--max-lag-ms",
        metavar="MS",
        help="how late the started server is before it merges steps; by default its own setting",
    )
    parser.add_argument("--cuts", type=int, default=10, help="default: %(default)s")
    parser.add_argument(
        "--cut-seconds", type=float, default=3.0, help="length of each (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="length of the stream (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the stream and of the cuts")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


def cut_moments_s(n_cuts: int, cut_s: float, duration_s: float, seed: int) -> list[float]:
    """Return when to cut, in seconds from the start, in order and not overlapping.

    All choices that leave each connection ``BACK_S`` are equally likely.

    Raises:
        SystemExit: So many cuts do not fit.
    """
    taken_s = cut_s + BACK_S
    free_s = duration_s - FIRST_CUT_S - END_MARGIN_S - n_cuts * taken_s
    if free_s <= 0:
        raise SystemExit(
            f"{n_cuts} cuts of {cut_s:g} s do not fit into {duration_s:.0f} s; "
            "give a longer stream with --minutes."
        )
    chance = random.Random(seed)  # noqa: S311  a reproducible choice, not a secret
    offsets_s = sorted(chance.uniform(0.0, free_s) for _ in range(n_cuts))
    return [FIRST_CUT_S + offset + i * taken_s for i, offset in enumerate(offsets_s)]


async def cut_at(wire: Wire, moments_s: Sequence[float], cut_s: float) -> None:
    """Cut the wire at moments counted from now."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for moment_s in moments_s:
        await asyncio.sleep(began_s + moment_s - loop.time())
        await wire.cut(cut_s)


async def measure(
    args: Namespace, speech: Speech, moments_s: Sequence[float]
) -> tuple[LiveRun, LiveRun, Wire]:
    """Return the undisturbed run, the one with cuts, and the wire that was cut."""
    async with AsyncExitStack() as stack:
        flags = ["--max-lag-ms", args.max_lag_ms] if args.max_lag_ms else []
        url = args.url or (await stack.enter_async_context(serving(args.model, flags))).url
        tell(f"undisturbed, {speech.duration_ms / 1e3:.0f} s")
        undisturbed = await stream_in_real_time(url, speech)
        tell(f"with {len(moments_s)} cuts")
        wire, wired_url = await stack.enter_async_context(wired(url))
        cutting = asyncio.create_task(cut_at(wire, moments_s, args.cut_seconds))
        cut = await stream_in_real_time(wired_url, speech)
        await cutting
    return undisturbed, cut, wire


def words_of(run: LiveRun) -> list[tuple[str, int, int]]:
    """Return final words with their times."""
    return [(w.text, w.start_ms, w.end_ms) for w in final_words(run.arrivals)]


def as_json(run: LiveRun) -> dict[str, object]:
    """Return a run for the results file."""
    seqs = [a.caption.seq for a in run.arrivals]
    return {
        "text": final_text(run.arrivals),
        "n_captions": len(seqs),
        "n_captions_out_of_order": sum(b <= a for a, b in pairwise(seqs)),
        "n_final_captions": sum(a.caption.is_final for a in run.arrivals),
        "n_changed_committed": changed_commitments(run.arrivals),
        "notices": dict(Counter(code for _, code in run.notices)),
        "outages_s": [round(ms / 1e3, 2) for ms in run.outages_ms],
        "max_lag_ms": run.max_lag_ms,
        "end_lag_ms": run.end_lag_ms,
        "done_after_ms": round(run.done_after_ms, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Stream twice, compare, write; return the exit status."""
    args = parse_arguments(arguments)
    recordings = chosen_recordings(args)
    origin = provenance()
    stream = mix(recordings, args.minutes * 60_000, args.seed)
    audio_format = AudioFormat()
    speech = Speech(audio_format, tuple(split(to_pcm(stream.samples), audio_format)))
    moments_s = cut_moments_s(args.cuts, args.cut_seconds, speech.duration_ms / 1e3, args.seed)
    undisturbed, cut, wire = asyncio.run(measure(args, speech, moments_s))
    is_text_equal = final_text(undisturbed.arrivals) == final_text(cut.arrivals)
    content: dict[str, object] = {
        "settings": {
            "model": args.model,
            "seed": args.seed,
            "max_lag_ms": args.max_lag_ms or "the server's default",
            "cut_s": args.cut_seconds,
            "stream_s": round(speech.duration_ms / 1e3, 1),
        },
        "cuts_at_s": [round(moment_s, 2) for moment_s in moments_s],
        "n_connections_cut": wire.n_cut_connections,
        "n_connections_refused": wire.n_refused,
        "is_text_equal": is_text_equal,
        "are_word_times_equal": words_of(undisturbed) == words_of(cut),
        "undisturbed": as_json(undisturbed),
        "cut": as_json(cut),
    }
    write_results("reconnect", content, origin, args.out)
    print("undisturbed:", final_text(undisturbed.arrivals))
    print("cut:        ", final_text(cut.arrivals))
    print(
        "met     " if is_text_equal else "NOT MET ",
        f"same text after {wire.n_cut_connections} cut connections "
        f"({wire.n_refused} attempts refused meanwhile)",
    )
    return 0 if is_text_equal and wire.n_cut_connections == args.cuts else 1


if __name__ == "__main__":
    sys.exit(main())
