"""Computing time of named parts of a program that knows nothing of it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Watched = tuple[type, str, str]
"""A class, one of its methods, and the name of the part it belongs to."""


class Stopwatch:
    """Adds up the time of parts, row by row; what runs inside an inner part counts there only.

    Args:
        read_s: Reads the time; by default the computing time of the calling thread.

    Attributes:
        rows: Milliseconds of each part, one mapping a row.
        calls: How often each part was entered, likewise.
    """

    def __init__(self, read_s: Callable[[], float] = time.thread_time) -> None:
        self._read_s = read_s
        self._inside_s: list[float] = []  # of each open part, what its inner parts took
        self._is_counting = False
        self.rows: list[dict[str, float]] = []
        self.calls: list[dict[str, int]] = []

    def begin_row(self) -> None:
        """Count what follows apart from what was before."""
        self.rows.append({})
        self.calls.append({})
        self._is_counting = True

    def end_row(self) -> None:
        """Count nothing until the next row."""
        self._is_counting = False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what runs inside."""
        self._inside_s.append(0.0)
        began_s = self._read_s()
        try:
            yield
        finally:
            took_s = self._read_s() - began_s
            own_s = took_s - self._inside_s.pop()
            if self._inside_s:
                self._inside_s[-1] += took_s
            if self._is_counting:
                row, calls = self.rows[-1], self.calls[-1]
                row[name] = row.get(name, 0.0) + own_s * 1e3
                calls[name] = calls.get(name, 0) + 1

    @contextmanager
    def watching(self, watched: Sequence[Watched]) -> Iterator[None]:
        """Time methods of classes wherever they are called; afterwards they are as before."""
        originals = [(owner, method, getattr(owner, method)) for owner, method, _ in watched]
        try:
            for (owner, method, name), (*_, original) in zip(watched, originals, strict=True):
                setattr(owner, method, self._timed(original, name))
            yield
        finally:
            for owner, method, original in originals:
                setattr(owner, method, original)

    def _timed(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  any method
            with self.part(name):
                return method(*args, **kwargs)

        return timed
