"""Reading the options of foreign protocols: leniently in form, strictly in meaning.

Clients write a number as ``8000``, ``8000.0`` or ``"8000"`` and a switch as ``1``, ``true`` or
``"true"``: all are taken. An option that is not supported is refused, never ignored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn

from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_TEXT_CHARS = 2_000
MAX_ITEMS = 1_000
MAX_NUMBER = 10**9
_FLAGS = {"0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


class Options:
    """The options of one message or address; each may be read once, and none may be left over.

    Args:
        where: What the options belong to, for error messages.
        values: Values by name; null counts as not given.
    """

    def __init__(self, where: str, values: Mapping[str, object]) -> None:
        self._where = where
        self._left = {name: value for name, value in values.items() if value is not None}
        self._nulls = frozenset(name for name, value in values.items() if value is None)

    def has(self, name: str) -> bool:
        """Return whether an option was given and not read yet."""
        return name in self._left

    def has_items(self, name: str) -> bool:
        """Return whether an option is neither empty nor off; an empty one is taken away."""
        if self._left.get(name):
            return True
        self.drop(name)
        return False

    def takes(self, name: str, usual: object) -> bool:
        """Return whether an option has its usual value, or none; takes it away."""
        return self._left.pop(name, usual) == usual

    def is_null(self, name: str) -> bool:
        """Return whether an option was given as null."""
        return name in self._nulls

    def rename(self, name: str, new_name: str) -> None:
        """Take an option by another name."""
        if name in self._left:
            self._left[new_name] = self._left.pop(name)

    def is_text(self, name: str, *texts: str) -> bool:
        """Return whether an option is one of some texts, in whichever case; leaves it there."""
        return str(self._left.get(name)).lower() in texts

    def drop(self, *names: str) -> None:
        """Take options that change nothing here."""
        for name in names:
            self._left.pop(name, None)

    def text(self, name: str, *, default: str = "", max_chars: int = MAX_TEXT_CHARS) -> str:
        """Return a text of printable Unicode."""
        value = self._left.pop(name, default)
        if not isinstance(value, str) or len(value) > max_chars:
            self.refuse(name, value, f"a text of at most {max_chars} characters")
        if any("\ud800" <= char <= "\udfff" for char in value):
            self.refuse(name, value, "a text without unpaired surrogates")
        return value

    def texts(self, name: str, *, max_items: int = MAX_ITEMS) -> tuple[str, ...]:
        """Return a list of texts; none where it was not given."""
        values = self._left.pop(name, [])
        if not isinstance(values, list) or len(values) > max_items:
            self.refuse(name, values, f"a list of at most {max_items} texts")
        return tuple(Options(self._where, {name: value}).text(name) for value in values)

    def choice(self, name: str, choices: Collection[str], *, default: str) -> str:
        """Return one of a few texts."""
        value = self._left.pop(name, default)
        if not isinstance(value, str) or value not in choices:
            self.refuse(name, value, " or ".join(sorted(choices)))
        return value

    def whole(self, name: str, *, default: int, low: int = 0, high: int = MAX_NUMBER) -> int:
        """Return a whole number."""
        value = self._left.pop(name, default)
        number = _number(value)
        if number is None or number != int(number) or not low <= number <= high:
            self.refuse(name, value, f"a whole number from {low} to {high}")
        return int(number)

    def number(self, name: str, *, default: float, low: float, high: float) -> float:
        """Return a number."""
        value = self._left.pop(name, default)
        number = _number(value)
        if number is None or not low <= number <= high:
            self.refuse(name, value, f"a number from {low:g} to {high:g}")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a switch."""
        value = self._left.pop(name, default)
        if isinstance(value, bool):
            return value
        known = _FLAGS.get(str(value).lower()) if isinstance(value, int | str) else None
        if known is None:
            self.refuse(name, value, "true or false")
        return known

    def nested(self, name: str) -> Options:
        """Return options within an option; none where it was not given."""
        value = self._left.pop(name, {})
        if not isinstance(value, dict):
            self.refuse(name, value, "an object")
        return Options(f"{self._where}.{name}", value)

    def refuse(self, name: str, value: object, wanted: str) -> NoReturn:
        """Refuse the value of an option.

        Raises:
            MessageError: Always.
        """
        raise MessageError(
            "bad_option",
            f"The option {name[:40]!r} of {self._where} is {shown(value)}.",
            f"Set it to {wanted}.",
        )

    def finish(self) -> None:
        """Refuse what is left over.

        Raises:
            MessageError: An option is not supported.
        """
        if self._left:
            name = min(self._left)
            raise MessageError(
                "unsupported_option",
                f"The option {name[:40]!r} of {self._where} is not supported.",
                "Leave it out.",
            )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
