"""Which language a stream speaks: judged anew in each segment, in favour of the one so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SURE_PROBABILITY = 0.9
_SURE_IN_A_ROW = 3
_SETTLE_AFTER_MS = 800
_DECIDE_AFTER_MS = 8000  # nothing is committed before, and the window holds less than 30 s
_OBSERVED_MS = 5000  # of each segment; a language does not change within a breath
_HOME_WEIGHT = 5.0  # how much likelier the stream goes on in the language it has spoken
_KEEP_PROBABILITY = 0.5  # what a segment that ended in doubt says about the next one


class LanguageTracker:
    """Follows the language probabilities of one stream.

    Each segment is judged by its own sound, since another person may speak another language after
    a pause; the language spoken so far, the home language, is believed more readily.

    Args:
        codes: ISO 639-1 codes in the order of the probabilities.
        chosen: A language the source asked for; nothing is detected then.
    """

    def __init__(self, codes: list[str], chosen: str | None) -> None:
        self._codes = codes
        self._chosen = chosen
        self._home: str | None = None
        self._best: str | None = None
        self._latest: str | None = None  # the likeliest by the latest evidence alone
        self._probability = 0.0
        self._n_in_a_row = 0
        self._is_settled = False

    @property
    def is_settled(self) -> bool:
        """Whether text in the current language may be committed."""
        return self._chosen is not None or self._is_settled

    @property
    def current(self) -> str | None:
        """The language to decode in, or None before anything was heard."""
        return self._chosen or self._best

    @property
    def confidence(self) -> float:
        """Probability of the current language; 1 once it is settled.

        A language that was not the best one before is believed half: early guesses jump about.
        """
        return 1.0 if self.is_settled else self._probability

    def begin_segment(self) -> None:
        """Judge what follows anew."""
        self._best = self._home
        self._probability = 0.0
        self._n_in_a_row = 0
        self._is_settled = False

    def settle(self) -> None:
        """Keep the current language in this segment: text in it has been committed."""
        self._is_settled = self._best is not None
        if self._home is None or self._probability >= _KEEP_PROBABILITY:
            self._home = self._best

    def wants(self, segment_ms: int) -> bool:
        """Tell whether more evidence is of use, this far into a segment."""
        return self._chosen is None and (not self._is_settled or segment_ms <= _OBSERVED_MS)

    def choose(self, language: str | None) -> None:
        """Follow a new wish of the source: a code overrides, None detects anew."""
        if language == self._chosen:
            return
        self._chosen = language
        self._home = None
        self.begin_segment()

    def observe(self, logits: NDArray[np.float32], voice_ms: int) -> None:
        """Take the evidence of one segment so far.

        Args:
            logits: One a language.
            voice_ms: How much audio of the segment they stand for.
        """
        weights = np.exp(logits - logits.max(), dtype=np.float64)
        if self._home is not None:
            weights[self._codes.index(self._home)] *= _HOME_WEIGHT
        best = int(weights.argmax())
        code, probability = self._codes[best], float(weights[best] / weights.sum())
        is_sure = probability >= _SURE_PROBABILITY and voice_ms >= _SETTLE_AFTER_MS
        goes_on = is_sure and code == self._latest
        self._n_in_a_row = is_sure + (self._n_in_a_row if goes_on else 0)
        self._latest = code
        if self._is_settled and self._n_in_a_row < _SURE_IN_A_ROW:
            return
        self._probability = probability if code == self._best else probability / 2
        self._best = code
        if self._n_in_a_row >= _SURE_IN_A_ROW or voice_ms >= _DECIDE_AFTER_MS:
            self._is_settled = True
            self._home = code
