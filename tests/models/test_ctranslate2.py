from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.ctranslate2 import n_layers, read_model, whisper_tensors
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable

TYPE_IDS = {"float32": 0, "float16": 4, "bfloat16": 5}


@pytest.fixture(scope="module")
def small_file() -> bytes:
    """Bytes of a file with two variables and one alias, written by hand."""
    return (
        b"\x06\0\0\0"  # version
        b"\x0c\0WhisperSpec\0"
        b"\x03\0\0\0"  # revision
        b"\x02\0\0\0"  # variables
        b"\x02\0a\0" b"\x02" b"\x02\0\0\0" b"\x01\0\0\0" b"\x00" b"\x08\0\0\0"
        b"\0\0\x80\x3f" b"\0\0\0\xc0"
        b"\x02\0n\0" b"\x00" b"\x01" b"\x01\0\0\0" b"\x07"
        b"\x01\0\0\0"  # aliases
        b"\x02\0b\0" b"\x02\0a\0"
    )  # fmt: skip


def test_reads_a_file_written_by_hand(small_file: bytes) -> None:
    model = read_model(small_file)
    assert (model.spec, model.revision, model.aliases) == ("WhisperSpec", 3, {"b": "a"})
    assert model.tensors["a"].tolist() == [[1.0], [-2.0]]
    assert int(model.tensors["n"]) == 7


def test_every_truncation_is_an_error(small_file: bytes) -> None:
    for n_bytes in range(len(small_file)):
        with pytest.raises(WeightsError) as caught:
            read_model(small_file[:n_bytes])
        assert caught.value.code == "weights_corrupt"


def test_trailing_bytes_are_an_error(small_file: bytes) -> None:
    with pytest.raises(WeightsError, match="bytes follow"):
        read_model(small_file + b"\0")


@given(junk=st.binary(max_size=400))
def test_random_bytes_never_raise_anything_else(junk: bytes) -> None:
    with pytest.raises(WeightsError):
        read_model(b"\x06\0\0\0\x02\0x\0" + junk)


@given(st.data())
@settings(max_examples=200)
def test_a_changed_byte_is_read_or_refused(data: st.DataObject) -> None:
    whole = (
        b"\x06\0\0\0\x02\0s\0\x03\0\0\0\x01\0\0\0\x02\0a\0\x01\x02\0\0\0\x00\x08\0\0\0"
        + bytes(8)
        + b"\0\0\0\0"
    )
    at = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.integers(0, 255))
    changed = whole[:at] + bytes([value]) + whole[at + 1 :]
    try:
        read_model(changed)
    except WeightsError as error:
        assert error.remedy  # noqa: PT017  either outcome is right, nothing else is


def test_another_version_is_named(tiny_whisper: Any) -> None:
    tiny_whisper.writer.version = 5
    with pytest.raises(WeightsError, match="version 5"):
        read_model(tiny_whisper.writer.to_bytes())


@pytest.mark.parametrize("type_name", sorted(TYPE_IDS))
def test_whisper_tensors_are_those_the_model_was_made_of(
    type_name: str, make_tiny_whisper: Callable[[int], Any]
) -> None:
    tiny = make_tiny_whisper(TYPE_IDS[type_name])
    found = whisper_tensors(read_model(tiny.writer.to_bytes()))
    expected = tiny.model.state_dict()
    del expected["proj_out.weight"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert np.array_equal(found[name].astype(np.float32), tensor.numpy()), name


def test_the_fused_projections_keep_their_order(tiny_whisper: Any) -> None:
    found = whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))
    attention = tiny_whisper.model.model.decoder.layers[2].encoder_attn
    for letter in "qkv":
        weight = torch.from_numpy(
            found[f"model.decoder.layers.2.encoder_attn.{letter}_proj.weight"].copy()
        )
        assert torch.equal(weight, getattr(attention, f"{letter}_proj").weight)
    assert "model.decoder.layers.2.encoder_attn.k_proj.bias" not in found


def test_another_architecture_is_refused(tiny_whisper: Any) -> None:
    tiny_whisper.writer.spec = "TransformerSpec"
    with pytest.raises(WeightsError, match="TransformerSpec") as caught:
        whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))
    assert caught.value.code == "weights_unsupported"


def test_an_untied_projection_is_refused(tiny_whisper: Any) -> None:
    tiny_whisper.writer.aliases.clear()
    with pytest.raises(WeightsError, match="not tied"):
        whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))


def test_a_missing_tensor_is_named(tiny_whisper: Any) -> None:
    del tiny_whisper.writer.variables["encoder/layer_1/ffn/linear_0/bias"]
    with pytest.raises(WeightsError, match="encoder/layer_1/ffn/linear_0/bias"):
        whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))


def test_a_missing_layer_is_refused(tiny_whisper: Any) -> None:
    variables = tiny_whisper.writer.variables
    for name in [name for name in variables if name.startswith("decoder/layer_1/")]:
        del variables[name]
    with pytest.raises(WeightsError, match="without gaps"):
        whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))


def test_quantised_weights_are_refused(tiny_whisper: Any) -> None:
    shape, _, raw = tiny_whisper.writer.variables["decoder/layer_0/ffn/linear_0/weight"]
    tiny_whisper.writer.variables["decoder/layer_0/ffn/linear_0/weight"] = (
        shape,
        1,
        raw[: len(raw) // 4],
    )
    with pytest.raises(WeightsError, match="quantised") as caught:
        whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))
    assert "--quantization" in caught.value.remedy


def test_a_bias_on_the_keys_is_refused(tiny_whisper: Any) -> None:
    tiny_whisper.writer.add("encoder/layer_0/self_attention/linear_0/bias", torch.ones(48))
    with pytest.raises(WeightsError, match="bias on its keys"):
        whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))


def test_a_fused_layer_of_the_wrong_size_is_refused(tiny_whisper: Any) -> None:
    tiny_whisper.writer.add("encoder/layer_0/self_attention/linear_0/bias", torch.ones(47))
    with pytest.raises(WeightsError, match="does not split"):
        whisper_tensors(read_model(tiny_whisper.writer.to_bytes()))


def test_layers_are_counted(tiny_whisper: Any) -> None:
    tensors = read_model(tiny_whisper.writer.to_bytes()).tensors
    assert (n_layers(tensors, "encoder"), n_layers(tensors, "decoder")) == (2, 3)
