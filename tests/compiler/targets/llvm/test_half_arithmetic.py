"""Half-precision arithmetic: results of the aarch64 kernels, computed on this machine, and the choice between them.

LLVM carries half precision out on any processor (here a multiplication and an addition with a rounding each, where
Arm's fused multiply-add rounds once), so that accuracy is tested on sizes an emulator would take hours for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import detections
import numpy as np
import pytest
import small_stages
from aarch64_emulator import ORIN_CPU
from aarch64_loops import products
from cpu_networks import CASES, execute, inputs_of
from recorded import Recorded
from winograd_network import network as winograd_network

from socsched.compiler.builder import compile_stage
from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm import half
from socsched.compiler.targets.llvm.half import Layer, Method
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import cpu_flags, half_unit, native_target
from socsched.compiler.targets.llvm.vector import NEON, NEON_HALF, tile
from socsched.cost.power import dram_capacity
from socsched.cost.roofline import efficiency, roofs_ns
from socsched.descriptor.catalog import get_platform, platform_names
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.models.pointpillars.network import backbone_network, head_network
from socsched.models.weights import Weights, draw_weights
from socsched.models.work import stage_work
from tools.bench import mca_aarch64

Array = np.ndarray[Any, Any]
BAR = 1e-2
"""Largest error allowed in fp16, relative to the largest output."""


@pytest.fixture
def computing_host(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have this machine's fp16 code computed in half precision, as on an Arm processor that has it."""
    monkeypatch.setattr("socsched.compiler.targets.llvm.processor.half_unit", lambda spec: NEON_HALF)
    yield


def error(found: Array, expected: Array) -> float:
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(16)
def test_operators_against_fp32(name: str) -> None:
    given = inputs_of(CASES[name])
    (expected,) = execute(CASES[name], given, NEON, poison=False)
    (found,) = execute(CASES[name], given, NEON_HALF, poison=False)
    assert found.dtype == np.float16
    assert error(found, expected) <= BAR


@pytest.mark.parametrize(
    ("channels", "outputs", "size"), [(16, 16, (24, 24)), (48, 24, (21, 26)), (160, 72, (13, 11)), (32, 16, (9, 64))]
)
@pytest.mark.slow
def test_winograd_in_half(channels: int, outputs: int, size: tuple[int, int]) -> None:
    """Partial sums of several lengths, blocks in pairs or not, and images no tile divides."""
    net = winograd_network(channels, outputs, *size)
    given = inputs_of(net)
    lowered = lower(fuse_network(net), draw_weights(net), NEON_HALF)
    assert "conv2d_winograd" in {variable.name_hint for variable in lowered.module.get_global_vars()}
    (expected,) = execute(net, given, NEON, poison=False)
    execute(net, {"x": given["x"] * np.float32(100)}, NEON_HALF, poison=False)  # what it leaves behind must not show
    (found,) = execute(net, given, NEON_HALF, poison=False)
    assert error(found, expected) <= BAR / 3


@pytest.mark.slow
def test_larger_winograd_tiles_are_too_inaccurate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why F(4x4, 3x3) keeps fp32 products: in half precision one layer alone misses what a stage is allowed."""
    net = winograd_network(64, 64, 24, 24)
    given = inputs_of(net)
    (expected,) = execute(net, given, NEON, poison=False)
    errors = {}
    for way in ((2, "float16"), (4, "float32"), (4, "float16")):
        monkeypatch.setattr(half, "WINOGRAD", (way,))
        (found,) = execute(net, given, NEON_HALF, poison=False)
        errors[way] = error(found, expected)
    assert errors[4, "float32"] <= errors[2, "float16"] <= BAR / 3
    assert errors[4, "float16"] > BAR


@pytest.mark.slow
def test_long_sums_need_their_fp32_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round: the same convolution summed in half precision throughout is several times worse."""
    net = winograd_network(512, 16, 5, 5)  # too small for Winograd, 4608 products
    given = inputs_of(net)
    (expected,) = execute(net, given, NEON, poison=False)
    (found,) = execute(net, given, NEON_HALF, poison=False)
    monkeypatch.setattr(half, "TERMS", 1 << 20)
    (worse,) = execute(net, given, NEON_HALF, poison=False)
    assert error(found, expected) <= BAR / 3
    assert error(worse, expected) >= 2 * error(found, expected)


@pytest.mark.parametrize(("count", "terms"), [(1, 8), (8, 8), (72, 8), (9, 3), (11, 8), (100, 16), (7, 100)])
@pytest.mark.parametrize("most", [half.TERMS, 8])
def test_partial_sums_cover_all_products(count: int, terms: int, most: int) -> None:
    runs, each = half.runs(count, terms, most)
    assert runs * each >= count > (runs - 1) * each and each * terms <= max(most, terms)


