"""Whisper models in CTranslate2's file format, with their tensors under Hugging Face's names.

The format (``model.bin``, little endian): u32 version, string spec, u32 revision, u32 count, then
for each variable a string name, u8 rank, u32 dimensions, u8 type, u32 byte count and the bytes;
last u32 count of aliases and the pairs of names. A string is a u16 length that counts its closing
zero byte. Source: ``model_spec.py`` of the CTranslate2 project, binary version 6.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    Tensors = dict[str, NDArray[Any]]

BINARY_VERSION = 6
WHISPER_SPEC = "WhisperSpec"
BFLOAT16_ID = 5
DTYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
    BFLOAT16_ID: np.dtype("<u2"),  # numpy has no bfloat16: widened to float32 after reading
}


@dataclass(frozen=True, slots=True)
class CTranslate2Model:
    """What a ``model.bin`` holds.

    Attributes:
        spec: Name of the architecture.
        revision: Revision of the architecture's list of variables.
        tensors: Arrays by CTranslate2 name; views on the buffer they were read from.
        aliases: Second names: name to the name of the stored tensor.
    """

    spec: str
    revision: int
    tensors: Tensors
    aliases: dict[str, str]


def _broken(message: str) -> WeightsError:
    return WeightsError(
        "weights_corrupt",
        f"The CTranslate2 model cannot be read: {message}.",
        "Fetch or install the model again; its file is incomplete or not a CTranslate2 model.",
    )


def unsupported(message: str) -> WeightsError:
    """Return the error for a model that is whole but not of a kind AudioKV reads."""
    return WeightsError(
        "weights_unsupported",
        f"The CTranslate2 model is not one AudioKV reads: {message}.",
        "Use a Whisper model converted with --quantization float16, float32 or bfloat16, "
        "or a folder in Hugging Face's layout.",
    )


class _Reader:
    """Reads the format's primitives from a buffer, and never past its end."""

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(buffer)
        self._at = 0

    def take(self, n_bytes: int) -> memoryview:
        end = self._at + n_bytes
        if end > len(self._view):
            raise _broken(f"it ends at byte {len(self._view):,} where {end:,} are needed")
        chunk = self._view[self._at : end]
        self._at = end
        return chunk

    def unsigned(self, n_bytes: int) -> int:
        return int.from_bytes(self.take(n_bytes), "little")

    def string(self) -> str:
        raw = bytes(self.take(self.unsigned(2)))
        if not raw.endswith(b"\0"):
            raise _broken(f"a name before byte {self._at:,} is not closed")
        try:
            return raw[:-1].decode("ascii")
        except UnicodeDecodeError as error:
            raise _broken(f"a name before byte {self._at:,} is not text") from error

    def at_end(self) -> bool:
        return self._at == len(self._view)


def _read_tensor(reader: _Reader, name: str) -> NDArray[Any]:
    rank = reader.unsigned(1)
    shape = struct.unpack(f"<{rank}I", reader.take(4 * rank))
    dtype_id = reader.unsigned(1)
    if dtype_id not in DTYPES:
        raise _broken(f"{name} has the unknown type {dtype_id}")
    raw = reader.take(reader.unsigned(4))
    dtype = DTYPES[dtype_id]
    n_items = int(np.prod(shape, dtype=np.int64))
    if n_items * dtype.itemsize != len(raw):
        raise _broken(f"{name} has {len(raw):,} bytes for the shape {list(shape)}")
    array: NDArray[Any] = np.frombuffer(raw, dtype=dtype).reshape(shape)
    if dtype_id == BFLOAT16_ID:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array


def read_model(buffer: bytes | bytearray | memoryview) -> CTranslate2Model:
    """Parse a ``model.bin``.

    Args:
        buffer: The whole file.

    Returns:
        The tensors as views on the buffer: keep it unchanged while they are in use.

    Raises:
        WeightsError: The buffer is cut short, damaged, or another version of the format.
    """
    reader = _Reader(buffer)
    version = reader.unsigned(4)
    if version != BINARY_VERSION:
        raise _broken(f"it has format version {version}, not {BINARY_VERSION}")
    spec = reader.string()
    revision = reader.unsigned(4)
    tensors: Tensors = {}
    for _ in range(reader.unsigned(4)):
        name = reader.string()
        tensors[name] = _read_tensor(reader, name)
    aliases = {}
    for _ in range(reader.unsigned(4)):
        alias = reader.string()
        aliases[alias] = reader.string()
    if not reader.at_end():
        raise _broken("bytes follow after its last entry")
    return CTranslate2Model(spec, revision, tensors, aliases)


