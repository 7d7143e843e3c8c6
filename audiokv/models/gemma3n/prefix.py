"""What stays in a stream's cache: the prompt, and audio and text under a budget of slots.

A step decodes on a tail behind it, which is rolled back: the prefix is as before, bit for bit.
Before the model's positions run out, everything held moves back by one common shift.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.cache import BudgetedCache
from audiokv.models.gemma3n.batch_requests import Read, run_alone
from audiokv.models.gemma3n.slot_alignment import RecordingProbe
from audiokv.streaming.audio_cache import count_cache
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.assembly import DriverOptions
from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.prefetch import StepPrefetch
from audiokv.streaming.policy.profiles import profile_by_name
from audiokv.streaming.policy.registry import policy_by_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from audiokv.models.audio_llm.hearing_model import HearingModel
    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.speech_model import Inputs
    from audiokv.streaming.audio_cache import CacheCounters, CacheOptions
    from audiokv.streaming.policy.protocol import EvictionPolicy

_UNBOUNDED_SLOTS = 1 << 20
_MIN_AUDIO_SLOTS = 8  # under a budget that is mostly prompt nothing could be recognised
# A slot is 160 ms: room for a step costs a small budget more than it saves (measured at 12 to 47
# slots with `RhythmPrefetch`: half as many errors again). From 64 slots on two may be free, which
# most steps need.
LIVE_PREFETCH = StepPrefetch(max_share=1 / 32)
# Scattered slots of what was said long ago made the model say it again (docs/retention.md).
LIVE_MEMORY_MS = 8000


@dataclass(frozen=True, slots=True)
class PrefixOptions:
    """Sizes of a prefix.

    Attributes:
        cache: The bound and the policy.
        slot_ms: Length of an audio slot.
        tail_slots: Longest tail.
        profile: Name of the acoustic profile.
        max_positions: Positions to keep within; None for those of the model's config.
    """

    cache: CacheOptions
    slot_ms: int
    tail_slots: int = 640
    profile: str = "default"
    max_positions: int | None = None


def require_room(budget_slots: int | None, n_prompt: int) -> None:
    """Check that a budget has room for audio beside the prompt.

    Args:
        budget_slots: The budget; None for no bound.
        n_prompt: Tokens of prompt and marks before the audio.

    Raises:
        ConfigError: It has not.
    """
    least = n_prompt + _MIN_AUDIO_SLOTS
    if budget_slots is not None and budget_slots < least:
        raise ConfigError(
            "budget_too_small",
            f"A budget of {budget_slots} slots has no room beside a prompt of {n_prompt} tokens.",
            f"Raise --audio-budget-slots to {least} or more, or shorten the prompt.",
        )


class Prefix:
    """The persistent part of one stream's cache.

    Attributes:
        options: Sizes.

    Args:
        model: The model.
        options: Sizes.

    Raises:
        ConfigError: Budget and tail are more than the model has positions for, or there is no such
            profile.
    """

    def __init__(self, model: HearingModel, options: PrefixOptions) -> None:
        self._model = model
        self.options = options
        config = model.text_config
        self._max_positions: int = options.max_positions or config.max_position_embeddings
        budget = options.cache.budget_slots
        self.is_bounded = budget is not None
        if budget is not None and budget + options.tail_slots >= self._max_positions:
            raise ConfigError(
                "budget_too_large",
                f"A budget of {budget} slots and a tail of {options.tail_slots} are more than the "
                f"{self._max_positions} positions of the model.",
                "Lower --audio-budget-slots.",
            )
        self.probe = RecordingProbe(config.num_attention_heads, model.full_attention_layers)
        driver_options = live_options(options.profile)
        name = options.cache.policy if self.is_bounded else "full"
        policy = policy_by_name(name, options.slot_ms, driver_options.profile)
        self.cache = self._open_cache(live_policy(policy), driver_options)
        self.n_reanchors = 0
        self._n_forgotten = 0  # rows of before the last restart

    def _open_cache(self, policy: EvictionPolicy, driver_options: DriverOptions) -> BudgetedCache:
        options, budget = self.options, self.options.cache.budget_slots
        return BudgetedCache(
            self._model.text_config,
            (_UNBOUNDED_SLOTS if budget is None else budget) + options.tail_slots,
            policy,
            slot_ms=options.slot_ms,
            options=driver_options,
            tail_slots=options.tail_slots,
            probe=self.probe,
        )

    @property
    def held(self) -> int:
        """Rows of the prefix."""
        return self.cache.held

    def restart(self) -> None:
        """Forget everything held."""
        self._n_forgotten += self.cache.ledger.seen
        self.cache.reset()

    def append(self, inputs: Inputs, marks: Sequence[SlotMarks]) -> None:
        """Read more, for good.

        Args:
            inputs: The positions.
            marks: What is known about each.
        """
        run_alone(self.appending(inputs, marks))

    def appending(self, inputs: Inputs, marks: Sequence[SlotMarks]) -> Work[None]:
        """The work of ``append``."""
        self._keep_within_positions(len(inputs))
        self.cache.expect(marks)
        yield Read(self, inputs)

    def append_text(self, tokens: Sequence[int], at_ms: int, *, is_prompt: bool = False) -> None:
        """Read tokens, for good.

        Args:
            tokens: The tokens.
            at_ms: Where on the stream's clock they stand.
            is_prompt: Whether they belong to the prompt, which never leaves.
        """
        run_alone(self.appending_text(tokens, at_ms, is_prompt=is_prompt))

    def appending_text(
        self, tokens: Sequence[int], at_ms: int, *, is_prompt: bool = False
    ) -> Work[None]:
        """The work of ``append_text``."""
        mark = SlotMarks(at_ms, at_ms, is_voice=False, is_prompt=is_prompt)
        if tokens:
            yield from self.appending(self._model.tokens(tokens), [mark] * len(tokens))

    def guard_last(self, at_ms: int) -> None:
        """Guard the last row as the mark of a segment's beginning."""
        self.cache.driver.close_segment(at_ms + 1)

    def audio_rows(self, since_ms: int) -> NDArray[np.int64]:
        """Return the rows of audio from a position of the stream on; text takes no time."""
        ledger = self.cache.ledger
        return np.flatnonzero((ledger.end_ms > ledger.start_ms) & (ledger.start_ms >= since_ms))

    def starts_ms(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the audio of some rows begins."""
        starts: NDArray[np.int64] = self.cache.ledger.start_ms[rows]
        return starts

    @contextmanager
    def tail(self) -> Iterator[None]:
        """Let what is run inside be gone afterwards; its attention is recorded."""
        self._keep_within_positions(self.options.tail_slots)
        self.cache.open_tail()
        self.probe.record(is_on=True)
        try:
            yield
        finally:
            self.probe.record(is_on=False)
            self.cache.rollback_tail()

    def run(self, inputs: Inputs) -> None:
        """Carry out a ``Read`` of this prefix by itself."""
        self._model.run(inputs, self.cache)

    def run_in_tail(self, inputs: Inputs) -> torch.Tensor:
        """Feed the open tail; see ``SpeechModel.run``."""
        return self._model.run(inputs, self.cache)

    def commit_until(self, at_ms: int) -> None:
        """Note that all words up to ``at_ms`` are committed."""
        self.cache.driver.commit_until(at_ms)

    @torch.inference_mode()
    def rest(self) -> None:
        """Make room ahead of need, now that there is time."""
        if self.is_bounded:
            driver = self.cache.driver
            driver.settle()
            plan = driver.plan_ahead()
            if plan:
                self.cache.keep(driver.apply(plan))

    def counters(self) -> CacheCounters | None:
        """Return what is held; None without a budget."""
        if not self.is_bounded:
            return None
        held_bytes = self.cache.budgeted_nbytes
        counters = count_cache(self.cache.driver, held_bytes // max(self.cache.held, 1))
        left = counters.left_slots
        return replace(
            counters,
            seen_slots=counters.seen_slots + self._n_forgotten,
            left_slots=replace(left, expired=left.expired + self._n_forgotten),
        )

    def _keep_within_positions(self, n_new: int) -> None:
        if self.cache.seen + n_new > self._max_positions:
            self.cache.reanchor()
            self.n_reanchors += 1


def live_options(profile: str) -> DriverOptions:
    """Return what the policy of a live prefix is opened with.

    Args:
        profile: Name of the acoustic profile.

    Raises:
        ConfigError: There is no such profile.
    """
    return DriverOptions(profile_by_name(profile), high_water=1.0, prefetch=LIVE_PREFETCH)


def live_policy(policy: EvictionPolicy) -> EvictionPolicy:
    """Return a policy as a live prefix wants it, which keeps earlier segments.

    Args:
        policy: Any; only AudioKV is changed, where its memory is not set.
    """
    if isinstance(policy, AudioKvPolicy) and policy.memory_ms is None:
        return replace(policy, memory_ms=LIVE_MEMORY_MS)
    return policy
