from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tools.digits_listening import Listening, ListeningPlan
from tools.digits_mel import LogMel
from tools.digits_model import AUDIO_TOKEN, EOA, DigitsModel, digits_config
from tools.digits_pool import MelPool, make_extractor, make_pool
from tools.digits_reading import HeardPool, Reading, ReadingPlan, hear_pool, looking_loss, read_rows
from tools.digits_rows import HeardString, RowPlan, compose_row, stack_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tools.digits_data import DigitBank

ROWS = RowPlan(n_slots=24, segment_shares=(0.5, 0.5))
PLAN = ReadingPlan(n_steps=2, n_rows=2, n_warm_up=1, n_short_steps=0, rows=ROWS)


@pytest.fixture(scope="module")
def heard() -> HeardPool:
    strings = [HeardString((at, 3, 7), (4, 11, 20), (300.0, 1400.0, 2900.0), 24) for at in range(4)]
    encoded = torch.randn(4 * 24, 128, generator=torch.Generator().manual_seed(0)).half()
    return HeardPool(encoded, strings)


def stage(heard: HeardPool, plan: ReadingPlan = PLAN) -> Reading:
    torch.manual_seed(0)
    return Reading(DigitsModel(digits_config()), heard, plan)


def test_the_pool_is_heard_as_the_tower_hears_it(bank: DigitBank, tmp_path: Path) -> None:
    mel = LogMel(make_extractor(0, bank))
    pool: MelPool = make_pool(0, bank, mel, 5, tmp_path / "pool.pt")
    torch.manual_seed(0)
    model = DigitsModel(digits_config()).eval()
    listening = Listening(model, pool, ListeningPlan(n_steps=1))
    result = hear_pool(listening, pool)
    assert result.encoded.shape == (5 * 188, 128)
    assert [one.digits for one in result.strings] == [one.digits for one in pool.spoken]
    assert all(list(one.spelled_at) == sorted(set(one.spelled_at)) for one in result.strings)
    with torch.no_grad():
        last = model.encode(pool.mel[4:].float())[0]
    torch.testing.assert_close(result.encoded[4 * 188 :].float(), last, atol=0.1, rtol=0.1)


def test_a_step_learns_in_text_model_and_embedder_but_not_in_the_tower(heard: HeardPool) -> None:
    reading = stage(heard)
    model = reading._model
    before = {name: one.clone() for name, one in model.state_dict().items()}
    assert np.isfinite(reading.advance())
    after = model.state_dict()
    changed = {name.split(".")[0] for name, one in after.items() if not one.equal(before[name])}
    assert changed == {"embed_audio", "language_model"}
    assert "looking" in reading.note


def test_rows_are_short_only_at_the_start(heard: HeardPool) -> None:
    short = replace(PLAN, n_short_steps=1, short_rows=replace(ROWS, n_slots=16))
    both = [stage(heard, plan) for plan in (PLAN, short)]
    first, later = ([float(one.loss(step).detach()) for one in both] for step in (0, 1))
    assert first[0] != first[1]
    assert later[0] == later[1]


def test_the_loss_of_looking_is_low_where_attention_goes_to_the_slot() -> None:
    points = np.array([[-1, 1, -1, -1]])
    weights = torch.full((1, 4, 4), 0.25)
    even = float(looking_loss(weights, points))
    assert even == pytest.approx(np.log(2))
    weights[0, 1] = torch.tensor([0.0, 0.6, 0.4, 0.0])
    assert float(looking_loss(weights, points)) == pytest.approx(0.0, abs=1e-6)
    weights[0, 1] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert float(looking_loss(weights, points)) > 10


def test_the_guided_heads_learn_to_look(heard: HeardPool) -> None:
    plan = replace(PLAN, n_steps=60, rows=replace(ROWS, segment_shares=(1.0,)))
    reading = stage(heard, plan)
    looking = []
    for _ in range(30):
        reading.advance()
        looking.append(float(reading.note.rsplit(" ", 1)[1]))
    assert np.mean(looking[-5:]) < 0.8 * np.mean(looking[:5])


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, seed=4),
        replace(PLAN, n_rows=3),
        replace(PLAN, rows=replace(ROWS, n_slots=16)),
        replace(PLAN, n_short_steps=1, short_rows=replace(ROWS, n_slots=16)),
    ],
)
def test_everything_in_the_plan_changes_the_batch(heard: HeardPool, other: ReadingPlan) -> None:
    same = [float(stage(heard).loss(0).detach()) for _ in range(2)]
    assert same[0] == same[1]
    assert float(stage(heard, other).loss(0).detach()) != same[0]


def test_rows_are_read_as_the_prompt_is(heard: HeardPool) -> None:
    torch.manual_seed(0)
    model = DigitsModel(digits_config()).eval()
    plan = replace(ROWS, segment_shares=(1.0,), evicted_share=0.0)
    one = compose_row(np.random.default_rng(0), heard.strings, plan)
    ids = torch.from_numpy(one.ids)[None]
    is_slot = ids == AUDIO_TOKEN
    with torch.no_grad():
        ours = read_rows(model, heard.encoded, stack_rows([one]))
        slots = model.embed_audio(inputs_embeds=heard.encoded[one.slots[one.slots >= 0]].float())
        embeddings = model.embed(ids).masked_scatter(is_slot[..., None], slots)
        positions = torch.from_numpy(one.positions)[None]
        theirs = model.logits(ids, embeddings, position_ids=positions, attention_mask=ids > 0)
    end = int(np.flatnonzero(one.ids == EOA)[0])
    torch.testing.assert_close(ours[:, end:], theirs[:, end:], atol=1e-3, rtol=1e-3)


def test_what_a_row_may_not_see_does_not_matter(heard: HeardPool) -> None:
    torch.manual_seed(0)
    model = DigitsModel(digits_config()).eval()
    plan = replace(ROWS, segment_shares=(1.0,), evicted_share=0.0)
    one = compose_row(np.random.default_rng(0), heard.strings, plan)
    last = len(one.ids) - 1
    with torch.no_grad():
        before = read_rows(model, heard.encoded, stack_rows([one]))[0, last]
        seen = one.sees.copy()
        seen[last, 3:20] = False
        after = read_rows(model, heard.encoded, stack_rows([replace(one, sees=seen)]))[0, last]
    assert not torch.allclose(before, after, atol=1e-4)
