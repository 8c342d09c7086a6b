"""A pipeline's artefacts in one folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from socsched.compiler.packaging.deploy import BundleRequest, compile_bundle, placement
from socsched.descriptor.operator_rules import OperatorRule, OperatorRules
from socsched.descriptor.pipeline import Pipeline, Sensor, Stage
from socsched.descriptor.platform import Dram, Engine, Figure, FunctionCost, Platform
from socsched.errors import CompileError, UsageError


@pytest.fixture
def pipeline() -> Pipeline:
    stages = (
        Stage("image", "image", "camera.preprocess", after=("camera",)),
        Stage("pfn", "pfn", "pointpillars.pfn", after=("lidar",), precisions=("fp16", "fp32")),
        Stage("head", "head", "pointpillars.head", after=("pfn",), precisions=("int8", "fp16", "fp32")),
        Stage("plan", "plan", None, after=("head",)),
    )
    return Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8), Sensor("camera", "camera", 10**8)), stages, ())


@pytest.fixture
def platform(make_engine: Callable[..., Engine]) -> Platform:
    figure = Figure(1, "assumed")
    rules = OperatorRules(allowed={"conv2d": (OperatorRule("conv2d"),)})
    engines = (make_engine(), make_engine({"kind": "simulated"}, ("fp16", "int8"), rules, "dla"))
    return Platform("board", "board", "", engines, Dram(figure, figure, figure, figure), (), {})


@pytest.mark.slow
def test_every_engine_that_can(pipeline: Pipeline, platform: Platform, tmp_path: Path) -> None:
    notes: list[str] = []
    manifest = compile_bundle(pipeline, platform, BundleRequest(None), tmp_path, note=notes.append)
    found = [(a["stage"], a["engine"], a["precision"]) for a in manifest["artifacts"]]
    assert found == [("pfn", "cpu", "fp32"), ("head", "cpu", "fp32"), ("head", "dla", "int8")]
    assert notes.pop(0) == "dla cannot run pfn: features: operator pillar_features is not supported"
    assert len(notes) == 3 and manifest["host_stages"] == ["image"]
    assert json.loads((tmp_path / "manifest.json").read_text())["artifacts"][0]["weights"] == "seed 0"
    assert all((tmp_path / name).is_file() for a in manifest["artifacts"] for name in a["files"])


def test_a_plan_s_choice_or_a_named_engine(pipeline: Pipeline, platform: Platform, tmp_path: Path) -> None:
    class Task:
        kind, name, engine, precision = "stage", "head", "dla", "fp16"

    by_plan = compile_bundle(pipeline, platform, BundleRequest(placement([Task])), tmp_path / "a")
    assert [(a["stage"], a["engine"]) for a in by_plan["artifacts"]] == [("head", "dla")]
    by_name = compile_bundle(pipeline, platform, BundleRequest("cpu", stage="head"), tmp_path / "b")
    assert [(a["stage"], a["engine"], a["precision"]) for a in by_name["artifacts"]] == [("head", "cpu", "fp32")]


def test_functions_that_a_plan_places_on_an_engine_with_code_for_them(
    make_engine: Callable[..., Engine], platform: Platform, tmp_path: Path
) -> None:
    rules = OperatorRules()
    cost = FunctionCost(Figure(1, "assumed"), {}, dtypes=("fp32", "fp16"))
    gpu = replace(make_engine({"kind": "opencl"}, ("fp16", "fp32"), rules, "gpu"), functions={"voxelise": cost})
    board = replace(platform, engines=(*platform.engines, gpu))
    stages = (
        Stage("voxelise", "voxelise", "pointpillars.voxelise", after=("lidar",)),
        Stage("pfn", "pfn", "pointpillars.pfn", after=("voxelise",), precisions=("fp16", "fp32")),
    )
    made = Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), stages, ())
    placed = {"voxelise": ("gpu", "fp32"), "pfn": ("gpu", "fp16")}
    manifest = compile_bundle(made, board, BundleRequest(placed, stage="voxelise"), tmp_path / "a")
    (voxelise,) = manifest["artifacts"]
    assert (voxelise["engine"], voxelise["outputs"][0]["dtype"]) == ("gpu", "fp16"), "as the pillar net takes them"
    assert (tmp_path / "a" / "voxelise" / "gpu-fp16" / "stage.cl").is_file()
    assert manifest["stages"][0]["sort"] == "function" and manifest["stages"][0]["artifacts"] == [0]
    on_host = compile_bundle(
        made, board, BundleRequest({**placed, "voxelise": ("cpu", "fp32")}, stage="voxelise"), tmp_path / "b"
    )
    assert on_host["artifacts"] == [] and on_host["host_stages"] == ["voxelise"]
    with pytest.raises(CompileError, match="no code of 'voxelise' for that target"):
        compile_bundle(
            made, board, BundleRequest({**placed, "voxelise": ("dla", "fp16")}, stage="voxelise"), tmp_path / "c"
        )


def test_unknown_names(pipeline: Pipeline, platform: Platform, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no stage 'x'"):
        compile_bundle(pipeline, platform, BundleRequest(None, stage="x"), tmp_path)
    with pytest.raises(UsageError, match="has no engine 'npu'"):
        compile_bundle(pipeline, platform, BundleRequest(None, engine="npu"), tmp_path)
