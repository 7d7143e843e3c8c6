"""Trains the small Gemma-3n of the tests on spoken digits, from recordings to checkpoint.

    python -m tools.train_digits --speech FOLDER --out tests/models/gemma3n-digits

One core is enough. It can be stopped at any time and goes on from the last save when it is
started again with the same ``--work`` folder; the result is the same for the same seed.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from tools.digits_data import Conditions, DigitBank, load_recordings
from tools.digits_eval import error_rate, test_strings
from tools.digits_files import write_checkpoint
from tools.digits_listening import Listening, ListeningPlan
from tools.digits_mel import LogMel
from tools.digits_model import digits_config, fresh_model
from tools.digits_pool import make_extractor, make_pool
from tools.digits_reading import Reading, ReadingPlan, hear_pool

SPEEDS = (0.85, 0.92, 1.0, 1.08, 1.17)
WATCHED_LENGTHS = (3,) * 8 + (8,) * 4 + (20,) * 3  # a glimpse; `measure_digits` measures
_log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--speech", type=Path, required=True, help="folder of the digits' wavs")
    options.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    options.add_argument("--work", type=Path, default=Path("digits-work"), help="to go on from")
    options.add_argument("--seed", type=int, default=3)
    options.add_argument("--listening-steps", type=int, default=ListeningPlan.n_steps)
    options.add_argument("--reading-steps", type=int, default=ReadingPlan.n_steps)
    options.add_argument("--pool", type=int, default=900, help="half-minute strings to make")
    options.add_argument("--save-every", type=int, default=200, help="steps between saves")
    options.add_argument(
        "--watch", type=int, nargs="+", default=WATCHED_LENGTHS, help="lengths of strings to log"
    )
    options.add_argument("--threads", type=int, default=1)
    return options


def train(arguments: argparse.Namespace) -> None:
    """Run both stages and write the checkpoint."""
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    bank = DigitBank(load_recordings(arguments.speech, is_test=False, speeds=SPEEDS))
    extractor = make_extractor(arguments.seed, bank)
    mel = LogMel(extractor)
    pool = make_pool(arguments.seed, bank, mel, arguments.pool, work / "pool.pt")
    test_bank = DigitBank(load_recordings(arguments.speech, is_test=True))
    watched = test_strings(arguments.seed, test_bank, arguments.watch, Conditions())

    model = fresh_model(digits_config())
    listening = Listening(
        model, pool, ListeningPlan(n_steps=arguments.listening_steps, seed=arguments.seed)
    )
    listening.run(work, arguments.save_every, lambda: listening.report(mel, watched))
    listening.weights.eval()
    heard = hear_pool(listening, pool)

    def report() -> str:
        write_checkpoint(arguments.out, model, extractor)
        lengths = sorted(set(arguments.watch))
        groups = [[one for one in watched if len(one.digits) == n] for n in lengths]
        rates = [error_rate(model, mel, group).percent for group in groups]
        return ", ".join(f"{n}: {rate:.1f} %" for n, rate in zip(lengths, rates, strict=True))

    reading = Reading(
        model, heard, ReadingPlan(n_steps=arguments.reading_steps, seed=arguments.seed)
    )
    reading.run(work, arguments.save_every, report)
    write_checkpoint(arguments.out, model, extractor)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    train(parser().parse_args())
