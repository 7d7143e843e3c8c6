"""Runs the work of several streams together: requests of one kind share a pass.

Streams wait for each other only within one call: those that still encode go first, then those that
read for good, so that all arrive at their tails together. A tail lives in a workspace and never
touches the stream's own cache, which therefore is as before, bit for bit, when the tail is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from audiokv.models.gemma3n.batch_forward import SharedForward, read_into
from audiokv.models.gemma3n.batch_requests import Encode, Finish, Read, ReadTail
from audiokv.models.gemma3n.batch_shapes import shapes_for
from audiokv.models.gemma3n.batch_workspace import LayerMap, Workspace
from audiokv.models.gemma3n.tail_decoding import choose_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from audiokv.models.cache import BudgetedCache
    from audiokv.models.gemma3n.batch_forward import Heads, PassOutputs
    from audiokv.models.gemma3n.batch_requests import Request, Work
    from audiokv.models.gemma3n.batch_shapes import Shapes
    from audiokv.models.gemma3n.prefix import Prefix
    from audiokv.models.gemma3n.speech_model import SpeechModel

T = TypeVar("T")
R = TypeVar("R", Read, ReadTail)

_PADDING_FOR_FREE = 8  # positions that cost less than one more pass
_ORDER: tuple[type[Request], ...] = (Encode, Read, Finish, ReadTail)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a stream's tail is."""

    space: Workspace
    lane: int


