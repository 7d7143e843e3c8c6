"""Which heads of the text model look at a digit while they write it: they give word times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from tools.digits_eval import whole_slots
from tools.digits_model import AUDIO_TOKEN, BOA, BOS, DIGIT_0, EOA, DigitsModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from tools.digits_data import SpokenString
    from tools.digits_mel import LogMel

_SLOT_MS = 160.0
_LATE_MS = 480.0  # a digit may be recognised up to three slots behind its end
_FIRST_SLOT = 2  # behind <bos> and <boa>


@torch.no_grad()
def attention_to_slots(model: DigitsModel, mel: Tensor, digits: Sequence[int]) -> dict[int, Tensor]:
    """Return the attention to slots while each digit is predicted, for each full-attention layer.

    Args:
        model: Any checkpoint.
        mel: Shape (frames, bins).
        digits: What was said, as a forced transcript.

    Returns:
        Layer index -> shape (heads, digits, slots).
    """
    slots = model.hear(mel[None])
    n_slots = slots.shape[1]
    head = torch.tensor([[BOS, BOA]])
    tail = torch.tensor([[EOA, *(DIGIT_0 + digit for digit in digits)]])
    ids = torch.cat([head, torch.full((1, n_slots), AUDIO_TOKEN), tail], dim=1)
    text = model.language_model
    before = text.config._attn_implementation  # noqa: SLF001  transformers has no public name
    text.set_attn_implementation("eager")
    result = text(
        inputs_embeds=torch.cat([model.embed(head), slots, model.embed(tail)], dim=1),
        per_layer_inputs=text.get_per_layer_inputs(ids),
        output_attentions=True,
    )
    text.set_attn_implementation(before)
    end = _FIRST_SLOT + n_slots
    return {
        layer: weights[0, :, end : end + len(digits), _FIRST_SLOT:end]
        for layer, weights in enumerate(result.attentions)
        if text.config.layer_types[layer] == "full_attention"
    }


def following_heads(
    model: DigitsModel, mel: LogMel, strings: Sequence[SpokenString], least: float = 0.9
) -> list[tuple[int, int]]:
    """Return layer and head of each head that looks at the digit it helps to write.

    Args:
        model: Any checkpoint.
        mel: Its front end.
        strings: To judge by.
        least: Share of digits where the most attended slot must hear the digit.
    """
    hits: dict[int, list[NDArray[np.bool_]]] = {}
    for one in strings:
        attention = attention_to_slots(model, mel(whole_slots(one.samples)[None])[0], one.digits)
        for layer, weights in attention.items():
            at_ms = weights.argmax(-1).numpy() * _SLOT_MS
            starts, ends = np.array(one.start_ms), np.array(one.end_ms)
            hits.setdefault(layer, []).append(
                (at_ms + _SLOT_MS >= starts) & (at_ms <= ends + _LATE_MS)
            )
    shares = {layer: np.concatenate(found, axis=1).mean(1) for layer, found in hits.items()}
    return [
        (layer, head)
        for layer, of_layer in sorted(shares.items())
        for head, share in enumerate(of_layer)
        if share >= least
    ]
