"""What a GPU does with many streams of Gemma-3n: time of a step, first words, streams it carries.

Real shapes, random weights, nothing downloaded: speed does not depend on what the weights say. For
each size, budget and number of streams the parts of a step are timed, as they are, captured in
CUDA graphs, and, where that is asked for, compiled for a few shapes. Writes ``gpu.json`` into the
results after each of them, so that what was measured is kept whatever happens; after
``--max-minutes`` nothing new is begun.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import Gemma3nConfig

from audiokv.models.gemma3n.checkpoint import best_dtype
from audiokv.models.gemma3n.speech_model import SpeechModel
from audiokv.streaming.errors import ConfigError
from benchmarks.budget_layers import DeviceClock
from benchmarks.columns import tell
from benchmarks.gemma3n_sizes import SIZES, build_model, real_config
from benchmarks.gpu_passes import Mode, SharedPasses, StepSize
from benchmarks.results_file import RESULTS, provenance, write_results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TINY = "tiny"
_TINY_TEXT: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 32,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": 32,
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 12,
    "laurel_rank": 4,
    "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0, 0.0, 0.0],
}
_TINY_AUDIO: dict[str, Any] = {
    "vocab_size": 8,
    "hidden_size": 24,
    "conf_num_attention_heads": 2,
    "conf_num_hidden_layers": 2,
    "sscp_conv_channel_size": (6, 4),
}
_DEFAULT_MODES = [Mode.EAGER, Mode.GRAPH]  # compiling takes minutes a shape
_MAX_LOAD = 0.8  # of the time between two steps
_COMPILED_STREAMS = (1, 16)
_HEADLINE_SLOTS = 1024


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu (default: %(default)s)")
    parser.add_argument(
        "--shape",
        nargs="+",
        choices=(*SIZES, TINY),
        default=tuple(SIZES),
        help="sizes of the model (default: all published ones)",
    )
    parser.add_argument(
        "--streams", nargs="+", type=int, default=[16, 1, 64, 4, 32, 8, 2], metavar="N"
    )
    parser.add_argument(
        "--budget-slots", nargs="+", type=int, default=[1024, 256, 4096], metavar="N"
    )
    parser.add_argument("--modes", nargs="+", type=Mode, choices=list(Mode), default=_DEFAULT_MODES)
    parser.add_argument("--step-ms", type=int, default=StepSize().step_ms)
    parser.add_argument("--repeats", type=int, default=5, help="of each part")
    parser.add_argument("--max-minutes", type=float, default=5.0, help="nothing new after that")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    return parser.parse_args(arguments)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure.

    Attributes:
        shape: Size of the model.
        budget_slots: Slots each stream holds.
        n_streams: Streams that are due together.
        mode: How passes are started.
    """

    shape: str
    budget_slots: int
    n_streams: int
    mode: Mode


def plain_cases(wanted: Namespace, shape: str) -> list[Case]:
    """Return what is to be measured of a size, the most telling first."""
    modes = [mode for mode in wanted.modes if mode is not Mode.COMPILED]
    return [
        Case(shape, budget, n_streams, mode)
        for budget in wanted.budget_slots
        for n_streams in wanted.streams
        for mode in modes
    ]


def compiled_cases(wanted: Namespace, shape: str) -> list[Case]:
    """Return the few that are compiled too, which takes minutes."""
    if Mode.COMPILED not in wanted.modes:
        return []
    budgets = wanted.budget_slots
    budget = _HEADLINE_SLOTS if _HEADLINE_SLOTS in budgets else budgets[0]
    few = [n for n in wanted.streams if n in _COMPILED_STREAMS] or wanted.streams[:1]
    return [Case(shape, budget, n_streams, Mode.COMPILED) for n_streams in few]


def step_ms(parts_ms: Mapping[str, float], size: StepSize) -> float:
    """Return what a step of all streams takes: copies are loaded twice, tokens come one by one."""
    once = sum(parts_ms[name] for name in ("encode", "read", "keep", "tail"))
    return once + 2 * parts_ms["load"] + size.token_passes * parts_ms["token"]


def summary(parts_ms: Mapping[str, Sequence[float]], size: StepSize) -> dict[str, object]:
    """Return medians, their sum, and what follows for a stream."""
    medians = {name: float(np.median(values)) for name, values in parts_ms.items()}
    whole_ms = step_ms(medians, size)
    return {
        "parts_ms": {name: round(value, 3) for name, value in medians.items()},
        "step_compute_ms": round(whole_ms, 3),
        # A word ends anywhere between two steps, and is shown when the step that hears it is done.
        "first_shown_ms": {
            "mean": round(size.step_ms / 2 + whole_ms, 1),
            "worst": round(size.step_ms + whole_ms, 1),
        },
        "is_in_time": whole_ms <= _MAX_LOAD * size.step_ms,
    }


