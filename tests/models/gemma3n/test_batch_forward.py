from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from transformers import Gemma3nTextConfig
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextMLP

from audiokv.models.gemma3n.batch_forward import (
    PassInputs,
    SharedForward,
    fix_cutoffs,
    full_mask,
    read_into,
    sliding_mask,
)
from audiokv.models.gemma3n.batch_shapes import FixedShapes
from audiokv.models.gemma3n.batch_workspace import LayerMap, Workspace
from tests.models.gemma3n.batching import History, lived, slots, with_shared_silence
from tests.models.gemma3n.conftest import tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audiokv.models.gemma3n.batch_forward import PassOutputs
    from audiokv.models.gemma3n.prefix import Prefix
    from audiokv.models.gemma3n.speech_model import SpeechModel

LIVES = [History(14, 12, "uniform", 1), History(2, None, "fifo", 2), History(9, None, "fifo", 3)]
HEADS = ((1, 3), (5, 0))


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def prefixes(speech: SpeechModel) -> list[Prefix]:
    return [lived(speech, life) for life in LIVES]


def counter() -> Any:
    """Counts what is traced; runs it as it is."""
    made: Any = CompileCounter
    return made()


def opened(speech: SpeechModel, prefixes: list[Prefix], n_lanes: int = 4) -> Workspace:
    layers = LayerMap.of(speech.text_config)
    space = Workspace.empty(layers, (n_lanes, 40, 40), torch.empty(0))
    space.load([prefix.cache for prefix in prefixes])
    return space


def test_a_pass_is_padded_at_the_front_and_written_behind_what_each_lane_holds(
    speech: SpeechModel, prefixes: list[Prefix]
) -> None:
    space = opened(speech, prefixes)
    held, begins = space.full.n_held.copy(), space.next_position.copy()
    inputs = read_into(space, [0, 2], [slots(speech, 2, 1), slots(speech, 3, 2)], 5)
    assert inputs.is_real.tolist() == [
        [False, False, False, True, True],
        [False] * 5,
        [False, False, True, True, True],
        [False] * 5,
    ]
    assert inputs.positions[0].tolist() == [begins[0] + 1] * 3 + [begins[0], begins[0] + 1]
    assert inputs.positions[1].tolist() == [begins[1] - 1] * 5
    assert inputs.full_rows[0].tolist() == [40] * 3 + [held[0], held[0] + 1]
    assert inputs.full_rows[1].tolist() == [40] * 5
    assert inputs.sliding_rows[3].tolist() == [40] * 5
    assert (inputs.embeds[0, :3] == 0).all()
    assert torch.equal(inputs.embeds[2, 2:], slots(speech, 3, 2).embeds[0])
    assert space.next_position.tolist() == [begins[0] + 2, begins[1], begins[2] + 3, begins[3]]
    space.roll_back(0)  # the pass keeps what it was given
    assert inputs.full_positions[0, int(held[0])] == begins[0]


def test_masks_go_by_positions(speech: SpeechModel, prefixes: list[Prefix]) -> None:
    space = opened(speech, prefixes, 3)
    space.full.log_counts[0, 1] = np.log(3.0)
    inputs = read_into(space, [0], [slots(speech, 2, 1)], 2)
    full, sliding = full_mask(inputs), sliding_mask(inputs, 12)
    assert full.shape == (3, 1, 2, 41)
    for mask, rows in ((full.isfinite(), space.full), (sliding, space.sliding)):
        for query in range(2):
            position = int(inputs.positions[0, query])
            seen = rows.positions[0][mask[0, 0, query].numpy()]
            held = rows.positions[0, : int(rows.n_held[0])]
            is_recent = held > position - 12 if rows is space.sliding else held >= 0
            assert seen.tolist() == held[(held <= position) & is_recent].tolist()
    assert full[0, 0, 1, 1] == pytest.approx(np.log(3.0))
    assert full.isfinite().any(dim=-1).all()  # nobody sees nothing
    assert sliding.any(dim=-1).all()


def test_shared_silence_counts_in_a_pass_as_it_does_alone(speech: SpeechModel) -> None:
    prefix = with_shared_silence(speech)
    part = slots(speech, 3, 5)
    space = opened(speech, [prefix], 1)
    forward = SharedForward(speech.language_model, space.layers)
    got = forward(read_into(space, [0], [part], 3), space.keys, space.values, None)
    with prefix.tail():
        expected = prefix.run_in_tail(part)
    torch.testing.assert_close(got.hidden[0], expected, atol=1e-4, rtol=0)
    assert got.weights.shape == (1, 0, 3, 41)


