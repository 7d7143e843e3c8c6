from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.audio_llm.past_attention import attend_to_past

N_HEADS, SIZE, PAST = 2, 4, 5
SOFTCAP = 3.0


def one_by_one(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    distances: torch.Tensor,
    n_before: int,
) -> torch.Tensor:
    """The definition: each query and head for itself. Shapes without the batch."""
    rows = []
    for number, query in enumerate(queries):
        at = PAST + number  # its own key
        heads = []
        for head in range(N_HEADS):
            seen = [d for d in range(PAST + 1) if d <= number + n_before]
            scores = torch.stack(
                [query[head] @ (keys[at - d, head] + distances[PAST - d, head]) for d in seen]
            )
            weights = (torch.tanh(scores / SOFTCAP) * SOFTCAP).softmax(0)
            heads.append(sum(w * values[at - d, head] for w, d in zip(weights, seen, strict=True)))
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 99))
def test_each_frame_attends_to_itself_and_what_was_before(
    n_frames: int, n_before: list[int], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    batch = len(n_before)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    queries = random(batch, n_frames, N_HEADS, SIZE)
    keys, values = (random(batch, PAST + n_frames, N_HEADS, SIZE) for _ in range(2))
    distances = random(PAST + 1, N_HEADS, SIZE)
    found = attend_to_past(
        queries, keys, values, distances, softcap=torch.tensor(SOFTCAP), n_before=n_before
    )
    for row, n in enumerate(n_before):
        expected = one_by_one(queries[row], keys[row], values[row], distances, n)
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=0)
