"""What the GPU runtime does that no GPU is needed for."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from socsched.compile.environment import tvm
from socsched.compile.gpu import cuda_api
from socsched.compile.gpu.device_code import supplied
from socsched.compile.gpu.runtime import filled_up
from socsched.errors import MachineError
from socsched.graph.operators import TensorType

HOOK = "tvm_callback_cuda_compile"


def test_device_code_is_supplied_only_while_asked_for() -> None:
    before = tvm.get_global_func(HOOK)
    with supplied(lambda source: source.encode()[::-1]):
        assert bytes(tvm.get_global_func(HOOK)("abc")) == b"cba"
    assert tvm.get_global_func(HOOK).same_as(before)
    with pytest.raises(ZeroDivisionError), supplied(lambda source: b""):
        raise ZeroDivisionError
    assert tvm.get_global_func(HOOK).same_as(before)


@pytest.mark.parametrize(("rows", "filled"), [(0, 4000), (1, 4000), (4000, 4000), (4001, 8000)])
def test_varying_sizes_come_in_buckets(rows: int, filled: int) -> None:
    coords, features = np.ones((rows, 2), np.int32), np.ones((rows, 16), np.float16)
    places = filled_up(coords, TensorType((-1, 2), "int32"))
    values = filled_up(features, TensorType((-1, 16), "fp16"))
    assert len(places) == len(values) == filled
    assert (places[:rows] == 1).all() and (places[rows:] == -1).all()
    assert (values[:rows] == 1).all() and not values[rows:].any()
    assert filled_up(features, TensorType((rows, 16), "fp16")) is features


def test_without_the_cuda_runtime_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    cuda_api.library.cache_clear()
    with pytest.raises(MachineError, match=r"libcudart\.so is not installed"):
        cuda_api.library()


def test_errors_of_the_runtime_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        """A CUDA runtime where every call fails."""

        def __getattr__(self, name: str) -> Any:
            if name == "cudaGetErrorString":
                return Text()
            return lambda *arguments: 700

    class Text:
        restype: Any = None

        def __call__(self, status: int) -> bytes:
            return b"an illegal memory access"

    monkeypatch.setattr(cuda_api, "library", Failing)
    with pytest.raises(MachineError, match=r"creating a stream failed: an illegal memory access \(700\)"):
        cuda_api.Stream()
