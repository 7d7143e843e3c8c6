"""Reading one JSON object of the native protocol, field by field, trusting nothing."""

from __future__ import annotations

import json
from typing import NoReturn

from audiokv.streaming.errors import MessageError

MAX_INTEGER = 2**53 - 1  # the largest whole number a browser holds exactly
MAX_TEXT_CHARS = 65_536

_NO_DEFAULT = object()
_SHOWN_CHARS = 40


def shown(value: object) -> str:
    """Return a value as it may be quoted in an error: short, and containers by kind only."""
    if isinstance(value, list | dict):  # repr() of deep nesting would exceed the recursion limit
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("doubled field")
    return fields


def parse_object(text: str) -> dict[str, object]:
    """Return the JSON object in a text message.

    Raises:
        MessageError: The text is not JSON, is too deep, names a field twice, or is not an object.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_doubles)
    except (ValueError, RecursionError):
        raise MessageError(
            "bad_json",
            f"The text message of {len(text)} characters is not valid JSON.",
            "Send one JSON object per text message; send audio as binary messages.",
        ) from None
    if not isinstance(value, dict):
        raise MessageError(
            "bad_message",
            f"A message must be a JSON object, not {shown(value)}.",
            'Send an object with a "type".',
        )
    return value


class Fields:
    """The fields of one object; each may be read once, and none may be left over.

    Args:
        name: What the object is, for error messages.
        values: The decoded JSON object.
    """

    def __init__(self, name: str, values: dict[str, object]) -> None:
        self._name = name
        self._left = dict(values)

    def _take(self, field: str, default: object) -> object:
        value = self._left.pop(field, default)
        if value is _NO_DEFAULT:
            raise MessageError(
                "missing_field",
                f'"{self._name}" lacks the field "{field}".',
                "Add it; docs/protocol.md lists the fields.",
            )
        return value

    def _refuse(self, field: str, value: object, wanted: str) -> NoReturn:
        raise MessageError(
            "bad_field",
            f'"{field}" of "{self._name}" is {shown(value)}.',
            f"Send {wanted}.",
        )

    def _as_text(self, field: str, value: object, max_chars: int) -> str:
        if not isinstance(value, str) or len(value) > max_chars:
            self._refuse(field, value, f"a string of at most {max_chars} characters")
        if any("\ud800" <= char <= "\udfff" for char in value):
            # json.loads lets half of a surrogate pair through; it can never be sent on as UTF-8.
            self._refuse(field, value, "a string without unpaired surrogates")
        return value

    def text(
        self, field: str, *, default: object = _NO_DEFAULT, max_chars: int = MAX_TEXT_CHARS
    ) -> str:
        """Return a string field."""
        return self._as_text(field, self._take(field, default), max_chars)

    def optional_text(self, field: str, *, max_chars: int = MAX_TEXT_CHARS) -> str | None:
        """Return a string field, or None when it is null or missing."""
        value = self._take(field, None)
        return None if value is None else self._as_text(field, value, max_chars)

    def texts(
        self, field: str, *, default: object = _NO_DEFAULT, max_items: int, max_chars: int
    ) -> tuple[str, ...]:
        """Return a field that is a list of strings."""
        value = self._take(field, default)
        if not isinstance(value, list) or len(value) > max_items:
            self._refuse(field, value, f"a list of at most {max_items} strings")
        return tuple(self._as_text(field, item, max_chars) for item in value)

    def optional_texts_by_name(
        self, field: str, *, max_items: int, max_chars: int
    ) -> dict[str, str] | None:
        """Return a field that is an object of strings, or None when it is null or missing."""
        if not self._is_set(field):
            return None
        value = self._take(field, None)
        if not isinstance(value, dict) or len(value) > max_items:
            self._refuse(field, value, f"an object of at most {max_items} strings")
        return {
            self._as_text(field, name, max_chars): self._as_text(field, text, max_chars)
            for name, text in value.items()
        }

    def whole(self, field: str, *, default: object = _NO_DEFAULT) -> int:
        """Return a field that is a whole number, zero or more."""
        value = self._take(field, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
            self._refuse(field, value, f"a whole number from 0 to {MAX_INTEGER}")
        return value

    def fraction(self, field: str) -> float:
        """Return a field that is a number from 0 to 1."""
        return self._number(field, 1, "a number from 0 to 1")

    def seconds(self, field: str) -> float:
        """Return a field that is a number of seconds, zero or more."""
        return self._number(field, MAX_INTEGER, "a number of seconds, zero or more")

    def _number(self, field: str, largest: int, wanted: str) -> float:
        value = self._take(field, _NO_DEFAULT)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(field, value, wanted)
        if not 0 <= value <= largest:
            self._refuse(field, value, wanted)
        return float(value)

    def optional_seconds(self, field: str) -> float | None:
        """Return a number of seconds, or None when it is null or missing."""
        return self.seconds(field) if self._is_set(field) else None

    def truth(self, field: str, *, default: object = _NO_DEFAULT) -> bool:
        """Return a field that is true or false."""
        value = self._take(field, default)
        if not isinstance(value, bool):
            self._refuse(field, value, "true or false")
        return value

    def nested(self, field: str) -> Fields:
        """Return a field that is an object; the caller finishes it."""
        value = self._take(field, _NO_DEFAULT)
        if not isinstance(value, dict):
            self._refuse(field, value, "an object")
        return Fields(field, value)

    def optional_nested(self, field: str) -> Fields | None:
        """Return a field that is an object, or None when it is null or missing."""
        return self.nested(field) if self._is_set(field) else None

    def _is_set(self, field: str) -> bool:
        """Return whether a field is there and not null; a null is taken away."""
        if self._left.get(field) is None:
            self._left.pop(field, None)
            return False
        return True

    def objects(self, field: str, *, max_items: int) -> list[Fields]:
        """Return a field that is a list of objects; the caller finishes each."""
        value = self._take(field, _NO_DEFAULT)
        if not isinstance(value, list) or len(value) > max_items:
            self._refuse(field, value, f"a list of at most {max_items} objects")
        if not all(isinstance(item, dict) for item in value):
            self._refuse(field, value, "a list of objects")
        return [Fields(f"{self._name}.{field}", item) for item in value]

    def finish(self) -> None:
        """Refuse fields nobody asked for.

        Raises:
            MessageError: A field is unknown.
        """
        if self._left:
            field = min(self._left)
            raise MessageError(
                "unknown_field",
                f'"{self._name}" has no field {shown(field)}.',
                "Leave it out; docs/protocol.md lists the fields.",
            )
