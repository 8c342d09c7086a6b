"""Worked examples of costs: bandwidth shares, stretching, rooflines, trust, anchors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.cost.contention import demand, fair_shares, stretch, worst_share
from socsched.cost.cost import Segment, trust
from socsched.cost.model import CostModel
from socsched.cost.roofline import estimate
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Anchor
from socsched.descriptor.platform import Figure
from socsched.graph.operators import Operator, StageWork, TensorType

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
    worst = worst_share(own, others, capacity)
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
    from socsched.models.work import stage_work

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
    from socsched.models.work import stage_work

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
    from socsched.models.work import stage_work

    pipeline, before = get_pipeline("perception-stack"), CostModel(ORIN, MAXN, stage_work)
    for stage in pipeline.stages:
        before.candidates(stage)
    for mode in ORIN.modes:
        after, alone = before.in_mode(mode), CostModel(ORIN, mode, stage_work)
        for stage in pipeline.stages:
            assert after.candidates(stage) == alone.candidates(stage)
            assert after.refused(stage) == alone.refused(stage)
