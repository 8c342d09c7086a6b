"""Host functions on engines that declare them, on CPU cores, and in steps on fixed-function engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from socsched.cost.conversion import Hop
from socsched.cost.host_functions import MEASURED, MIPS
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import DescriptorError
from socsched.models.camera_image import Target, prepare
from socsched.models.registry import get_model
from socsched.models.work import stage_work

ORIN = get_platform("jetson-agx-orin-64gb")
MAXN = ORIN.mode("MAXN")


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
