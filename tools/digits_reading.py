"""Second stage: the text model learns to read the tower's slots, the tower being done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from tools.digits_alignment import spelling_slots
from tools.digits_model import N_DIGITS, DigitsModel
from tools.digits_rows import (
    IGNORED,
    N_COUNTS,
    HeardString,
    Row,
    RowPlan,
    compose_row,
    stack_rows,
)
from tools.digits_run import Schedule, Stage

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from tools.digits_listening import Listening
    from tools.digits_pool import MelPool

    Ints = NDArray[np.int64]

_HELP_WEIGHT = 0.5
GUIDED_HEAD = 0
_COUNTING_LAYER = 2  # its output feeds the full-attention layer whose keys the last layer reuses
_N_AT_ONCE = 4


@dataclass(frozen=True)
class ReadingPlan:
    """How long and on what the text model is trained.

    Attributes:
        n_steps: Length.
        n_rows: Rows in a batch.
        peak_rate: Learning rate on the plateau.
        n_warm_up: Steps up to there.
        n_short_steps: How many steps at the start are taken on ``short_rows``.
        short_rows: Half as long: long enough to learn to read, and half the work.
        rows: As long as the model ever hears.
        seed: Of the batches.
    """

    n_steps: int = 10000
    n_rows: int = 4
    peak_rate: float = 1e-3
    n_warm_up: int = 100
    n_short_steps: int = 1200
    short_rows: RowPlan = field(default_factory=lambda: RowPlan(n_slots=96))
    rows: RowPlan = field(default_factory=RowPlan)
    seed: int = 3


@dataclass(frozen=True)
class HeardPool:
    """The pool as the finished tower hears it.

    Attributes:
        encoded: Tower outputs of all strings, shape (strings * slots, tower hidden), float16.
        strings: What is said in each string, and in which slot the tower spells it.
    """

    encoded: Tensor
    strings: list[HeardString]


@torch.no_grad()
def hear_pool(listening: Listening, pool: MelPool) -> HeardPool:
    """Run the tower over every string of the pool."""
    model = listening.model
    encoded, strings = [], []
    for at in range(0, len(pool.spoken), _N_AT_ONCE):
        mel = pool.mel[at : at + _N_AT_ONCE].float()
        with torch.autocast("cpu", torch.bfloat16):
            frames = model.encode(mel)
        logits = listening.spelling(model.embed_audio(inputs_embeds=frames))
        paths = logits.log_softmax(-1).numpy()
        for path, said in zip(paths, pool.spoken[at : at + _N_AT_ONCE], strict=True):
            spelled_at = tuple(spelling_slots(path, said.digits))
            strings.append(HeardString(said.digits, spelled_at, said.start_ms, len(path)))
        encoded.append(frames.half())
    return HeardPool(torch.cat(encoded).flatten(0, 1), strings)


class Reading(Stage):
    """The text model and the embedder, with help that is thrown away afterwards.

    Two heads ask, half way up, what a reader needs to know: how many digits have been heard or
    written so far, and which was the last. Both sides of the later attention, slots and words,
    answer through the same head, so they meet in the same code. And one attention head of each
    later full-attention layer is told where to look: at the slot that spells the next digit. A
    reader without such help skips and doubles digits in long strings for most of its training.

    Args:
        model: Trained in place; its text model attends eagerly from now on.
        pool: What the tower hears.
        plan: Length, batch and rates.
    """

    def __init__(self, model: DigitsModel, pool: HeardPool, plan: ReadingPlan) -> None:
        n_hidden = model.config.text_config.hidden_size
        self._counting = nn.Linear(n_hidden, N_COUNTS)
        self._latest = nn.Linear(n_hidden, N_DIGITS + 1)
        trained = [model.embed_audio, model.language_model, self._counting, self._latest]
        super().__init__(
            "reading",
            nn.ModuleList(trained),
            Schedule(plan.n_steps, plan.peak_rate, plan.n_warm_up),
        )
        self._model = model
        self._pool = pool
        self._plan = plan
        self._half_way = torch.zeros(0)
        self._looks: list[Tensor] = []
        text = model.language_model
        text.set_attn_implementation("eager")  # which gives the weights
        text.layers[_COUNTING_LAYER].register_forward_hook(self._note_half_way)
        for layer in text.layers[_COUNTING_LAYER + 1 :]:
            if not layer.self_attn.is_sliding:
                layer.self_attn.register_forward_hook(self._note_look)

    def _note_half_way(self, _layer: nn.Module, _inputs: object, streams: Tensor) -> None:
        if self.weights.training:
            self._half_way = streams[self._model.config.text_config.altup_active_idx].float()

    def _note_look(self, _layer: nn.Module, _inputs: object, output: tuple[Tensor, Tensor]) -> None:
        if self.weights.training:
            self._looks.append(output[1][:, GUIDED_HEAD])

    def loss(self, step: int) -> Tensor:
        """Return the loss of the batch that belongs to a step."""
        plan = self._plan
        rng = np.random.default_rng([plan.seed, 3, step])
        row_plan = plan.rows if step >= plan.n_short_steps else plan.short_rows
        rows = stack_rows(
            [compose_row(rng, self._pool.strings, row_plan) for _ in range(plan.n_rows)]
        )
        self._looks = []
        with torch.autocast("cpu", torch.bfloat16):
            logits = read_rows(self._model, self._pool.encoded, rows)
        known = self._half_way * self._half_way.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        parts = {
            "reading": _cross_entropy(logits, rows.targets),
            "counting": _cross_entropy(self._counting(known), rows.counts),
            "latest": _cross_entropy(self._latest(known), rows.latest),
            "looking": sum(
                (looking_loss(one, rows.points) for one in self._looks), torch.zeros(())
            ),
        }
        self.note = ", ".join(f"{name} {float(one.detach()):.3f}" for name, one in parts.items())
        return parts["reading"] + _HELP_WEIGHT * (
            parts["counting"] + parts["latest"] + parts["looking"]
        )


def _cross_entropy(logits: Tensor, targets: Ints) -> Tensor:
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(targets).flatten(), ignore_index=IGNORED
    )


def looking_loss(weights: Tensor, points: Ints) -> Tensor:
    """Return how little attention goes to the slot that spells the next digit, or the one behind.

    Args:
        weights: Shape (batch, queries, keys).
        points: Shape (batch, queries): the slot's place among the keys, or -1.
    """
    batch, queries = np.nonzero(points >= 0)
    places = points[batch, queries]
    seen = weights[batch, queries, places] + weights[batch, queries, places + 1]
    return -seen.float().clamp(min=1e-6).log().mean()


def read_rows(model: DigitsModel, encoded: Tensor, rows: Row) -> Tensor:
    """Return logits at every token of a batch of rows, shape (batch, tokens, vocabulary)."""
    ids = torch.from_numpy(rows.ids)
    slots = torch.from_numpy(rows.slots)
    is_slot = slots >= 0
    embeddings = model.embed(ids).float()
    heard = model.embed_audio(inputs_embeds=encoded[slots[is_slot]].float())
    embeddings = embeddings.masked_scatter(is_slot[..., None], heard.float())
    positions = torch.from_numpy(rows.positions)
    sees = torch.from_numpy(rows.sees)
    near = positions[:, :, None] - positions[:, None, :] < model.config.text_config.sliding_window
    masks = {"full_attention": _added(sees), "sliding_attention": _added(sees & near)}
    return model.logits(ids, embeddings, attention_mask=masks, position_ids=positions)


def _added(sees: Tensor) -> Tensor:
    """Return the mask as eager attention wants it: added to the scores of all heads."""
    return torch.zeros(sees.shape).masked_fill(~sees, -1e9)[:, None]
