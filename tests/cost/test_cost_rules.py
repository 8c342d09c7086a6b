"""Worked examples of costs: bandwidth shares, stretching, rooflines, trust, anchors.

Host functions on engines that declare them, on CPU cores, and in steps on fixed-function engines.

Costs by runtime: the first as stated, others by their ratio; the faster one is chosen, measured ones first.

Stages known by their time only: their preemption points, and the engines they are restricted to.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.api.planning import choose_runtimes
from socsched.cli import root
from socsched.compiler.targets.cuda.rules import KINDS, unruled
from socsched.compiler.toolchains.onnx_model import _OPERATORS
from socsched.cost.contention import demand, fair_shares, last_share, stretch
from socsched.cost.conversion import Hop
from socsched.cost.cost import Cost, Segment, joined, trust
from socsched.cost.host_functions import MEASURED, MIPS
from socsched.cost.model import CostModel, offered, ratios_of
from socsched.cost.profile import MeasuredCost, Profile
from socsched.cost.roofline import estimate
from socsched.descriptor.catalog import get_pipeline, get_platform, platform_names
from socsched.descriptor.pipeline import Anchor, Stage
from socsched.descriptor.platform import Figure, Runtime
from socsched.errors import DescriptorError, UsageError
from socsched.graph.expand import fuse_network
from socsched.graph.operators import Operator, StageWork, TensorType
from socsched.models.camera_image import Target, prepare
from socsched.models.registry import get_model
from socsched.models.work import stage_work
from tests.sim.toy_platform import MS, figure, platform

ORIN = get_platform("jetson-agx-orin-64gb")
MAXN = ORIN.mode("MAXN")
demands = st.lists(st.floats(0, 1e12), min_size=1, max_size=8)


@given(demands, st.floats(1, 1e12))
def test_shares_are_max_min_fair(wanted: list[float], capacity: float) -> None:
    shares = fair_shares(wanted, capacity)
    assert sum(shares) <= capacity * (1 + 1e-9)
    assert all(0 <= share <= want for share, want in zip(shares, wanted, strict=True))
    level = max(shares)
    for share, want in zip(shares, wanted, strict=True):
        assert share == want or share >= level * (1 - 1e-9), "only the largest shares are cut"
    assert sum(wanted) > capacity or shares == wanted


@given(st.floats(1, 1e11), st.lists(st.floats(0, 1e11), max_size=5), st.floats(1, 1e11))
def test_the_worst_share_is_never_above_the_share_among_smaller_demands(
    own: float, others: list[float], capacity: float
) -> None:
    worst = last_share(own, sorted(others), capacity)
    smaller = fair_shares([own, *(other / 2 for other in others)], capacity)[0]
    assert worst <= smaller * (1 + 1e-9)


def test_stretching_by_hand() -> None:
    # 100 ns of launch, then 900 ns moving 900 bytes: it draws 1 GB/s
    segment = Segment("copy", 1000, 100, 900)
    assert demand(segment) == 1e9
    assert stretch(segment, 1e9) == 1000
    assert stretch(segment, 0.5e9) == 100 + 1800
    assert stretch(Segment("idle", 1000, 100, 0), 1) == 1000


@given(st.integers(1, 10**9), st.integers(0, 10**6), st.integers(0, 10**9), st.floats(1e3, 1e12), st.floats(1, 4))
def test_less_bandwidth_never_helps(time: int, fixed: int, size: int, share: float, factor: float) -> None:
    segment = Segment("s", time + fixed, fixed, size)
    assert stretch(segment, share) >= stretch(segment, share * factor) >= segment.time_ns


def work(flops: int, size: int, kind: str = "conv2d", dtype: str = "fp16") -> StageWork:
    tensor = TensorType((1, 16, 8, 8), dtype, "NCHW")
    return StageWork("stage", dtype, (Operator("op", kind, dtype, (tensor,), (tensor,), flops, size, 0),), (), ())


def test_roofline_by_hand() -> None:
    gpu, mode = ORIN.engine("gpu"), MAXN.engines["gpu"]
    fixed = gpu.launch_ns.value + gpu.submit_ns.value
    # 16 SM x 1300.5 MHz x 2048 = 42.6 TFLOPS, of which a third is reached
    compute = estimate(work(10**10, 0), gpu, mode, 16, 1e15).time_ns
    assert compute == pytest.approx(1e10 / (16 * 1300.5e6 * 2048 * 0.33) * 1e9 + fixed, abs=2)
    memory = estimate(work(1, 168 * 10**6), gpu, mode, 16, 1e15).time_ns
    assert memory == pytest.approx(1e6 + fixed, abs=2)
    assert estimate(work(1, 168 * 10**6), gpu, mode, 16, 84e9).time_ns == pytest.approx(2e6 + fixed, abs=2)


def test_trust_is_weighed_by_time() -> None:
    sure, guess = Figure(1, "measured", error=0.1), Figure(1, "assumed", error=1.0)
    assert trust([(95.0, (sure,)), (5.0, (guess,))]) == ("derived", pytest.approx(0.145))
    assert trust([(80.0, (sure,)), (20.0, (guess,))]) == ("assumed", pytest.approx(0.28))
    assert trust([]) == ("derived", 0.0)
    many = [(5.0, (guess,))] * 3 + [(5.0, (sure, guess))] + [(5.0, (sure,))] * 16
    assert trust(many)[0] == "assumed", "small parts that rest on guesses count together"
    assert trust(many[2:])[0] == "assumed" and trust(many[3:])[0] == "derived"


def test_an_anchor_is_used_unchanged_and_scaled_by_the_roofline_elsewhere() -> None:
    time = Figure(5_700_000, "assumed", note="an example", error=0.5)
    anchor = Anchor(ORIN.name, "MAXN", "cpu", "fp32", time, units=1)
    stage = replace(get_pipeline("pointpillars").stage("decode"), costs=(anchor,))
    times = {}
    for name in ("MAXN", "15W"):
        costs = CostModel(ORIN, ORIN.mode(name), stage_work).candidates(stage)
        times[name] = next(cost for cost in costs if cost.engine == "cpu0")
    assert times["MAXN"].time_ns == 5_700_000
    ratio = times["15W"].time_ns / times["MAXN"].time_ns
    assert 2201.6 / 1113.6 * 0.95 < ratio < 2201.6 / 1113.6 * 1.05
    assert times["15W"].error > times["MAXN"].error


def test_engines_refuse_what_they_do_not_declare() -> None:
    pipeline = get_pipeline("perception-stack")
    maxn, low = (CostModel(ORIN, ORIN.mode(name), stage_work) for name in ("MAXN", "15W"))
    engines = {
        name: {cost.engine for cost in maxn.candidates(pipeline.stage(name))}
        for name in ("voxelise", "pfn", "scatter", "backbone", "camera-detect")
    }
    assert engines["voxelise"] == {"cpu0", "cpu1", "cpu2", "gpu"}, "CPUs run all functions, the GPU those it declares"
    assert not {"dla0", "dla1"} & (engines["pfn"] | engines["scatter"]), "symbolic shapes and scatters are no DLA work"
    assert {"dla0", "dla1", "gpu"} <= engines["backbone"] & engines["camera-detect"]
    precisions = {(c.engine, c.precision) for c in maxn.candidates(pipeline.stage("backbone"))}
    assert ("dla0", "int8") not in precisions, "not a precision the pipeline allows here"
    assert ("dla0", "fp32") not in precisions
    assert {c.engine for c in low.candidates(pipeline.stage("voxelise"))} == {"cpu0", "gpu"}, (
        "cpu1 and cpu2 are off in 15W"
    )


def test_costs_in_a_mode_do_not_depend_on_the_modes_before_it() -> None:
    pipeline, before = get_pipeline("perception-stack"), CostModel(ORIN, MAXN, stage_work)
    for stage in pipeline.stages:
        before.candidates(stage)
    for mode in ORIN.modes:
        after, alone = before.in_mode(mode), CostModel(ORIN, mode, stage_work)
        for stage in pipeline.stages:
            assert after.candidates(stage) == alone.candidates(stage)
            assert after.refused(stage) == alone.refused(stage)


def costs(mode: str = "MAXN") -> CostModel:
    return CostModel(ORIN, ORIN.mode(mode), stage_work)


def voxelise(points: int, pillars: int = 5455) -> Stage:
    params = {"points": points, "pillars": pillars}
    return Stage(f"voxelise {points}", "", model="pointpillars.voxelise", params=params)


def test_a_declared_function_takes_its_stated_time_at_its_stated_size() -> None:
    cost = costs().at(voxelise(18500), "gpu", "fp32", 16)
    assert cost is not None and cost.time_ns == 180_000 and cost.provenance == "published"
    assert len(cost.segments) == 3 and sum(segment.time_ns for segment in cost.segments) == 180_000


def test_time_grows_with_the_work_and_with_fewer_and_slower_units() -> None:
    model = costs()
    small, large = (model.at(voxelise(points), "gpu", "fp32", 16) for points in (18500, 118500))
    assert small is not None and large is not None
    assert large.time_ns - small.time_ns == pytest.approx(100_000 * 5.1, rel=0.01), "5.1 ns a point"
    assert large.provenance == "derived", "most of it is growth"
    low = costs("15W").at(voxelise(18500), "gpu", "fp32", 6)
    assert low is not None and low.time_ns == pytest.approx(180_000 * 16 * 1300.5 / (6 * 408), rel=0.01)
    assert low.provenance == "derived" and low.error > small.error


def test_cores_scale_the_reference_by_their_score() -> None:
    stage = get_pipeline("pointpillars").stage("decode")
    cost = costs().at(stage, "cpu0", "fp32", 1)
    score = ORIN.engine("cpu0").performance
    assert cost is not None and score is not None
    assert cost.time_ns == pytest.approx(MEASURED["anchor-decode"].time_ns.value * MIPS.value / score.value, rel=0.001)
    assert cost.provenance == "derived" and "7-zip" in cost.source


def test_without_a_score_the_reference_is_assumed() -> None:
    unknown = replace(ORIN, engines=tuple(replace(e, performance=None) for e in ORIN.engines))
    cost = CostModel(unknown, MAXN, stage_work).at(voxelise(20000, 6000), "cpu0", "fp32", 1)
    assert cost is not None and cost.provenance == "assumed"
    assert cost.time_ns == pytest.approx(MEASURED["voxelise"].time_ns.value)


def test_every_function_of_the_built_in_models_has_a_measured_time() -> None:
    names = ("pointpillars.voxelise", "pointpillars.decode", "centerpoint.voxelise", "centerpoint.decode",
             "camera.preprocess", "camera.decode")  # fmt: skip
    devices = {get_model(name).device for name in names}
    assert devices | {"camera-resize", "camera-normalise"} == set(MEASURED)


def test_a_function_reads_the_data_types_it_lists_without_a_conversion() -> None:
    pipeline = get_pipeline("pointpillars")
    head, decode = pipeline.stage("head"), pipeline.stage("decode")

    def crossing(engine: str) -> list[Hop]:
        return costs().hops(head, ("gpu", "fp16"), decode, (engine, "fp32"))

    assert crossing("gpu") and not any(hop.converts for hop in crossing("gpu"))
    assert all(hop.converts for hop in crossing("cpu0"))


def test_fixed_function_engines_resize_but_do_not_normalise() -> None:
    model = costs()
    whole = Stage("whole", "", model="camera.preprocess", precisions=("fp32", "int8"))
    steps = [replace(whole, name=name, params={"steps": name}) for name in ("resize", "normalise")]
    taken = [{cost.engine for cost in model.candidates(stage)} for stage in (whole, *steps)]
    assert [bool({"vic", "pva"} & engines) for engines in taken] == [False, True, False]
    refusal = next(item for item in model.refused(whole) if (item.engine, item.precision) == ("vic", "int8"))
    assert "of functions it runs camera-resize" in str(refusal)


def test_limits_of_a_function_refuse_a_size() -> None:
    narrow = Stage("narrow", "", model="camera.preprocess", params={"steps": "resize", "input_width": 320},
                   precisions=("int8",))  # fmt: skip
    assert {"vic"} == {cost.engine for cost in costs().candidates(narrow)} & {"vic", "pva"}
    refusal = next(item for item in costs().refused(narrow) if item.engine == "pva")
    assert "scale_w is 0.1667, allowed 0.3333 to 8" in str(refusal)


def test_two_steps_compute_what_one_does_but_for_rounding() -> None:
    image = np.random.default_rng(1).integers(0, 256, (108, 192, 3), np.uint8)
    params = {"height": 108, "width": 192, "input_height": 64, "input_width": 96}
    first, second = (get_model("camera.preprocess", {**params, "steps": step}) for step in ("resize", "normalise"))
    assert first.function is not None and second.function is not None
    result = second.function(*first.function(image))[0]
    assert np.abs(result - prepare(image, Target(64, 96))).max() <= 0.51 / (255 * 0.224)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("      voxelise:\n", "      voxelize:\n", "unknown function 'voxelize'"),
        ("work: {anchors: 321408}", "work: {anchor: 321408}", "unknown quantity of work 'anchor'"),
        ("work: {points: 18500, pillars: 5455}", "work: {pillars: 5455}", "expected points under work too"),
        ("work: {points: 18500, pillars: 5455}", "work: {points: 1850000}", "expected at most the time"),
        ("scale_h: [0.3333, 8]", "scale_h: [8, 0.3333]", "expected [smallest, largest]"),
    ],
)
def test_faults_are_reported_where_they_stand(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (Path(__file__).parents[2] / "platforms" / "jetson-agx-orin-64gb.yaml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "board.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(DescriptorError, match=r"board.yaml:[0-9]+:[0-9]+: engines") as caught:
        get_platform(str(path))
    assert message in str(caught.value)


BACKBONE = get_pipeline("perception-stack").stage("backbone")
PFN = get_pipeline("perception-stack").stage("pfn")


def gpu_cost(runtime: str = "", stage: Stage = BACKBONE, profile: Profile | None = None, dtype: str = "fp16") -> Cost:
    board = choose_runtimes(ORIN, [runtime] if runtime else [])
    found = CostModel(board, board.mode("MAXN"), stage_work, profile).at(stage, "gpu", dtype, 16)
    assert found is not None
    return found


def test_the_stated_costs_are_those_of_the_first_runtime_and_our_kernels_cost_their_ratio() -> None:
    chosen, built, own = gpu_cost(), gpu_cost("tensorrt"), gpu_cost("tvm")
    assert chosen == built and (chosen.runtime, own.runtime) == ("tensorrt", "tvm")
    assert own.time_ns / built.time_ns == pytest.approx(1.5, abs=0.01)
    assert (own.provenance, own.error) == ("derived", pytest.approx(built.error + 0.5))
    assert own.source.endswith("times 1.5 for tvm") and own.bytes == built.bytes and own.energy_uj > built.energy_uj


def test_general_schedules_have_a_ratio_of_their_own() -> None:
    built, own = gpu_cost("tensorrt", dtype="fp32"), gpu_cost("tvm", dtype="fp32")
    assert own.time_ns / built.time_ns == pytest.approx(20, rel=0.01)
    xavier = get_platform("jetson-agx-xavier").engine("gpu")
    assert [r.name for r in offered(xavier, stage_work(BACKBONE, "int8"))] == ["tensorrt"], "our int8 needs sm_80"


def test_operators_that_tensorrt_lacks_stay_with_our_kernels_at_their_stated_time() -> None:
    found, bare = gpu_cost(stage=PFN), replace(ORIN.engine("gpu"), runtimes=())
    engines = tuple(bare if e.id == "gpu" else e for e in ORIN.engines)
    before = CostModel(replace(ORIN, engines=engines), ORIN.mode("MAXN"), stage_work).at(PFN, "gpu", "fp16", 16)
    assert found.runtime == "tvm" and found == before, "no measurement of TensorRT covers this class of passes"
    board = choose_runtimes(ORIN, ["tensorrt"])
    model = CostModel(board, board.mode("MAXN"), stage_work)
    assert model.at(PFN, "gpu", "fp16", 16) is None
    assert "no runtime to choose from" in {r.engine: r.reason for r in model.refused(PFN)}["gpu"]


def test_a_faster_runtime_is_chosen_and_the_first_of_equals() -> None:
    def at(ratio: float) -> Cost:
        runtimes = (Runtime("tensorrt"), Runtime("tvm", ratio=Figure(ratio, "derived", note="x", error=0.1)))
        board = replace(ORIN, engines=tuple(replace(e, runtimes=runtimes if e.runtimes else ()) for e in ORIN.engines))
        found = CostModel(board, board.mode("MAXN"), stage_work).at(BACKBONE, "gpu", "fp16", 16)
        assert found is not None
        return found

    assert [at(ratio).runtime for ratio in (0.5, 1.0, 2.0)] == ["tvm", "tensorrt", "tensorrt"]
    assert at(0.5).time_ns == pytest.approx(at(2.0).time_ns / 2, rel=0.01)


def test_a_measured_runtime_precedes_one_that_was_not_measured() -> None:
    def profile(**known: str) -> Profile:
        cost = MeasuredCost("backbone", "gpu", "MAXN", "fp16", 0, 9_000_000, **known)
        return Profile(ORIN.name, (cost,), "tool")

    ours, theirs, imported = (
        gpu_cost(profile=made)
        for made in (profile(), profile(runtime="tensorrt", source="trtexec"), profile(source="somewhere"))
    )
    assert [c.runtime for c in (ours, theirs, imported)] == ["tvm", "tensorrt", "tensorrt"]
    assert {(c.time_ns, c.provenance) for c in (ours, theirs, imported)} == {(9_000_000, "measured")}
    assert gpu_cost("tensorrt", profile=profile()).provenance != "measured", "our measurement says nothing about it"


def test_engines_without_a_choice_name_their_program() -> None:
    model = CostModel(ORIN, ORIN.mode("MAXN"), stage_work)
    voxelise = get_pipeline("perception-stack").stage("voxelise")
    assert {c.engine: c.runtime for c in model.candidates(BACKBONE) if c.engine != "gpu"} == {
        **dict.fromkeys(("cpu0", "cpu1", "cpu2"), "tvm"), **dict.fromkeys(("dla0", "dla1"), "tensorrt"),
    }  # fmt: skip
    assert {c.runtime for c in model.candidates(voxelise)} == {"native"}


@pytest.mark.parametrize("model", ["pointpillars.backbone", "pointpillars.head", "pointpillars.scatter",
                                   "pointpillars.pfn", "camera.detector", "centerpoint.backbone"])  # fmt: skip
def test_the_declared_kernels_are_those_that_the_compiler_has(model: str) -> None:
    stage, tvm = Stage("s", "s", model), ORIN.engine("gpu").runtimes[1]
    made = get_model(model, {}).network
    assert made is not None and set(tvm.kernels) == {*KINDS, "grouped"}
    ruled = not unruled(fuse_network(made()))
    work = stage_work(stage, "fp16")
    segments = [Segment(one.name, 1, 0, 0) for one in work.operators]
    assert ({*ratios_of(tvm, work, segments)} == {tvm.ratio}) == ruled


def test_what_has_no_kernel_of_a_runtime_slows_down_itself_alone() -> None:
    """Unless the times are of more than one operator each: nobody knows then how much of a time is its own."""
    tvm, work = ORIN.engine("gpu").runtimes[1], stage_work(BACKBONE, "fp16")
    first = work.operators[0]
    work = replace(work, operators=(replace(first, kind="topk"), *work.operators[1:]))
    apart = [Segment(one.name, 1, 0, 0) for one in work.operators]
    assert ratios_of(tvm, work, apart) == [tvm.general, *[tvm.ratio] * (len(apart) - 1)]
    assert ratios_of(tvm, work, [Segment("all", 1, 0, 0)]) == [tvm.general]
    assert {*ratios_of(tvm, replace(work, precision="fp32"), apart)} == {tvm.general}


def test_what_tensorrt_is_declared_to_lack_has_no_onnx_form() -> None:
    for name in platform_names():
        for engine in get_platform(name).engines:
            for runtime in engine.runtimes:
                if runtime.name == "tensorrt":
                    assert not set(runtime.without) & set(_OPERATORS)
                    assert {"pillar_features", "scatter"} <= set(runtime.without)


def test_an_unknown_runtime_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="--runtime qnn: jetson-agx-orin-64gb has no such runtime") as error:
        choose_runtimes(ORIN, ["qnn"])
    assert "gpu=tensorrt, gpu=tvm" in str(error.value.hint)
    assert [r.name for r in choose_runtimes(ORIN, ["gpu=tvm"]).engine("gpu").runtimes] == ["tvm"]
    with pytest.raises(UsageError, match="no such runtime"):
        choose_runtimes(get_platform("rk3588"), ["tensorrt"])


@pytest.mark.parametrize(("accelerator", "count"), [("segment", 4), ("full", 1), ("none", 1)])
def test_slices_are_segments_where_an_engine_gives_way_between_them(accelerator: str, count: int) -> None:
    board = platform("full", accelerator)
    anchor = Anchor("toy", "only", "acc", "fp32", figure(3.5 * MS), slice_ns=MS)
    stage = Stage("s", "s", None, ("x",), costs=(anchor,), output_bytes=1_000_003)
    (cost,) = CostModel(board, board.modes[0], lambda *_: None).candidates(stage)
    assert len(cost.segments) == count
    assert sum(part.time_ns for part in cost.segments) == cost.time_ns == round(3.5 * MS)
    assert sum(part.bytes for part in cost.segments) == 1_000_003
    assert count == 1 or max(part.time_ns for part in cost.segments) <= MS
    assert [part.fixed_ns > 0 for part in cost.segments] == [True] + [False] * (count - 1), "launched once"


@given(times=st.lists(st.integers(1, 300), min_size=1, max_size=20), least=st.integers(0, 400))
def test_kernels_are_joined_until_they_take_what_an_engine_states(times: list[int], least: int) -> None:
    parts = joined([Segment(f"k{number}", time, time // 2, 7) for number, time in enumerate(times)], least)
    assert sum(part.time_ns for part in parts) == sum(times) and sum(part.bytes for part in parts) == 7 * len(times)
    assert sum(part.fixed_ns for part in parts) == sum(time // 2 for time in times)
    assert len(parts) == 1 or min(part.time_ns for part in parts) >= least
    assert max(part.time_ns for part in parts) < 2 * least + max(times) + 1, "no longer than it must be"


def test_an_engine_that_states_a_shortest_segment_gives_way_between_such() -> None:
    board = platform("full", "segment")
    engine = board.engine("acc")
    held = replace(engine, preemption=replace(engine.preemption, least_ns=figure(1.4 * MS)))
    anchor = Anchor("toy", "only", "acc", "fp32", figure(3.5 * MS), slice_ns=MS)
    stage = Stage("s", "s", None, ("x",), costs=(anchor,), output_bytes=1_000_003)
    engines = tuple(held if one is engine else one for one in board.engines)
    model = CostModel(replace(board, engines=engines), board.modes[0], lambda *_: None)
    (cost,) = model.candidates(stage)
    assert [part.time_ns for part in cost.segments] == [round(1.75 * MS)] * 2 and cost.time_ns == round(3.5 * MS)


def test_a_stage_is_kept_to_its_engines_by_name_or_kind() -> None:
    board = platform("full", "segment")
    costs = tuple(Anchor("toy", "only", e, "fp32", figure(MS), 1 if e == "cpu" else 0) for e in ("cpu", "acc"))
    model = CostModel(board, board.modes[0], lambda *_: None)
    kept = Stage("kept", "s", None, ("x",), costs=costs, share=1, engines=("acc",))
    assert {cost.engine for cost in model.candidates(kept)} == {"acc"}
    assert [str(refusal) for refusal in model.refused(kept)] == ["cpu fp32: the stage may run on acc only"]


@pytest.mark.parametrize(
    ("pin", "said"), [("missing=gpu", "has no stage 'missing'"), ("backbone=tpu", "has no engine 'tpu'")]
)
def test_pins_name_existing_stages_and_engines(pin: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["plan", "pointpillars", "-p", "jetson-agx-orin-64gb", "--pin", pin]) == 2
    assert said in capsys.readouterr().err
