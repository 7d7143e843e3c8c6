"""G.711 mu-law and A-law, the 8-bit codes of the telephone network (ITU-T G.711).

Decoding is a table of 256 values. Encoding is a table over all 65,536 samples, built once at
import from the decision intervals of the standard, so that one look-up encodes a sample. All values
are 16-bit, as `audioop` of the standard library had them until Python 3.12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int16Array = NDArray[np.int16]

_MULAW_BIAS = 33  # in units of the 14-bit samples that the standard's mu-law works on
_MULAW_CLIP = 8_158
_MULAW_INVERT = 0xFF
_ALAW_INVERT = 0x55
_SIGN = 0x80


def _mulaw_decode_table() -> Int16Array:
    code = np.arange(256) ^ _MULAW_INVERT
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = (((2 * mantissa + _MULAW_BIAS) << exponent) - _MULAW_BIAS) << 2
    return np.where(code & _SIGN, -magnitude, magnitude).astype(np.int16)


def _alaw_decode_table() -> Int16Array:
    code = np.arange(256) ^ _ALAW_INVERT
    exponent, mantissa = (code >> 4) & 7, code & 15
    linear = (2 * mantissa + 1) << 3
    magnitude = np.where(exponent == 0, linear, (linear + 256) << np.maximum(exponent - 1, 0))
    return np.where(code & _SIGN, magnitude, -magnitude).astype(np.int16)


def _mulaw_encode_table() -> NDArray[np.uint8]:
    sample = np.arange(-32_768, 32_768) >> 2
    magnitude = np.minimum(np.abs(sample), _MULAW_CLIP) + _MULAW_BIAS
    exponent = np.floor(np.log2(magnitude)).astype(np.int64) - 5
    mantissa = (magnitude >> (exponent + 1)) & 15
    code = np.where(sample < 0, _SIGN, 0) | (exponent << 4) | mantissa
    return _by_unsigned_sample((code ^ _MULAW_INVERT).astype(np.uint8))


def _alaw_encode_table() -> NDArray[np.uint8]:
    sample = np.arange(-32_768, 32_768) >> 3
    magnitude = np.where(sample < 0, -sample - 1, sample)
    exponent = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int64) - 4, 0)
    mantissa = (magnitude >> np.maximum(exponent, 1)) & 15
    code = np.where(sample < 0, 0, _SIGN) | (exponent << 4) | mantissa
    return _by_unsigned_sample((code ^ _ALAW_INVERT).astype(np.uint8))


def _by_unsigned_sample(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Reorder codes of -32768 ... 32767 so that the sample's bits, read unsigned, index them."""
    return np.roll(codes, -32_768)


_MULAW_TO_LINEAR = _mulaw_decode_table()
_ALAW_TO_LINEAR = _alaw_decode_table()
_LINEAR_TO_MULAW = _mulaw_encode_table()
_LINEAR_TO_ALAW = _alaw_encode_table()


def decode_mulaw(codes: bytes) -> Int16Array:
    """Return the samples of mu-law codes: shape (len(codes),), int16."""
    return _MULAW_TO_LINEAR[np.frombuffer(codes, np.uint8)]


def decode_alaw(codes: bytes) -> Int16Array:
    """Return the samples of A-law codes: shape (len(codes),), int16."""
    return _ALAW_TO_LINEAR[np.frombuffer(codes, np.uint8)]


def encode_mulaw(samples: Int16Array) -> bytes:
    """Return one mu-law code a sample.

    Args:
        samples: Shape (n,), int16.
    """
    return _LINEAR_TO_MULAW[samples.view(np.uint16)].tobytes()


def encode_alaw(samples: Int16Array) -> bytes:
    """Return one A-law code a sample.

    Args:
        samples: Shape (n,), int16.
    """
    return _LINEAR_TO_ALAW[samples.view(np.uint16)].tobytes()
