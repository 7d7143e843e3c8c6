"""Gemma 4's audio tower on a stream, equal to the batch encoder for any chunking.

Slot t (40 ms) depends on mel frames up to 4 t + 3 and on nothing behind its own audio but one
sample, so it is final when its audio is there. Norms are of each frame alone: nothing drifts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from audiokv.models.gemma4.layers_in_stream import ConformerLayer, LayerState, SubsampledRows

if TYPE_CHECKING:
    from collections.abc import Iterator

N_MELS = 128  # the width that the class's projection is made for


@dataclass(frozen=True, slots=True)
class Gemma4TowerState:
    """Everything the tower knows of a stream. Immutable: keep one to go back to it.

    Attributes:
        n_frames: Slots since the start.
        rows: Rows that the two convolutions still have to read.
        layers: States of the conformer layers.
    """

    n_frames: int
    rows: tuple[torch.Tensor, torch.Tensor]
    layers: tuple[LayerState, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(tensor.nbytes for tensor in self._tensors())

    def _tensors(self) -> Iterator[torch.Tensor]:
        yield from self.rows
        for layer in self.layers:
            yield from (layer.keys, layer.values, layer.conv_rows)


class Gemma4Tower:
    """Runs a model's audio tower on streams.

    Args:
        encoder: The model's ``Gemma4AudioModel``; its weights are used in place.

    Raises:
        ConfigError: The tower looks ahead, which no stream can.
    """

    mel_frames_per_slot = 4

    def __init__(self, encoder: Any) -> None:  # noqa: ANN401  transformers is not typed
        front = encoder.subsample_conv_projection
        first = SubsampledRows(front.layer0, N_MELS)
        self._convs = (first, SubsampledRows(front.layer1, first.n_out))
        self._project = front.input_proj_linear
        with torch.no_grad():
            positions = encoder.rel_pos_enc(self._project.weight)
        self._layers = [ConformerLayer(layer, positions) for layer in encoder.layers]
        self._output = encoder.output_proj

    def start(self, batch: int = 1) -> Gemma4TowerState:
        """Return the state before any audio."""
        rows = (self._convs[0].start(batch), self._convs[1].start(batch))
        return Gemma4TowerState(0, rows, tuple(layer.start(batch) for layer in self._layers))

    def advance(
        self, state: Gemma4TowerState, mel: torch.Tensor
    ) -> tuple[torch.Tensor, Gemma4TowerState]:
        """Encode the next mel frames.

        Args:
            state: As it was left.
            mel: Shape (batch, n, mels).

        Returns:
            The slots they complete, shape (batch, m, hidden), and the state after it.
        """
        rows, first = self._convs[0].push(state.rows[0], mel.unsqueeze(1))
        rows, second = self._convs[1].push(state.rows[1], rows)
        return self._encode(replace(state, rows=(first, second)), rows)

    def finish(self, state: Gemma4TowerState) -> torch.Tensor:
        """Return the slots that are due if the audio ends here; the state can still go on.

        Together with those that ``advance`` gave they are the batch encoder's.
        """
        rows = self._convs[0].flush(state.rows[0], state.rows[0][:, :, :0])
        rows = self._convs[1].flush(state.rows[1], rows)
        return self._encode(state, rows)[0]

    def forget_level(self, state: Gemma4TowerState) -> Gemma4TowerState:
        """Return the state as it is: this tower remembers no level."""
        return state

    def _encode(
        self, state: Gemma4TowerState, rows: torch.Tensor
    ) -> tuple[torch.Tensor, Gemma4TowerState]:
        batch, _, n_new, _ = rows.shape
        if not n_new:
            return rows.new_empty((batch, 0, self._output.out_features)), state
        frames = self._project(rows.permute(0, 2, 3, 1).flatten(2))
        layers: list[LayerState] = []
        for layer, before in zip(self._layers, state.layers, strict=True):
            frames, after = layer.advance(before, frames, state.n_frames)
            layers.append(after)
        after_all = Gemma4TowerState(state.n_frames + n_new, state.rows, tuple(layers))
        return self._output(frames), after_all
