"""A tiny random thinker of Qwen3-Omni, of the real class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import (
    Qwen3OmniMoeThinkerConfig,
)
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeThinkerForConditionalGeneration,
)

from tests.models.cache.conftest import QWEN3_OMNI
from tests.models.gemma3n.conftest import enliven

N_MELS = 16
WINDOW_FRAMES = 200  # two chunks; the published models have eight


def tiny_thinker(**audio: Any) -> Any:
    """A random model; changes go to its audio config."""
    audio_config = {
        **QWEN3_OMNI["audio_config"],
        "num_mel_bins": N_MELS,
        "encoder_layers": 2,
        "n_window": 50,
        "n_window_infer": WINDOW_FRAMES,
        **audio,
    }
    config = Qwen3OmniMoeThinkerConfig(**(QWEN3_OMNI | {"audio_config": audio_config}))
    made: Any = Qwen3OmniMoeThinkerForConditionalGeneration(config)
    enliven(made.eval())
    with torch.no_grad():
        made.lm_head.weight[1] *= 2.0  # so that texts come to an end
    return made


@pytest.fixture(scope="session")
def thinker() -> Any:
    """A tiny random thinker."""
    return tiny_thinker()
