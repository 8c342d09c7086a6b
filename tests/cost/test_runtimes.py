"""Costs by runtime: the first as stated, others by their ratio; the faster one is chosen, measured ones first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.api.planning import choose_runtimes
from socsched.compiler.targets.cuda.rules import KINDS, unruled
from socsched.compiler.toolchains.onnx_model import _OPERATORS
from socsched.cost.cost import Cost
from socsched.cost.model import CostModel, offered, ratio_of
from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.catalog import get_pipeline, get_platform, platform_names
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Figure, Runtime
from socsched.errors import UsageError
from socsched.graph.expand import fuse_network
from socsched.models.registry import get_model
from socsched.models.work import stage_work

ORIN = get_platform("jetson-agx-orin-64gb")
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
    assert made is not None and set(tvm.kernels) == set(KINDS)
    ruled = not unruled(fuse_network(made()))
    assert (ratio_of(tvm, stage_work(stage, "fp16")) == tvm.ratio) == ruled


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
        choose_runtimes(get_platform("rk3588"), ["tvm"])
