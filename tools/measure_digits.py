"""Measures the small Gemma-3n on test takes it was not trained on.

    python -m tools.measure_digits --speech FOLDER --checkpoint tests/models/gemma3n-digits

Prints the digit error (wrong, missing and extra over spoken) on strings of 1 to 5, 6 to 10 and 20
digits. With ``--write-heads`` it also finds the heads that follow the audio and writes them down in
the checkpoint's ``audiokv.json``.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import torch

from tools.digits_data import Conditions, DigitBank, load_recordings
from tools.digits_eval import ErrorRate, error_rate, test_strings
from tools.digits_files import read_checkpoint, write_settings
from tools.digits_heads import following_heads
from tools.digits_mel import LogMel

GROUPS = {"1 to 5": (1, 2, 3, 4, 5), "6 to 10": (6, 7, 8, 9, 10), "20": (20,)}
_N_FOR_HEADS = 6
_log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--speech", type=Path, required=True, help="folder of the digits' wavs")
    options.add_argument("--checkpoint", type=Path, required=True)
    options.add_argument("--digits", type=int, default=600, help="at least so many in each group")
    options.add_argument("--seed", type=int, default=11)
    options.add_argument(
        "--loudest-noise-db", type=float, default=12.0, help="least distance of noise to speech"
    )
    options.add_argument("--write-heads", action="store_true")
    return options


def measure(arguments: argparse.Namespace) -> dict[str, ErrorRate]:
    """Return the error of each group of lengths, and log it."""
    torch.set_num_threads(1)
    model, extractor = read_checkpoint(arguments.checkpoint)
    mel = LogMel(extractor)
    quietest_db = Conditions().snr_db[1]
    conditions = Conditions(snr_db=(arguments.loudest_noise_db, quietest_db))
    bank = DigitBank(load_recordings(arguments.speech, is_test=True))
    if arguments.write_heads:
        train_bank = DigitBank(load_recordings(arguments.speech, is_test=False))
        strings = test_strings(arguments.seed, train_bank, (8,) * _N_FOR_HEADS, Conditions())
        write_settings(arguments.checkpoint, following_heads(model, mel, strings))
    rates = {}
    for name, lengths in GROUPS.items():
        repeated = lengths * -(-arguments.digits // sum(lengths))
        strings = test_strings(arguments.seed, bank, repeated, conditions)
        rate = error_rate(model, mel, strings)
        _log.info("%s digits: %s", name, json.dumps(vars(rate) | {"percent": rate.percent}))
        rates[name] = rate
    return rates


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    measure(parser().parse_args())
