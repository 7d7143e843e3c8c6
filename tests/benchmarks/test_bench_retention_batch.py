"""The batched decoder against the live one, on transformers' random Whisper."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from audiokv.models.whisper.cross_cache import CrossCache, Holding, nearest_owners
from audiokv.models.whisper.decoding import DraftDecoder
from benchmarks.retention_batch import BatchedWhisper, HeardClip
from benchmarks.retention_speech import Clip
from benchmarks.retention_static import CacheShape, WatchedAudio
from tests.models.whisper.conftest import (
    ALIGNMENT_HEADS,
    SUPPRESSED,
    network_of,
    random_whisper,
    train_tokenizer,
)

if TYPE_CHECKING:
    from pathlib import Path

    from audiokv.models.whisper.decoding import Decoded
    from audiokv.models.whisper.network import WhisperNetwork

N_SUBSETS = 5


class FixedAudio:
    """Implements ``RowCache``: holds the same slots throughout."""

    def __init__(self, is_held: np.ndarray) -> None:
        self.is_held = is_held
        self.attention: list[np.ndarray] = []

    def make_room(self, attention: np.ndarray) -> bool:
        self.attention.append(attention.copy())
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("batched-whisper")
    random_whisper().save_pretrained(made)
    train_tokenizer().save(str(made / "tokenizer.json"))
    generation = {
        "alignment_heads": [list(pair) for pair in ALIGNMENT_HEADS],
        "is_multilingual": True,
        "suppress_tokens": SUPPRESSED,
    }
    (made / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> BatchedWhisper:
    return BatchedWhisper(str(folder), torch.float32)


@pytest.fixture(scope="module")
def network() -> WhisperNetwork:
    return network_of(random_whisper(), torch.float32)


@pytest.fixture(scope="module")
def clip() -> Clip:
    samples = np.random.default_rng(3).standard_normal(900 * 16) * 0.1
    return Clip("a", "a", "en", "en", "", samples.astype(np.float32))


@pytest.fixture(scope="module")
def heard(model: BatchedWhisper, clip: Clip) -> HeardClip:
    return model.hear(clip)


def live(
    model: BatchedWhisper, heard: HeardClip, network: WhisperNetwork, held: list[int]
) -> Decoded:
    """Decode as the live stream does, from a cache that holds nothing but these slots."""
    n_slots = heard.n_slots
    index = torch.tensor([*held, *range(n_slots, heard.cross.keys[0].shape[1])])
    cache = CrossCache(
        [k[:, index].contiguous() for k in heard.cross.keys],
        [v[:, index].contiguous() for v in heard.cross.values],
        n_slots,
        np.array(held),
    )
    with torch.inference_mode():
        return DraftDecoder(network, model.vocabulary, SUPPRESSED).decode(
            heard.prompt, 0, [], cache
        )


def test_slots_that_stand_for_others_say_what_the_live_cache_of_them_says(
    model: BatchedWhisper, heard: HeardClip, network: WhisperNetwork
) -> None:
    places = np.array(subsets(heard.n_slots)[1])
    holding = Holding(places, nearest_owners(places, heard.n_slots, 4))
    every = np.arange(heard.n_slots)
    own = [model.merged(heard, kept, 4) for kept in (every, places)]
    rows = [masked(model, heard, kept.tolist()) for kept in (every, places)]
    whole, found = model.decode_merged(heard, rows, own)
    assert model.decode(heard, rows[:1]) == [whole]
    with torch.inference_mode():
        cache = network.cross_cache(heard.encoded, heard.n_slots, holding)
        decoder = DraftDecoder(network, model.vocabulary, SUPPRESSED)
        live_text = decoder.decode(heard.prompt, 0, [], cache)
    n_tokens = len(live_text.tokens)
    assert found.tokens[:n_tokens] == live_text.tokens
    assert n_tokens > 2
    (plain,) = model.decode(heard, [masked(model, heard, places.tolist())])
    assert plain.tokens != found.tokens


def subsets(n_slots: int) -> list[list[int]]:
    chance = np.random.default_rng(0)
    sizes = [n_slots, *chance.integers(1, n_slots, N_SUBSETS - 1)]
    return [sorted(chance.permutation(n_slots)[:size].tolist()) for size in sizes]


def masked(model: BatchedWhisper, heard: HeardClip, held: list[int]) -> FixedAudio:
    mask = np.zeros((*model.heads, heard.n_slots), np.bool_)
    mask[..., held] = True
    return FixedAudio(mask)


def test_every_row_says_what_a_cache_of_its_slots_says(
    model: BatchedWhisper, heard: HeardClip, network: WhisperNetwork
) -> None:
    chosen = subsets(heard.n_slots)
    found = model.decode(heard, [masked(model, heard, held) for held in chosen])
    texts = [live(model, heard, network, held) for held in chosen]
    for ours, theirs in zip(found, texts, strict=True):
        # The live decoder drops the last token of a text cut short: it has not looked from there.
        assert (ours.tokens if ours.is_complete else ours.tokens[:-1]) == theirs.tokens
    assert [one.is_complete for one in found] == [one.is_complete for one in texts]
    assert len({tuple(one.tokens) for one in texts}) > 2, "the slots make no difference"


def test_holding_everything_is_having_no_mask_bit_for_bit(
    model: BatchedWhisper, heard: HeardClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = masked(model, heard, list(range(heard.n_slots)))
    found = model.decode(heard, [everything])
    monkeypatch.setattr(torch.Tensor, "masked_fill", lambda tensor, _mask, _value: tensor)
    unmasked = masked(model, heard, list(range(heard.n_slots)))
    assert model.decode(heard, [unmasked]) == found
    assert all(map(np.array_equal, unmasked.attention, everything.attention))


def test_rows_do_not_disturb_each_other(model: BatchedWhisper, heard: HeardClip) -> None:
    chosen = subsets(heard.n_slots)[1:4]
    together = model.decode(heard, [masked(model, heard, held) for held in chosen])
    alone = [model.decode(heard, [masked(model, heard, held)])[0] for held in chosen]
    assert together == alone


def test_attention_is_that_of_every_layer_and_head_and_falls_on_what_is_held(
    model: BatchedWhisper, heard: HeardClip
) -> None:
    held = subsets(heard.n_slots)[1]
    row = masked(model, heard, held)
    model.decode(heard, [row])
    assert row.attention[0].shape == (*model.heads, heard.n_slots)
    assert row.attention[0].sum(axis=-1).max() <= 1 + 1e-5
    assert not row.attention[0][~row.is_held].any()
    assert len(np.unique(row.attention[0].sum(axis=-1))) > 1


def test_a_row_that_finds_no_room_ends(model: BatchedWhisper, heard: HeardClip) -> None:
    class Full(FixedAudio):
        def make_room(self, attention: np.ndarray) -> bool:
            super().make_room(attention)
            return len(self.attention) < 3

    rows = [Full(masked(model, heard, list(range(heard.n_slots))).is_held) for _ in range(2)]
    rows[1].make_room(np.zeros(1))
    first, second = model.decode(heard, rows)
    assert (len(first.tokens), len(second.tokens)) == (3, 2)
    assert not first.is_complete


def test_heads_may_hold_different_slots(model: BatchedWhisper, heard: HeardClip) -> None:
    chance = np.random.default_rng(5)
    alike = masked(model, heard, subsets(heard.n_slots)[2])
    apart = FixedAudio(chance.random(alike.is_held.shape) < alike.is_held.mean())
    model.decode(heard, [alike])
    model.decode(heard, [apart])
    assert not apart.attention[0][~apart.is_held].any()
    assert apart.attention[0][apart.is_held].all()


def test_the_whole_cache_is_measured_in_bytes(model: BatchedWhisper, heard: HeardClip) -> None:
    tensors = [t[:, : heard.n_slots] for t in (*heard.cross.keys, *heard.cross.values)]
    n_bytes = sum(t.numel() * t.element_size() for t in tensors)
    assert model.slot_bytes * heard.n_slots == n_bytes
    full = WatchedAudio(CacheShape(model.heads, model.slot_bytes), heard.n_slots)
    model.decode(heard, [full])
    assert {step.held_bytes for step in full.log.steps} == {n_bytes}
