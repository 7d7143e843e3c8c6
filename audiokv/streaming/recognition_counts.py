"""What went wrong with a stream's recognition and was put right, and its reading from the wire."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.models.base import Hypothesis
    from audiokv.streaming.message_fields import Fields


@dataclass(slots=True)
class RecognitionCounts:
    """Counts since a stream began; field names are the names on the wire.

    Attributes:
        n_restarts: Times that there was voice but no words, and the window was heard afresh.
        n_decoded_again: Steps whose text was doubted and decoded a second time.
        n_dropped: Of these, steps that were left without a text.
    """

    n_restarts: int = 0
    n_decoded_again: int = 0
    n_dropped: int = 0

    def observe(self, hypothesis: Hypothesis) -> None:
        """Take in a step."""
        self.n_decoded_again += hypothesis.is_decoded_again
        self.n_dropped += hypothesis.is_dropped


def total(counts: Iterable[RecognitionCounts]) -> RecognitionCounts | None:
    """Return the sum over the channels of a stream; None while all is well."""
    sums = RecognitionCounts(*map(sum, zip(*map(astuple, counts), strict=True)))
    return sums if any(astuple(sums)) else None


def read_recognition(found: Fields | None) -> RecognitionCounts | None:
    """Return ``progress.recognition``, or None where there is none.

    Raises:
        MessageError: A field is missing, unknown or wrong.
    """
    if found is None:
        return None
    counts = {field.name: found.whole(field.name) for field in fields(RecognitionCounts)}
    found.finish()
    return RecognitionCounts(**counts)
