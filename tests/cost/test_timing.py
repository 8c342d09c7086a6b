"""Fitted cost model: the formula by hand, its two forms, modes, shares, parts, provenance and error."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from socsched.cost import fitted as fits
from socsched.cost.cost import weakest
from socsched.cost.fitted import FARTHEST, Nominal, between, distance, estimate, measured, nominal, pass_times
from socsched.cost.fitting.table import from_logs, job_times, slopes, table
from socsched.cost.model import CostModel
from socsched.cost.roofline import estimate as roofline_estimate
from socsched.cost.timing import loads, padded
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.fit import NAMES, PASS_KINDS, Fit, Host, Parameters, choose_fit
from socsched.descriptor.platform import Engine, Platform, PowerMode
from socsched.graph.accelerator_kernels import pass_class, passes, place, restricted
from socsched.graph.expand import fuse_network
from socsched.graph.operators import Pass, StageWork
from socsched.models.registry import get_model
from socsched.models.work import stage_work

P = Parameters(0.5, 0.9, 1.2, 0.4, 0.8, 0.3, 0.01, 5.0, 4.0, 0.7, 0.6, 3.0, 0.4, 0.6, 2.0, 0.5, 1.5, 0.2)
N = Nominal(2e6, 5e4, 3e5, 32, 1.0, 1.25, 80.0, 2.0, 0.8, False, 4, True)
PASSES = (
    Pass("conv", 118_013_952, 150_528, 802_816, 9472, 12544, 3, 64, 1, 7, 2, costly=802_816, live=953_344, name="stem"),
    Pass("conv", 12_845_056, 200_704, 50_176, 4160, 3136, 64, 16, 1, 1, 1, live=250_880, name="reduce"),
    Pass("winograd", 28_901_376, 50_176, 200_704, 9280, 3136, 16, 64, 1, 3, 1, 401_408, live=451_584, name="block"),
    Pass("depthwise", 5_017_600, 200_704, 200_704, 1664, 3136, 1, 1, 64, 5, 1, live=401_408, name="deep"),
    Pass("grouped", 7_225_344, 200_704, 200_704, 2368, 3136, 4, 4, 16, 3, 1, live=401_408, name="grouped"),
    Pass("pool", 0, 200_704, 50_176, 0, 50_176, 1, 1, 1, 3, 2, live=250_880, name="pool"),
    Pass("copy", 0, 50_176, 50_176, 0, 50_176, 1, 1, copies=2, live=250_880, name="concat"),
    Pass("eltwise", 0, 50_176, 50_176, 0, 50_176, 1, 1, cheap=50_176, live=100_352, name="gate"),
    Pass("gemm", 1_024_000, 1024, 1000, 1_025_000, 1, 1024, 1000, live=2024, name="head"),
    Pass("matmul", 6_422_528, 100_352, 38_416, 0, 196, 64, 196, live=138_768, name="scores"),
    Pass("softmax", 0, 38_416, 38_416, 0, 38_416, 1, 1, live=76_832, name="softmax"),
)


def by_hand(one: Pass, n: Nominal, p: Parameters) -> float:
    """The time (us) of a pass, term by term as docs/descriptors.md states it."""
    up = lambda channels: math.ceil(channels / n.block) * n.block  # noqa: E731
    rate = {"pointwise": p.pointwise, "winograd": p.winograd, "grouped": p.grouped, "gemm": p.gemm, "matmul": p.matmul}
    matrix = vector = 0.0
    if one.kind == "depthwise":
        vector = one.macs * up(one.groups) / one.groups * n.taps ** (one.kernel - 3)
    elif one.kind == "grouped":
        matrix = one.macs * n.block / one.cin
    elif one.macs:
        matrix = one.macs * (4 if one.cin <= 4 else up(one.cin)) / one.cin * up(one.cout) / one.cout
    kind = "pointwise" if one.kind == "conv" and one.kernel == 1 else one.kind
    seconds = matrix / (n.peak * p.conv * rate.get(kind, 1.0))
    seconds *= 1 + p.fill * 1000 * n.units / (one.rows * one.cout * one.groups)
    vector += {
        "pool": max(one.written * one.kernel, one.read),
        "eltwise": max(one.cheap, one.written),
        "softmax": p.norm * one.written,
    }.get(one.kind, 0)
    arithmetic = seconds + (vector + p.exp * one.costly) / (n.peak * p.vector)
    arithmetic += p.ride * one.cheap * (one.kind != "eltwise") / (n.peak * p.vector)
    count = one.copies if one.kind == "copy" and n.copies else 0 if one.kind == "copy" else 1
    speed = p.spill if one.live * n.bytes > n.sram else p.onchip
    speed *= p.move if kind in ("transpose", "copy") else 1
    read, written, image = one.read, one.written, 0
    if n.padded and one.macs:
        wide, narrow = one.cin * one.groups, one.cout * one.groups
        read, written = read * up(wide) / wide, written * up(narrow) / narrow
        image = read * (wide <= 4) * (read * n.bytes > n.sram)
    traffic = (read + written) * n.bytes * (count > 0) / (n.dram * speed) + image * n.bytes / (n.dram * p.border)
    traffic += one.weights * n.bytes / (n.dram * p.weights)
    return (arithmetic**4 + traffic**4) ** 0.25 + p.layer * n.launch_us * n.slowdown * count


@pytest.mark.parametrize(
    "engine", [N, replace(N, padded=True), replace(N, block=8, bytes=2.0, copies=False), replace(N, block=1, sram=0.0)]
)
def test_passes_by_hand(engine: Nominal) -> None:
    if engine.block > 1:
        expected = [by_hand(one, engine, P) for one in PASSES]
        assert [time.busy_us + time.fixed_us for time in pass_times(PASSES, engine, P)] == pytest.approx(expected)
    whole = sum(time.busy_us + time.fixed_us for time in pass_times(PASSES, engine, P)) + 1.5 * 80 * 1.25
    assert job_times(table([PASSES, PASSES[:3]], engine), P)[0] == pytest.approx(whole), "arrays say the same"


def test_resident_weights_are_not_read_again() -> None:
    engine = replace(N, resident=True, sram=500_000.0)
    whole = sum(time.busy_us + time.fixed_us for time in pass_times(PASSES, engine, P)) + 1.5 * 80 * 1.25
    assert job_times(table([PASSES], engine), P)[0] == pytest.approx(whole)
    assert whole < job_times(table([PASSES], replace(engine, resident=False)), P)[0]


def test_slopes_are_derivatives() -> None:
    work, step = table([PASSES, PASSES[2:7]], N), 1e-6
    times, found = slopes(work, P)
    assert times == pytest.approx(job_times(work, P))
    for column, name in enumerate(NAMES):
        more = job_times(work, P.changed(**{name: getattr(P, name) * math.exp(step)}))
        assert found[:, column] == pytest.approx((more - times) / step, rel=1e-3, abs=1e-3)
    assert list(from_logs(np.array(P.logs())).logs()) == pytest.approx(P.logs())
    assert all(padded(one, pass_class(one), 32) >= one.macs for one in PASSES)


def test_dataflows_are_loaded_in_parts_where_weights_do_not_fit_or_rows_are_needed_whole() -> None:
    fits = replace(N, resident=True, dataflow=True, sram=1e9)
    large, small = (list(loads(PASSES, replace(fits, sram=sram))) for sram in (1e3, 1e9))
    assert sum(load.weights for load in large) > 0 == sum(load.weights for load in small)
    assert [load.kernels for load in small] == [int(one.kind in ("matmul", "softmax")) for one in PASSES[:6]] + [
        2, 0, 0, 1, 1,
    ]  # fmt: skip


def fitted(platform: Platform, engine: str, precision: str, fit: Fit) -> Platform:
    def changed(one: Engine) -> Engine:
        if one.id != engine:
            return one
        return replace(one, precisions={**one.precisions, precision: replace(one.precisions[precision], fitted=(fit,))})

    return replace(platform, engines=tuple(map(changed, platform.engines)))


FIT = Fit(P, 32, 2000, 80_000, 2.0 * 2**20, "boards", 7, "2026-11-23", 0.18, 0.35, PASS_KINDS)
ORIN = fitted(get_platform("jetson-agx-orin-64gb"), "dla0", "int8", FIT)
ORIN = fitted(ORIN, "gpu", "int8", FIT)
STAGE = get_pipeline("pointpillars").stage("backbone")
WORK = stage_work(STAGE, "int8")


def total_ns(work: StageWork, engine: str, mode: PowerMode) -> int:
    state = mode.engines[engine]
    return estimate(work, ORIN, ORIN.engine(engine), mode, state.units).time_ns


def test_a_network_has_passes_and_host_code_has_none() -> None:
    assert [one.kind for one in WORK.passes].count("winograd") > 10
    assert sum(one.macs for one in WORK.passes) == pytest.approx(WORK.flops / 2)
    pfn, canvas = (stage_work(get_pipeline("pointpillars").stage(name), "fp16") for name in ("pfn", "scatter"))
    assert [one.kind for one in pfn.passes] == ["pillars"] and [one.kind for one in canvas.passes] == ["scatter"]
    assert pfn.passes[0].macs == pytest.approx(pfn.flops / 2)
    assert canvas.passes[0].written == 64 * 496 * 432
    assert not stage_work(get_pipeline("pointpillars").stage("decode"), "fp32").passes


def test_the_fit_comes_before_the_roofline_and_says_so() -> None:
    mode = ORIN.mode("MAXN")
    gpu, dla = ORIN.engine("gpu"), ORIN.engine("dla0")
    found = estimate(WORK, ORIN, gpu, mode, 16)
    assert found.provenance == "fitted" and found.source == "fitted to 7 networks of boards, ± 18%"
    assert found.error == pytest.approx(0.35)
    assert [segment.name for segment in found.segments] == [one.name for one in WORK.passes]
    assert len(estimate(WORK, ORIN, dla, mode, 1).segments) == 1
    cost = CostModel(ORIN, mode, stage_work).at(STAGE, "dla0", "int8", 1)
    assert cost is not None and cost.time_ns == total_ns(WORK, "dla0", mode) and cost.provenance == "fitted"
    plain = replace(WORK, passes=())
    capacity = ORIN.dram.achievable.value
    assert estimate(plain, ORIN, gpu, mode, 16) == roofline_estimate(plain, gpu, mode.engines["gpu"], 16, capacity)


def test_time_is_that_of_the_passes() -> None:
    mode = ORIN.mode("MAXN")
    engine = ORIN.engine("dla0")
    stated = nominal(engine, engine.precisions["int8"], FIT, mode.engines["dla0"], 1, mode.dram.value)
    times = pass_times(WORK.passes, stated, P)
    expected = (sum(time.busy_us + time.fixed_us for time in times) + 1.5 * 80) * 1000
    (segment,) = estimate(WORK, ORIN, engine, mode, 1).segments
    assert segment.time_ns == pytest.approx(expected, abs=3)
    assert segment.bytes <= sum(time.bytes for time in times) + 1
    assert segment.bytes <= (segment.time_ns - segment.fixed_ns) * engine.bandwidth.value / 1e9


def test_unmeasured_classes_widen_the_error() -> None:
    mode, narrow = ORIN.mode("MAXN"), replace(FIT, classes=("pool",))
    board = fitted(ORIN, "dla0", "int8", narrow)
    found = estimate(WORK, board, board.engine("dla0"), mode, 1).error
    assert 0.35 * 3 < found < 1.35**3 - 1, "three times the logarithm, less for the job, which is known"


def test_the_interval_grows_with_the_distance_to_what_was_measured() -> None:
    fit = replace(FIT, doubt={"near": 0.2, "far": 0.6})
    assert fit.width(0.0) == pytest.approx(math.expm1(0.2))
    assert fit.width(0.5) == pytest.approx(math.expm1(0.5))
    assert fit.width(0.0, strange=1.0) == pytest.approx(math.expm1(0.6)), "of classes without a measurement thrice"
    assert FIT.width(0.3) == pytest.approx(FIT.interval), "a fit that knows no distances has one width"


def test_a_measured_network_is_at_no_distance_and_a_family_without_any_far_away() -> None:
    own = place(WORK.passes)
    assert own == WORK.place
    shares = dict(own)
    other = (("size", shares.pop("size")), ("softmax", 1.0))
    assert distance(own, [other, own]) == 0.0
    assert distance(own, [other]) == FARTHEST == distance(own, [])
    assert sum(shares.values()) == pytest.approx(1.0)
    double = place([replace(one, macs=2 * one.macs, read=2 * one.read, written=2 * one.written, weights=2 * one.weights)
                    for one in WORK.passes])  # fmt: skip
    assert 0 < distance(own, [double]) < 0.1, "twice the size is near"
    assert measured("htp") and measured("nvidia-gpu") and not measured("unknown")


def test_what_a_fit_missed_of_a_network_is_missed_of_it_and_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, engine = ORIN.mode("MAXN"), ORIN.engine("gpu")
    plain = total_ns(WORK, "gpu", mode)
    known = {"networks": {"it": WORK.place}, "families": {}, "residuals": {"cnn": {"int8": {"it": 0.1}}}}
    monkeypatch.setattr(fits, "_document", lambda: known)
    fits.correction.cache_clear()
    fit = replace(FIT, family="cnn")
    board = fitted(ORIN, "gpu", "int8", fit)
    found = estimate(WORK, board, board.engine("gpu"), mode, 16)
    fits.correction.cache_clear()
    assert found.time_ns == pytest.approx(plain * math.exp(0.2), rel=1e-4)
    half = replace(WORK, passes=WORK.passes[:3])
    parts = [estimate(half, one, one.engine("gpu"), mode, 16).time_ns for one in (ORIN, board)]
    assert parts[1] == pytest.approx(parts[0] * math.exp(0.2), rel=1e-4), "a part errs as its network"
    assert engine.id == "gpu" and between(WORK.place, WORK.place) == 0.0


@pytest.mark.parametrize("changes", [{"units": 8}, {"networks": 0}])
def test_other_units_or_boards_than_measured_are_derived(changes: dict[str, int]) -> None:
    board = fitted(ORIN, "gpu", "int8", replace(FIT, **changes))  # type: ignore[arg-type]
    found = estimate(WORK, board, board.engine("gpu"), board.mode("MAXN"), 16)
    assert found.provenance == weakest(["fitted", "derived"]) == "derived"


def test_a_lower_mode_is_slower_by_at_most_its_clocks() -> None:
    powered = [mode for mode in ORIN.modes if mode.engines["dla0"].units]
    for slow, fast in itertools.pairwise(sorted(powered, key=lambda mode: mode.engines["dla0"].clock_hz)):
        ratio = fast.engines["dla0"].clock_hz / slow.engines["dla0"].clock_hz
        memory = max(fast.dram.value / slow.dram.value, 1.0)
        least, most = total_ns(WORK, "dla0", fast), total_ns(WORK, "dla0", slow)
        if fast.dram.value >= slow.dram.value:
            assert least <= most + 2
        assert most <= least * max(ratio, memory) + 2


def test_parts_take_the_whole_without_its_job() -> None:
    stage = get_pipeline("pointpillars").stage("backbone")
    made = get_model(stage.model or "", stage.params).network
    assert made is not None
    graph = fuse_network(made())
    names = [group.name for group in graph.groups]
    # What is alive and what has to be copied depends on what runs in one part.
    engine = replace(N, sram=0.0, copies=False)
    whole = pass_times(passes(graph), engine, P)
    for cut in (3, len(names) // 2, len(names) - 2):
        parts = [passes(restricted(graph, set(side))) for side in (names[:cut], names[cut:])]
        kinds = sorted(pass_class(one) for part in parts for one in part)
        assert kinds == sorted(pass_class(one) for one in passes(graph))
        times = [time for part in parts for time in pass_times(part, engine, P)]
        assert sum(t.busy_us + t.fixed_us for t in times) == pytest.approx(sum(t.busy_us + t.fixed_us for t in whole))


ONE = replace(FIT, units=1, runtimes=("ncnn*",), hosts=(Host(("*python*",), 9000, 500_000),))
WIDE = replace(FIT, units=12, runtimes=("TFLite*",), joined=("cpu0", "cpu1", "cpu2"), networks=30)


def test_the_fit_is_that_of_the_program_and_of_the_units() -> None:
    four = replace(ONE, units=4)
    fits = (ONE, four, WIDE)
    assert choose_fit((), 1) is None and choose_fit((WIDE,), 4) is None, "a plan uses one engine"
    assert [choose_fit(fits, units) for units in (1, 2, 3, 4)] == [ONE, ONE, four, four]
    assert choose_fit(fits, 4, "TFLite v2 (ruy)") == WIDE
    assert choose_fit(fits, 4, "unheard of") == four
    hosted = choose_fit(fits, 1, "ncnn in python")
    assert hosted is not None and (hosted.launch_ns, hosted.submit_ns) == (9000, 500_000)
    assert choose_fit((replace(FIT, units=0), ONE), 4) == replace(FIT, units=0)


def test_joined_clusters_work_with_all_their_cores() -> None:
    fp32 = stage_work(STAGE, "fp32")
    board = fitted(get_platform("jetson-agx-orin-64gb"), "cpu0", "fp32", ONE)
    only = replace(board.engine("cpu0").precisions["fp32"], fitted=(ONE, WIDE))
    engines = [replace(e, precisions={**e.precisions, "fp32": only}) if e.id == "cpu0" else e for e in board.engines]
    board = replace(board, engines=tuple(engines))
    cpu = board.engine("cpu0")
    for mode in (board.mode("MAXN"), board.mode("15W")):
        cores = sum(mode.engines[name].units for name in WIDE.joined)
        state = mode.engines["cpu0"]
        stated = nominal(cpu, only, WIDE, state, cores, mode.dram.value)
        expected = sum(t.busy_us + t.fixed_us for t in pass_times(fp32.passes, stated, P))
        expected += P.job * stated.submit_us * stated.slowdown
        found = estimate(fp32, board, cpu, mode, 4, "TFLite v2 (ruy)")
        assert found.time_ns == pytest.approx(expected * 1e3, abs=50)
        assert found.provenance == ("fitted" if cores == 12 else "derived")
