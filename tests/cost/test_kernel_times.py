"""Times of networks from measured kernels: rates found again, sizes between and beyond those measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.cost import kernel_times
from socsched.cost.roofline import roofs_ns
from socsched.descriptor import host
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.platform import OWN, Engine
from socsched.graph.counting import operators
from socsched.graph.epilogues import channels_read
from socsched.graph.expand import fuse_network
from socsched.graph.operators import Operator, StageWork, TensorType
from socsched.models.registry import get_model

SIZES = ((1e6, 4e5, 1e4), (3e7, 1e6, 2e5), (1e8, 2e5, 4e6), (5e7, 8e6, 1e5), (2e8, 3e6, 2e6))


def kernels(call: float = 3000.0, op: float = 0.01, moved: float = 0.05) -> KernelTimes:
    """Pointwise convolutions on one thread and on four, the latter three times as fast."""
    made = []
    for threads, share in ((1, 1.0), (4, 1 / 3)):
        for ops, tensors, weights in SIZES:
            time = (call + op * ops + moved * tensors) * share
            made.append(KernelTime("pointwise", threads, ops, tensors, weights, time))
    return KernelTimes(OWN, "1", "2026-01-02", "fp32", tuple(made))


def operator(ops: int = 40_000_000, moved: int = 800_000, weights: int = 90_000, **attrs: int) -> Operator:
    tensor = TensorType((1, 64, 28, 28), "fp32")
    shape = {"kernel_h": 1, "kernel_w": 1, "groups": 1, **attrs}
    return Operator("c", "conv2d", "fp32", (tensor,), (tensor,), ops, moved, 0, weights, shape)


def engine(*times: KernelTimes) -> Engine:
    facts = host.HostFacts("a", "x86_64", (0, 1, 2, 3), (), 10**9, "", 2**20, 2**30, 1e9, 1e9, 1e9, 4e9, (), "", {})
    return replace(host.build(facts).engines[0], kernel_times=times)


def test_a_size_that_was_not_measured_has_the_time_of_the_rates_behind_the_measured_ones() -> None:
    time, error = kernel_times.kernel_time(kernels(), operator(), 1)
    assert time == pytest.approx(3000 + 0.01 * 4e7 + 0.05 * 8e5, rel=1e-6)
    assert error < 0.1


def test_numbers_of_threads_between_the_measured_ones_lie_between_them() -> None:
    one, two, four, eight = (kernel_times.kernel_time(kernels(), operator(), n)[0] for n in (1, 2, 4, 8))
    assert one > two > four == eight
    assert two == pytest.approx(one + (four - one) * (1 - 1 / 2) / (1 - 1 / 4))


def test_a_family_that_was_measured_on_one_thread_alone_is_divided_evenly() -> None:
    table = kernels()
    others = tuple(replace(one, family="conv") for one in table.kernels)
    lacking = replace(table, kernels=(*others, *(one for one in table.kernels if one.threads == 1)))
    (alone, _), (shared, error) = (kernel_times.kernel_time(lacking, operator(), n) for n in (1, 4))
    assert shared == pytest.approx(3000 + (alone - 3000) / 4, rel=1e-6)
    assert error == kernel_times.UNKNOWN


def test_what_threads_hand_each_other_does_not_grow_beyond_a_cache() -> None:
    one = kernels(0.0).kernels[: len(SIZES)]
    two = [
        replace(kernel, threads=2, time_ns=kernel.time_ns / 2 + 0.1 * min(kernel.moved, kernel_times.KEPT))
        for kernel in one
    ]
    times = KernelTimes(OWN, "1", "2026-01-02", "fp32", (*one, *two))
    large = operator(ops=10**11, moved=10**8)
    alone, both = (kernel_times.kernel_time(times, large, n)[0] for n in (1, 2))
    assert both == pytest.approx(alone / 2 + 0.1 * kernel_times.KEPT, rel=1e-6)


FAMILIES = sorted({*kernel_times.FAMILIES.values(), kernel_times.ELEMENTWISE})


@given(st.data())
def test_a_probe_that_was_disturbed_in_some_calls_prices_every_family_on_every_number_of_threads(
    data: st.DataObject,
) -> None:
    """A busy machine leaves any of the calls out, on one number of threads or another, and knows others badly."""
    cores = data.draw(st.sampled_from([2, 3, 4, 8, 16, 64]))
    sizes = st.tuples(st.floats(0, 1e9), st.floats(1e3, 1e8), st.floats(0, 1e8), st.floats(0.0, 1.0))
    measured = []
    for family in FAMILIES:
        for ops, moved, weights, spread in data.draw(st.lists(sizes, max_size=4)):
            for threads in data.draw(st.sets(st.sampled_from([1, cores]))):
                time = data.draw(st.floats(100.0, 1e9))
                measured.append(KernelTime(family, threads, ops, moved, weights, time, spread))
    if measured:
        times = KernelTimes(OWN, "1", "2026-01-02", "fp32", tuple(measured))
        for family in FAMILIES:
            for threads in (1, 2, cores):
                rates = kernel_times.rates_of(times, family, threads)
                assert all(np.isfinite(rate) and rate >= 0 for rate in rates)


def test_weights_that_are_few_in_all_kernels_of_a_family_are_no_term() -> None:
    some = [(tokens, weights) for tokens in (4e4, 4e5, 6e5) for weights in (0.0, 4.0)]
    one = tuple(
        KernelTime("elementwise of tokens", 1, 0.0, tokens, weights, 1000 + 0.02 * tokens + 250 * weights)
        for tokens, weights in some
    )
    rates = kernel_times.rates_of(KernelTimes(OWN, "1", "2026-01-02", "fp32", one), "elementwise of tokens", 1)
    assert rates.weight == 0 and rates.time(0.0, 3e5, 1.5e5) < 10_000


def test_slots_without_a_point_are_not_read() -> None:
    network = get_model("pointpillars.pfn", {}).network
    assert network is not None
    (op,) = (one for one in operators(fuse_network(network()), "fp32", 6000) if kernel_times.family(one) == "pillars")
    moved = kernel_times.work_of(op)[1]
    assert op.write_bytes < moved < (op.write_bytes + op.read_bytes) / 2


def test_kernels_that_no_rates_explain_widen_the_error() -> None:
    noisy = kernels()
    scattered = tuple(
        replace(one, time_ns=one.time_ns * (1.5 if number % 2 else 0.7)) for number, one in enumerate(noisy.kernels)
    )
    assert kernel_times.kernel_time(replace(noisy, kernels=scattered), operator(), 1)[1] > 0.3


def recurrent(
    folder: Path, steps: int, hidden: int, kind: str = "GRU", results: Sequence[str] = ("y",), **more: Any
) -> list[Operator]:
    """Return the operators of a file with a recurrent layer of 32 inputs."""
    from onnx import TensorProto, helper, numpy_helper, save

    directions, rows = (2 if more else 1), {"GRU": 3, "LSTM": 4}[kind] * hidden
    sizes = {"w": (directions, rows, 32), "r": (directions, rows, hidden)}
    constants = [numpy_helper.from_array(np.ones(size, np.float32), name) for name, size in sizes.items()]
    node = helper.make_node(kind, ["x", *sizes], list(results), hidden_size=hidden, **more)
    shapes = {"y": [steps, directions, 1, hidden], "h": [directions, 1, hidden]}
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in results]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, 32])]
    graph = helper.make_graph([node], "net", given, made, constants)
    path = folder / f"{kind}{steps}_{hidden}_{len(results)}_{directions}.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    network = get_model("onnx", {"file": path}).network
    assert network is not None
    return list(operators(fuse_network(network()), "fp32"))


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize("read", [1e-6, 0.02])
def test_recurrent_layers_are_products_in_turns(tmp_path: Path, kind: str, read: float) -> None:
    """Whether arithmetic takes longer or the weights: the price grows with steps and with products."""
    products = [KernelTime("products", 1, ops, 0.0, ops / 50, 0.01 * ops) for ops in (1e6, 3e6, 1e7, 4e7)]
    copies = [KernelTime("copy", 1, 0.0, size, 0.0, read * size) for size in (2.0**18, 2.0**20, 2.0**22)]
    times = KernelTimes("onnxruntime", "1", "2026-01-02", "fp32", (*products, *copies))

    def price(steps: int, hidden: int, **more: Any) -> float:
        layers = recurrent(tmp_path, steps, hidden, kind, **more)
        return float(sum(kernel_times.kernel_time(times, op, 1)[0] for op in layers))

    one = price(50, 64)
    (op,) = recurrent(tmp_path, 50, 64, kind)
    assert one == pytest.approx(50 * max(0.01 * op.flops / 50, read * op.weight_bytes), rel=0.02)
    assert price(100, 64) == pytest.approx(2 * one, rel=0.02)
    assert price(50, 128) == pytest.approx(one * 128 * (128 + 32) / (64 * (64 + 32)), rel=0.02)
    assert price(50, 64, direction="bidirectional") == pytest.approx(2 * one, rel=0.02)
    assert price(50, 64, results=("y", "h")) == pytest.approx(one, rel=0.02), "its second result costs nothing"


def test_recurrent_layers_without_measured_kernels_read_their_weights_in_every_step(tmp_path: Path) -> None:
    orin = get_platform("jetson-agx-orin-64gb")
    cpu, mode = orin.engine("cpu0"), orin.mode("MAXN")

    def roofs(steps: int, hidden: int) -> tuple[float, float]:
        (op,) = recurrent(tmp_path, steps, hidden)
        return roofs_ns(op, cpu, mode.engines["cpu0"], cpu.precisions["fp32"], 1, 1e9)

    assert roofs(100, 64) == pytest.approx([2 * time for time in roofs(50, 64)], rel=0.02)
    (op,) = recurrent(tmp_path, 50, 64)
    assert roofs(50, 64)[1] >= 50 * op.weight_bytes


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


def test_tensors_that_no_cache_holds_take_what_memory_takes_longer() -> None:
    memory = [
        KernelTime("copy", n, 0.0, size, 0.0, size * rate) for n in (1, 4) for size, rate in ((1e5, 0.1), (1e8, 0.3))
    ]
    known = replace(kernels(), kernels=(*kernels().kernels, *memory))
    assert kernel_times.beyond_cache(known, 1e5, 0.0, 1) == 0
    assert kernel_times.beyond_cache(known, 1e8, 0.0, 1) == pytest.approx(1e8 * 0.2)
    assert 0 < kernel_times.beyond_cache(known, 1e6, 0.0, 1) < 1e6 * 0.2


def test_an_operator_that_another_kernel_computes_along_costs_its_other_operand() -> None:
    tensor = TensorType((1, 64, 28, 28), "fp32")
    residual = Operator("a", "add", "fp32", (tensor, tensor), (tensor,), 50_000, 400_000, 200_000, attrs={"merged": 1})
    activation = replace(residual, kind="relu", inputs=(tensor,))
    assert kernel_times.kernel_time(kernels(), activation, 1)[0] == 0
    alone = kernel_times.kernel_time(kernels(), replace(residual, attrs={}), 1)[0]
    assert 0 < kernel_times.kernel_time(kernels(), residual, 1)[0] < alone


@pytest.mark.parametrize(
    ("attrs", "size", "family"),
    [
        ({"kernel_h": 3, "kernel_w": 3}, 28, "3x3 in tiles of 4"),
        ({"kernel_h": 3, "kernel_w": 3}, 14, "3x3 in tiles of 2"),
        ({"kernel_h": 3, "kernel_w": 3}, 7, "conv"),
        ({"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2}, 28, "conv"),
        ({"kernel_h": 3, "kernel_w": 3, "in_channels": 3}, 28, "camera"),
        ({"groups": 64, "in_channels": 64, "kernel_h": 3, "kernel_w": 3}, 28, "depthwise"),
        ({}, 28, "pointwise"),
        ({}, 1, "pixel"),
    ],
)
def test_convolutions_belong_to_the_family_of_the_kernel_that_computes_them(
    attrs: dict[str, float], size: int, family: str
) -> None:
    one = operator()
    shape = TensorType((1, 64, size, size), "fp32")
    made = replace(one, outputs=(shape,), attrs={**one.attrs, "in_channels": 64, **attrs})
    assert kernel_times.family(made) == family


def test_conversions_belong_to_the_family_of_kernels_that_walk_memory_as_they_do() -> None:
    shapes = (1, 64, 56, 56), (1, 64, 28, 28), (1, 64, 32, 32), (1, 3, 32, 32), (1, 196, 64)
    found = {form: [kernel_times.form_of(form, shape, 16) for shape in shapes] for form in ("pack", "unpack")}
    assert found["pack"] == ["pack", "pack", "pack of pages", "pack", "pack"]
    assert found["unpack"] == ["unpack", "unpack of short rows", "unpack", "unpack", "unpack"]


@pytest.mark.parametrize(("whole", "family"), [("other_conv", "conv"), ("einsum", "products")])
def test_what_only_a_runtime_computes_takes_the_time_of_its_arithmetic(whole: str, family: str) -> None:
    """Element-wise kernels are told by their bytes alone: a 3-D convolution priced by them was free."""
    bytewise = [KernelTime(kernel_times.ELEMENTWISE, 1, size / 8, size, 0.0, 0.05 * size) for size in (1e5, 1e6, 3e6)]
    products = [KernelTime(family, 1, ops, 1e5, 1e4, 0.01 * ops) for ops in (1e6, 1e7, 5e7, 2e8)]
    times = KernelTimes("onnxruntime", "1", "2026-01-02", "fp32", (*bytewise, *products))
    tensor = TensorType((1, 64, 8, 56, 56), "fp32")
    op = Operator("c", "onnx", "fp32", (tensor,), (tensor,), 10**9, 10**6, 10**6, 10**5, whole=whole)
    time, error = kernel_times.kernel_time(times, op, 1)
    assert time == pytest.approx(1e7, rel=0.02)
    assert error >= kernel_times.UNKINDRED
    little = replace(op, flops=10**6)
    assert kernel_times.kernel_time(times, little, 1)[0] < time / 10


@pytest.mark.parametrize(
    ("sizes", "read"),
    [
        ((64, 64, 4, 16), (16, 1)),  # a group fills a block
        ((96, 96, 4, 16), (48, 2)),  # two do together
        ((32, 64, 32, 16), (16, 16)),  # depthwise, with a multiplier
        ((60, 60, 5, 16), (60, 0)),  # four would, and five are there
    ],
)
def test_groups_are_priced_with_the_zeros_that_their_kernel_computes(
    sizes: tuple[int, int, int, int], read: tuple[int, int]
) -> None:
    inputs, outputs, groups, block = sizes
    assert channels_read(*sizes) == read
    image = TensorType((1, outputs, 28, 28), "fp32")
    attrs = {"in_channels": inputs, "groups": groups, "kernel_h": 3, "kernel_w": 3}
    grouped = replace(operator(**attrs), outputs=(image,))
    assert kernel_times.work_of(grouped, block)[0] == pytest.approx(grouped.flops * read[0] * groups / inputs)


def lying(threads: int, moved: float, time_ns: float, handover: float) -> KernelTime:
    return KernelTime("conv", threads, 1e6, moved, 0.0, time_ns, handover=handover)


def test_kernels_of_processors_that_lie_otherwise_are_completed_and_kept_apart() -> None:
    near = [lying(2, 1e5, 500.0, 400.0), lying(2, 2e5, 1000.0, 420.0)]
    far = [lying(2, 1e5, 2000.0, 1200.0)]  # the processors changed places before the second one was timed
    table = KernelTimes("tvm", "a", "2026-01-02", "fp32", (lying(1, 1e5, 900.0, 0.0), *near, *far))
    for order in (table, replace(table, kernels=table.kernels[::-1])):
        found = order.expected()
        times = {(one.threads, one.moved): one.time_ns for one in found.kernels}
        assert times == {(1, 1e5): 900.0, (2, 1e5): 500.0, (2, 2e5): 1000.0}
        assert {one.moved: one.time_ns for one in found.elsewhere} == {1e5: 2000.0, 2e5: 4000.0}  # four times as long
    one_way = replace(table, kernels=table.kernels[:3])
    assert one_way.expected() == one_way


def test_processors_that_shared_a_core_for_a_while_are_not_the_nearer_way() -> None:
    both = [lying(2, 1e5, 500.0, 350.0), lying(2, 2e5, 1000.0, 350.0), lying(2, 1e5, 700.0, 1200.0)]
    shared = [lying(2, 1e5, 900.0, 60.0), lying(2, 2e5, 1800.0, 60.0)]  # begin at once, and take as long as one
    alone = lying(1, 1e5, 900.0, 0.0)
    table = KernelTimes("tvm", "a", "2026-01-02", "fp32", (alone, *shared, *both))
    assert table.expected() == replace(table, kernels=(alone, *both)).expected()
    always = replace(table, kernels=(alone, *shared))
    assert always.expected() == always


def test_arithmetic_takes_as_long_however_processors_lie() -> None:
    """What is longer in small kernels, which hand over most of their bytes, says nothing of a large one."""
    work = [(1e6, 1e5), (3e6, 2e5), (8e6, 4e5), (2e7, 8e5)]
    rows = [KernelTime("conv", 1, ops, moved, 0.0, ops / 100) for ops, moved in work]
    near = [KernelTime("conv", 2, ops, moved, 0.0, ops / 200, handover=400.0) for ops, moved in work]
    far = [replace(one, time_ns=one.time_ns + one.moved / 20, handover=1200.0) for one in near]
    table = KernelTimes("tvm", "a", "2026-01-02", "fp32", (*rows, *near, *far)).expected()
    ways = kernel_times.rates_of(table, "conv", 2), kernel_times.rates_of(replace(table, apart=True), "conv", 2)
    nearer, farther = (one.time(1e9, 1e6, 0.0) for one in ways)
    assert nearer == pytest.approx(5e6, rel=0.01)
    assert farther - nearer == pytest.approx(5e4, rel=0.05)


def test_the_interval_of_several_threads_holds_processors_that_lie_either_way() -> None:
    near = kernels()
    near = replace(near, kernels=tuple(replace(one, handover=400.0 * (one.threads > 1)) for one in near.kernels))
    slow = [
        replace(one, time_ns=one.time_ns + 20_000 + 0.1 * one.moved, handover=1200.0)
        for one in near.kernels
        if one.threads > 1
    ]
    both = replace(near, kernels=(*near.kernels, *slow))
    far = replace(near, kernels=(*(one for one in near.kernels if one.threads == 1), *slow))
    work = StageWork("s", "fp32", (operator(),), (), ())
    estimates = [kernel_times.estimate(work, engine(table.expected()), 4) for table in (near, both, far)]
    low, middle, high = (one.time_ns for one in estimates if one)
    assert middle == low  # whatever a probe has seen besides
    assert high > 1.1 * middle
    assert estimates[1] is not None
    assert middle * (1 + estimates[1].error) > high
    alone = kernel_times.estimate(work, engine(both.expected()), 1)
    assert alone is not None
    assert alone.error < 0.5


def test_the_arithmetic_of_a_costly_function_is_counted_in_the_kernel_that_computes_it_along() -> None:
    rates = (("elementwise", 0.02), ("erf", 0.06))
    rows = [KernelTime(name, 1, n / 8, n, 0.0, rate * n) for name, rate in rates for n in (1e5, 4e5, 1e6)]
    table = KernelTimes(OWN, "1", "2026-01-02", "fp32", tuple(rows))
    tensor = TensorType((1, 64, 28, 28), "fp32")
    along = Operator("e", "erf", "fp32", (tensor,), (tensor,), 50_176, 200_704, 200_704, 0, {"merged": 1})
    assert kernel_times.kernel_time(table, along, 1)[0] == pytest.approx(0.04 * 401_408, rel=0.05)