def float_tensor(tensors: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """Return a tensor by its CTranslate2 name; numbers without dimensions may be integers.

    Raises:
        WeightsError: It is missing or quantised.
    """
    try:
        array = tensors[name]
    except KeyError:
        raise unsupported(f"it has no {name}") from None
    if array.ndim and array.dtype.kind != "f":
        raise unsupported(f"{name} is quantised ({array.dtype})")
    return array


def n_layers(tensors: Mapping[str, NDArray[Any]], side: str) -> int:
    """Return how many layers the ``encoder`` or ``decoder`` has."""
    prefix = re.compile(rf"{side}/layer_(\d+)/")
    found = {int(match[1]) for name in tensors if (match := prefix.match(name))}
    if found != set(range(len(found))):
        raise unsupported(f"the layers of its {side} are not numbered from 0 without gaps")
    return len(found)


_PLAIN = {
    "encoder/conv1/weight": "encoder.conv1.weight",
    "encoder/conv1/bias": "encoder.conv1.bias",
    "encoder/conv2/weight": "encoder.conv2.weight",
    "encoder/conv2/bias": "encoder.conv2.bias",
    "encoder/position_encodings/encodings": "encoder.embed_positions.weight",
    "encoder/layer_norm/gamma": "encoder.layer_norm.weight",
    "encoder/layer_norm/beta": "encoder.layer_norm.bias",
    "decoder/embeddings/weight": "decoder.embed_tokens.weight",
    "decoder/position_encodings/encodings": "decoder.embed_positions.weight",
    "decoder/layer_norm/gamma": "decoder.layer_norm.weight",
    "decoder/layer_norm/beta": "decoder.layer_norm.bias",
}
_LAYER = {
    "ffn/linear_0/weight": "fc1.weight",
    "ffn/linear_0/bias": "fc1.bias",
    "ffn/linear_1/weight": "fc2.weight",
    "ffn/linear_1/bias": "fc2.bias",
    "ffn/layer_norm/gamma": "final_layer_norm.weight",
    "ffn/layer_norm/beta": "final_layer_norm.bias",
}


def _attention(
    tensors: Mapping[str, NDArray[Any]], source: str, target: str, fused: tuple[str, ...]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield one attention block; ``fused`` says which projections each input layer stacks."""
    for index, letters in enumerate(fused):
        weight = float_tensor(tensors, f"{source}/linear_{index}/weight")
        bias = float_tensor(tensors, f"{source}/linear_{index}/bias")
        if weight.shape[0] % len(letters) or bias.shape != weight.shape[:1]:
            raise unsupported(f"{source}/linear_{index} does not split into {len(letters)}")
        weights = np.split(weight, len(letters))
        biases = np.split(bias, len(letters))
        for letter, part, offset in zip(letters, weights, biases, strict=True):
            yield f"{target}.{letter}_proj.weight", part
            if letter != "k":
                yield f"{target}.{letter}_proj.bias", offset
            elif np.any(offset):  # Whisper's keys have no bias, so there is no place for one
                raise unsupported(f"{source} has a bias on its keys")
    last = len(fused)
    yield f"{target}.out_proj.weight", float_tensor(tensors, f"{source}/linear_{last}/weight")
    yield f"{target}.out_proj.bias", float_tensor(tensors, f"{source}/linear_{last}/bias")
    yield f"{target}_layer_norm.weight", float_tensor(tensors, f"{source}/layer_norm/gamma")
    yield f"{target}_layer_norm.bias", float_tensor(tensors, f"{source}/layer_norm/beta")


def whisper_tensors(model: CTranslate2Model) -> Tensors:
    """Rename and split a Whisper model's tensors to those of ``WhisperForConditionalGeneration``.

    Returns:
        Arrays by Hugging Face name, in the stored precision. ``proj_out.weight`` is left out: it is
        tied to ``model.decoder.embed_tokens.weight``.

    Raises:
        WeightsError: It is not a Whisper model in floating point.
    """
    if model.spec != WHISPER_SPEC:
        raise unsupported(f"it is a {model.spec}, not a {WHISPER_SPEC}")
    if model.aliases.get("decoder/projection/weight") != "decoder/embeddings/weight":
        raise unsupported("its output projection is not tied to its embeddings")
    tensors = model.tensors
    result = {f"model.{new}": float_tensor(tensors, old) for old, new in _PLAIN.items()}
    for side in ("encoder", "decoder"):
        for index in range(n_layers(tensors, side)):
            source, target = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
            for old, new in _LAYER.items():
                result[f"{target}.{new}"] = float_tensor(tensors, f"{source}/{old}")
            result.update(
                _attention(tensors, f"{source}/self_attention", f"{target}.self_attn", ("qkv",))
            )
            if side == "decoder":
                result.update(
                    _attention(
                        tensors, f"{source}/attention", f"{target}.encoder_attn", ("q", "kv")
                    )
                )
    return result
