"""Inputs that no protocol foresees, made of valid ones: many in one Hypothesis example.

A recipe of a few bytes says which valid message is taken and what happens to it. An example is a
run of recipes, so that Hypothesis draws one byte string for a hundred inputs. Nothing is shrunk:
what fails notes its few inputs, and that is quicker to read and to reproduce.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

N_INPUTS = int(os.environ.get("AUDIOKV_FUZZ_INPUTS", "20000"))  # for each parser
MAX_INPUT_BYTES = 65_536
_PER_EXAMPLE = 100
_RECIPE_BYTES = 8

_RAW = "\x00raw"  # stands for a text that no JSON writer would write
_RAW_VALUES = (
    *("1e999", "-1e999", "NaN", "Infinity", "1" * 5_000, "01", "'x'", "tru", "", "\ufeff1"),
    *("[" * 20_000, "[" * 500 + "]" * 500, '{"a":' * 20_000, '{"a":1,"a":2}', '"\\ud800"', '"\\'),
)
_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 8_000, 16_000, 44_100, 192_000, 2**31, 2**53 - 1, 2**53),
    *(2**64, -(2**63), 10**400, 0.0, -0.0, 0.5, 8_000.5, 1e308, 5e-324),
    *("", " ", "0", "1", "-1", "8000", "16000", "1e9", "9" * 16, "9" * 400, "true", "false"),
    *("\u00b2", "\uff11\uff16", "\ud800", "\udfff", "\0", "\n", "\u2028", "\u0627", "\U0001f600"),
    *(
        "%00",
        "${x}",
        "../",
        "+",
        "#",
        "a/b",
        "auto",
        "en",
        "xx",
        "en-US",
        "und",
        "AAAA",
        "/w==",
        "!",
    ),
    *(
        "PCMU",
        "L16",
        "mulaw",
        "audio/x-alaw",
        "opus",
        "PT1.5S",
        "PT99999999S",
        "x" * 300,
        "y" * 3_000,
    ),
    *([], [None], ["inbound", "outbound"], [[[[]]]], [{}] * 9, ["a"] * 2_000, [1, "a", None]),
    *({}, {"a": {}}, {"rate": 1}, {"language": 1}, {str(n): n for n in range(100)}),
)
_TEXTS = (
    *(
        "",
        " ",
        "\0",
        "null",
        "[]",
        "{}",
        '""',
        "1",
        "{",
        '{"a"',
        "\ufeff{}",
        "\x85",
        "a:b c:d :e f:",
    ),
    *(
        "[" * 50_000,
        '{"a":' * 10_000,
        "x" * 60_000,
        "\u00e9" * 500,
        '{"\\ud800":1}',
        "-",
        "\r\n\r\n",
    ),
)


class Mutator:
    """Makes inputs of valid messages.

    Args:
        seeds: Valid messages: text, binary, or binary that begins with a line of JSON.
    """

    def __init__(self, seeds: Sequence[str | bytes]) -> None:
        self._seeds = [_Seed(seed) for seed in seeds]

    def make(self, recipe: bytes) -> str | bytes:
        """Return the input that a recipe asks for.

        Args:
            recipe: 8 bytes: which message, what happens to it, and what that needs to know.
        """
        seed, kind = self._seeds[recipe[0] % len(self._seeds)], recipe[1] % 16
        numbers = recipe[2:]
        match kind:
            case 0:
                return seed.whole
            case 1 | 2 | 3 | 4 | 5:
                data = seed.with_value(_number(numbers, 0), _number(numbers, 2))
            case 6:
                changed = seed.with_value(_number(numbers, 0), _number(numbers, 2))
                data = _damaged(changed, numbers[2:])
            case 7:
                data = seed.without_field(_number(numbers, 0))
            case 8:
                return random.Random(recipe).randbytes(numbers[0] % 64)  # noqa: S311  no secret
            case 9:
                return _TEXTS[numbers[0] % len(_TEXTS)]
            case _:
                other = self._seeds[recipe[7] % len(self._seeds)]
                data = _CHANGES[kind % len(_CHANGES)](seed.data, other.data, numbers)
        return seed.as_it_came(data)


class _Seed:
    """A valid message, and where it can be changed.

    Attributes:
        whole: The message.
        data: Its bytes.
    """

    def __init__(self, whole: str | bytes) -> None:
        self.whole = whole
        self.data = whole.encode() if isinstance(whole, str) else whole
        line, newline, rest = self.data.partition(b"\n")
        self._rest = newline + rest if isinstance(whole, bytes) else b""
        self._text = line if isinstance(whole, bytes) else self.data
        try:
            value = json.loads(self._text)
        except ValueError:
            value = None
        self._paths = list(_paths(value)) if isinstance(value, dict) else []
        self._replaced: dict[tuple[int, int], bytes] = {}

    def as_it_came(self, data: bytes) -> str | bytes:
        """Return changed bytes as what the message was; a text that is no UTF-8 stays bytes."""
        if isinstance(self.whole, bytes):
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def with_value(self, a: int, b: int) -> bytes:
        """Return the message with one value of its JSON replaced, or a byte where it has none."""
        if not self._paths:
            return _damaged(self.data, a.to_bytes(2, "big") + b.to_bytes(2, "big"))
        key = a % len(self._paths), b % (len(_VALUES) + len(_RAW_VALUES))
        if key not in self._replaced:
            self._replaced[key] = self._replace(*key)
        return self._replaced[key]

    def _replace(self, which: int, what: int) -> bytes:
        raw = what - len(_VALUES)
        value = json.loads(self._text)
        *path, name = self._paths[which]
        _at(value, path)[name] = _VALUES[what] if raw < 0 else _RAW
        text = json.dumps(value)
        if raw >= 0:
            text = text.replace(json.dumps(_RAW), _RAW_VALUES[raw])
        return text.encode() + self._rest

    def without_field(self, a: int) -> bytes:
        """Return the message with one field less, or with another name; cut where it has none."""
        if not self._paths:
            return self.data[: a % (len(self.data) + 1)]
        value = json.loads(self._text)
        *path, name = self._paths[a % len(self._paths)]
        parent = _at(value, path)
        if a & 0x4000 and isinstance(parent, dict):
            parent[f"{name}_"] = parent.pop(name)
        else:
            del parent[name]
        return json.dumps(value).encode() + self._rest


def _number(numbers: bytes, at: int) -> int:
    return int.from_bytes(numbers[at : at + 2], "big")


def _place(numbers: bytes, data: bytes) -> int:
    return _number(numbers, 0) % (len(data) + 1)


def _damaged(data: bytes, where: bytes) -> bytes:
    """Return bytes of which one is another."""
    if not data:
        return where
    at = int.from_bytes(where[:2], "big") % len(data)
    return data[:at] + bytes([data[at] ^ (where[-1] or 1)]) + data[at + 1 :]


def _cut(data: bytes, _: bytes, numbers: bytes) -> bytes:
    return data[: _place(numbers, data)]


def _joined(data: bytes, other: bytes, numbers: bytes) -> bytes:
    return data[: _place(numbers, data)] + other[_place(numbers[2:], other) :]


def _repeated(data: bytes, _: bytes, numbers: bytes) -> bytes:
    at = _place(numbers, data)
    again = data[at : at + numbers[2] % 64] * (1 + numbers[3])
    return (data[:at] + again + data[at:])[:MAX_INPUT_BYTES]


def _with_more(data: bytes, _: bytes, numbers: bytes) -> bytes:
    at = _place(numbers, data)
    return data[:at] + numbers[2 : 3 + numbers[5] % 3] + data[at:]


def _with_less(data: bytes, _: bytes, numbers: bytes) -> bytes:
    at = _place(numbers, data)
    return data[:at] + data[at + 1 + numbers[2] % 16 :]


def _flipped(data: bytes, _: bytes, numbers: bytes) -> bytes:
    return _damaged(data, numbers)


_CHANGES: tuple[Callable[[bytes, bytes, bytes], bytes], ...] = (
    *(_cut, _joined, _repeated, _with_more, _with_less, _flipped),
)


def _paths(value: object) -> Iterator[tuple[str | int, ...]]:
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for name, inner in items:
        yield (name,)
        yield from ((name, *path) for path in _paths(inner))


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for name in path:
        value = value[name]
    return value


def attack(take: Callable[[Iterator[bytes]], int]) -> None:
    """Let something take `N_INPUTS` inputs, a hundred in each example of Hypothesis.

    Args:
        take: Takes inputs made by these recipes; returns how many it took.
    """
    n_taken = 0

    @settings(
        max_examples=-(-N_INPUTS // _PER_EXAMPLE),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=_PER_EXAMPLE * _RECIPE_BYTES, max_size=_PER_EXAMPLE * _RECIPE_BYTES))
    def take_example(recipes: bytes) -> None:
        nonlocal n_taken
        n_taken += take(
            recipes[at : at + _RECIPE_BYTES] for at in range(0, len(recipes), _RECIPE_BYTES)
        )

    take_example()
    assert n_taken >= N_INPUTS
