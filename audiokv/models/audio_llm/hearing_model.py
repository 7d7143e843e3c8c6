"""What the live loop asks of a language model that hears, whatever its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from transformers.cache_utils import Cache

    from audiokv.models.base import FloatArray
    from audiokv.models.gemma3n.slot_source import MarkedSlot
    from audiokv.models.gemma3n.speech_model import Inputs
    from audiokv.streaming.policy.marker import Talker


class HearingModel(Protocol):
    """A text model whose positions are fed with embeddings: of tokens, or of audio slots."""

    @property
    def text_config(self) -> Any:  # noqa: ANN401  transformers is not typed
        """Config of the text model, loaded with our attention."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, and so of cached keys and values."""

    @property
    def full_attention_layers(self) -> list[int]:
        """Layers that attend to everything held, those that share another's keys included."""

    def tokens(self, tokens: Sequence[int]) -> Inputs:
        """Embed tokens."""

    def run(self, inputs: Inputs, cache: Cache) -> torch.Tensor:
        """Feed the next positions, which join the cache; returns hidden states, (n, hidden)."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits of hidden states, shape (n, vocabulary)."""


class SlotModel(Protocol):
    """A model whose audio tower is carried on through a stream, slot by slot."""

    tower: Any  # starts, advances, finishes; see ``StreamingTower``

    def mel(self, frames: torch.Tensor) -> torch.Tensor:
        """Return mel frames, shape (n, mels), where and as the tower wants them."""

    def slots(self, encodings: torch.Tensor) -> Inputs:
        """Embed the tower's slots, shape (1, n, audio hidden)."""


class AudioSource(Protocol):
    """A stream's audio on its way to slots."""

    def push(self, samples: FloatArray, talker: Talker) -> list[MarkedSlot]:
        """Take audio and return the slots that no later audio can change, with their marks.

        Args:
            samples: Shape (n,), 16 kHz mono, directly following the push before.
            talker: Who speaks.
        """

    def unfinished(self) -> list[Inputs]:
        """Return the slots behind those, as if the audio ended here; the stream can go on."""
