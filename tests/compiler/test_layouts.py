"""Layout conversion and the hand-over of numpy memory."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.compiler.layouts import convert, parse_layout, physical_shape
from socsched.compiler.loading.aligned import align, check, from_tvm, to_tvm
from socsched.errors import InputError, UsageError
from socsched.graph.operators import TensorType
from socsched.models.host import aligned as empty

LAYOUTS = st.sampled_from(["", "NCHW", "NHWC", "NCHW16c", "NCHW8c+1", "NCHW16c+3", "NHWC+1", "NCHW+2"])


@given(LAYOUTS, LAYOUTS, st.tuples(st.just(1) | st.just(2), st.integers(1, 37), st.integers(1, 6), st.integers(1, 6)))
def test_conversions_keep_every_pixel(a: str, b: str, shape: tuple[int, ...]) -> None:
    plain, first, second = (TensorType(shape, "fp32", layout) for layout in ("NCHW", a, b))
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    there = convert(array, plain, first)
    assert there.shape == physical_shape(first)
    assert np.array_equal(convert(convert(there, first, second), second, plain), array)
    assert np.count_nonzero(there) == array.size  # border and missing channels are zero


def test_where_a_pixel_lies() -> None:
    array = np.arange(2 * 20 * 3 * 4, dtype=np.float32).reshape(2, 20, 3, 4)
    blocked = convert(array, TensorType(array.shape, "fp32", "NCHW"), TensorType(array.shape, "fp32", "NCHW16c+1"))
    for n, c, h, w in product(range(2), range(20), range(3), range(4)):
        assert blocked[n, c // 16, h + 1, w + 1, c % 16] == array[n, c, h, w]


def test_same_layout_is_not_copied() -> None:
    kind = TensorType((1, 16, 2, 2), "fp32", "NCHW16c")
    array = np.zeros(physical_shape(kind), np.float32)
    assert convert(array, kind, kind) is array
    assert convert(array, kind, TensorType(kind.shape, "fp16", "NCHW16c")).dtype == np.float16


def test_wrong_requests() -> None:
    kind = TensorType((1, 16, 2, 2), "fp32", "NCHW16c")
    with pytest.raises(UsageError, match="logical shapes differ"):
        convert(np.zeros(physical_shape(kind), np.float32), kind, TensorType((1, 8, 2, 2), "fp32", "NCHW"))
    with pytest.raises(UsageError, match="expected an array"):
        convert(np.zeros((1, 16, 2, 2), np.float32), kind, TensorType((1, 16, 2, 2), "fp32", "NCHW"))
    for name in ("NCHW0c", "CHWN", "NCHW16c+", "nchw"):
        with pytest.raises(UsageError, match="unknown layout"):
            parse_layout(name)


@given(st.integers(0, 15), st.integers(0, 40))
def test_memory_is_shared_if_aligned_and_copied_if_not(offset: int, size: int) -> None:
    base = empty((size + 16,), np.float32)
    base[...] = np.arange(size + 16)
    part = base[offset : offset + size]
    tensor = from_tvm(to_tvm(part, TensorType((-1,), "fp32"), "x"))
    assert np.array_equal(tensor, part)
    if size:
        assert tensor.ctypes.data % 64 == 0
        assert np.shares_memory(tensor, base) == (offset % 16 == 0)


def test_strided_and_read_only_arrays_are_copied() -> None:
    base = empty((8, 32), np.float32)
    assert align(base) is base
    assert not np.shares_memory(align(base[:, ::2]), base)
    base.flags.writeable = False
    assert not np.shares_memory(align(base), base)


@pytest.mark.parametrize(
    "array", [np.zeros((4, 3), np.float64), np.zeros((4, 2), np.float32), np.zeros((4, 3, 1), np.float32), [[1.0] * 3]]
)
def test_what_does_not_fit_is_refused(array: object) -> None:
    with pytest.raises(InputError, match=r"x: expected float32 \[-1, 3\], got"):
        check(array, TensorType((-1, 3), "fp32"), "x")