def test_sums_are_short_where_outputs_are_bounded() -> None:
    def most(name: str) -> int:
        net = CASES[name]
        return half.most(fuse_network(net))

    assert most("tanh") == 8 and most("depthwise") == half.TERMS
    assert most("squeeze and excitation") == half.TERMS, "a gate inside scales errors as it scales values"
    assert most("softmax between convolutions") == half.TERMS, "a convolution follows"


def test_which_convolution_pays() -> None:
    def best(inputs: int, outputs: int, size: int, most: int = half.TERMS, kernel: int = 9) -> Method:
        choices = [Method(0, "float16"), *(Method(m, t) for m, t in half.WINOGRAD)]
        return half.best(choices, Layer(inputs, outputs, kernel, (size, size)), NEON_HALF, most)

    assert best(64, 64, 128) == best(256, 256, 64) == Method(2, "float16")
    assert best(256, 256, 64, most=8) == Method(4, "float32"), "short partial sums cost more than the lanes bring"
    count = half.instructions
    layer = Layer(64, 64, 9, (128, 128))
    direct = count(Method(0, "float16"), layer, NEON_HALF)
    assert direct == pytest.approx(9 / 8 * (1 + 4 / 72)), "one sum of 72 products, then four instructions"
    assert count(Method(2, "float16"), layer, NEON_HALF) < count(Method(4, "float32"), layer, NEON_HALF) < direct
    odd = Layer(64, 64, 9, (9, 9))
    assert count(Method(4, "float32"), odd, NEON_HALF) > 1.5 * count(Method(4, "float32"), layer, NEON_HALF), "waste"


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("width", [3, 8, 31, 248])
def test_tiles_fit_registers(blocks: int, width: int) -> None:
    chosen = tile(NEON_HALF, blocks, width)
    assert blocks % chosen.blocks == 0 and chosen.pixels <= min(8, width)
    assert chosen.pixels * chosen.blocks + chosen.pixels + chosen.blocks <= NEON_HALF.registers


def test_which_processors_compute_in_half_precision() -> None:
    def unit(**target: Any) -> Any:
        return half_unit(resolve({"kind": "llvm", "mtriple": "aarch64-linux-gnu", **target}))

    for mcpu in ("cortex-a55", "cortex-a76", "cortex-a78ae", "carmel", "cortex-x3"):
        assert unit(mcpu=mcpu) is NEON_HALF, mcpu
    for mcpu in ("cortex-a53", "cortex-a73", "generic"):
        assert unit(mcpu=mcpu) is None, mcpu
    assert unit(mattr=["+fullfp16"]) is NEON_HALF
    for target in ({"kind": "llvm", "mcpu": "x86-64-v4"}, {"kind": "simulated"}, {"kind": "opencl"}):
        assert half_unit(resolve(target)) is None, target


def test_an_arm_host_is_probed_for_half_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    for features, added in (("fp asimd asimdhp asimddp", ["+fullfp16"]), ("fp asimd", None)):
        info.write_text(f"processor\t: 0\nFeatures\t: {features}\n")
        found = cpu_flags(str(info))
        monkeypatch.setattr("socsched.compiler.targets.llvm.processor.cpu_flags", lambda found=found: found)
        monkeypatch.setattr("platform.machine", lambda: "aarch64")
        native_target.cache_clear()
        try:
            assert native_target().get("mattr") == added
        finally:
            native_target.cache_clear()


def assembly(network: Network) -> str:
    lowered = lower(fuse_network(network), draw_weights(network), NEON_HALF)
    executable = relax.build(lowered.module, tvm.target.Target(dict(resolve(ORIN_CPU).tvm)))
    return str(executable.mod.imports[0].inspect_source("asm"))


@pytest.mark.parametrize(
    ("network", "kernels"), [(backbone_network(), 10), (head_network(), 1)], ids=["backbone", "head"]
)
@pytest.mark.slow
def test_loops_of_products_are_half_precision(network: Network, kernels: int) -> None:
    """Eight lanes by a lane of a register, nothing converted, nothing on the stack, one scalar load at most."""
    loops = products(assembly(network))
    assert len(loops) >= kernels
    for body in (loop.body for loop in loops):
        added = [line for line in body if "fmla" in line]
        assert all(re.search(r"fmla\s+v\d+\.8h, v\d+\.8h, v\d+\.h\[\d\]", line) for line in added)
        assert not [line for line in body if "fcvt" in line or re.search(r"\b[qv]\d+.*\[sp", line)]
        assert len([line for line in body if re.search(r"ldr\s+h\d", line)]) <= 1
        assert len(added) >= 0.55 * len(body)


