"""What a stream asks its model for, one request at a time.

A stream's work is a generator of requests: whoever runs it carries each request out, fills in its
answer and lets the work go on. Alone each request is one pass; a batch runner gathers the requests
of several streams and lets them share passes.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from audiokv.models.gemma3n.prefix import Prefix
    from audiokv.models.gemma3n.speech_model import Inputs
    from audiokv.models.gemma3n.tail_decoding import TailDecoder
    from audiokv.models.gemma3n.tower import StreamingTower, TowerState

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Encode:
    """Encode the next mel frames of a stream.

    Attributes:
        tower: The model's tower.
        state: The stream's state before them.
        mel: Shape (1, n, mels).
        slots: The answer: slots that are complete now, shape (1, m, hidden).
        after: The answer: the state after them.
    """

    tower: StreamingTower
    state: TowerState
    mel: torch.Tensor
    slots: torch.Tensor = field(init=False)
    after: TowerState = field(init=False)


@dataclass(slots=True, eq=False)
class Finish:
    """Encode what is due if the audio ends here.

    Attributes:
        tower: The model's tower.
        state: The stream's state, which stays as it is.
        slots: The answer, shape (1, m, hidden).
    """

    tower: StreamingTower
    state: TowerState
    slots: torch.Tensor = field(init=False)


@dataclass(slots=True, eq=False)
class Read:
    """Read positions for good.

    Attributes:
        prefix: What they join; it was told what to expect.
        inputs: The positions, at least one.
    """

    prefix: Prefix
    inputs: Inputs


@dataclass(slots=True, eq=False)
class ReadTail:
    """Read positions behind a prefix whose tail is open.

    Attributes:
        prefix: The prefix.
        inputs: The positions, at least one.
        decoder: Chooses tokens, and names the heads whose attention is wanted.
        is_first: Whether the tail begins with them.
        n_judged: For how many of the last positions the next token is wanted.
        n_rows: Of how many of the last positions the attention is wanted.
        columns: Which rows it is wanted for: those of the prefix, and of the tail behind them.
        hidden: The answer: hidden states, shape (n_judged, hidden).
        tokens: The answer: likeliest next tokens.
        log_probabilities: The answer: one a token.
        weights: The answer: attention, shape (heads, n_rows, columns).
    """

    prefix: Prefix
    inputs: Inputs
    decoder: TailDecoder
    is_first: bool
    n_judged: int
    n_rows: int
    columns: NDArray[np.int64]
    hidden: torch.Tensor = field(init=False)
    tokens: list[int] = field(init=False)
    log_probabilities: list[float] = field(init=False)
    weights: NDArray[np.float32] = field(init=False)


Request = Encode | Finish | Read | ReadTail
Work = Generator[Request, None, T]


def run_alone(work: Work[T]) -> T:
    """Run one stream's work, each request in a pass of its own, and return its result."""
    try:
        while True:
            carry_out(next(work))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        work.close()  # a request that failed leaves no tail open


def carry_out(request: Request) -> None:
    """Carry out one request by itself and fill in its answer."""
    match request:
        case Encode():
            request.slots, request.after = request.tower.advance(request.state, request.mel)
        case Finish():
            request.slots = request.tower.finish(request.state)
        case Read():
            request.prefix.run(request.inputs)
        case ReadTail():
            request.hidden = request.prefix.run_in_tail(request.inputs)[-request.n_judged :]
            step = request.prefix.probe.take_step(request.decoder.heads, request.n_rows)
            request.weights = step[..., request.columns]
            request.tokens, request.log_probabilities = request.decoder.choose(request.hidden)
