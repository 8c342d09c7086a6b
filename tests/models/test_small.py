"""PointPillars-S: the shipped files agree, objects are detected, and the figures are those stated in the pipeline."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import numpy as np
import pytest
import reference_pointpillars

from socsched.compiler.quantize.scales import read_pipeline_scales
from socsched.descriptor.catalog import get_pipeline
from socsched.models.pointpillars import small
from socsched.models.registry import get_model
from socsched.models.weights import load_weights
from socsched.planning.candidate import losses

CHECKOUT = Path(__file__).parents[2]
CLASSES = ("Car", "Cyclist", "Pedestrian")


def test_the_shipped_weights_fit_and_are_small() -> None:
    networks = small.networks()
    shapes = {name: shape for network in networks for name, shape in network.params.items()}
    assert sum(map(prod, shapes.values())) <= 600_000
    assert small.FILE.stat().st_size <= 1.2 * 2**20
    with np.load(small.FILE) as archive:
        assert {archive[name].dtype for name in archive.files} == {np.dtype(np.float16)}
        assert set(archive.files) == set(shapes)
    assert load_weights(small.FILE, networks).keys() == small.load_trained_weights().keys()
    assert set(read_pipeline_scales(Path(small.SCALES))) == {"backbone", "head"}


def test_stages_list_their_included_files() -> None:
    assert all(get_model(f"pointpillars-s.{name}").ready for name in ("pfn", "scatter", "backbone", "head"))
    assert get_model("pointpillars.scatter").ready and not get_model("pointpillars.backbone").ready


@pytest.fixture(scope="module")
def figures() -> dict:
    return json.loads((CHECKOUT / "tests/data/pointpillars-s.json").read_text())


def mean(result: dict) -> float:
    return sum(result[kind]["3d"]["moderate"] for kind in CLASSES) / len(CLASSES)


def test_the_pipeline_counts_with_the_measured_losses(figures: dict) -> None:
    pipeline, results = get_pipeline("pointpillars-s"), figures["synthetic"]["results"]
    for stage in ("backbone", "head"):
        loss = mean(results["x86 fp32"]) - mean(results[f"x86 int8, {stage} only"])
        assert pipeline.stage(stage).losses["int8"] == pytest.approx(1000 * max(loss, 0), abs=6)
    assert mean(results["x86 fp32"]) - mean(results["x86 fp16"]) < 0.05  # none worth listing
    chosen = [(pipeline.stage("backbone"), "int8"), (pipeline.stage("head"), "fp32")]
    assert dict(losses(pipeline, chosen)) == {"backbone": pipeline.stage("backbone").losses["int8"]}


def test_the_model_card_agrees_with_the_figures(figures: dict) -> None:
    card = (CHECKOUT / "docs/models/pointpillars-s.md").read_text()
    for name, result in figures["synthetic"]["results"].items():
        for kind in CLASSES:
            assert f"| {name} | {kind} | " + " | ".join(f"{v:.2f}" for v in result[kind]["bev"].values()) in card
    for kind, least in (("Car", 85), ("Pedestrian", 65), ("Cyclist", 65)):
        assert figures["synthetic"]["results"]["x86 fp32"][kind]["bev"]["moderate"] >= least


@pytest.mark.slow
def test_a_budget_keeps_the_backbone_out_of_int8() -> None:
    from dataclasses import replace

    from socsched.descriptor.catalog import get_platform
    from socsched.models.work import stage_work
    from socsched.planning.search import make_plan

    pipeline, platform = get_pipeline("pointpillars-s"), get_platform("qcs8550")
    free, bound = (
        make_plan(one, platform, work=stage_work) for one in (pipeline, replace(pipeline, accuracy_budget=1000))
    )
    chosen, kept = ({task.name: task.precision for task in plan.tasks} for plan in (free, bound))
    assert chosen["backbone"] == "int8" and kept["backbone"] != "int8"


def test_the_oracle_of_the_scans_belongs_to_the_shipped_weights() -> None:
    oracle = json.loads((CHECKOUT / "tests" / "data" / "scan" / "oracle.json").read_text())
    with np.load(small.FILE) as archive:
        found = reference_pointpillars.statistics(np.concatenate([archive[name].ravel() for name in archive.files]))
    assert found.pop("shape") == oracle["weights"].pop("shape")
    assert found == pytest.approx(oracle["weights"], rel=1e-8), (
        "new weights: python -m tools.generate.scan_oracle --write"
    )
