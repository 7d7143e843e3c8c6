"""Reading of ``progress.cache``, as docs/protocol.md specifies it."""

from __future__ import annotations

from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, TypeVar

from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)

if TYPE_CHECKING:
    from audiokv.streaming.message_fields import Fields

_MAX_NAME_CHARS = 64

_Counts = TypeVar("_Counts", PoolSlots, Evictions, LeftSlots, ChosenSlots)


def read_counters(fields: Fields | None) -> CacheCounters | None:
    """Return the counters of an audio cache, or None where there is none.

    Args:
        fields: The fields of ``cache``, or None.

    Raises:
        MessageError: A field is missing, unknown or wrong.
    """
    if fields is None:
        return None
    counters = CacheCounters(
        policy=fields.text("policy", max_chars=_MAX_NAME_CHARS),
        seen_slots=fields.whole("seen_slots"),
        held_slots=fields.whole("held_slots"),
        budget_slots=fields.whole("budget_slots"),
        pools=_read_counts(fields, "pools", PoolSlots),
        n_evictions=_read_counts(fields, "n_evictions", Evictions),
        held_bytes=fields.whole("held_bytes"),
        left_slots=_read_counts(fields, "left_slots", LeftSlots),
        chosen_slots=_read_counts(fields, "chosen_slots", ChosenSlots),
    )
    fields.finish()
    return counters


def _read_counts(fields: Fields, name: str, kind: type[_Counts]) -> _Counts:
    """Return an object that has nothing but whole numbers, under the names of its class."""
    part = fields.nested(name)
    counts = kind(**{field.name: part.whole(field.name) for field in fields_of(kind)})
    part.finish()
    return counts
