"""The audio cache of a Whisper stream inside a budget of slots.

The window is encoded afresh at each step, so its slots are always there to be taken; what is held
is a choice of them. A slot that was evicted stays away for as long as its window lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from audiokv.models.whisper.alignment import SLOT_MS
from audiokv.models.whisper.cross_cache import Holding, nearest_owners
from audiokv.streaming.audio_cache import count_cache
from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES
from audiokv.streaming.policy.assembly import DriverOptions, open_driver
from audiokv.streaming.policy.loudness import LoudnessGate
from audiokv.streaming.policy.marker import SlotMarker
from audiokv.streaming.policy.marks import Reason
from audiokv.streaming.policy.prefetch import StepPrefetch
from audiokv.streaming.policy.profiles import profile_by_name
from audiokv.streaming.policy.protocol import MergingPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.models.base import FloatArray
    from audiokv.models.whisper.network import Dimensions
    from audiokv.streaming.audio_cache import CacheCounters, CacheOptions
    from audiokv.streaming.policy.arrays import Indices
    from audiokv.streaming.policy.dialect import DialectPrior
    from audiokv.streaming.policy.marker import Talker
    from audiokv.streaming.policy.marks import SlotMarks


# A window is short and fills between two steps, so room for one step is what it needs. The step
# that closes a segment may cover the pause before it: 320 ms.
LIVE_PREFETCH = StepPrefetch(rare_slots=16)


class AudioHolder(Protocol):
    """Chooses which audio slots of a window the decoder may look at.

    Attributes:
        grain_ms: Audio leaves the window in multiples of this.
    """

    grain_ms: int

    def open(self, at_ms: int) -> None:
        """Begin a fresh window; nothing of the one before is held any more."""

    def begin_segment(self, at_ms: int) -> None:
        """Note that what came before ``at_ms`` is another segment."""

    def append(self, samples: FloatArray, talker: Talker) -> None:
        """Take in audio that follows what came before, and who speaks in it."""

    def forget_before(self, at_ms: int) -> None:
        """Let slots go whose audio has left the window."""

    def hold(self) -> Holding | None:
        """Take in the slots that are complete, and keep to the budget.

        Returns:
            The held slots; None for all of the window's.
        """

    def held_share(self, start_ms: int, end_ms: int) -> float:
        """Return which part of a stretch of the window is held, 0 to 1."""

    def see_keys(self, keys: Sequence[torch.Tensor]) -> None:
        """Take in the keys of the held slots, and behind them those of the padding.

        Args:
            keys: One tensor a decoder layer, shape (heads, slots, head size).
        """

    def observe(self, attention: NDArray[np.float32]) -> None:
        """Take in what the alignment heads looked at.

        Args:
            attention: Shape (heads, tokens, slots of the window).
        """

    def commit_until(self, at_ms: int) -> None:
        """Note that all words up to ``at_ms`` are committed."""

    def rest(self) -> None:
        """Make room ahead of need, now that there is time."""

    def counters(self) -> CacheCounters | None:
        """Return what is held; None without a budget."""


class WholeWindow:
    """Implements ``AudioHolder`` without a budget: every slot of the window is held."""

    grain_ms = FRAME_MS

    def open(self, at_ms: int) -> None:
        """Nothing to do."""

    def begin_segment(self, at_ms: int) -> None:
        """Nothing to do."""

    def append(self, samples: FloatArray, talker: Talker) -> None:
        """Nothing to do."""

    def forget_before(self, at_ms: int) -> None:
        """Nothing to do."""

    def hold(self) -> Holding | None:
        """Hold all slots."""
        return None

    def held_share(self, start_ms: int, end_ms: int) -> float:
        """Return 1."""
        del start_ms, end_ms
        return 1.0

    def see_keys(self, keys: Sequence[torch.Tensor]) -> None:
        """Nothing to do."""

    def observe(self, attention: NDArray[np.float32]) -> None:
        """Nothing to do."""

    def commit_until(self, at_ms: int) -> None:
        """Nothing to do."""

    def rest(self) -> None:
        """Nothing to do."""

    def counters(self) -> CacheCounters | None:
        """Count nothing."""
        return None


class AudioBudget:
    """Implements ``AudioHolder`` with a policy that keeps to a budget.

    One row of the ledger is one audio slot, at its place on the stream's clock. The padding behind
    the audio serves the decoder as attention sinks: it is always there and is not counted.

    Args:
        policy: Name of the policy.
        budget_slots: Audio slots that may be held.
        slot_bytes: Bytes of the keys and values of one slot in all layers.
        profile: Name of the acoustic profile.
        prior: Dialect prior on the scores of slots, or None.

    Raises:
        ConfigError: There is no such policy or profile.
        ValueError: The budget is below one slot.
    """

    grain_ms = SLOT_MS  # half a slot cannot leave the ledger

    def __init__(
        self,
        policy: str,
        budget_slots: int,
        slot_bytes: int,
        profile: str = "default",
        prior: DialectPrior | None = None,
    ) -> None:
        options = DriverOptions(profile_by_name(profile), high_water=1.0, prefetch=LIVE_PREFETCH)
        self.driver = open_driver(policy, budget_slots, SLOT_MS, options)
        chosen = self.driver.policy
        self._max_merged = chosen.max_merged_slots if isinstance(chosen, MergingPolicy) else 1
        self._slot_bytes = slot_bytes
        self._prior = prior
        self._needs_keys = policy == "keydiff"
        self._waiting: list[SlotMarks] = []  # complete, and not yet in the cache
        self.open(0)

    def open(self, at_ms: int) -> None:
        """Begin a fresh window; audio that it hears again is new to it."""
        ledger = self.driver.ledger
        ledger.evict(np.arange(ledger.held), Reason.EXPIRED)
        self._waiting = []
        self._start_ms = at_ms
        self._end_ms = at_ms  # of the slots taken into the cache, evicted ones included
        self._marker = SlotMarker(SLOT_MS, self._prior, at_ms)
        self._gate = LoudnessGate()
        self._part: FloatArray = np.empty(0, np.float32)

    def begin_segment(self, at_ms: int) -> None:
        """Guard the last slot of the segment before."""
        self.driver.close_segment(at_ms)

    def append(self, samples: FloatArray, talker: Talker) -> None:
        """Mark the slots that the audio completes."""
        joined = np.concatenate((self._part, samples))
        n_whole = len(joined) - len(joined) % FRAME_SAMPLES
        whole, self._part = joined[:n_whole], joined[n_whole:]
        if n_whole:
            is_voice = self._gate.push(whole)
            self._waiting += self._marker.push(whole, is_voice, talker)

    def forget_before(self, at_ms: int) -> None:
        """Let slots go whose audio has left the window."""
        ledger = self.driver.ledger
        ledger.evict(ledger.rows_before(at_ms), Reason.EXPIRED)
        self._waiting = [mark for mark in self._waiting if mark.end_ms > at_ms]
        self._start_ms = at_ms
        self._end_ms = max(self._end_ms, at_ms)

    def hold(self) -> Holding | None:
        """Take in the slots that are complete, and keep to the budget."""
        if self._waiting:
            self._end_ms = self._waiting[-1].end_ms
        self.driver.append(self._waiting)
        self._waiting = []
        self.driver.apply(self.driver.plan())
        places = self._places()
        n_window = (self._end_ms - self._start_ms) // SLOT_MS
        if len(places) == n_window:
            return None
        owners = None
        if self._max_merged > 1 and len(places):
            owners = nearest_owners(places, n_window, self._max_merged)
        return Holding(places, owners)

    def held_share(self, start_ms: int, end_ms: int) -> float:
        """Return which part of a stretch of the window is held, 0 to 1."""
        ledger = self.driver.ledger
        first = start_ms - (start_ms - self._start_ms) % SLOT_MS
        last = end_ms + (self._start_ms - end_ms) % SLOT_MS
        if first >= last:
            return 1.0
        n_held = np.count_nonzero((ledger.start_ms >= first) & (ledger.end_ms <= last))
        return min(1.0, int(n_held) * SLOT_MS / (last - first))

    def see_keys(self, keys: Sequence[torch.Tensor]) -> None:
        """Tell the policy how alike the held keys are, where it goes by that."""
        held = self.driver.ledger.held
        if not self._needs_keys or not held:
            return
        stacked = torch.stack([layer[:, :held] for layer in keys]).float()
        directions = torch.nn.functional.normalize(stacked, dim=-1)
        mean = torch.nn.functional.normalize(directions.mean(dim=2, keepdim=True), dim=-1)
        cosines = (directions * mean).sum(dim=-1).mean(dim=(0, 1))
        self.driver.ledger.attention.observe_keys(cosines.double().numpy())

    def observe(self, attention: NDArray[np.float32]) -> None:
        """Take in the mean over heads and tokens of what each held slot received."""
        received = attention.mean(axis=(0, 1), dtype=np.float64)
        self.driver.observe(received[self._places()])

    def commit_until(self, at_ms: int) -> None:
        """Note that all words up to ``at_ms`` are committed."""
        self.driver.commit_until(at_ms)

    def rest(self) -> None:
        """Bring the pools to their shares and make room for the next step."""
        self.driver.settle()
        self.driver.apply(self.driver.plan_ahead())

    def counters(self) -> CacheCounters | None:
        """Return what is held."""
        return count_cache(self.driver, self._slot_bytes)

    def _places(self) -> Indices:
        """Return the held slots as numbers of the window's slots, rising."""
        return (self.driver.ledger.start_ms - self._start_ms) // SLOT_MS


def open_holder(
    options: CacheOptions, dims: Dimensions, dtype: torch.dtype, profile: str = "default"
) -> AudioHolder:
    """Return what holds a stream's audio slots.

    Args:
        options: The budget, if any.
        dims: Sizes of the model.
        dtype: Type of its keys and values.
        profile: Name of the acoustic profile.

    Raises:
        ConfigError: There is no such profile.
    """
    if options.budget_slots is None:
        return WholeWindow()
    slot_bytes = 2 * dims.n_decoder_layers * dims.d_model * dtype.itemsize
    return AudioBudget(options.policy, options.budget_slots, slot_bytes, profile, options.prior)
