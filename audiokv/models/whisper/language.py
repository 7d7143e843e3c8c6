"""Which language a stream speaks: detected, locked once sure, re-opened on a confident change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOCK_PROBABILITY = 0.8
_LOCK_AFTER_MS = 1500
_SWITCH_PROBABILITY = 0.9
_SWITCH_AFTER_MS = 2000


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

    @property
    def is_settled(self) -> bool:
        """Whether text in the current language may be committed."""
        return self._chosen is not None or self._locked is not None

    @property
    def current(self) -> str | None:
        """The language to decode in, or None before anything was heard."""
        return self._chosen or self._locked or self._best

    def choose(self, language: str | None) -> None:
        """Follow the source's wish: a code overrides, None detects anew."""
        self._chosen = language
        self._locked = self._best = None

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
        if self._locked is None:
            self._best = code
            if probability >= _LOCK_PROBABILITY and voice_ms >= _LOCK_AFTER_MS:
                self._locked = code
        elif (
            code != self._locked
            and probability >= _SWITCH_PROBABILITY
            and voice_ms >= _SWITCH_AFTER_MS
        ):
            self._locked = code
