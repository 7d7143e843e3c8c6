"""First stage: the audio tower learns to spell digit strings slot by slot (CTC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from tools.digits_eval import distance, whole_slots
from tools.digits_model import N_DIGITS, DigitsModel
from tools.digits_pool import MelPool, Window, cut_window, sounding
from tools.digits_run import Schedule, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tools.digits_data import SpokenString
    from tools.digits_mel import LogMel

BLANK = N_DIGITS
_SOUNDING_WEIGHT = 0.3


@dataclass(frozen=True)
class ListeningPlan:
    """How long and on what the tower is trained."""

    n_steps: int = 13000
    n_windows: int = 4
    n_slots: int = 50
    peak_rate: float = 1e-3
    n_warm_up: int = 100
    n_masked_bins: int = 16
    loudness: float = 0.4
    seed: int = 3


class Listening(Stage):
    """The tower, its embedder and two heads that are thrown away afterwards.

    One head spells (CTC). The other names the digit that sounds in each slot, which the pasted
    strings know; without it CTC spends a third of the run answering blank.

    Args:
        model: Trained in place.
        pool: Strings to cut windows from.
        plan: Length, batch and rates.
    """

    def __init__(self, model: DigitsModel, pool: MelPool, plan: ListeningPlan) -> None:
        n_hidden = model.config.text_config.hidden_size
        self.spelling = nn.Linear(n_hidden, N_DIGITS + 1)
        self._naming = nn.Linear(n_hidden, N_DIGITS + 1)
        trained = [model.audio_tower, model.embed_audio, self.spelling, self._naming]
        super().__init__(
            "listening",
            nn.ModuleList(trained),
            Schedule(plan.n_steps, plan.peak_rate, plan.n_warm_up),
        )
        self.model = model
        self._pool = pool
        self._plan = plan

    def loss(self, step: int) -> Tensor:
        """Return the loss of the batch that belongs to a step."""
        plan = self._plan
        rng = np.random.default_rng([plan.seed, 2, step])
        windows = [cut_window(rng, self._pool, plan.n_slots) for _ in range(plan.n_windows)]
        mel = torch.stack([self._varied(rng, one.mel) for one in windows])
        with torch.autocast("cpu", torch.bfloat16):
            slots = self.model.hear(mel)
        names = torch.stack([sounding(one, plan.n_slots, BLANK) for one in windows])
        naming = nn.functional.cross_entropy(self._naming(slots).flatten(0, 1), names.flatten())
        spelling = ctc_loss(self.spelling(slots), windows)
        self.note = f"spelling {float(spelling.detach()):.3f}, naming {float(naming.detach()):.3f}"
        return spelling + _SOUNDING_WEIGHT * naming

    def _varied(self, rng: np.random.Generator, mel: Tensor) -> Tensor:
        """Return frames a little louder or softer, with one band of bins masked (SpecAugment)."""
        louder = rng.uniform(-1.0, 1.0) * self._plan.loudness
        mel = (mel + louder).clamp(min=mel.amin(0))
        width = int(rng.integers(self._plan.n_masked_bins + 1))
        low = int(rng.integers(mel.shape[-1] - width))
        mel[:, low : low + width] = 0.0
        return mel

    @torch.no_grad()
    def report(self, mel: LogMel, strings: Sequence[SpokenString]) -> str:
        """Return the error of the spelling alone on strings of any lengths."""
        n_errors = 0
        for one in strings:
            with torch.autocast("cpu", torch.bfloat16):
                slots = self.model.hear(mel(whole_slots(one.samples)[None]))
            n_errors += distance(one.digits, spelled(self.spelling(slots)[0]))
        return f"spelling: {100.0 * n_errors / sum(len(one.digits) for one in strings):.1f} %"


def ctc_loss(logits: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return the CTC loss (Graves et al., 2006) per digit.

    Args:
        logits: Shape (batch, slots, digits + blank).
        windows: What was said.
    """
    targets = torch.tensor([digit for one in windows for digit in one.digits], dtype=torch.long)
    n_targets = torch.tensor([len(one.digits) for one in windows])
    n_slots = torch.full((len(windows),), logits.shape[1])
    loss: Tensor = nn.functional.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1),
        targets,
        n_slots,
        n_targets,
        blank=BLANK,
        reduction="sum",
        zero_infinity=True,
    )
    return loss / max(1, len(targets))


def spelled(logits: Tensor) -> list[int]:
    """Return the digits of the best path of one string, logits (slots, digits + blank)."""
    path = torch.unique_consecutive(logits.argmax(-1)).tolist()
    return [digit for digit in path if digit != BLANK]