@pytest.mark.slow
def test_element_wise_functions_stay_in_half() -> None:
    for name, instruction in (("both sides of a sum", "fadd"), ("maximum", "fcmg"), ("subtract", "fsub")):
        assert re.search(rf"{instruction}\w*\s+v\d+\.8h", assembly(CASES[name])), name


def test_artefact_says_how_it_computes(
    make_engine: Callable[..., Engine], fresh_cache: Path, computing_host: None
) -> None:
    """Tensors pass as fp16; the storage-only code of the same stage takes them as fp32."""
    stage, arrays = small_stages.stage("head"), small_stages.halved(small_stages.inputs("head"))
    artifact = compile_stage(stage, make_engine(precisions=("fp16",)), "fp16")
    assert artifact.computes_half and "half-precision arithmetic" in artifact.notes[0]
    compiled = load(artifact)
    given = [convert(a, small_stages.plain(t, a), t) for a, t in zip(arrays, compiled.inputs, strict=True)]
    found = compiled(*given)
    assert {array.dtype for array in found} == {np.dtype(np.float16)}


@pytest.mark.slow
def test_same_boxes_as_in_fp32(
    recorded: Recorded,
    scans: list[Array],
    weights: Weights,
    make_engine: Callable[..., Engine],
    computing_host: None,
) -> None:
    """Scans through all four stages in half precision."""
    engine = make_engine(precisions=("fp32", "fp16"))
    expected, found = (
        [chain(scan) for scan in scans]
        for chain in (detections.Chain(engine, name, recorded, weights, {}) for name in ("fp32", "fp16"))
    )
    hits, total = detections.recall(expected, found)
    assert total >= 10, "too few boxes to say anything"
    assert hits / total >= 0.99, f"{hits} of {total}"


def test_platforms_declare_what_is_compiled() -> None:
    """The cost model's fp16 rate of a CPU is twice that of fp32 where its code computes in half, and none elsewhere."""
    seen = 0
    for name in platform_names():
        for engine in get_platform(name).engines:
            if engine.kind != "cpu" or not str(engine.target.get("mtriple", "")).startswith("aarch64"):
                continue
            rates = {key: precision.ops_per_cycle.value for key, precision in engine.precisions.items()}
            computes = half_unit(resolve(engine.target)) is not None
            assert rates.get("fp16") == (2 * rates["fp32"] if computes else None), (name, engine.id)
            seen += computes
    assert seen >= 10


def test_cost_follows_the_declared_rate() -> None:
    """A convolution that computes for longer than it moves data: the ratio of the declared rates times efficiencies."""
    platform = get_platform("jetson-agx-orin-64gb")
    engine = next(engine for engine in platform.engines if engine.kind == "cpu")
    mode = platform.modes[0]
    stage = Stage("backbone", "backbone", "pointpillars.backbone")
    times = {}
    for precision in ("fp32", "fp16"):
        work = stage_work(stage, precision)
        conv = max(work.operators, key=lambda op: op.flops)
        state, declared = mode.engines[engine.id], engine.precisions[precision]
        times[precision], moved = roofs_ns(conv, engine, state, declared, 1, dram_capacity(platform, mode))
        assert times[precision] > moved
    declared = {name: p.ops_per_cycle.value * efficiency(p, "conv2d").value for name, p in engine.precisions.items()}
    assert times["fp16"] / times["fp32"] == pytest.approx(declared["fp32"] / declared["fp16"])


@pytest.mark.slow
def test_static_prediction_prefers_what_is_compiled() -> None:
    """LLVM's machine code analyser on the loops: at the rate of the multiply-adds, and faster than fp32's."""
    mca = mca_aarch64.analyser(None, "neoverse-n1")
    if isinstance(mca, str):
        pytest.skip(mca)
    target = tvm.target.Target(ORIN_CPU)
    for shape in (mca_aarch64.SHAPES[0], mca_aarch64.SHAPES[1], mca_aarch64.SHAPES[-1]):
        found = {way: mca_aarch64.predict(shape, *way, target, mca) for way in mca_aarch64.ways(shape)}
        cycles = {method: prediction[-1] for (method, _), prediction in found.items()}
        peak = {method: prediction[-2] for (method, _), prediction in found.items()}
        chosen = mca_aarch64.chosen(shape)
        assert chosen.dtype == "float16" and peak[chosen] >= 0.95
        assert cycles[chosen] < min(cycles[method] for method in cycles if method.dtype == "float32")


def test_the_wrong_processor_model_is_refused() -> None:
    """LLVM times a Cortex-A78 as a Cortex-A57, which would make fp32 appear to take twice its time."""
    found = mca_aarch64.analyser(None, "cortex-a78")
    assert isinstance(found, str) and ("not installed" in found or "no model of its own" in found)
