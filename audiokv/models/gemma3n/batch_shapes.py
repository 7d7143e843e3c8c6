"""Sizes of shared passes: as small as they can be, or from a short list of fixed ones.

A captured or compiled pass is good for one shape only, so an accelerator pads to few shapes. A
processor computes what it pads, so there nothing is padded more than it must be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

_SPARE_ROWS = 32  # room for the tokens of a tail, so that not each of them needs a larger workspace


class Shapes(Protocol):
    """Says how large the parts of a shared pass are made."""

    def n_streams(self, n_wanted: int) -> int:
        """Return how many streams a workspace is made for."""

    def n_new(self, n_wanted: int) -> int:
        """Return how many new positions of each stream a pass reads."""

    def n_rows(self, n_wanted: int) -> int:
        """Return how many rows of keys a workspace has for each stream."""


class ExactShapes:
    """Nothing larger than it must be."""

    def n_streams(self, n_wanted: int) -> int:
        """See ``Shapes``."""
        return n_wanted

    def n_new(self, n_wanted: int) -> int:
        """See ``Shapes``."""
        return n_wanted

    def n_rows(self, n_wanted: int) -> int:
        """See ``Shapes``."""
        return n_wanted + _SPARE_ROWS


class FixedShapes:
    """Powers of two, for rows also halfway between two of them."""

    def n_streams(self, n_wanted: int) -> int:
        """See ``Shapes``."""
        return _power_of_two(n_wanted)

    def n_new(self, n_wanted: int) -> int:
        """See ``Shapes``."""
        return 1 if n_wanted == 1 else max(8, _power_of_two(n_wanted))

    def n_rows(self, n_wanted: int) -> int:
        """See ``Shapes``."""
        whole = max(64, _power_of_two(n_wanted + _SPARE_ROWS))
        between = whole // 4 * 3
        return between if n_wanted + _SPARE_ROWS <= between else whole


def shapes_for(device: torch.device) -> Shapes:
    """Return the sizes that suit a device."""
    return FixedShapes() if device.type == "cuda" else ExactShapes()


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
