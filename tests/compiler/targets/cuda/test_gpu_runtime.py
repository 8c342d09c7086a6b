"""The parts of the GPU runtime that need no GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from socsched.compiler.environment import tvm
from socsched.compiler.targets.cuda import cuda_api, sm_share
from socsched.compiler.targets.cuda.nvcc import supply_cubins
from socsched.compiler.targets.cuda.runtime import pad_to_bucket
from socsched.errors import MachineError
from socsched.graph.operators import TensorType

HOOK = "tvm_callback_cuda_compile"


def test_device_code_is_supplied_only_while_asked_for() -> None:
    before = tvm.get_global_func(HOOK)
    with supply_cubins(lambda source: source.encode()[::-1]):
        assert bytes(tvm.get_global_func(HOOK)("abc")) == b"cba"
    assert tvm.get_global_func(HOOK).same_as(before)
    with pytest.raises(ZeroDivisionError), supply_cubins(lambda source: b""):
        raise ZeroDivisionError
    assert tvm.get_global_func(HOOK).same_as(before)


@pytest.mark.parametrize(("rows", "filled"), [(0, 4000), (1, 4000), (4000, 4000), (4001, 8000)])
def test_varying_sizes_come_in_buckets(rows: int, filled: int) -> None:
    coords, features = np.ones((rows, 2), np.int32), np.ones((rows, 16), np.float16)
    places = pad_to_bucket(coords, TensorType((-1, 2), "int32"))
    values = pad_to_bucket(features, TensorType((-1, 16), "fp16"))
    assert len(places) == len(values) == filled
    assert (places[:rows] == 1).all() and (places[rows:] == -1).all()
    assert (values[:rows] == 1).all() and not values[rows:].any()
    assert pad_to_bucket(features, TensorType((rows, 16), "fp16")) is features


def test_without_the_cuda_runtime_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    cuda_api.cudart.cache_clear()
    with pytest.raises(MachineError, match=r"libcudart\.so is not installed"):
        cuda_api.cudart()


def test_errors_of_the_runtime_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
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

    monkeypatch.setattr(cuda_api, "cudart", Failing)
    with pytest.raises(MachineError, match=r"creating a stream failed: an illegal memory access \(700\)"):
        cuda_api.Stream()


class Driver:
    """A driver of a GPU with 20 SMs in groups of four, which records the SMs of every context."""

    def __init__(self) -> None:
        self.contexts: list[list[int]] = []
        self.descriptions: list[list[int]] = []

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetDevResource(self, device: int, resource: Any, kind: int) -> int:
        resource._obj.sms, resource._obj.least = 20, 4
        return 0

    def cuDevSmResourceSplitByCount(self, groups: Any, count: Any, *rest: Any) -> int:
        for index in range(count._obj.value):
            groups[index].sms, groups[index].alignment = 4, index  # the index distinguishes the groups
        return 0

    def cuDevResourceGenerateDesc(self, description: Any, groups: Any, count: int) -> int:
        self.descriptions.append([groups[index].alignment for index in range(count)])
        return 0

    def cuGreenCtxCreate(self, context: Any, description: Any, device: int, flags: int) -> int:
        self.contexts.append(self.descriptions[-1])
        return 0

    def cuGreenCtxStreamCreate(self, stream: Any, context: Any, flags: int, priority: int) -> int:
        return 0


def test_shares_of_a_gpu_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(sm_share, "_driver", lambda: driver)
    sm_share._partition.cache_clear()
    first, second = sm_share.SharedStream(6), sm_share.SharedStream(8)
    assert (first.sms, second.sms) == (8, 8)
    assert not set(driver.contexts[0]) & set(driver.contexts[1])
    with pytest.raises(MachineError, match="8 SMs were requested, 4 of 20 are free"):
        sm_share.SharedStream(8)
    del first
    assert sm_share.SharedStream(12).sms == 12
    sm_share._partition.cache_clear()


def test_an_old_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sm_share, "_driver", lambda: object())
    sm_share._partition.cache_clear()
    with pytest.raises(MachineError, match="has no cuInit"):
        sm_share.SharedStream(4)
