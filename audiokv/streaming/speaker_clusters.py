"""Voices told apart as they come: running means of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Embedding = NDArray[np.float32]


class SpeakerClusters:
    """One running mean a voice: of the embeddings that were taken for it, by their weights.

    Leader clustering (Hartigan, "Clustering Algorithms", 1975, chapter 3), with the mean cosine to
    all members in place of the distance to the first. The cosine to the direction of their mean
    would not do as well: it grows with the spread of the members, so that a voice heard often takes
    others in (measured in a meeting of two: both became one).

    Args:
        max_speakers: Voices told apart; once there are so many, every embedding goes to the
            nearest.
    """

    def __init__(self, max_speakers: int) -> None:
        self._max_speakers = max_speakers
        self._sums: list[Embedding] = []
        self._weights: list[float] = []

    def __len__(self) -> int:
        """Voices met so far."""
        return len(self._sums)

    def match(self, embedding: Embedding, threshold: float) -> int | None:
        """Return the voice nearest to an embedding.

        Args:
            embedding: Of unit length.
            threshold: Mean cosine to a voice's embeddings below which it is not that voice.

        Returns:
            Number of the voice, from 0; None where it is none of them.
        """
        if not self._sums:
            return None
        cosines = np.stack(self._sums) @ embedding / np.array(self._weights)
        best = int(np.argmax(cosines))
        is_full = len(self._sums) >= self._max_speakers
        return best if is_full or cosines[best] >= threshold else None

    def learn(self, embedding: Embedding, speaker: int | None, weight: float) -> int:
        """Add an embedding to a voice, or make it a new one.

        Args:
            embedding: Of unit length.
            speaker: What `match` said of it.
            weight: How much it counts, over 0.

        Returns:
            Number of the voice, from 0.
        """
        if speaker is None:
            self._sums.append(embedding * np.float32(weight))
            self._weights.append(weight)
            return len(self._sums) - 1
        self._sums[speaker] += embedding * np.float32(weight)
        self._weights[speaker] += weight
        return speaker
