"""From the spans of tokens to words with times and confidences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from audiokv.models.whisper.guards import loop_start
from audiokv.streaming.captions import Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from audiokv.models.gemma3n.tail_decoding import Continuation
    from audiokv.models.whisper.text import TokenWord


def without_loop(
    continuation: Continuation, spans_ms: NDArray[np.int64], *, has_clear_times: bool
) -> list[int]:
    """Return the tokens without repeats that were not spoken.

    Args:
        continuation: What the model said.
        spans_ms: Where each token begins and ends, shape (tokens, 2).
        has_clear_times: Whether heads that follow the audio gave the times; those that the mean of
            all heads gives are too vague to judge by.
    """
    tokens = continuation.tokens
    if continuation.is_looping:
        return tokens[: loop_start(tokens, [0] * (len(tokens) + 1))]
    if not has_clear_times:
        return tokens
    edges_ms = [*spans_ms[:, 0].tolist(), *spans_ms[-1:, 1].tolist()]
    return tokens[: loop_start(tokens, edges_ms)]


def timed_words(
    words: Sequence[TokenWord],
    spans_ms: NDArray[np.int64],
    log_probabilities: Sequence[float],
    floor_ms: int,
) -> list[Word]:
    """Give each word the time of its tokens; no word begins before the one before it ends.

    Args:
        words: Words whose tokens follow each other.
        spans_ms: Where each token begins and ends, shape (tokens, 2) or longer.
        log_probabilities: Of each token.
        floor_ms: Where the first word may begin at the earliest.
    """
    timed = []
    first = 0
    for word in words:
        last = first + len(word.tokens)
        start_ms = max(floor_ms, int(spans_ms[first, 0]))
        floor_ms = max(start_ms, int(spans_ms[last - 1, 1]))
        confidence = math.exp(sum(log_probabilities[first:last]) / len(word.tokens))
        timed.append(
            Word(
                text=word.text,
                start_ms=start_ms,
                end_ms=floor_ms,
                confidence=round(min(confidence, 1.0), 3),
                space_before=word.space_before,
            )
        )
        first = last
    return timed
