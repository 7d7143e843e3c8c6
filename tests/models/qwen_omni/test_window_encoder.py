from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.qwen_omni.window_encoder import WindowEncoder
from audiokv.streaming.errors import ConfigError
from tests.models.qwen_omni.conftest import N_MELS, WINDOW_FRAMES, tiny_thinker


def log_mel(n_frames: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((N_MELS, n_frames), generator=generator)


def by_class(thinker: Any, mel: torch.Tensor) -> torch.Tensor:
    tower = thinker.model.audio_tower
    with torch.no_grad():
        out = tower(mel, feature_lens=torch.tensor([mel.shape[1]]))
    encoded: torch.Tensor = out.last_hidden_state
    return encoded


def appended(encoder: WindowEncoder, mel: torch.Tensor, n_frames: int) -> torch.Tensor:
    """What is encoded piece by piece."""
    with torch.no_grad():
        parts = [
            encoder.encode(piece, has_past=number > 0)[0]
            for number, piece in enumerate(torch.split(mel, n_frames, dim=1))
        ]
    return torch.cat(parts)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3 * WINDOW_FRAMES), st.integers(0, 9))
def test_appended_windows_are_the_batch_encoder(thinker: Any, n_frames: int, seed: int) -> None:
    encoder, mel = WindowEncoder(thinker.model.audio_tower), log_mel(n_frames, seed)
    found = appended(encoder, mel, encoder.frames_per_window)
    torch.testing.assert_close(found, by_class(thinker, mel), atol=1e-4, rtol=0)


def test_smaller_pieces_than_a_window_are_not(thinker: Any) -> None:
    """What the class does not allow: its frames attend to the rest of their window."""
    encoder, mel = WindowEncoder(thinker.model.audio_tower), log_mel(2 * WINDOW_FRAMES)
    assert (encoder.frames_per_chunk, encoder.frames_per_window) == (100, WINDOW_FRAMES)
    found = appended(encoder, mel, encoder.frames_per_chunk)
    assert float((found - by_class(thinker, mel)).abs().max()) > 0.1


def test_windows_of_one_chunk_can_be_appended_by_the_second() -> None:
    thinker = tiny_thinker(n_window_infer=100)
    encoder, mel = WindowEncoder(thinker.model.audio_tower), log_mel(470)
    found = appended(encoder, mel, 100)
    torch.testing.assert_close(found, by_class(thinker, mel), atol=1e-4, rtol=0)


def test_a_short_chunk_is_filled_up_where_the_stream_had_longer_ones(thinker: Any) -> None:
    encoder, mel = WindowEncoder(thinker.model.audio_tower), log_mel(WINDOW_FRAMES + 30)
    last = mel[:, WINDOW_FRAMES:]
    expected = by_class(thinker, mel)[26:]
    with torch.no_grad():
        filled, alone = (encoder.encode(last, has_past=is_past)[0] for is_past in (True, False))
    torch.testing.assert_close(filled, expected, atol=1e-4, rtol=0)
    assert float((alone - expected).abs().max()) > 1e-3


@pytest.mark.parametrize("windows", [{"n_window": 40}, {"n_window_infer": 150}])
def test_other_windows_are_refused(windows: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="mel frames in windows") as caught:
        WindowEncoder(tiny_thinker(**windows).model.audio_tower)
    assert caught.value.code == "encoder_windows_unsupported"


def test_it_runs_where_and_as_the_weights_are(thinker: Any) -> None:
    encoder = WindowEncoder(thinker.model.audio_tower)
    assert encoder.device == torch.device("cpu")
    assert encoder.dtype == torch.float32
    with torch.no_grad():
        assert encoder.encode(log_mel(20).double(), has_past=False).dtype == torch.float32
