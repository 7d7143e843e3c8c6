from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from audiokv.models.whisper.cross_cache import Holding
from audiokv.models.whisper.network import Dimensions, SelfCache, fastest_dtype

if TYPE_CHECKING:
    from audiokv.models.whisper.cross_cache import CrossCache
    from audiokv.models.whisper.network import WhisperNetwork
    from tests.models.whisper.conftest import Tiny

TOKENS = [341, 342, 347, 351, 40, 41, 42, 99, 7, 300]
WINDOW_SLOTS = [1, 2, 37, 100, 150]


def mel(n_slots: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(80, 2 * n_slots, generator=torch.Generator().manual_seed(seed))


def reference_encoding(tiny: Tiny, window: torch.Tensor) -> torch.Tensor:
    """transformers' encoder over a window of any length.

    It takes whole windows only, so one is built whose whole window is this long: the same weights,
    with the positions cut to its length.
    """
    config = tiny.reference.config.__class__(**tiny.reference.config.to_dict())
    config.max_source_positions = window.shape[1] // 2
    config._attn_implementation = "eager"
    encoder = WhisperForConditionalGeneration(config).model.encoder
    weights = dict(tiny.reference.model.encoder.state_dict())
    weights["embed_positions.weight"] = weights["embed_positions.weight"][
        : config.max_source_positions
    ]
    encoder.load_state_dict(weights)
    encoder.train(mode=False)
    with torch.no_grad():
        hidden: torch.Tensor = encoder(window[None]).last_hidden_state[0]
    return hidden


def reference_decoding(
    tiny: Tiny, encoded: torch.Tensor, tokens: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' logits, and the attention of the alignment heads, by layer and head."""
    with torch.no_grad():
        out = tiny.reference(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded[None]),
            decoder_input_ids=torch.tensor([tokens]),
            output_attentions=True,
            use_cache=False,
        )
    heads = [out.cross_attentions[layer][0, head] for layer, head in [(1, 0), (1, 3), (2, 2)]]
    return out.logits[0], torch.stack(heads)


def encoded_audio(network: WhisperNetwork, n_slots: int, seed: int = 0) -> CrossCache:
    return network.cross_cache(network.encode(mel(n_slots, seed)), n_slots)


def decoded(
    network: WhisperNetwork, cross: CrossCache, tokens: list[int], *cuts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and attention of tokens fed in one pass, or in several."""
    own = SelfCache(network.dims, network.dtype)
    edges = [0, *cuts, len(tokens)]
    parts = [network.decode(tokens[start:end], start, own, cross) for start, end in pairwise(edges)]
    logits = torch.cat([network.logits(hidden) for hidden, _ in parts])
    return logits, torch.cat([attention for _, attention in parts], dim=1)


@pytest.mark.parametrize("n_slots", WINDOW_SLOTS)
def test_encoding_is_that_of_transformers(tiny: Tiny, n_slots: int) -> None:
    window = mel(n_slots)
    ours = tiny.network.encode(window)
    assert ours.shape == (n_slots, 32)
    torch.testing.assert_close(ours, reference_encoding(tiny, window), rtol=1e-4, atol=1e-4)


def test_whole_windows_are_those_of_the_whole_model(tiny: Tiny) -> None:
    window = mel(150)
    with torch.no_grad():
        out = tiny.reference(window[None], decoder_input_ids=torch.tensor([TOKENS]))
    logits, _ = decoded(tiny.network, encoded_audio(tiny.network, 150), TOKENS)
    torch.testing.assert_close(logits, out.logits[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_slots", WINDOW_SLOTS)
def test_logits_and_attention_are_those_of_transformers(tiny: Tiny, n_slots: int) -> None:
    expected, expected_attention = reference_decoding(
        tiny, reference_encoding(tiny, mel(n_slots)), TOKENS
    )
    logits, attention = decoded(tiny.network, encoded_audio(tiny.network, n_slots), TOKENS)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(attention, expected_attention, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cuts", [(1,), (4, 5, 6), (3, 9), tuple(range(1, 10))])
def test_tokens_fed_in_pieces_give_the_same(tiny: Tiny, cuts: tuple[int, ...]) -> None:
    cross = encoded_audio(tiny.network, 60)
    logits, attention = decoded(tiny.network, cross, TOKENS)
    in_pieces, attention_in_pieces = decoded(tiny.network, cross, TOKENS, *cuts)
    torch.testing.assert_close(in_pieces, logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(attention_in_pieces, attention, rtol=1e-4, atol=1e-4)


def test_writing_over_rolls_the_cache_back(tiny: Tiny) -> None:
    network, cross = tiny.network, encoded_audio(tiny.network, 60)
    own = SelfCache(network.dims, network.dtype)
    network.decode([*TOKENS[:5], 200, 201, 202, 203, 204, 205, 206, 207], 0, own, cross)
    hidden, attention = network.decode(TOKENS[5:], 5, own, cross)
    expected, expected_attention = decoded(network, cross, TOKENS)
    torch.testing.assert_close(network.logits(hidden), expected[5:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(attention, expected_attention[:, 5:], rtol=1e-4, atol=1e-4)


def test_a_cache_serves_one_window_after_another(tiny: Tiny) -> None:
    network, own = tiny.network, SelfCache(tiny.network.dims, tiny.network.dtype)
    network.decode(TOKENS, 0, own, encoded_audio(network, 60))
    other = encoded_audio(network, 40, seed=1)
    hidden, _ = network.decode(TOKENS, 0, own, other)
    assert torch.equal(network.logits(hidden), decoded(network, other, TOKENS)[0])


def test_the_end_of_the_audio_alone_is_a_view(tiny: Tiny) -> None:
    cross = encoded_audio(tiny.network, 60)
    cross.n_audio_slots = 50
    part = cross.since(20)
    assert part.n_audio_slots == 30
    assert [k.shape[1] for k in part.keys] == [40] * 3
    assert part.values[1].untyped_storage().data_ptr() == (
        cross.values[1].untyped_storage().data_ptr()
    )
    encoded = tiny.network.encode(mel(60))
    expected, _ = reference_decoding(tiny, encoded[20:], TOKENS)
    torch.testing.assert_close(
        decoded(tiny.network, part, TOKENS)[0], expected, rtol=1e-4, atol=1e-4
    )


def test_bfloat16_is_close(tiny: Tiny) -> None:
    network = tiny.twin(torch.bfloat16)
    assert encoded_audio(network, 60).keys[0].dtype is torch.bfloat16
    exact, exact_attention = decoded(tiny.network, encoded_audio(tiny.network, 60), TOKENS)
    logits, attention = decoded(network, encoded_audio(network, 60), TOKENS)
    assert logits.dtype is attention.dtype is torch.float32
    error = (logits - exact).norm() / exact.norm()
    assert 0 < error < 0.15  # sharp random weights amplify the rounding
    assert (attention - exact_attention).abs().mean() < 0.01


def test_sizes_are_read_from_the_config(tiny: Tiny) -> None:
    dims = Dimensions.from_config(tiny.reference.config.to_dict())
    assert dims == Dimensions(
        d_model=32,
        n_encoder_layers=2,
        n_decoder_layers=3,
        n_encoder_heads=2,
        n_decoder_heads=4,
        n_mels=80,
        n_vocabulary=354,
        max_source_positions=150,
        max_target_positions=96,
    )


def test_the_fastest_type_is_one_the_network_computes_in() -> None:
    assert fastest_dtype() in {torch.float32, torch.bfloat16}


@pytest.mark.parametrize("bfloat16_s", [0.9, 0.1])
def test_the_fastest_type_is_the_measured_one(
    monkeypatch: pytest.MonkeyPatch, bfloat16_s: float
) -> None:
    now_s = 0.0
    product = torch.Tensor.__matmul__

    def timed_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        nonlocal now_s
        now_s += bfloat16_s if x.dtype is torch.bfloat16 else 1.0
        return product(x, w)

    monkeypatch.setattr(torch.Tensor, "__matmul__", timed_product)
    monkeypatch.setattr("audiokv.models.whisper.network.time.perf_counter", lambda: now_s)
    expected = torch.bfloat16 if bfloat16_s < 0.5 else torch.float32
    assert fastest_dtype() is expected


@settings(deadline=None, max_examples=15)
@given(st.sets(st.integers(0, 39)))
def test_a_cache_without_some_slots_is_transformers_without_them(
    tiny: Tiny, slots: set[int]
) -> None:
    encoded = tiny.network.encode(mel(50))
    held = np.array(sorted(slots), np.intp)
    cross = tiny.network.cross_cache(encoded, 40, Holding(held))
    logits, attention = reference_decoding(
        tiny, torch.cat((encoded[sorted(slots)], encoded[40:])), TOKENS
    )
    own = SelfCache(tiny.network.dims, torch.float32)
    hidden, seen = tiny.network.decode(TOKENS, 0, own, cross)
    torch.testing.assert_close(tiny.network.logits(hidden), logits, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(seen, attention, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_a_slot_that_stands_for_several_counts_as_many(tiny: Tiny, sizes: list[int]) -> None:
    n_audio = sum(sizes)
    encoded = tiny.network.encode(mel(n_audio + 10))
    owners = np.repeat(np.arange(len(sizes)), sizes)
    places = np.cumsum([0, *sizes[:-1]])
    cross = tiny.network.cross_cache(encoded, n_audio, Holding(places, owners))
    means = torch.stack([part.mean(dim=0) for part in torch.split(encoded[:n_audio], sizes)])
    repeated = means.repeat_interleave(torch.tensor(sizes), dim=0)
    logits, attention = reference_decoding(tiny, torch.cat((repeated, encoded[n_audio:])), TOKENS)
    hidden, seen = tiny.network.decode(
        TOKENS, 0, SelfCache(tiny.network.dims, torch.float32), cross
    )
    torch.testing.assert_close(tiny.network.logits(hidden), logits, rtol=1e-3, atol=1e-3)
    sums = torch.stack(
        [part.sum(-1) for part in torch.split(attention[..., :n_audio], sizes, -1)], -1
    )
    torch.testing.assert_close(seen[..., : len(sizes)], sums, rtol=1e-4, atol=1e-4)
