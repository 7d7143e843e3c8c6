from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.gemma3n.mel import MelFrontEnd
from audiokv.models.gemma3n.prefix import Prefix, PrefixOptions
from audiokv.models.gemma3n.tail_decoding import Continuation, TailDecoder, TailRequest
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.marks import SlotMarks
from tests.models.gemma3n.conftest import sound
from tests.models.gemma3n.reference import AUDIO, BOA, BOS, EOA, Reference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from audiokv.models.gemma3n.speech_model import Inputs, SpeechModel

SAMPLES = sound(24_000, seed=4)
UNSPOKEN = frozenset({0, BOS, BOA, 4, 5, 55, EOA, AUDIO, 999})
STOPS = frozenset({1})
ENDLESS: frozenset[int] = frozenset()
N_TOKENS = 9


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="module")
def slots(speech: SpeechModel, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder: Path = tmp_path_factory.mktemp("none")
    with torch.no_grad():
        mel = speech.mel(torch.from_numpy(MelFrontEnd.from_folder(folder).log_mel(SAMPLES)))
        encoded, state = speech.tower.advance(speech.tower.start(), mel)
        return speech.slots(torch.cat((encoded, speech.tower.finish(state)), dim=1))


def prefix_of(speech: SpeechModel, slots: Inputs, n_in_prefix: int) -> Prefix:
    prefix = Prefix(speech, PrefixOptions(CacheOptions(), 160, 100))
    prefix.append_text([BOS], 0, is_prompt=True)
    prefix.append_text([BOA], 0)
    marks = [SlotMarks(160 * i, 160 * (i + 1)) for i in range(n_in_prefix)]
    prefix.append(slots[:n_in_prefix], marks)
    return prefix


def decode(
    speech: SpeechModel,
    slots: Inputs,
    *,
    n_in_prefix: int = 6,
    heads: Any = (),
    stops: frozenset[int] = STOPS,
    **request: Any,
) -> Continuation:
    prefix = prefix_of(speech, slots, n_in_prefix)
    own = slots[n_in_prefix:]
    wanted: dict[str, Any] = {
        "audio": own if len(own) else None,
        "n_own_slots": len(own),
        "after_audio": (EOA,),
        "forced": [],
        "draft": [],
        "max_tokens": N_TOKENS + 1,
        "n_spoken_slots": 99,
    }
    decoder = TailDecoder(speech, stops, UNSPOKEN | STOPS, heads)
    made = decoder.decode(prefix, TailRequest(**(wanted | request)), prefix.audio_rows(0))
    assert prefix.held == n_in_prefix + 2
    return made


@pytest.mark.parametrize("n_in_prefix", [1, 6, 10])
def test_the_text_is_what_transformers_gives_for_the_whole_clip(
    speech: SpeechModel, reference: Reference, slots: Inputs, n_in_prefix: int
) -> None:
    assert len(slots) == 10
    expected = reference.greedy(SAMPLES, [], N_TOKENS)
    made = decode(speech, slots, n_in_prefix=n_in_prefix)
    assert made.tokens == expected
    assert len(set(expected)) > 1


def test_forced_text_is_gone_on_with(
    speech: SpeechModel, reference: Reference, slots: Inputs
) -> None:
    forced = [20, 33, 8]
    expected = reference.greedy(SAMPLES, forced, N_TOKENS)
    assert decode(speech, slots, forced=forced).tokens == expected
    assert expected != reference.greedy(SAMPLES, [], N_TOKENS)


@given(st.lists(st.integers(6, 47), max_size=12), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_a_draft_changes_the_cost_and_never_the_result(
    speech: SpeechModel, slots: Inputs, noise: list[int], n_right: int
) -> None:
    plain = decode(speech, slots)
    made = decode(speech, slots, draft=[*plain.tokens[:n_right], *noise])
    assert made.tokens == plain.tokens
    assert made.is_complete == plain.is_complete
    np.testing.assert_allclose(made.log_probabilities, plain.log_probabilities, atol=1e-3)
    np.testing.assert_allclose(made.attention, plain.attention, atol=1e-4)


def test_a_right_draft_takes_one_pass(speech: SpeechModel, slots: Inputs) -> None:
    plain = decode(speech, slots, stops=ENDLESS)
    assert len(plain.tokens) == N_TOKENS
    assert plain.n_passes == N_TOKENS + 1
    assert decode(speech, slots, stops=ENDLESS, draft=[*plain.tokens, 20, 20]).n_passes <= 2
    some = decode(speech, slots, stops=ENDLESS, draft=plain.tokens[:4])
    assert some.n_passes == N_TOKENS + 1 - 4


def test_one_wrong_token_costs_one_more_pass(speech: SpeechModel, slots: Inputs) -> None:
    plain = decode(speech, slots, stops=ENDLESS)
    draft = list(plain.tokens)
    draft[3] = 47 if draft[3] != 47 else 46
    made = decode(speech, slots, stops=ENDLESS, draft=draft)
    assert made.tokens == plain.tokens
    assert made.n_passes <= 3


def test_the_limit_is_kept_and_the_last_token_left_out(speech: SpeechModel, slots: Inputs) -> None:
    made = decode(speech, slots, stops=ENDLESS, max_tokens=4)
    assert not made.is_complete
    assert len(made.tokens) == len(made.log_probabilities) == 3
    assert made.attention.shape[1] == 4


def test_the_models_end_ends_the_text(
    speech: SpeechModel, reference: Reference, slots: Inputs
) -> None:
    tokens = reference.greedy(SAMPLES, [], 3)
    prefix = prefix_of(speech, slots, 6)
    request = TailRequest(slots[6:], 4, (EOA,), [], [], 20, 99)
    decoder = TailDecoder(speech, frozenset({tokens[2]}), UNSPOKEN)
    made = decoder.decode(prefix, request, prefix.audio_rows(0))
    assert made.is_complete
    assert made.tokens == tokens[: tokens.index(tokens[2])]
    assert made.attention.shape[1] == len(made.tokens) + 1


def test_what_is_never_spoken_is_never_said(speech: SpeechModel, slots: Inputs) -> None:
    first = decode(speech, slots).tokens[0]
    prefix = prefix_of(speech, slots, 6)
    decoder = TailDecoder(speech, STOPS, UNSPOKEN | {first})
    request = TailRequest(slots[6:], 4, (EOA,), [], [], 5, 99)
    assert first not in decoder.decode(prefix, request, prefix.audio_rows(0)).tokens


def test_a_text_that_repeats_itself_is_cut(
    speech: SpeechModel, slots: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        TailDecoder, "choose", lambda _, hidden: ([7] * len(hidden), [-0.1] * len(hidden))
    )
    made = decode(speech, slots, max_tokens=90, n_spoken_slots=3)
    assert made.tokens == [7, 7, 7, 7]
    assert made.is_looping
    assert not made.is_complete
    # As many as the audio has room for may have been said.
    assert decode(speech, slots, max_tokens=90, n_spoken_slots=20).tokens == [7] * 20


def test_attention_has_a_row_a_token_and_a_column_a_slot(
    speech: SpeechModel, slots: Inputs
) -> None:
    made = decode(speech, slots, forced=[20, 33])
    assert made.attention.shape == (3 * 4, 2 + len(made.tokens) + 1, 10)
    assert (made.attention >= 0).all()
    assert (made.attention.sum(axis=-1) < 1).all()
    assert made.attention.max() > 0.05


def test_chosen_heads_are_read(speech: SpeechModel, slots: Inputs) -> None:
    whole = decode(speech, slots)
    chosen = decode(speech, slots, heads=((3, 2), (5, 0)))
    assert chosen.attention.shape[0] == 2
    np.testing.assert_allclose(chosen.attention[0], whole.attention[1 * 4 + 2], atol=1e-6)
    np.testing.assert_allclose(chosen.attention[1], whole.attention[2 * 4 + 0], atol=1e-6)
