"""Signs that a hypothesis does not come from the audio, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_NO_SPEECH_PROBABILITY = 0.6
_MIN_MEAN_LOG_PROBABILITY = -1.0
_MAX_PERIOD_TOKENS = 16
_MIN_REPEATS = 3
# Nobody speaks a token in less: a loop has run out of audio and its tokens share a few slots.
_MIN_TOKEN_MS = 45


def is_unspoken(no_speech_probability: float, log_probabilities: Sequence[float]) -> bool:
    """Tell whether a text is improbable on audio in which the model hears no speech."""
    if not log_probabilities:
        return True
    mean = sum(log_probabilities) / len(log_probabilities)
    return no_speech_probability > _MAX_NO_SPEECH_PROBABILITY and mean < _MIN_MEAN_LOG_PROBABILITY


def loop_start(tokens: Sequence[int], starts_ms: Sequence[int]) -> int:
    """Return how many tokens stand before a loop, all of them where there is none.

    A phrase may truly be said many times, so repetition alone is no loop: its repeats must also be
    faster than speech.

    Args:
        tokens: Text tokens.
        starts_ms: Start of each token and the end of the last, one more than tokens.
    """
    n = len(tokens)
    for period in range(1, min(_MAX_PERIOD_TOKENS, n // _MIN_REPEATS) + 1):
        run = 0
        for i in range(period, n):
            run = run + 1 if tokens[i] == tokens[i - period] else 0
            if run < period * (_MIN_REPEATS - 1):
                continue
            first = i + 1 - run  # the first repeated copy
            if starts_ms[i + 1] - starts_ms[first] < run * _MIN_TOKEN_MS:
                return first
    return n