def test_weights_are_those_asked_for_and_what_rows_received_adds_up(
    speech: SpeechModel, prefixes: list[Prefix]
) -> None:
    space = opened(speech, prefixes)
    forward = SharedForward(speech.language_model, space.layers)
    inputs = read_into(space, [0, 1, 2], [slots(speech, n, n) for n in (2, 6, 1)], 6)
    made = forward(inputs, space.keys, space.values, HEADS)
    assert made.weights.shape == (4, 2, 6, 41)
    assert made.received.shape == (4, 2, 2, 41)
    for lane, n_new in enumerate((2, 6, 1)):
        torch.testing.assert_close(made.received[lane].sum(dim=-1), torch.ones(2, 2))
        with prefixes[lane].tail():
            prefixes[lane].run_in_tail(slots(speech, n_new, n_new))
            own = prefixes[lane].probe.take_step(HEADS, n_new)
            importance = prefixes[lane].cache.importance
        assert importance is not None
        n_rows = own.shape[-1]
        np.testing.assert_allclose(made.weights[lane, :, -n_new:, :n_rows], own, atol=1e-5)
        np.testing.assert_allclose(made.received[lane, :, :, :n_rows], importance, atol=1e-5)
    space = opened(speech, prefixes)
    inputs = read_into(space, [0], [slots(speech, 2, 2)], 2)
    assert forward(inputs, space.keys, space.values, ()).weights.shape == (4, 12, 2, 41)


def test_nothing_in_a_pass_becomes_undefined(speech: SpeechModel, prefixes: list[Prefix]) -> None:
    space = opened(speech, prefixes, 5)
    forward = SharedForward(speech.language_model, space.layers)
    for _ in range(2):
        inputs = read_into(space, [1], [slots(speech, 2, 1)], 8)
        made = forward(inputs, space.keys, space.values, ())
        assert made.hidden.isfinite().all()
    for tensor in (*space.keys.values(), *space.values.values()):
        assert tensor.isfinite().all()


def test_one_graph_a_shape_and_the_figures_of_the_plain_pass(
    speech: SpeechModel, prefixes: list[Prefix]
) -> None:
    """The whole pass is traced, without a break, once for each shape."""
    torch._dynamo.reset()
    shapes, graphs = FixedShapes(), counter()
    plain_space, space = opened(speech, prefixes), opened(speech, prefixes)
    forward = SharedForward(speech.language_model, space.layers)

    def run(inputs: PassInputs) -> PassOutputs:
        return forward(inputs, space.keys, space.values, HEADS)

    compiled = torch.compile(run, backend=graphs, fullgraph=True, dynamic=False)
    for n_new in (3, 1, 5, 1):
        parts = [slots(speech, max(1, n_new - lane), lane) for lane in range(3)]
        wide = shapes.n_new(n_new)
        made = compiled(read_into(space, range(3), parts, wide))
        expected = forward(
            read_into(plain_space, range(3), parts, wide),
            plain_space.keys,
            plain_space.values,
            HEADS,
        )
        for name in ("hidden", "received", "weights"):
            torch.testing.assert_close(
                getattr(made, name), getattr(expected, name), atol=1e-5, rtol=0
            )
    assert graphs.frame_count == 2
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cut_offs_of_sparse_layers_are_what_they_were(dtype: torch.dtype) -> None:
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 3}
    config = Gemma3nTextConfig(**sizes, activation_sparsity_pattern=[0.95, 0.5, 0.0])
    for layer in range(3):
        mlp = Gemma3nTextMLP(config, layer).to(dtype)
        hidden = torch.randn((2, 5, 16), generator=torch.Generator().manual_seed(1)).to(dtype)
        expected = mlp(hidden)
        holder: Any = type("Model", (), {"layers": [type("Layer", (), {"mlp": mlp})]})
        fix_cutoffs(holder)
        fix_cutoffs(holder)
        assert torch.equal(mlp(hidden), expected)


def test_a_model_with_sparse_layers_can_be_traced_whole() -> None:
    checkpoint = tiny_checkpoint(activation_sparsity_pattern=[0.9, 0.9, 0.0, 0.0, 0.0, 0.0])
    model = checkpoint.model.language_model
    fix_cutoffs(model)
    graphs = counter()
    mlp: Any = torch.compile(model.layers[0].mlp, backend=graphs, fullgraph=True)
    mlp(torch.ones((1, 2, 32)))
    assert graphs.frame_count == 1
    torch._dynamo.reset()
