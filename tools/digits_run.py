"""A training stage that can be stopped and taken up again without a difference."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

_DECAY_SHARE = 0.3
_LOG_EVERY = 25
_MAX_NORM = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Schedule:
    """Learning rate over the steps: warm-up, a plateau, and a straight line down to zero.

    Nothing before the last 30 % depends on the length, so a run can still be made shorter or
    longer while it is on the plateau, and equals a run that had that length from the start.
    """

    n_steps: int
    peak: float
    n_warm_up: int

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        left = (self.n_steps - step) / (_DECAY_SHARE * self.n_steps)
        return self.peak * min(1.0, (step + 1) / self.n_warm_up, left)


class Stage(ABC):
    """Weights, optimiser and position of one stage.

    A step's batch depends only on the seed and the step's number, so a stage that is taken up
    from a checkpoint goes on as if it had never stopped.

    Args:
        name: Of the stage and of its checkpoint file.
        weights: What is trained and saved.
        schedule: Length and learning rate.
    """

    def __init__(self, name: str, weights: nn.Module, schedule: Schedule) -> None:
        self.name = name
        self.weights = weights
        self.schedule = schedule
        self.step = 0
        self.note = ""  # what a subclass wants in the log beside the loss
        matrices = [one for one in weights.parameters() if one.requires_grad and one.ndim > 1]
        vectors = [one for one in weights.parameters() if one.requires_grad and one.ndim <= 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": 0.05},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=schedule.peak,
            betas=(0.9, 0.98),
        )

    @abstractmethod
    def loss(self, step: int) -> Tensor:
        """Return the loss of the batch that belongs to a step."""

    def advance(self) -> float:
        """Take one step and return its loss."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.schedule.rate(self.step)
        self._optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.step)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.weights.parameters(), _MAX_NORM)
        self._optimizer.step()
        self.step += 1
        return float(loss.detach())

    def save(self, path: Path) -> None:
        """Write everything needed to go on; the old file stays whole until the new one is."""
        state = {
            "step": self.step,
            "weights": self.weights.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def restore(self, path: Path) -> None:
        """Go on from a file that `save` wrote, if there is one."""
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        self.weights.load_state_dict(state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def run(self, folder: Path, save_every: int, evaluate: Callable[[], str]) -> None:
        """Train to the end of the schedule.

        Args:
            folder: Of the checkpoint ``{name}.pt``.
            save_every: Steps between two checkpoints; each is also evaluated.
            evaluate: Returns a line for the log.
        """
        path = folder / f"{self.name}.pt"
        self.restore(path)
        started, total = time.process_time(), 0.0
        while self.step < self.schedule.n_steps:
            total += self.advance()
            if self.step % _LOG_EVERY == 0:
                seconds = (time.process_time() - started) / _LOG_EVERY
                mean = total / _LOG_EVERY
                line = f"loss {mean:.4f} {self.note}, {seconds:.2f} CPU s/step"
                _log.info("%s %d %s", self.name, self.step, line)
                started, total = time.process_time(), 0.0
            if self.step % save_every == 0 or self.step == self.schedule.n_steps:
                self.save(path)
                self.weights.eval()
                _log.info("%s %d %s", self.name, self.step, evaluate())
                self.weights.train()
                started = time.process_time()
