"""Measured schedules of the HaX-CoNN artefact, predicted from single-network figures alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from socsched.plan.mapping.search import solve

pytest.importorskip("ortools", reason="the exact solver needs OR-Tools")


@pytest.fixture(scope="module")
def haxconn() -> ModuleType:
    file = Path(__file__).resolve().parents[2] / "tools" / "haxconn.py"
    spec = importlib.util.spec_from_file_location("haxconn", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["haxconn"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def artefact(haxconn: ModuleType) -> object:
    path = haxconn.folder()
    if path is None:
        pytest.skip("reference data haxconn/ not found (set SOCSCHED_SHARED to the folder that has data/)")
    return haxconn.Artefact(path)


@pytest.mark.parametrize("index", [0, 1])
def test_own_plan_is_predicted_no_slower_than_the_best_measured_schedule(artefact: object, index: int) -> None:
    experiment = artefact.experiments[index]  # type: ignore[attr-defined]
    predicted = [artefact.predicted(experiment, row) for row in experiment["rows"]]  # type: ignore[attr-defined]
    problem = artefact.problem(artefact.networks(experiment))  # type: ignore[attr-defined]
    found = solve(problem, time_limit=60)
    assert found.status == "optimal"
    assert found.evaluation.makespan_ns / 1e6 <= min(predicted)


@pytest.mark.parametrize("index", [0, 1])
def test_the_fastest_measured_schedule_is_predicted_fastest(artefact: object, index: int) -> None:
    experiment = artefact.experiments[index]  # type: ignore[attr-defined]
    rows = experiment["rows"]
    predicted = {row["label"]: artefact.predicted(experiment, row) for row in rows}  # type: ignore[attr-defined]
    assert min(predicted, key=predicted.__getitem__) == min(rows, key=lambda row: row["latency_ms"])["label"]


def test_co_run_latencies_of_measured_networks_are_within_a_tenth(artefact: object) -> None:
    """Experiment 1: GoogleNet's groups are measured, ResNet-101's fitted to them; rows of one clean run each."""
    experiment = artefact.experiments[0]  # type: ignore[attr-defined]
    for row in experiment["rows"]:
        if row["aggregate"] == "max":
            predicted = artefact.predicted(experiment, row)  # type: ignore[attr-defined]
            assert predicted == pytest.approx(row["latency_ms"], rel=0.1), row["label"]


def test_a_network_fitted_to_another_takes_what_its_makers_say(artefact: object) -> None:
    """ResNet-101 alone on the GPU: the artefact's authors typed in 5.45 ms."""
    parts = artefact.resnet101()  # type: ignore[attr-defined]
    assert sum(part.gpu_ms for part in parts) == pytest.approx(5.45, rel=0.15)
