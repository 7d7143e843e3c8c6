"""Modes P and D: one decode of a whole clip, its cache evicted before (P) or all along (D)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.whisper.alignment import SLOT_MS
from audiokv.streaming.audio_format import FRAME_SAMPLES
from audiokv.streaming.policy.budget import Budget
from audiokv.streaming.policy.driver import DriverParts, PolicyDriver
from audiokv.streaming.policy.eviction_amount import EvictionAmount
from audiokv.streaming.policy.guards import Guards
from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.loudness import LoudnessGate
from audiokv.streaming.policy.marker import SlotMarker, Talker
from audiokv.streaming.policy.marks import Reason
from audiokv.streaming.policy.prefetch import NoPrefetch
from audiokv.streaming.policy.protocol import HeadwisePolicy, MergingPolicy
from audiokv.streaming.policy.rhythm import RhythmPredictor
from audiokv.streaming.policy.scoring import Scorer
from audiokv.streaming.policy.smoothing import MedianTrendSmoother
from audiokv.streaming.policy.snr import AlphaRule
from audiokv.streaming.policy.speaker_baseline import SpeakerBaselines
from benchmarks.retention_held import CacheLog, CacheStep
from benchmarks.retention_policies import ORACLE
from benchmarks.retention_rows import FULL, FULL_PERCENT, Cell, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from audiokv.streaming.policy.marks import SlotMarks
    from benchmarks.retention_batch import BatchedWhisper, Decoded, HeardClip
    from benchmarks.retention_held import Held
    from benchmarks.retention_policies import Variant
    from benchmarks.retention_rows import Table
    from benchmarks.retention_speech import Clip

    Attention = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Sizes of a model's audio cache.

    Attributes:
        heads: Decoder layers, and heads of each.
        slot_bytes: Keys and values of one slot in all of them.
    """

    heads: tuple[int, int]
    slot_bytes: int

    def measured(self, is_held: NDArray[np.bool_], n_text: int) -> CacheStep:
        """Return what is held, counted head by head.

        Args:
            is_held: Which head holds which slot, shape (layers, heads, audio slots).
            n_text: Text slots that are counted too; they are held in all heads.
        """
        n_all = self.heads[0] * self.heads[1]
        n_entries = int(np.count_nonzero(is_held)) + n_text * n_all
        return CacheStep(
            present_slots=is_held.shape[-1] + n_text,
            held_slots=-(-n_entries // n_all),
            held_bytes=n_entries * self.slot_bytes // n_all,
        )


class HeldAudio:
    """Implements ``RowCache``: a clip's slots, of which a policy lets some go.

    Args:
        variant: The policy.
        marks: All slots of the clip.
        shape: Sizes of the cache.
        budget_slots: What may be held, in slots of all layers and heads.
        n_text_slots: Text that takes part of the budget at the start (D), or None where text is
            not counted (P).
    """

    def __init__(
        self,
        variant: Variant,
        marks: Sequence[SlotMarks],
        shape: CacheShape,
        budget_slots: int,
        n_text_slots: int | None = None,
    ) -> None:
        self.log = CacheLog()
        self.budget_slots = budget_slots
        self.is_held: NDArray[np.bool_] = np.ones((*shape.heads, len(marks)), np.bool_)
        self._shape = shape
        self._heads = HeadRecord(*shape.heads)
        self._driver = exact_driver(variant, budget_slots, self._heads)
        self._driver.append(marks)
        self._n_text = n_text_slots

    def observe(self, attention: Attention) -> None:
        """Take in the attention of one query, shape (layers, heads, audio slots)."""
        by_head = attention[..., self.places].astype(np.float64)
        self._driver.observe(by_head.mean(axis=(0, 1)), by_head)

    def observe_keys(self, keys: Sequence[torch.Tensor]) -> None:
        """Take in how alike the keys are, one tensor a layer of shape (heads, slots, head size)."""
        stacked = torch.stack([layer[:, : self.is_held.shape[-1]] for layer in keys]).float()
        directions = torch.nn.functional.normalize(stacked, dim=-1)
        mean = torch.nn.functional.normalize(directions.mean(dim=2, keepdim=True), dim=-1)
        cosines = (directions * mean).sum(dim=-1).mean(dim=(0, 1)).double().numpy()
        self._driver.ledger.attention.observe_keys(cosines[self.places])

    def keep_to_budget(self) -> None:
        """Let go what is too much."""
        ledger, policy = self._driver.ledger, self._driver.policy
        n_keep = self.budget_slots - (self._n_text or 0)
        if isinstance(policy, HeadwisePolicy):
            self._heads.hold_only(policy.keep_mask(ledger, min(n_keep, ledger.held)))
            ledger.evict(self._heads.orphans(), Reason.FORCED)
        else:
            self._driver.budget = Budget(n_keep)
            self._driver.apply(self._driver.plan())
        self.is_held = np.zeros_like(self.is_held)
        self.is_held[..., self.places] = self._heads.is_held

    def make_room(self, attention: Attention) -> bool:
        """Count what is held; in D, let a slot go for the token that comes."""
        self.log.steps.append(self._shape.measured(self.is_held, self._n_text or 0))
        if self._n_text is None:
            return True
        self._n_text += 1
        if self._n_text >= self.budget_slots:
            return False
        self.observe(attention)
        self.keep_to_budget()
        return True

    @property
    def max_merged(self) -> int:
        """Most slots that one may stand for; 1 for none but itself."""
        policy = self._driver.policy
        return policy.max_merged_slots if isinstance(policy, MergingPolicy) else 1

    @property
    def places(self) -> NDArray[np.int64]:
        """Numbers of the slots that any head holds, rising."""
        return self._driver.ledger.start_ms // SLOT_MS


class WatchedAudio:
    """Implements ``RowCache``: holds everything and remembers what every token looked at.

    Args:
        shape: Sizes of the cache.
        n_slots: Audio slots of the clip.
    """

    def __init__(self, shape: CacheShape, n_slots: int) -> None:
        self.log = CacheLog()
        self.seen: list[Attention] = []
        self.is_held: NDArray[np.bool_] = np.ones((*shape.heads, n_slots), np.bool_)
        self._shape = shape

    def make_room(self, attention: Attention) -> bool:
        """Remember what was looked at."""
        self.log.steps.append(self._shape.measured(self.is_held, 0))
        self.seen.append(attention.copy())
        return True


def exact_driver(variant: Variant, budget_slots: int, heads: HeadRecord) -> PolicyDriver:
    """Return a driver that evicts what exceeds the budget and no slot more."""
    profile = variant.options.profile
    return PolicyDriver(
        DriverParts(
            ledger=SlotLedger(heads=heads),
            policy=variant.policy(SLOT_MS),
            budget=Budget(budget_slots, profile.preset),
            scorer=Scorer(
                smoother=variant.options.smoother or MedianTrendSmoother(profile.median_slots),
                baselines=SpeakerBaselines(profile.burst_factor),
                voice_weight=profile.voice_weight,
                rate=AlphaRule(profile.alpha),
            ),
            guards=Guards(SLOT_MS, min_retention_ms=profile.min_retention_ms),
            amount=EvictionAmount(base_rate=0.0, sharpness=0.0),
            prefetch=NoPrefetch(),
            rhythm=RhythmPredictor(SLOT_MS, profile.pause_ms),
        )
    )


def slot_marks(clip: Clip, n_slots: int) -> list[SlotMarks]:
    """Return the marks of a clip's whole slots, as a live stream makes them."""
    samples = clip.samples[: len(clip.samples) // FRAME_SAMPLES * FRAME_SAMPLES]
    is_voice = LoudnessGate().push(samples)
    marks = SlotMarker(SLOT_MS).push(samples, is_voice, Talker(language=clip.language))
    return marks[:n_slots]


class StaticRunner:
    """Runs whole clips.

    Args:
        model: The model.
        counts_text: Whether text shares the budget and displaces audio as it grows: mode D.
    """

    def __init__(self, model: BatchedWhisper, *, counts_text: bool) -> None:
        self._model = model
        self._counts_text = counts_text

    def rows(
        self,
        clips: Iterable[Clip],
        chosen: Sequence[Variant],
        percents: Sequence[int],
        table: Table,
        again: Sequence[str] = (),
    ) -> Iterator[Row]:
        """Measure the cells a table lacks, and add them to it; see ``StreamingRunner.rows``."""
        by_key = {(one.name, one.seed): one for one in chosen if one.name != FULL}
        for clip in clips:
            reference = Cell(clip.name, FULL, 0, FULL_PERCENT)
            cells = [Cell(clip.name, *key, percent) for key in by_key for percent in percents]
            missing = table.missing([reference, *cells], again)
            if missing:
                yield from self._clip_rows(clip, missing, by_key, table)

    def _clip_rows(
        self,
        clip: Clip,
        missing: Sequence[Cell],
        by_key: Mapping[tuple[str, int], Variant],
        table: Table,
    ) -> Iterator[Row]:
        heard = self._model.hear(clip)
        shape = CacheShape(self._model.heads, self._model.slot_bytes)
        full = WatchedAudio(shape, heard.n_slots)
        bounded = [cell for cell in missing if cell.policy != FULL]
        if len(bounded) < len(missing) or any(cell.policy == ORACLE for cell in bounded):
            (decoded,) = self._model.decode(heard, [full])
            held = full.log.held(heard.n_slots, heard.n_slots, shape.slot_bytes)
            yield self._add(table, clip, Cell(clip.name, FULL, 0, FULL_PERCENT), decoded, held)
        marks = slot_marks(clip, heard.n_slots)
        caches = []
        for cell in bounded:
            variant = by_key[cell.policy, cell.seed]
            n_text = len(heard.prompt) if self._counts_text else None
            budget = budget_slots(heard.n_slots, cell.retention_percent, n_text or 0)
            cache = HeldAudio(variant, marks, shape, budget, n_text)
            show(cache, variant, heard, full)
            cache.keep_to_budget()
            caches.append(cache)
        texts = self._texts(heard, caches)
        for cell, cache, text in zip(bounded, caches, texts, strict=True):
            held = cache.log.held(heard.n_slots, cache.budget_slots, shape.slot_bytes)
            held.check(f"{cell.policy} on {clip.name}")
            yield self._add(table, clip, cell, text, held)

    def _texts(self, heard: HeardClip, caches: Sequence[HeldAudio]) -> list[Decoded]:
        """Decode all caches at once, and at once those whose slots stand for others."""
        merging = (
            {} if self._counts_text else {i: c for i, c in enumerate(caches) if c.max_merged > 1}
        )
        plain = {i: c for i, c in enumerate(caches) if i not in merging}
        texts = dict(zip(plain, self._model.decode(heard, list(plain.values())), strict=True))
        if not merging:
            return [texts[i] for i in range(len(caches))]
        own = [self._model.merged(heard, c.places, c.max_merged) for c in merging.values()]
        found = self._model.decode_merged(heard, list(merging.values()), own)
        texts.update(zip(merging, found, strict=True))
        return [texts[i] for i in range(len(caches))]

    def _add(self, table: Table, clip: Clip, cell: Cell, decoded: Decoded, held: Held) -> Row:
        cut = replace(held, n_cut=0 if decoded.is_complete else held.n_steps)
        table.add(Row.of(clip, cell, self._model.text(decoded.tokens, clip.language), cut))
        return table.rows[cell]


def show(cache: HeldAudio, variant: Variant, heard: HeardClip, full: WatchedAudio) -> None:
    """Show a policy what it may know before it first chooses.

    That is what each token of the prompt looked at; the oracle sees the text to come instead.
    """
    queries = full.seen if variant.name == ORACLE else np.moveaxis(heard.attention, 2, 0)
    for attention in queries:
        cache.observe(attention)
    if variant.needs_keys:
        cache.observe_keys(heard.cross.keys)


def budget_slots(n_slots: int, percent: int, n_text: int = 0) -> int:
    """Return a clip's budget: a share of its audio slots, room for the prompt and a slot at least.

    Args:
        n_slots: Audio slots of the clip.
        percent: The share.
        n_text: Slots of the prompt, where text counts.
    """
    return max(n_text + 1, round(n_slots * percent / 100))
