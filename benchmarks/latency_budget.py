"""From the end of a word to its caption: every part named, measured or computed, and added up.

Whisper and the small Gemma-3n are timed as they run, and their sums are held against latencies
that were measured as a whole. Gemma-3n E2B and E4B are put together from layers of their real
sizes with random weights on the device asked for. Writes ``latency_budget.json`` and
``latency_budget.png`` into the results; the exit status is 1 where a sum is far from what was
measured of the same.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch

from audiokv.models.gemma3n.checkpoint import best_device, best_dtype
from audiokv.models.silero import SileroModel
from benchmarks.budget_layers import StepShape
from benchmarks.budget_models import Around, digits_budget, size_budget, whisper_budget
from benchmarks.budget_plot import plot_budgets
from benchmarks.columns import tell
from benchmarks.digit_streams import DEFAULT_DIGITS, DIGITS_MODEL, bank_of_test_takes
from benchmarks.gemma3n_sizes import SIZES, real_config, weight_bytes
from benchmarks.recordings import add_recording_arguments, chosen_recordings
from benchmarks.results_file import REPOSITORY, RESULTS, provenance, write_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.budget_parts import Budget

MODELS = ("whisper", "digits", *SIZES)
TOLERANCE_PERCENT = 15.0
_MEMORY_SHARE = 0.7  # of what is free, for the whole model


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    shape = StepShape()
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME")
    parser.add_argument(
        "--device", help="of E2B and E4B: cpu, cuda, cuda:1 (default: a GPU where there is one)"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    parser.add_argument(
        "--depth",
        choices=("auto", "whole", "kinds"),
        default="auto",
        help="build E2B and E4B whole, or one layer of each kind; auto: whole on a GPU it fits",
    )
    parser.add_argument(
        "--prefix-slots", type=int, default=shape.prefix_slots, help="default: %(default)s"
    )
    parser.add_argument(
        "--word-tokens",
        type=float,
        default=shape.word_tokens,
        help="tokens of a word for E2B and E4B (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="of each pass (default: %(default)s)"
    )
    parser.add_argument("--digits", type=Path, default=DEFAULT_DIGITS, metavar="DIR")
    parser.add_argument(
        "--digits-seconds", type=float, default=60.0, help="of speech (default: %(default)s)"
    )
    parser.add_argument("--whisper", default="whisper-base", help="name or folder of the model")
    parser.add_argument(
        "--captions",
        type=Path,
        default=RESULTS / "captions.json",
        metavar="FILE",
        help="measured latencies that Whisper's sum is held against",
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


def chosen_device(args: Namespace) -> torch.device:
    """Return the device asked for.

    Raises:
        SystemExit: There is no such device.
    """
    device = torch.device(args.device) if args.device else best_device()
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"There is no {device}. Leave --device out, or say --device cpu.")
    return device


def is_whole(depth: str, device: torch.device, n_bytes: int) -> bool:
    """Tell whether to build every layer.

    Args:
        depth: ``whole``, ``kinds`` or ``auto``.
        device: Where it would be.
        n_bytes: What it would take.
    """
    if depth != "auto":
        return depth == "whole"
    if device.type != "cuda":
        return False  # filling billions of weights takes longer than all the rest
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return n_bytes < _MEMORY_SHARE * free_bytes


def find_budgets(args: Namespace) -> list[Budget]:
    """Measure all that is asked for."""
    tell("what lies around the recogniser")
    around = Around.measured(SileroModel.load())
    budgets: list[Budget] = []
    if "whisper" in args.models:
        tell(args.whisper)
        recordings = chosen_recordings(args)
        budgets.append(whisper_budget(recordings, args.whisper, around, args.captions))
    if "digits" in args.models:
        tell("digits")
        bank = bank_of_test_takes(args.digits)
        folder = REPOSITORY / DIGITS_MODEL
        budgets.append(digits_budget(folder, bank, args.digits_seconds, around))
    torch.set_num_threads(1)
    device = chosen_device(args)
    dtype = getattr(torch, args.dtype) if args.dtype else best_dtype(device)
    shape = StepShape(prefix_slots=args.prefix_slots, word_tokens=args.word_tokens)
    for size in (one for one in SIZES if one in args.models):
        tell(f"{size} on {device}")
        whole = is_whole(args.depth, device, weight_bytes(real_config(size), dtype))
        budgets.append(
            size_budget(size, device, dtype, shape, around, repeats=args.repeats, is_whole=whole)
        )
    return budgets


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, add up, write; return the exit status."""
    args = parse_arguments(arguments)
    origin = provenance()
    load_before = psutil.getloadavg()[0]
    budgets = find_budgets(args)
    content: dict[str, object] = {
        "settings": {
            "prefix_slots": args.prefix_slots,
            "word_tokens": args.word_tokens,
            "repeats": args.repeats,
            "load_1_min_before": round(load_before, 2),
            "load_1_min_after": round(psutil.getloadavg()[0], 2),
        },
        "tolerance_percent": TOLERANCE_PERCENT,
        "budgets": [budget.as_json() for budget in budgets],
    }
    path = write_results("latency_budget", content, origin, args.out)
    plot_budgets(budgets, path.with_suffix(".png"))
    print("\n\n".join(budget.table() for budget in budgets))
    checks = [check for budget in budgets for check in budget.checks]
    return int(any(abs(check.is_over_percent) > TOLERANCE_PERCENT for check in checks))


if __name__ == "__main__":
    sys.exit(main())
