"""Sources of costs: precedence, parts of a network, and rejected sources.

Known times on other hardware: how they are scaled, and which of several is used.

Measured job times are kept in a profile, and plans made with it draw from them in simulation.

Cycles of a vendor's compiler as a cost: below published, above derived, never in place of a fit or a measurement.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched import plugins
from socsched.api.planning import pin_stages
from socsched.cost import profile as measured
from socsched.cost.conversion import visible_ns
from socsched.cost.cost import Cost
from socsched.cost.model import CostModel, beside_measured
from socsched.cost.profile import MeasuredCost, Profile, load_profile, save_profile
from socsched.cost.roofs import accelerator_int8_peak, peak, peaks
from socsched.cost.sources import (
    GROUP,
    TRANSFER_ERROR,
    Configuration,
    CostRequest,
    CostSource,
    Known,
    cost_sources,
    find_anchor,
)
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.fields import PROVENANCE
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.pipeline import Anchor, Stage
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.descriptor.platform import (
    ONNXRUNTIME,
    OWN,
    Coherency,
    Engine,
    EngineMode,
    Figure,
    Platform,
    PowerMode,
    Runtime,
)
from socsched.errors import DescriptorError, UsageError
from socsched.graph.counting import operators
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.network import Layer, Network
from socsched.graph.operators import StageWork, TensorType, tensor_bytes
from socsched.graph.partition import prefixes
from socsched.models.parts import cut_pipeline, parts_of
from socsched.models.registry import get_model
from socsched.models.work import stage_work
from socsched.planning.search import make_plan
from socsched.runtime.profile import QUANTILES, quantiles
from socsched.sim.simulate import run
from socsched.trace.metrics import result

ORIN = get_platform("jetson-agx-orin-64gb")
MAXN = ORIN.mode("MAXN")
EARLY = CostSource("early", 0, lambda request: None)
LATE = CostSource("late", 3, lambda request: None)


def source(name: str, rank: float, answer: Known | None) -> CostSource:
    return CostSource(name, rank, lambda request: answer if request.stage.name == "backbone" else None)


def backbone(*more: CostSource) -> Cost:
    """Return the cost of PointPillars' backbone on Orin's GPU, which only the roofline knows, with sources added."""
    sources = tuple(sorted((*cost_sources(), *more), key=lambda one: one.rank))
    model = CostModel(ORIN, MAXN, stage_work, sources=sources)
    found = model.at(get_pipeline("pointpillars").stage("backbone"), "gpu", "fp16", MAXN.engines["gpu"].units)
    assert found is not None
    return found


def test_the_source_with_the_least_rank_that_knows_a_time_decides() -> None:
    plain = backbone()
    time = Known(plain.time_ns * 2, "published", "a table", 0.1)
    assert backbone(source("silent", 1, None)) == plain
    first = backbone(source("silent", 1, None), source("table", 5, time))
    assert (first.time_ns, first.provenance, first.source, first.error) == (
        plain.time_ns * 2,
        "published",
        "a table",
        0.1,
    )
    assert [segment.name for segment in first.segments] == [segment.name for segment in plain.segments]
    assert backbone(source("table", 25, time)) == plain, "the roofline knows one before"


def test_a_time_from_other_hardware_yields_to_a_later_answer_that_is_more_certain() -> None:
    there = Known(1_000_000, "derived", "elsewhere", 0.5, exact=False, foreign=True)
    here = Known(2_000_000, "derived", "here", 0.01)
    assert backbone(source("there", 1, there), source("here", 2, here)).source == "here"
    vague = replace(here, error=0.6)
    assert backbone(source("there", 1, replace(there, error=0.001)), source("here", 2, vague)).source == "elsewhere"


def test_a_part_of_a_network_gets_its_share_of_a_time_that_an_installed_source_knows() -> None:
    stage, units = get_pipeline("pointpillars").stage("backbone"), MAXN.engines["gpu"].units
    table = source("table", 5, Known(10_000_000, "measured", "a table", 0.1))
    model = CostModel(ORIN, MAXN, stage_work, sources=(*cost_sources()[:1], table, *cost_sources()[1:]))
    factory = get_model(stage.model or "", stage.params).network
    assert factory is not None
    network = factory()
    types = layer_types(network)
    pieces = parts_of(stage.name, network, [list(prefixes(network, types))[5].after], types)
    cut = cut_pipeline(get_pipeline("pointpillars"), {stage.name: pieces})
    times = []
    for piece in pieces:
        found = model.at(cut.stage(piece.name), "gpu", "fp16", units)
        assert found is not None and found.source == "a table" and found.provenance == "derived"
        times.append(found.time_ns)
    assert len(times) == 2 and sum(times) == pytest.approx(10_000_000, rel=0.05)


def test_the_profile_is_asked_first_and_no_installed_source_precedes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in cost_sources()] == ["profile", "anchors", "vendor-model", "roofline"]
    group = dict(plugins.entries(GROUP))
    monkeypatch.setattr(plugins, "entries", lambda _: group)
    group["late"] = EntryPoint("late", f"{__name__}:LATE", GROUP)
    assert [one.name for one in cost_sources()] == ["profile", "late", "anchors", "vendor-model", "roofline"]
    group["early"] = EntryPoint("early", f"{__name__}:EARLY", GROUP)
    with pytest.raises(UsageError, match="'early' precedes the measured profile"):
        cost_sources()


def test_a_source_states_its_provenance_in_known_words() -> None:
    with pytest.raises(UsageError, match="'guessed'"):
        Known(1, "guessed", "a table", 0.1)


def slower(name: str = "board", performance: float | None = 1000.0, bandwidth: float = 10e9) -> Platform:
    """A platform like Orin in MAXN, with one CPU cluster at half the clock and figures of its own."""
    cpu = replace(
        ORIN.engine("cpu0"),
        id="cpu",
        clock_hz=Figure(1e9, "derived", note="x"),
        bandwidth=Figure(bandwidth, "derived", note="x"),
        performance=Figure(performance, "derived", note="x") if performance else None,
    )
    mode = replace(MAXN, name="on", default=True, engines={"cpu": EngineMode(4, 10**9, cpu.dynamic_mw)})
    return replace(ORIN, name=name, engines=(cpu,), modes=(mode,))


FAST = slower("fast", 4000.0, 40e9)


def reference(name: str) -> Platform | None:
    return FAST if name == "fast" else None


def find(platform: Platform, *anchors: Anchor, units: int = 1, clock: int = 10**9) -> Known | None:
    engine = platform.engines[0]
    mode = replace(platform.modes[0], engines={engine.id: EngineMode(4, clock, engine.dynamic_mw)})
    stage = Stage("s", "s", None, costs=anchors)
    return find_anchor(stage, Configuration(platform, engine, mode, "fp32", units, 1), {}, reference)


def anchor(platform: str = "fast", follows: str = "performance", ms: float = 8, kind: str = "measured") -> Anchor:
    return Anchor(platform, "on", "cpu", "fp32", Figure(ms * 1e6, kind, "bench", "n", 0.1), 1, 1.0, follows)


def test_host_code_follows_the_performance_of_a_core() -> None:
    found = find(slower(), anchor())
    assert found and found.time_ns == 8e6 * 4000 / 1000
    assert found.foreign and not found.exact and found.provenance == "derived"
    assert found.error == pytest.approx(0.1 + 2 * TRANSFER_ERROR)
    half = find(slower(), anchor(), clock=5 * 10**8)
    assert half and half.time_ns == 2 * found.time_ns, "performance is that of the highest clock"


def test_memory_bound_code_follows_bandwidth() -> None:
    found = find(slower(), anchor(follows="bandwidth"))
    assert found and found.time_ns == 8e6 * 40 / 10
    compute = find(slower(), anchor(follows="compute"))
    assert compute and compute.time_ns == 8e6, "same units, clock and operations a cycle"
    nothing = find(slower(), anchor(follows="nothing"))
    assert nothing and nothing.time_ns == 8e6


def test_described_hardware_is_preferred_to_undescribed_hardware() -> None:
    found = find(slower(), anchor("some server", ms=1), anchor(ms=8, kind="assumed"))
    assert found and found.time_ns == 8e6 * 4 and found.provenance == "assumed"


def test_the_most_trusted_time_is_used_unchanged_if_nothing_relates_two_cpus() -> None:
    found = find(slower(performance=None), anchor(ms=8, kind="assumed"), anchor("some server", ms=1))
    assert found and found.time_ns == 1e6 and "some server" in found.source


def test_engines_of_another_kind_are_no_guide() -> None:
    gpu = replace(slower().engines[0], kind="gpu")
    assert find(replace(slower(), engines=(gpu,)), anchor()) is None


def test_layouts_take_the_room_they_take() -> None:
    assert tensor_bytes(TensorType((1, 3, 10, 10), "int8", "NCHW")) == 300
    assert tensor_bytes(TensorType((1, 3, 10, 10), "int8", "NCHW32c")) == 3200
    assert tensor_bytes(TensorType((1, 33, 10, 10), "fp16", "NCHW32c")) == 2 * 6400
    assert tensor_bytes(TensorType((1, 3, 10, 10), "int8", "NHWC8h8w32c")) == 16 * 16 * 32


def coherent(engine: Engine, domain: str, flush: float | None = None) -> Engine:
    figure = Figure(flush, "assumed", note="x") if flush else None
    return replace(engine, handoff_ns=Figure(5000, "assumed", note="x"), coherency=Coherency(domain, figure))


def test_handing_over_without_coherency_cleans_caches() -> None:
    here, there = coherent(ORIN.engine("cpu0"), "full"), coherent(ORIN.engine("gpu"), "io")
    assert visible_ns(here, here, 10**6) == 0
    assert visible_ns(here, there, 10**6) == 5000
    deaf = coherent(ORIN.engine("dla0"), "none", 2e9)
    assert visible_ns(here, deaf, 10**6) == visible_ns(deaf, here, 10**6) == 5000 + 500_000


def test_peaks_by_hand() -> None:
    gpu = ORIN.engine("gpu")
    found = peak(gpu, MAXN, "fp16")
    assert found and found.dense == 16 * 1300.5e6 * 2048
    assert peak(gpu, MAXN, "int4") is None
    low = ORIN.mode("MODE_15W")
    assert {item.engine for item in peaks(ORIN, low)} == {"cpu0", "gpu", "dla0", "dla1"}, "powered ones only"
    total = accelerator_int8_peak(ORIN, MAXN)
    assert total.dense == pytest.approx(137.7e12, rel=0.01) and total.sparse == pytest.approx(275e12, rel=0.01)


def test_modes_are_found_by_their_short_names() -> None:
    mode = PowerMode("MODE_50W", (), 3, True, None, MAXN.base_mw, MAXN.dram, {})
    assert all(mode.called(name) for name in ("MODE_50W", "50W", "50w", "mode_50w"))
    assert not mode.called("50") and not mode.called("W")


MS = 1_000_000
TIMES = (2 * MS, 2 * MS, 3 * MS, 9 * MS)


def profile(times: tuple[int, ...] = TIMES) -> Profile:
    costs = (
        MeasuredCost("voxelise", f"cpu{n}", "MAXN", "fp32", 1, times[-1], 0.1, len(times), times[1], times)
        for n in range(3)
    )
    return Profile("jetson-agx-orin-64gb", tuple(costs), "test", "today")


def test_times_survive_the_file_and_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    save_profile(profile(), file)
    assert load_profile(file) == profile()
    document = json.loads(file.read_text())
    for wrong in ([3, 2], [1, "2"], [0, 1], "12"):
        document["costs"][0]["times_ns"] = wrong
        file.write_text(json.dumps(document))
        with pytest.raises(DescriptorError, match=r"costs\[0\]\.times_ns"):
            load_profile(file)
    del document["costs"][0]["times_ns"]
    file.write_text(json.dumps(document))
    assert load_profile(file).costs[0].times_ns == (), "files of before are still read"


@pytest.mark.slow
def test_a_plan_draws_from_what_was_measured(checkout: Path) -> None:
    pipe = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    board = get_platform("jetson-agx-orin-64gb")
    pipe = pin_stages(pipe, board, ("voxelise=cpu0",))
    plain = make_plan(pipe, board, "MAXN", work=stage_work)
    made = make_plan(pipe, board, "MAXN", work=stage_work, profile=profile())
    task = next(t for t in made.tasks if t.name == "voxelise")
    assert all(t.times is None for t in plain.tasks)
    assert task.times is not None
    more = task.times.values_ns[0] - TIMES[0]  # what handing the result over takes
    assert task.times.values_ns == tuple(time + more for time in TIMES) and 0 <= more < MS // 10
    assert task.wcet_ns >= TIMES[-1], "bounds hold for the longest"
    trace = run(made, 60 * 10**9, 1).trace
    assert trace is not None
    found = result(trace, made)["stages"]["voxelise"]["exec_ns"]
    assert 2 * MS <= found["p50"] <= 3.2 * MS < found["max"] <= 9.1 * MS


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=900))
def test_quantiles_are_values_in_order_that_keep_the_middle(values: list[int]) -> None:
    ordered = sorted(values)
    kept = quantiles(ordered)
    assert len(kept) == min(len(ordered), QUANTILES) and list(kept) == sorted(kept) and set(kept) <= set(ordered)
    middle = random.Random(0).choice(range(10, 90))
    below = sum(value <= kept[middle * (len(kept) - 1) // 100] for value in ordered) / len(ordered)
    assert below >= middle / 100 - 1 / len(kept) - 1 / len(ordered)


BOARD = get_platform("rk3588")
STAGE = get_pipeline("pointpillars-s").stage("backbone")
COST = MeasuredCost("backbone", "npu0", "performance", "fp16", 0, 22_000_000, 0.7, kind="vendor model")
PROFILE = Profile("rk3588", (COST,), "rknn-toolkit2 2.5.0")


def asked(profile: Profile | None, mode: int = 0, precision: str = "fp16", platform: str = "rk3588") -> CostRequest:
    engine = BOARD.engine("npu0")
    board = replace(BOARD, name=platform)
    return CostRequest(STAGE, board, engine, board.modes[mode], precision, 1, None, profile, lambda _: None)


def test_it_is_known_in_its_mode_and_scaled_by_the_clock_to_another() -> None:
    known = measured.expected(asked(PROFILE))
    assert known == Known(22_000_000, "vendor model", "cycles expected by rknn-toolkit2 2.5.0", 0.7)
    slower = measured.expected(asked(PROFILE, mode=1))
    clocks = [mode.engines["npu0"].clock_hz for mode in BOARD.modes]
    assert isinstance(slower, Known) and slower.time_ns == round(22e6 * clocks[0] / clocks[1]) and not slower.exact
    assert measured.cost(asked(PROFILE)) is None, "it was not measured"


def test_it_yields_to_a_fit_and_knows_no_other_platform_or_profile() -> None:
    both = Profile("rk3588", (COST, replace(COST, precision="int8")), "tool")
    assert measured.expected(asked(both, precision="int8")) is None, "int8 has a fit"
    assert measured.expected(asked(None)) is None and measured.expected(asked(PROFILE, platform="other")) is None
    assert measured.expected(asked(Profile("rk3588", (replace(COST, kind="measured"),), "tool"))) is None


def test_its_rank_and_kind() -> None:
    order = [source.name for source in cost_sources()]
    assert order.index("anchors") < order.index("vendor-model") < order.index("roofline")
    ranks = [PROVENANCE.index(kind) for kind in ("published", "vendor model", "derived")]
    assert ranks == sorted(ranks)


def test_files_keep_the_kind_and_measured_ones_stay_as_they_were(tmp_path: Path) -> None:
    save_profile(PROFILE, tmp_path / "expected.json")
    assert load_profile(tmp_path / "expected.json") == PROFILE
    save_profile(replace(PROFILE, costs=(replace(COST, kind="measured"),)), tmp_path / "measured.json")
    text = (tmp_path / "measured.json").read_text()
    assert '"kind"' not in text and load_profile(tmp_path / "measured.json").costs[0].kind == "measured"
    (tmp_path / "bad.json").write_text((tmp_path / "expected.json").read_text().replace("vendor model", "guessed"))
    with pytest.raises(Exception, match="kind"):
        load_profile(tmp_path / "bad.json")


def _work(*layers: Layer) -> StageWork:
    params = {"w": (256, 256), "k": (64, 64, 3, 3)}
    inputs = {"x": TensorType((64, 256), "fp32"), "i": TensorType((1, 64, 56, 56), "fp32", "NCHW")}
    net = Network("net", inputs, layers, tuple(layer.name for layer in layers), params)
    return StageWork("net", "fp32", operators(fuse_network(net), "fp32"), (), ())


DENSE = Layer("d", "dense", ("x",), {"weight": "w"})
CONV = Layer("c", "conv2d", ("i",), {"weight": "k"}, {"stride": 1, "padding": 1})


@pytest.mark.parametrize("layers", [(DENSE,), (CONV,), (DENSE, CONV)])
def test_the_ratio_is_that_of_the_classes_weighted_by_time(layers: tuple[Layer, ...]) -> None:
    (engine, *_) = get_platform("host").engines
    ours = engine.precisions["fp32"].efficiency
    shares = {"gemm": ours["gemm"], "winograd": replace(ours["winograd"], value=ours["winograd"].value / 4)}
    runtime = Runtime(ONNXRUNTIME, efficiency={**ours, **shares})
    assert beside_measured(replace(engine, kernel_times=()), runtime, _work(*layers), "fp32", 1) == runtime
    kernels = tuple(
        KernelTime(name, 1, 1.0, 1.0, 1.0, 1000.0) for name in ("dense", "3x3 in tiles of 4", "elementwise")
    )
    measured = replace(engine, kernel_times=(KernelTimes(OWN, "", "", "fp32", kernels),))
    found = beside_measured(measured, runtime, _work(*layers), "fp32", 1).ratio
    assert found is not None
    low, high = (1.0 if DENSE in layers else 4.0), (4.0 if CONV in layers else 1.0)
    assert found.value == pytest.approx(low) if low == high else low < found.value < high
