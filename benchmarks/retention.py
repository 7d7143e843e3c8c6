"""What is lost when a cache keeps only a part of the audio, policy by policy, at equal bytes.

Three modes, never in one table (docs/retention.md has the definitions): P evicts once after a whole
clip, D holds a constant budget while it decodes, S is a live session in virtual time. What the
product does is S. Rows are appended to ``results/retention/MODE_MODEL_SPEECH.jsonl``; a run goes on
where another stopped, and several may run at once. Tables and plots are made of all that is there.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.models.weights import resolve_model
from benchmarks.recordings import DEFAULT_MANIFEST
from benchmarks.results_file import provenance, write_results
from benchmarks.retention_policies import variants
from benchmarks.retention_report import report
from benchmarks.retention_rows import FOLDER, Table
from benchmarks.retention_speech import SPEECH_NAMES, read_speech
from benchmarks.virtual_stream import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.retention_policies import Variant
    from benchmarks.retention_rows import Row
    from benchmarks.retention_speech import Clip
    from benchmarks.retention_streaming import BoundedModel

    Measure = Callable[[list[Clip], Table], Iterator[Row]]

MODES = ("P", "D", "S")
RETENTIONS = (80, 60, 40, 20, 10, 5)
FEW_POLICIES = ("audiokv", "uniform", "streaming-llm")
FEW_RETENTIONS = (40, 20)
DTYPES = ("float32", "bfloat16")


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="S")
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument("--policies", type=_names, default=list(FEW_POLICIES), metavar="A,B")
    parser.add_argument(
        "--retention",
        type=_percents,
        default=list(FEW_RETENTIONS),
        metavar="40,20",
        help="per cent of the slots (default: %(default)s)",
    )
    parser.add_argument(
        "--speech",
        nargs="+",
        choices=SPEECH_NAMES,
        default=["english"],
        metavar="NAME",
        help=f"some of {', '.join(SPEECH_NAMES)} (default: english)",
    )
    parser.add_argument("--seeds", type=int, default=3, help="of random (default: %(default)s)")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="of Whisper's matrix products (default: bfloat16 in S, as live on processors that "
        "have it, else float32); a Gemma-3n's own settings name its type",
    )
    parser.add_argument(
        "--again", type=_names, default=[], metavar="A,B", help="measure these anew"
    )
    parser.add_argument("--report", action="store_true", help="only make tables and plots")
    parser.add_argument("--manifest", type=Path, default=DEFAULT_MANIFEST)
    parser.add_argument(
        "--out", type=Path, default=FOLDER, metavar="DIR", help="default: %(default)s"
    )
    args = parser.parse_args(arguments)
    args.dtype = args.dtype or ("bfloat16" if args.mode == "S" else "float32")
    return args


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _percents(text: str) -> list[int]:
    return [int(name) for name in _names(text)]


def streaming(args: Namespace, chosen: list[Variant]) -> Measure:
    """Return what measures in mode S."""
    from audiokv.models.silero import SileroModel  # noqa: PLC0415  seconds to import
    from benchmarks.retention_streaming import StreamingRunner  # noqa: PLC0415  likewise

    runner = StreamingRunner(bounded_model(args), SileroModel.load().open)
    return lambda clips, table: runner.rows(clips, chosen, args.retention, table, args.again)


def bounded_model(args: Namespace) -> BoundedModel:
    """Return the model as mode S needs it."""
    import torch  # noqa: PLC0415  seconds to import

    from benchmarks.retention_gemma import BoundedGemma  # noqa: PLC0415  likewise
    from benchmarks.retention_whisper import BoundedWhisper  # noqa: PLC0415  likewise

    if is_gemma(args.model):
        return BoundedGemma(args.model)
    return BoundedWhisper(args.model, getattr(torch, args.dtype))


def is_gemma(name: str) -> bool:
    """Tell a Gemma-3n from a Whisper; the former's folder says which type it computes in."""
    config = json.loads((resolve_model(name).folder / "config.json").read_text("utf-8"))
    return bool(config["model_type"] == "gemma3n")


def static(args: Namespace, chosen: list[Variant]) -> Measure:
    """Return what measures in modes P and D.

    Raises:
        SystemExit: The model is no Whisper.
    """
    if is_gemma(args.model):
        raise SystemExit(f"{args.model} is a Gemma-3n, which is measured in --mode S only.")
    import torch  # noqa: PLC0415  seconds to import

    from benchmarks.retention_batch import BatchedWhisper  # noqa: PLC0415  likewise
    from benchmarks.retention_static import StaticRunner  # noqa: PLC0415  likewise

    model = BatchedWhisper(args.model, getattr(torch, args.dtype))
    runner = StaticRunner(model, counts_text=args.mode == "D")
    return lambda clips, table: runner.rows(clips, chosen, args.retention, table, args.again)


def settings_of(args: Namespace) -> dict[str, object]:
    """Return what a run's rows depend on besides the code; a folder's weights may change."""
    settings = {name: getattr(args, name) for name in ("policies", "retention", "seeds")}
    if not is_gemma(args.model):
        return {**settings, "dtype": args.dtype}
    parts = sorted(resolve_model(args.model).folder.glob("model*.safetensors"))
    digests = [sha256(part.read_bytes()).hexdigest() for part in parts]
    return {**settings, "weights_sha256": digests}


def measure(args: Namespace) -> None:
    """Fill the tables of the wanted speech."""
    one_thread()
    chosen = variants(args.policies, args.seeds)
    origin = provenance()
    run = (streaming if args.mode == "S" else static)(args, chosen)
    settings = settings_of(args)
    for speech in args.speech:
        table = Table.open(args.mode, args.model, speech, args.out)
        table.begin(origin, settings)
        began_s = time.monotonic()
        n_rows = 0
        for row in run(read_speech(speech, args.manifest), table):
            n_rows += 1
            print(_line(row), flush=True)
        print(f"{speech}: {n_rows} rows in {time.monotonic() - began_s:.0f} s", flush=True)


def _line(row: Row) -> str:
    cell, held = row.cell, row.held
    return (
        f"{cell.retention_percent:3} % {cell.policy}/{cell.seed} {cell.clip}: "
        f"{row.n_errors}/{row.n_reference} errors, "
        f"{held.max_of_budget:.1%} of {held.budget_slots} slots at most"
        f"{', collapsed' if row.is_collapsed else ''}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or report; returns the exit status."""
    args = parse_arguments(arguments)
    if not args.report:
        measure(args)
    model = Path(args.model).name
    figures = report(args.mode, model, args.out)
    name = f"retention_{args.mode}_{model}"
    write_results(name, {"figures": figures}, provenance(), args.out.parent)
    print((args.out / f"{args.mode}_{model}.md").read_text("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
