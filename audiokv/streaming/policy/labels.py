"""Small numbers for speaker and language names."""

from __future__ import annotations

UNKNOWN = 0
MAX_LABELS = 1_000


class Labels:
    """Numbers names in the order they are first met; 0 stands for unknown.

    Past ``MAX_LABELS`` names every further one counts as unknown, so that a source which invents
    names cannot fill the memory.
    """

    def __init__(self) -> None:
        self._names: list[str | None] = [None]
        self._ids: dict[str | None, int] = {None: UNKNOWN}

    def __len__(self) -> int:
        """Names met so far, unknown included."""
        return len(self._names)

    def number(self, name: str | None) -> int:
        """Return the number of a name, giving it one if it is new."""
        known = self._ids.get(name)
        if known is not None:
            return known
        if len(self._names) > MAX_LABELS:
            return UNKNOWN
        self._ids[name] = len(self._names)
        self._names.append(name)
        return self._ids[name]

    def name(self, number: int) -> str | None:
        """Return the name behind a number, or None for unknown."""
        return self._names[number]
