"""Reading the JSON of other people's protocols: unknown fields are theirs, known ones checked."""

from __future__ import annotations

import base64
import binascii
from typing import NoReturn

from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import MAX_INTEGER, parse_object, shown

MAX_TEXT_CHARS = 256
_MAX_DIGITS = 16
_MAX_METADATA = 16
_MAX_METADATA_NAME_CHARS = 64


class Node:
    """One object of a message. Every reader takes all the spellings of a field's name.

    Args:
        values: The decoded object.
        name: What the object is, for error messages.
    """

    def __init__(self, values: dict[str, object], name: str) -> None:
        self._values = values
        self._name = name

    @classmethod
    def parse(cls, text: str, name: str = "message") -> Node:
        """Return the object in a text message.

        Raises:
            MessageError: The text is not a JSON object.
        """
        return cls(parse_object(text), name)

    def _find(self, names: tuple[str, ...]) -> object:
        return next((self._values[n] for n in names if self._values.get(n) is not None), None)

    def _refuse(self, names: tuple[str, ...], value: object, wanted: str) -> NoReturn:
        raise MessageError(
            "bad_field", f'"{names[0]}" of "{self._name}" is {shown(value)}.', f"Send {wanted}."
        )

    def text(self, *names: str, max_chars: int = MAX_TEXT_CHARS) -> str:
        """Return a string field, or an empty string when it is null or missing.

        Raises:
            MessageError: It is something else, or longer than ``max_chars``.
        """
        value = self._find(names)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > max_chars:
            self._refuse(names, value, f"a string of at most {max_chars} characters")
        return printable(value)

    def whole(self, *names: str) -> int | None:
        """Return a whole number, also one written as a string, or None when it is missing.

        Raises:
            MessageError: It is something else, negative, or too large.
        """
        value = self._find(names)
        if value is None:
            return None
        if isinstance(value, str) and len(value) <= _MAX_DIGITS and value.isascii():
            value = int(value) if value.isdigit() else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
            self._refuse(names, value, f"a whole number from 0 to {MAX_INTEGER}")
        return value

    def truth(self, *names: str) -> bool:
        """Return a field that is true or false; false when it is null or missing.

        Raises:
            MessageError: It is something else.
        """
        value = self._find(names)
        if value is None:
            return False
        if not isinstance(value, bool):
            self._refuse(names, value, "true or false")
        return value

    def node(self, *names: str) -> Node:
        """Return an object field; an empty object when it is null or missing.

        Raises:
            MessageError: It is something else.
        """
        value = self._find(names)
        if value is None:
            return Node({}, names[0])
        if not isinstance(value, dict):
            self._refuse(names, value, "an object")
        return Node(value, names[0])

    def items(self, *names: str, max_items: int) -> list[object]:
        """Return a list field; an empty list when it is null or missing.

        Raises:
            MessageError: It is something else, or longer than ``max_items``.
        """
        value = self._find(names)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > max_items:
            self._refuse(names, value, f"a list of at most {max_items} entries")
        return value

    def nodes(self, *names: str, max_items: int) -> list[Node]:
        """Return a list of objects; an empty list when it is null or missing.

        Raises:
            MessageError: It is something else, or longer than ``max_items``.
        """
        found = self.items(*names, max_items=max_items)
        if not all(isinstance(item, dict) for item in found):
            self._refuse(names, found, "a list of objects")
        return [Node(item, names[0]) for item in found if isinstance(item, dict)]

    def audio(self, *names: str, max_chars: int) -> bytes:
        """Return the bytes of a field in base64.

        Raises:
            MessageError: It is missing, not base64, or longer than ``max_chars``.
        """
        value = self._find(names)
        if not isinstance(value, str) or len(value) > max_chars:
            self._refuse(names, value, f"base64 of at most {max_chars} characters")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            self._refuse(names, value, "audio in base64")

    def metadata(self) -> dict[str, str]:
        """Return the plain values as short strings, for a transcript: at most 16 of them."""
        plain = {
            printable(name)[:_MAX_METADATA_NAME_CHARS]: printable(str(value))[:MAX_TEXT_CHARS]
            for name, value in self._values.items()
            if isinstance(value, str | int | float)
        }
        return dict(list(plain.items())[:_MAX_METADATA])


def printable(text: str) -> str:
    """Return a text that can be sent as UTF-8: halves of surrogate pairs become question marks."""
    return text.encode("utf-8", "replace").decode()
