"""Gemma 4's log-mel front end, each frame computed once.

As Gemma-3n's, but with half a frame of silence before the first sample, so that frame f is centred
on sample 160 f, and with the floor added before the logarithm. The definition is that of
transformers' ``Gemma4AudioFeatureExtractor`` without its padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from audiokv.models.gemma3n.mel import MelFrontEnd

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Gemma4FrontEnd(MelFrontEnd):
    """The constants of one model's front end.

    Args:
        extractor: A ``Gemma4AudioFeatureExtractor``; only its settings are read.

    Raises:
        ConfigError: It wants another sample rate, or random dither.
    """

    def __init__(self, extractor: Any) -> None:  # noqa: ANN401  transformers is not typed
        super().__init__(extractor)
        self.n_left_samples = extractor.frame_length // 2

    @staticmethod
    def _logarithm(mel: NDArray[np.floating[Any]], floor: float) -> NDArray[np.floating[Any]]:
        logarithm: NDArray[np.floating[Any]] = np.log(mel + floor)
        return logarithm
