"""Times of networks from measured kernels: rates found again, sizes between and beyond those measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.cost import kernel_times
from socsched.descriptor import host
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.platform import OWN, Engine
from socsched.graph.operators import Operator, StageWork, TensorType

SIZES = ((1e6, 4e5, 1e4), (3e7, 1e6, 2e5), (1e8, 2e5, 4e6), (5e7, 8e6, 1e5), (2e8, 3e6, 2e6))


def kernels(call: float = 3000.0, op: float = 0.01, moved: float = 0.05, weight: float = 0.1) -> KernelTimes:
    """Pointwise convolutions on one thread and on four, the latter three times as fast."""
    made = []
    for threads, share in ((1, 1.0), (4, 1 / 3)):
        for ops, tensors, weights in SIZES:
            time = (call + op * ops + moved * tensors + weight * weights) * share
            made.append(KernelTime("pointwise", threads, ops, tensors, weights, time))
    return KernelTimes(OWN, "1", "2026-01-02", "fp32", tuple(made))


def operator(ops: int = 40_000_000, moved: int = 800_000, weights: int = 90_000, **attrs: float) -> Operator:
    tensor = TensorType((1, 64, 28, 28), "fp32")
    shape = {"kernel_h": 1, "kernel_w": 1, "groups": 1, **attrs}
    return Operator("c", "conv2d", "fp32", (tensor,), (tensor,), ops, moved, 0, weights, shape)


def engine(*times: KernelTimes) -> Engine:
    facts = host.HostFacts("a", "x86_64", (0, 1, 2, 3), (), 10**9, "", 2**20, 2**30, 1e9, 1e9, 1e9, 4e9, (), "", {})
    return replace(host.build(facts).engines[0], kernel_times=times)


def test_a_size_that_was_not_measured_has_the_time_of_the_rates_behind_the_measured_ones() -> None:
    time, error = kernel_times.kernel_time(kernels(), operator(), 1)
    assert time == pytest.approx(3000 + 0.01 * 4e7 + 0.05 * 8e5 + 0.1 * 9e4, rel=1e-6)
    assert error < 0.01


def test_numbers_of_threads_between_the_measured_ones_lie_between_them() -> None:
    one, two, four, eight = (kernel_times.kernel_time(kernels(), operator(), n)[0] for n in (1, 2, 4, 8))
    assert one > two > four == eight
    assert two == pytest.approx(one + (four - one) * (1 - 1 / 2) / (1 - 1 / 4))


def test_kernels_that_no_rates_explain_widen_the_error() -> None:
    noisy = kernels()
    scattered = tuple(
        replace(one, time_ns=one.time_ns * (1.5 if number % 2 else 0.7)) for number, one in enumerate(noisy.kernels)
    )
    assert kernel_times.kernel_time(replace(noisy, kernels=scattered), operator(), 1)[1] > 0.3


def test_a_family_without_kernels_is_known_badly() -> None:
    assert kernel_times.kernel_time(kernels(), operator(kernel_h=3, kernel_w=3), 1)[1] == kernel_times.UNKNOWN


def test_an_engine_answers_for_its_runtimes_and_precisions_alone() -> None:
    work = StageWork("s", "fp32", (operator(), operator()), (), ())
    cpu = engine(kernels())
    found = kernel_times.estimate(work, cpu, 1)
    assert found is not None and found.provenance == "fitted"
    assert found.time_ns == pytest.approx(2 * kernel_times.kernel_time(kernels(), operator(), 1)[0], rel=0.5)
    assert kernel_times.estimate(work, cpu, 1, "onnxruntime") is None
    assert kernel_times.estimate(replace(work, precision="fp16"), cpu, 1) is None
    assert kernel_times.estimate(work, engine(), 1) is None


def test_host_functions_are_not_kernels() -> None:
    function = Operator("f", "function", "fp32", (), (), 1, 1, 1, device="voxelise")
    assert kernel_times.estimate(StageWork("s", "fp32", (function,), (), ()), engine(kernels()), 1) is None
