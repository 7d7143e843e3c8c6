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
        n_frames: Conformer frames (40 ms) since the start, one number for each stream of the batch.
        convs: States of the two convolutions.
        blocks: States of the conformer blocks.
    """

    n_frames: tuple[int, ...]
    convs: tuple[ConvState, ConvState]
    blocks: tuple[BlockState, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(tensor.nbytes for tensor in self._tensors())

    def _tensors(self) -> Iterator[torch.Tensor]:
        for conv in self.convs:
            yield from (conv.rows, conv.sums.count, conv.sums.total, conv.sums.squares)
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
        blocks = tuple(block.start(batch) for block in self._blocks)
        return TowerState((0,) * batch, convs, blocks)

    def advance(self, state: TowerState, mel: torch.Tensor) -> tuple[torch.Tensor, TowerState]:
        """Encode the next mel frames of streams that are equally far.

        Args:
            state: As it was left.
            mel: Shape (batch, n, mels).

        Returns:
            The slots they complete, shape (batch, m, hidden), and the state after it.
        """
        frames, after = self._advance(state, mel)
        return self._slots(frames, state.n_frames[0]), after

    def advance_each(
        self, states: Sequence[TowerState], mels: Sequence[torch.Tensor]
    ) -> list[tuple[torch.Tensor, TowerState]]:
        """Encode the next mel frames of several streams, in as few passes as their shapes allow.

        Args:
            states: One a stream, anywhere in its audio.
            mels: Likewise, shape (1, n, mels).

        Returns:
            For each stream what ``advance`` gives for it alone.
        """
        given: dict[int, tuple[torch.Tensor, TowerState]] = {}
        for group in _alike(
            [(mel.shape[1], *_n_rows(s)) for s, mel in zip(states, mels, strict=True)]
        ):
            joined = stacked([states[i] for i in group])
            frames, after = self._advance(joined, torch.cat([mels[i] for i in group]))
            parts = unstacked(after)
            for row, i in enumerate(group):
                slots = self._slots(frames[row : row + 1], states[i].n_frames[0])
                given[i] = slots, parts[row]
        return [given[i] for i in range(len(states))]

    def finish(self, state: TowerState) -> torch.Tensor:
        """Return the slots that are due if the audio ends here; the state can still go on.

        Together with those that ``advance`` gave they are the batch encoder's.
        """
        return self._slots(self._finish(state), state.n_frames[0])

    def finish_each(self, states: Sequence[TowerState]) -> list[torch.Tensor]:
        """Return for each stream what ``finish`` gives for it alone."""
        given: dict[int, torch.Tensor] = {}
        for group in _alike([_n_rows(state) for state in states]):
            frames = self._finish(stacked([states[i] for i in group]))
            for row, i in enumerate(group):
                given[i] = self._slots(frames[row : row + 1], states[i].n_frames[0])
        return [given[i] for i in range(len(states))]

    def forget_level(self, state: TowerState) -> TowerState:
        """Return the state with its running norms begun anew, for use at a pause.

        The norms never forget by themselves: minutes at another level shift what comes later.
        """
        batch = state.convs[0].rows.shape[0]
        first, second = (
            ConvState(conv.rows, NormSums.start(batch, conv.rows.device)) for conv in state.convs
        )
        return replace(state, convs=(first, second))

    def _advance(self, state: TowerState, mel: torch.Tensor) -> tuple[torch.Tensor, TowerState]:
        rows, first = self._convs[0].push(state.convs[0], mel.unsqueeze(1))
        rows, second = self._convs[1].push(state.convs[1], rows)
        return self._encode(replace(state, convs=(first, second)), rows)

    def _finish(self, state: TowerState) -> torch.Tensor:
        rows = state.convs[0].rows
        rows = self._convs[0].flush(state.convs[0], rows[:, :, :0])
        rows = self._convs[1].flush(state.convs[1], rows)
        return self._encode(state, rows)[0]

    def _encode(self, state: TowerState, rows: torch.Tensor) -> tuple[torch.Tensor, TowerState]:
        batch, _, n_new, _ = rows.shape
        if not n_new:
            return rows.new_empty((batch, 0, self._hidden_size)), state
        frames = self._project(rows.permute(0, 2, 3, 1).flatten(2))
        blocks: list[BlockState] = []
        for block, before in zip(self._blocks, state.blocks, strict=True):
            frames, after = block.advance(before, frames, state.n_frames)
            blocks.append(after)
        n_frames = tuple(n + n_new for n in state.n_frames)
        return frames, TowerState(n_frames, state.convs, tuple(blocks))

    def _slots(self, frames: torch.Tensor, n_before: int) -> torch.Tensor:
        return frames[:, -n_before % self.reduction :: self.reduction]


def stacked(states: Sequence[TowerState]) -> TowerState:
    """Put streams into one batch; they may be at different places of their audio.

    Raises:
        ValueError: Their convolutions wait for different numbers of rows.
    """
    if len({_n_rows(state) for state in states}) > 1:
        raise ValueError("streams of one batch must wait for equally many rows")
    convs = []
    for parts in zip(*(state.convs for state in states), strict=True):
        sums = [part.sums for part in parts]
        joined = NormSums(
            torch.cat([s.count for s in sums]),
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
    n_frames = tuple(n for state in states for n in state.n_frames)
    return TowerState(n_frames, (convs[0], convs[1]), blocks)


def unstacked(state: TowerState) -> list[TowerState]:
    """Take a batch apart into its streams, none of which keeps the memory of another alive."""
    return [_row(state, row) for row in range(len(state.n_frames))]


def _row(state: TowerState, row: int) -> TowerState:
    def own(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[row : row + 1].clone()

    first, second = (
        ConvState(
            own(conv.rows),
            NormSums(own(conv.sums.count), own(conv.sums.total), own(conv.sums.squares)),
        )
        for conv in state.convs
    )
    blocks = tuple(
        BlockState(own(block.keys), own(block.values), own(block.conv_rows))
        for block in state.blocks
    )
    return TowerState(state.n_frames[row : row + 1], (first, second), blocks)


def _n_rows(state: TowerState) -> tuple[int, ...]:
    return tuple(conv.rows.shape[2] for conv in state.convs)


def _alike(shapes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return the indices of equal shapes together, in the order in which each shape came first."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, shape in enumerate(shapes):
        groups.setdefault(shape, []).append(index)
    return list(groups.values())