def sessions(
    rows: Sequence[Mapping[str, Any]], step_ms: int, free_bytes: int | None
) -> dict[str, object]:
    """Return how many streams are carried, from the rows of one size, budget and mode.

    All streams are stepped once in each step's audio, in batches of the size that carries most, at
    a load of at most 80 %.

    Args:
        rows: As they are written to the results, at least one, measured.
        step_ms: Audio of a step.
        free_bytes: Memory left beside the weights; None where it is not known.
    """
    best: dict[str, object] = {}
    for row in rows:
        n_batches = int(_MAX_LOAD * step_ms / row["step_compute_ms"])
        by_time = n_batches * row["n_streams"]
        # Each stream's cache, and its copy while it is in a batch.
        by_memory = by_time if free_bytes is None else free_bytes // (2 * row["session_bytes"])
        carried = min(by_time, by_memory)
        if not best or carried > int(str(best["n_sessions"])):
            best = {
                "n_sessions": carried,
                "batch": row["n_streams"],
                "bound_by": "time" if by_time <= by_memory else "memory",
                "first_shown_worst_ms": round(step_ms + n_batches * row["step_compute_ms"], 1),
            }
    return best


class Bench:
    """Measures cases one after the other and keeps what it has.

    Args:
        wanted: What the command line asks for.
    """

    def __init__(self, wanted: Namespace) -> None:
        self._wanted = wanted
        self._device = torch.device(wanted.device)
        self._size = StepSize(step_ms=wanted.step_ms)
        self._origin = provenance()
        self._began_s = time.monotonic()
        self._rows: list[dict[str, Any]] = []
        self._models: dict[str, dict[str, Any]] = {}

    def run(self) -> Path:
        """Measure all there is time for and return where it was written."""
        path = self._write()
        for listed in (plain_cases, compiled_cases):
            for shape in self._wanted.shape:
                wanted = listed(self._wanted, shape)
                speech = self._build(shape) if wanted and not self._is_late else None
                for case in wanted:
                    self._rows.append(self._row(speech, case))
                    path = self._write()
                del speech
                self._empty()
        return path

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._began_s > 60 * float(self._wanted.max_minutes)

    def _row(self, speech: SpeechModel | None, case: Case) -> dict[str, Any]:
        row: dict[str, Any] = asdict(case)
        if speech is None or self._is_late:
            return row | {"not_run": "there was no time left"}
        try:
            passes = SharedPasses(speech, case.n_streams, case.budget_slots, self._size, case.mode)
            parts_ms = passes.parts_ms(DeviceClock(self._device), self._wanted.repeats)
        except (RuntimeError, ValueError) as error:  # no memory, or a pass that is not capturable
            row |= {"not_run": f"{type(error).__name__}: {str(error)[:300]}"}
        else:
            row |= summary(parts_ms, self._size)
            row |= {"session_bytes": passes.session_nbytes, "rows": passes.sizes[1]}
            tell(f"{case}: {row['step_compute_ms']} ms a step")
            del passes
        self._empty()
        return row

    def _build(self, shape: str) -> SpeechModel:
        config, dtype = config_of(shape), best_dtype(self._device)
        vocabulary = config.text_config.vocab_size
        cut = build_model(config, self._device, dtype, is_whole=True, vocabulary=vocabulary)
        n_bytes = sum(weight.nbytes for weight in cut.checkpoint.parameters())
        self._models[shape] = {"weight_bytes": n_bytes, "dtype": str(dtype)}
        return SpeechModel(cut.checkpoint)

    def _empty(self) -> None:
        torch.compiler.reset()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _write(self) -> Path:
        device = device_facts(self._device)
        content = {
            "device": device,
            "size": asdict(self._size),
            "models": self._models,
            "rows": self._rows,
            "sessions": self._sessions(device.get("memory_bytes")),
        }
        return write_results("gpu", content, self._origin, self._wanted.out)

    def _sessions(self, memory_bytes: int | None) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        names = ("shape", "budget_slots", "mode")
        measured = [row for row in self._rows if "step_compute_ms" in row]
        for key in dict.fromkeys(tuple(row[name] for name in names) for row in measured):
            rows = [row for row in measured if tuple(row[name] for name in names) == key]
            free = memory_bytes
            if free is not None:
                free -= self._models[key[0]]["weight_bytes"]
            carried = sessions(rows, self._size.step_ms, free)
            found.append(dict(zip(names, key, strict=True)) | carried)
        return found


def config_of(shape: str) -> Any:  # noqa: ANN401  transformers is not typed
    """Return the config of a size."""
    if shape == TINY:
        return Gemma3nConfig(text_config=dict(_TINY_TEXT), audio_config=dict(_TINY_AUDIO))
    return real_config(shape)


def device_facts(device: torch.device) -> dict[str, Any]:
    """Return what a reader needs to know of a device."""
    if device.type != "cuda":
        return {"name": device.type}
    about = torch.cuda.get_device_properties(device)
    return {"name": about.name, "memory_bytes": about.total_memory, "cuda": torch.version.cuda}


def check_device(wanted: Namespace) -> None:
    """Refuse what cannot be measured here.

    Raises:
        ConfigError: There is no such device, or it cannot capture passes.
    """
    device = torch.device(wanted.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "gpu_missing",
            f"There is no GPU {wanted.device!r} that this torch ({torch.__version__}) can use.",
            "Run it where torch.cuda.is_available() is true, or try the program itself with "
            "--device cpu --shape tiny --modes eager.",
        )
    if device.type != "cuda" and Mode.GRAPH in wanted.modes:
        raise ConfigError(
            "graph_unsupported",
            f"Passes cannot be captured on {wanted.device!r}.",
            "Leave --modes graph to GPUs.",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return its exit status."""
    wanted = parse_arguments(arguments)
    try:
        check_device(wanted)
    except ConfigError as error:
        tell(str(error))
        return 1
    tell(str(Bench(wanted).run()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
