"""Gemma-3n's audio tower on a stream, equal to the batch encoder for any chunking.

Slot j (160 ms) is final once mel frame 16 j + 6 is there, 92 ms after its own first sample. What
is carried on is some 2 MB for the real sizes. Padded batches of transformers differ in their last
frames, where their padding leaks in; compare with unpadded audio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from audiokv.models.gemma3n.conformer import BlockState, StreamingBlock
from audiokv.models.gemma3n.subsampling import ConvState, NormSums, StreamingConv

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class TowerState:
    """Everything the tower knows of a stream. Immutable: keep one to go back to it.

    Attributes:
        n_frames: Conformer frames (40 ms) since the start.
        convs: States of the two convolutions.
        blocks: States of the conformer blocks.
    """

    n_frames: int
    convs: tuple[ConvState, ConvState]
    blocks: tuple[BlockState, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(tensor.nbytes for tensor in self._tensors())

    def _tensors(self) -> Iterator[torch.Tensor]:
        for conv in self.convs:
            yield from (conv.rows, conv.sums.total, conv.sums.squares)
        for block in self.blocks:
            yield from (block.keys, block.values, block.conv_rows)


class StreamingTower:
    """Runs a model's audio tower on streams.

    Args:
        encoder: The model's ``Gemma3nAudioEncoder``; its weights are used in place.

    Raises:
        ConfigError: The tower looks ahead, which no stream can.
    """

    def __init__(self, encoder: Any) -> None:  # noqa: ANN401  transformers is not typed
        front, config = encoder.subsample_conv_projection, encoder.config
        n_mels: int = config.input_feat_size
        self._convs = (
            StreamingConv(front.conv_0, n_mels),
            StreamingConv(front.conv_1, front.conv_0.norm.feature_dims[0]),
        )
        self._project = front.input_proj_linear
        self._blocks = [StreamingBlock(block) for block in encoder.conformer]
        self.reduction: int = config.conf_reduction_factor
        self._hidden_size: int = config.hidden_size
        strides = [stride[0] for stride in config.sscp_conv_stride_size]
        self.mel_frames_per_slot: int = strides[0] * strides[1] * self.reduction

    def start(self, batch: int = 1) -> TowerState:
        """Return the state before any audio."""
        convs = (self._convs[0].start(batch), self._convs[1].start(batch))
        return TowerState(0, convs, tuple(block.start(batch) for block in self._blocks))

    def advance(self, state: TowerState, mel: torch.Tensor) -> tuple[torch.Tensor, TowerState]:
        """Encode the next mel frames.

        Args:
            state: As it was left.
            mel: Shape (batch, n, mels).

        Returns:
            The slots they complete, shape (batch, m, hidden), and the state after it.
        """
        rows, first = self._convs[0].push(state.convs[0], mel.unsqueeze(1))
        rows, second = self._convs[1].push(state.convs[1], rows)
        return self._encode(replace(state, convs=(first, second)), rows)

    def finish(self, state: TowerState) -> torch.Tensor:
        """Return the slots that are due if the audio ends here; the state can still go on.

        Together with those that ``advance`` gave they are the batch encoder's.
        """
        rows = state.convs[0].rows
        rows = self._convs[0].flush(state.convs[0], rows[:, :, :0])
        rows = self._convs[1].flush(state.convs[1], rows)
        return self._encode(state, rows)[0]

    def forget_level(self, state: TowerState) -> TowerState:
        """Return the state with its running norms begun anew, for use at a pause.

        The norms never forget by themselves: minutes at another level shift what comes later.
        """
        batch = state.convs[0].rows.shape[0]
        first, second = (
            ConvState(conv.rows, NormSums.start(batch, conv.rows.device)) for conv in state.convs
        )
        return replace(state, convs=(first, second))

    def _encode(self, state: TowerState, rows: torch.Tensor) -> tuple[torch.Tensor, TowerState]:
        batch, _, n_frames, _ = rows.shape
        if not n_frames:
            return rows.new_empty((batch, 0, self._hidden_size)), state
        frames = self._project(rows.permute(0, 2, 3, 1).flatten(2))
        blocks: list[BlockState] = []
        for block, before in zip(self._blocks, state.blocks, strict=True):
            frames, after = block.advance(before, frames, state.n_frames)
            blocks.append(after)
        slots = frames[:, -state.n_frames % self.reduction :: self.reduction]
        after_all = TowerState(state.n_frames + n_frames, state.convs, tuple(blocks))
        return slots, after_all


def stacked(states: Sequence[TowerState]) -> TowerState:
    """Put streams that stand at the same number of frames and rows into one batch.

    Raises:
        ValueError: They do not.
    """
    first = states[0]
    if any(_shape(state) != _shape(first) for state in states):
        raise ValueError("streams of one batch must be equally far")
    convs = []
    for parts in zip(*(state.convs for state in states), strict=True):
        sums = [part.sums for part in parts]
        joined = NormSums(
            sums[0].count,
            torch.cat([s.total for s in sums]),
            torch.cat([s.squares for s in sums]),
        )
        convs.append(ConvState(torch.cat([part.rows for part in parts]), joined))
    blocks = tuple(
        BlockState(
            torch.cat([part.keys for part in parts]),
            torch.cat([part.values for part in parts]),
            torch.cat([part.conv_rows for part in parts]),
        )
        for parts in zip(*(state.blocks for state in states), strict=True)
    )
    return TowerState(first.n_frames, (convs[0], convs[1]), blocks)


def _shape(state: TowerState) -> tuple[int, ...]:
    return (state.n_frames, *(n for c in state.convs for n in (c.rows.shape[2], c.sums.count)))
