"""When each token was spoken, from the text model's attention to audio slots.

The text model has no cross-attention; what its full-attention layers look at while a token is
predicted says where that token is in the audio. Some heads follow the audio and others do not, so
a model's settings may name those that do.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.probe import AttentionProbe, of_last_queries
from audiokv.models.whisper.alignment import warp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

MAX_QUERIES = 1 << 20  # all of a step
N_JUDGING_QUERIES = 4  # the last queries of a step, whose attention the policy goes by


class RecordingProbe(AttentionProbe):
    """Lets the policy see the last queries of a step, and keeps the weights of all of them.

    Args:
        n_query_heads: Query heads of each layer.
        layers: Layers that attend to everything held, in the order in which they run.
    """

    def __init__(self, n_query_heads: int, layers: Sequence[int]) -> None:
        super().__init__(n_queries=MAX_QUERIES)
        self._n_query_heads = n_query_heads
        self._layers = list(layers)
        self._step: list[torch.Tensor] = []
        self._is_recording = False

    def record(self, *, is_on: bool) -> None:
        """Begin or end keeping weights."""
        self._is_recording = is_on
        self._step = []

    def observe(self, producer: int, weights: torch.Tensor) -> None:
        """Take in one attention call of a step."""
        group = self._n_query_heads // weights.shape[1]
        n_queries = weights.shape[2] // group
        super().observe(producer, of_last_queries(weights, n_queries, N_JUDGING_QUERIES))
        if self._is_recording:
            by_head = weights[0].view(self._n_query_heads, n_queries, -1)
            self._step.append(by_head)

    def take_step(self, heads: Sequence[tuple[int, int]], n_last: int) -> Floats:
        """Return and forget the weights of the last step.

        Args:
            heads: Layer and head of those wanted; all where none is named.
            n_last: How many of its last queries are wanted.

        Returns:
            Shape (heads, n_last, rows).
        """
        step, self._step = dict(zip(self._layers, self._step, strict=True)), []
        if heads:
            chosen = [step[layer][head, -n_last:] for layer, head in heads if layer in step]
            return torch.stack(chosen).float().cpu().numpy()
        whole: Floats = torch.cat([layer[:, -n_last:] for layer in step.values()]).cpu().numpy()
        return whole


def token_spans(attention: Floats) -> NDArray[np.int64]:
    """Return the first and last column of each token.

    As in Whisper's word timing each head is normalised over the tokens, so that a slot which is
    always looked at counts for nothing; then dynamic time warping shares the columns out. Of its
    share a token takes what lies from its first to its last column above the heads' mean: the rest
    is silence.

    Args:
        attention: Shape (heads, tokens + 1, columns), at least one column; the last row belongs to
            the end of the text.

    Returns:
        Shape (tokens, 2), neither column of it ever falling.
    """
    mean = attention.mean(axis=1, keepdims=True)
    spread = attention.std(axis=1, keepdims=True) + 1e-6
    scores = ((attention - mean) / spread).mean(axis=0)
    shares = warp(-scores)
    spans = np.empty((len(scores) - 1, 2), np.int64)
    for token, (first, following) in enumerate(pairwise(shares.tolist())):
        share = scores[token, first : max(first + 1, following)]
        above = np.flatnonzero(share > 0)
        within = above if len(above) else share.argmax(keepdims=True)
        spans[token] = first + within[0], first + within[-1]
    return spans
