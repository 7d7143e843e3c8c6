from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.cache.quantized import dequantize, quantize


@settings(deadline=None)
@given(st.integers(0, 2**31 - 1), st.floats(1e-6, 1e4))
def test_no_component_is_off_by_more_than_half_a_level(seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(2, 3, 5, 8, generator=generator) * size
    codes, scales = quantize(vectors)
    assert codes.dtype == torch.int8
    assert scales.shape == (2, 3, 5, 1)
    error = (dequantize(codes, scales, torch.float32) - vectors).abs()
    assert (error <= scales * 0.5001).all()


def test_each_head_and_slot_has_its_own_scale() -> None:
    vectors = torch.ones(1, 2, 2, 4)
    vectors[0, 0, 0] *= 1_000
    codes, scales = quantize(vectors)
    assert torch.allclose(dequantize(codes, scales, torch.float32), vectors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zeros_stay_zeros_in_every_type(dtype: torch.dtype) -> None:
    codes, scales = quantize(torch.zeros(1, 1, 3, 4, dtype=dtype))
    back = dequantize(codes, scales, dtype)
    assert back.dtype == dtype
    assert not back.any()