class BatchRunner:
    """Lets streams of one model share passes.

    Args:
        speech: The model.
        shapes: Sizes of the passes; by default those that suit its device.
    """

    def __init__(self, speech: SpeechModel, shapes: Shapes | None = None) -> None:
        self._speech = speech
        self._shapes = shapes or shapes_for(speech.device)
        self._layers = LayerMap.of(speech.text_config)
        self._forward = SharedForward(speech.language_model, self._layers)
        self._weight = torch.empty(0, dtype=speech.dtype, device=speech.device)
        self._places: dict[Prefix, _Place] = {}

    def run(self, works: Sequence[Work[T]]) -> list[T]:
        """Run works to their end and return their results.

        An error of one work is raised when all others have come to their end, so that their
        streams can be asked again. An error of a shared pass ends all of them.
        """
        waiting: dict[int, Request] = {}
        results: dict[int, T] = {}
        errors: list[Exception] = []

        def go_on(numbers: Iterable[int]) -> None:
            for number in numbers:
                waiting.pop(number, None)
                try:
                    waiting[number] = next(works[number])
                except StopIteration as done:
                    results[number] = done.value
                except Exception as error:  # noqa: BLE001  the boundary of one stream's work
                    errors.append(error)

        try:
            go_on(range(len(works)))
            while waiting:
                kind = next(k for k in _ORDER if any(isinstance(r, k) for r in waiting.values()))
                chosen = [n for n, request in waiting.items() if isinstance(request, kind)]
                self._carry_out([waiting[n] for n in chosen])
                go_on(chosen)
        finally:
            for work in works:
                work.close()
            self._let_go(self._places)
        if errors:
            raise errors[0]
        return [results[number] for number in range(len(works))]

    def _carry_out(self, requests: Sequence[Request]) -> None:
        encodes = [request for request in requests if isinstance(request, Encode)]
        if encodes:
            tower = encodes[0].tower
            encoded = tower.advance_each([r.state for r in encodes], [r.mel for r in encodes])
            for encode, (slots, after) in zip(encodes, encoded, strict=True):
                encode.slots, encode.after = slots, after
        finishes = [request for request in requests if isinstance(request, Finish)]
        if finishes:
            endings = finishes[0].tower.finish_each([request.state for request in finishes])
            for finish, slots in zip(finishes, endings, strict=True):
                finish.slots = slots
        self._read([request for request in requests if isinstance(request, Read)])
        tails = [request for request in requests if isinstance(request, ReadTail)]
        self._begin_tails([request for request in tails if request.is_first])
        self._go_on_in_tails([request for request in tails if not request.is_first])

    def _read(self, requests: Sequence[Read]) -> None:
        for group in _of_like_length(requests):
            n_new = self._shapes.n_new(max(len(request.inputs) for request in group))
            space = self._opened([request.prefix for request in group], n_new)
            lanes = range(len(group))
            outputs = self._pass(space, lanes, group, n_new, None)
            received = outputs.received.cpu().numpy()
            for lane, request in zip(lanes, group, strict=True):
                n_held = int(space.full.n_held[lane])
                newest = space.newest(lane, len(request.inputs))
                request.prefix.cache.take_step(newest, received[lane, :, :, :n_held])

    def _begin_tails(self, requests: Sequence[ReadTail]) -> None:
        """Read the beginnings of tails; those that were begun before are rolled back."""
        self._let_go([request.prefix for request in requests])
        for group in _of_like_length(requests):
            n_new = self._shapes.n_new(max(len(request.inputs) for request in group))
            space = self._opened([request.prefix for request in group], n_new)
            for lane, request in enumerate(group):
                self._places[request.prefix] = _Place(space, lane)
            self._read_tails(space, range(len(group)), group, n_new)

    def _go_on_in_tails(self, requests: Sequence[ReadTail]) -> None:
        if not requests:
            return
        n_new = self._shapes.n_new(max(len(request.inputs) for request in requests))
        space = self._together([request.prefix for request in requests], n_new)
        lanes = [self._places[request.prefix].lane for request in requests]
        self._read_tails(space, lanes, requests, n_new)

    def _read_tails(
        self, space: Workspace, lanes: Sequence[int], requests: Sequence[ReadTail], n_new: int
    ) -> None:
        outputs = self._pass(space, lanes, requests, n_new, requests[0].decoder.heads)
        received = outputs.received.cpu().numpy()
        weights = _columns_of(outputs.weights, lanes, requests)
        for lane, request in zip(lanes, requests, strict=True):
            n_held = int(space.full.n_held[lane])
            request.hidden = outputs.hidden[lane, -request.n_judged :]
            request.weights = weights[lane, :, -request.n_rows :, : len(request.columns)]
            n_tail = n_held - int(space.full.n_kept[lane])
            request.prefix.cache.observe_tail(n_tail, received[lane, :, :, :n_held])
        choose_each(requests)

    def _pass(
        self,
        space: Workspace,
        lanes: Sequence[int],
        requests: Sequence[Read] | Sequence[ReadTail],
        n_new: int,
        heads: Heads | None,
    ) -> PassOutputs:
        inputs = read_into(space, lanes, [request.inputs for request in requests], n_new)
        return self._forward(inputs, space.keys, space.values, heads)

    def _opened(self, prefixes: Sequence[Prefix], n_new: int) -> Workspace:
        """Return a workspace with copies of streams' caches and room for new positions."""
        caches = [prefix.cache for prefix in prefixes]
        n_full = max(cache.held for cache in caches)
        n_sliding = max(_n_sliding(cache, self._layers.window) for cache in caches)
        space = self._taken(len(caches), n_full + n_new, n_sliding + n_new)
        space.load(caches)
        return space

    def _together(self, prefixes: Sequence[Prefix], n_new: int) -> Workspace:
        """Return one workspace that has all of these tails, and not many others."""
        places = [self._places[prefix] for prefix in prefixes]
        space = places[0].space
        lanes = [place.lane for place in places]
        is_one = all(place.space is space for place in places)
        is_used = 2 * len(lanes) > space.n_lanes
        if is_one and is_used and space.has_room(lanes, n_new):
            return space
        n_full = max(int(place.space.full.n_held[place.lane]) for place in places)
        n_sliding = max(int(place.space.sliding.n_held[place.lane]) for place in places)
        joined = self._taken(len(places), n_full + n_new, n_sliding + n_new)
        joined.take_lanes([(place.space, place.lane) for place in places])
        self._let_go(prefixes)
        for lane, prefix in enumerate(prefixes):
            self._places[prefix] = _Place(joined, lane)
        return joined

    def _taken(self, n_streams: int, n_full: int, n_sliding: int) -> Workspace:
        shapes = self._shapes
        sizes = (shapes.n_streams(n_streams), shapes.n_rows(n_full), shapes.n_rows(n_sliding))
        return Workspace.empty(self._layers, sizes, self._weight)

    def _let_go(self, prefixes: Iterable[Prefix]) -> None:
        """Forget where tails are."""
        for prefix in list(prefixes):
            self._places.pop(prefix, None)


def _of_like_length(requests: Sequence[R]) -> list[list[R]]:
    """Group requests so that none is padded to much more than its own length."""
    groups: list[list[R]] = []
    for request in sorted(requests, key=lambda request: len(request.inputs)):
        if groups and len(request.inputs) <= 2 * len(groups[-1][0].inputs) + _PADDING_FOR_FREE:
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups


def _columns_of(
    weights: torch.Tensor, lanes: Sequence[int], requests: Sequence[ReadTail]
) -> NDArray[np.float32]:
    """Fetch no more of the weights than was asked for, shape (lanes, heads, rows, columns)."""
    n_rows = max(request.n_rows for request in requests)
    columns = np.zeros((len(weights), max(len(request.columns) for request in requests)), np.int64)
    for lane, request in zip(lanes, requests, strict=True):
        columns[lane, : len(request.columns)] = request.columns
    wanted = torch.from_numpy(columns).to(weights.device)[:, None, None]
    taken: NDArray[np.float32] = (
        torch.take_along_dim(weights[:, :, -n_rows:], wanted, dim=-1).cpu().numpy()
    )
    return taken


def _n_sliding(cache: BudgetedCache, window: int) -> int:
    return min(cache.seen, window - 1)
