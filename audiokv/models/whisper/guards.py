"""Signs that a hypothesis does not come from the audio, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.streaming.captions import Word

_MAX_NO_SPEECH_PROBABILITY = 0.6
_MIN_MEAN_LOG_PROBABILITY = -1.0
_MAX_PERIOD_TOKENS = 16
_MIN_REPEATS = 3
# Nobody speaks a token in less: a loop has run out of audio and its tokens share a few slots.
_MIN_TOKEN_MS = 45
_MIN_WORD_MS = 40
_MAX_REWIND_SLOTS = 25


def is_unspoken(no_speech_probability: float, log_probabilities: Sequence[float]) -> bool:
    """Tell whether a text is improbable on audio in which the model hears no speech."""
    if not log_probabilities:
        return True
    mean = sum(log_probabilities) / len(log_probabilities)
    return no_speech_probability > _MAX_NO_SPEECH_PROBABILITY and mean < _MIN_MEAN_LOG_PROBABILITY


def rewind_start(attention: NDArray[np.float32], n_forced: int) -> int:
    """Return how many new tokens stand before the decoder jumps back in the audio.

    A decoder that jumps back says again what stands already, often into the silence at the end of
    a sentence. One token alone may look back (punctuation does), two in a row do not.
    Source of the idea: the rewind guard of AlignAtt (Papi et al., Interspeech 2023).

    Args:
        attention: Shape (heads, forced + new + 1, slots), see ``Decoded``.
        n_forced: Rows of committed tokens.
    """
    rows = attention.mean(axis=0)[:-1]
    if not rows.size:
        return 0
    shares = rows.cumsum(axis=1) / (rows.sum(axis=1, keepdims=True) + 1e-9)
    middles = (shares < 0.5).sum(axis=1)  # noqa: PLR2004  the median
    furthest = np.concatenate(([0], np.maximum.accumulate(middles)[:-1]))
    is_back = middles < furthest - _MAX_REWIND_SLOTS
    n_new = len(rows) - n_forced
    for i in range(n_new - 1):
        if is_back[n_forced + i] and is_back[n_forced + i + 1]:
            return i
    return n_new


def n_spoken(words: Sequence[Word]) -> int:
    """Return how many words stand before a tail that takes no time.

    At the end of the audio the decoder may go on into the silence; what it makes up there gets no
    slots of its own.
    """
    n = len(words)
    while n and words[n - 1].end_ms - words[n - 1].start_ms < _MIN_WORD_MS:
        n -= 1
    return n


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
