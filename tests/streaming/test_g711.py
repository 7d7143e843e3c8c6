"""Expected values come from the standard's tables of segments, worked out with plain loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_CODES = bytes(range(256))


def mulaw_value(code: int) -> int:
    """Value of a code by walking the eight segments, whose steps double from 8 on."""
    inverted = ~code & 0xFF
    value, step = 0, 8
    for segment in range(8):
        first = value if segment == 0 else value + step // 2 + step // 4
        if segment == (inverted >> 4) & 7:
            value = first + (inverted & 15) * step
            break
        value = first + 15 * step
        step *= 2
    return -value if inverted & 0x80 else value


def alaw_value(code: int) -> int:
    """Middle of the interval that a code stands for: 16 steps a segment, the first two alike."""
    toggled = code ^ 0x55
    segment, index = (toggled >> 4) & 7, toggled & 15
    lower, step = (0, 16) if segment == 0 else (256 * 2 ** (segment - 1), 16 * 2 ** (segment - 1))
    middle = lower + index * step + step // 2
    return middle if toggled & 0x80 else -middle


@pytest.mark.parametrize(
    ("decode", "value"), [(decode_mulaw, mulaw_value), (decode_alaw, alaw_value)]
)
def test_all_codes_have_the_value_of_the_standard(
    decode: Callable[[bytes], np.ndarray], value: Callable[[int], int]
) -> None:
    decoded = decode(ALL_CODES)
    assert decoded.dtype == np.int16
    assert decoded.tolist() == [value(code) for code in ALL_CODES]


def test_published_end_points() -> None:
    assert decode_mulaw(b"\x00\x80\xff\x7f").tolist() == [-32124, 32124, 0, 0]
    assert decode_alaw(b"\x2a\xaa\xd5\x55").tolist() == [-32256, 32256, 8, -8]


@pytest.mark.parametrize(
    ("encode", "decode"), [(encode_mulaw, decode_mulaw), (encode_alaw, decode_alaw)]
)
def test_encoding_is_off_by_half_a_step_at_most(
    encode: Callable[[np.ndarray], bytes], decode: Callable[[bytes], np.ndarray]
) -> None:
    samples = np.arange(-32_768, 32_768).astype(np.int16)
    decoded = decode(encode(samples)).astype(np.int64)
    levels = np.unique(decode(ALL_CODES)).astype(np.int64)
    gaps = np.diff(levels)
    step = np.maximum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))
    error = np.abs(np.clip(samples, levels[0], levels[-1]) - decoded)
    allowed = step[np.searchsorted(levels, decoded)] // 2
    # mu-law drops two bits, A-law three, before it looks for the interval
    assert (error - allowed).max() <= 4
    assert np.all(np.diff(decoded) >= 0)


@pytest.mark.parametrize(
    ("encode", "decode"), [(encode_mulaw, decode_mulaw), (encode_alaw, decode_alaw)]
)
@given(codes=st.binary(max_size=200))
def test_a_decoded_code_is_encoded_to_the_same_value(
    encode: Callable[[np.ndarray], bytes], decode: Callable[[bytes], np.ndarray], codes: bytes
) -> None:
    decoded = decode(codes)
    again = encode(decoded)
    assert len(again) == len(codes)
    assert decode(again).tolist() == decoded.tolist()
