"""Which language a stream speaks: detected, locked once sure, re-opened on a confident change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SURE_PROBABILITY = 0.9
_SURE_IN_A_ROW = 3
_LOCK_AFTER_MS = 1000
_SWITCH_AFTER_MS = 2000
_OBSERVED_MS = 5000  # of each segment; a language does not change within a breath


class LanguageTracker:
    """Follows the language probabilities of one stream.

    Args:
        codes: ISO 639-1 codes in the order of the probabilities.
        chosen: A language the source asked for; nothing is detected then.
    """

    def __init__(self, codes: list[str], chosen: str | None) -> None:
        self._codes = codes
        self._chosen = chosen
        self._locked: str | None = None
        self._best: str | None = None
        self._probability = 0.0
        self._n_in_a_row = 0

    @property
    def is_settled(self) -> bool:
        """Whether text in the current language may be committed."""
        return self._chosen is not None or self._locked is not None

    @property
    def current(self) -> str | None:
        """The language to decode in, or None before anything was heard."""
        return self._chosen or self._locked or self._best

    @property
    def confidence(self) -> float:
        """Probability of the current language; 1 once it is settled.

        A language that was not the best one before is believed half: early guesses jump about.
        """
        return 1.0 if self.is_settled else self._probability

    def settle(self) -> None:
        """Keep the current language: text in it has been committed."""
        self._locked = self._locked or self._best

    def wants(self, segment_ms: int) -> bool:
        """Tell whether more evidence is of use, this far into a segment."""
        return self._chosen is None and (self._locked is None or segment_ms <= _OBSERVED_MS)

    def choose(self, language: str | None) -> None:
        """Follow the source's wish: a code overrides, None detects anew."""
        self._chosen = language
        self._locked = self._best = None
        self._n_in_a_row = 0

    def observe(self, logits: NDArray[np.float32], voice_ms: int) -> None:
        """Take the evidence of one segment so far.

        Args:
            logits: One a language.
            voice_ms: How much audio of the segment they stand for.
        """
        shifted = np.exp(logits - logits.max())
        probabilities = shifted / shifted.sum()
        best = int(probabilities.argmax())
        code, probability = self._codes[best], float(probabilities[best])
        after_ms = _LOCK_AFTER_MS if self._locked is None else _SWITCH_AFTER_MS
        is_sure = probability >= _SURE_PROBABILITY and voice_ms >= after_ms
        if not is_sure:
            self._n_in_a_row = 0
        elif code == self._best:
            self._n_in_a_row += 1
        else:
            self._n_in_a_row = 1
        self._probability = probability if code == self._best else probability / 2
        self._best = code
        if self._n_in_a_row >= _SURE_IN_A_ROW:
            self._locked = code
