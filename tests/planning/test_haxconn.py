"""Measured schedules of the HaX-CoNN artefact, predicted from single-network figures alone."""

from __future__ import annotations

import pytest

from socsched_literature.mapping.search import solve
from tools.literature import haxconn
from tools.verify.boards import networks, schedules

pytest.importorskip("ortools", reason="the exact solver needs OR-Tools")


@pytest.fixture(scope="module")
def artefact() -> haxconn.Artefact:
    return haxconn.Artefact(haxconn.FOLDER)


@pytest.mark.parametrize("index", [0, 1])
def test_a_schedule_of_our_own_is_no_slower_than_the_best_measured_one(artefact: haxconn.Artefact, index: int) -> None:
    experiment = artefact.experiments[index]
    found = solve(artefact.problem(artefact.networks(experiment)), time_limit=60)
    assert found.status == "optimal"
    assert found.evaluation.makespan_ns / 1e6 <= min(row["latency_ms"] for row in experiment["rows"])


@pytest.mark.parametrize("index", [0, 1])
def test_schedules_through_the_shipped_board_are_ranked_as_measured_but_for_known_pairs(
    artefact: haxconn.Artefact, index: int
) -> None:
    """Herald was 4.7 and 0.9 % slower than H2H, and is predicted 3.3 and 1.4 % faster."""
    rows = schedules.predict(artefact, artefact.experiments[index], profiled=True)
    assert [pair[:2] for pair in schedules.swapped(rows)] == [("H2H", "Herald")]
    assert schedules.rho(rows) >= 0.8
    errors = [abs(row.error) for row in rows]
    assert sum(errors) / len(errors) <= 0.05
    assert max(errors) <= 0.12


def test_contention_of_the_shipped_board_improves_the_predictions(artefact: haxconn.Artefact) -> None:
    """Against max-min sharing, which slows none of these networks."""
    for experiment in artefact.experiments:
        errors = [
            sum(abs(row.error) for row in schedules.predict(artefact, experiment, True, contention))
            for contention in (True, False)
        ]
        assert errors[0] < 0.85 * errors[1]


@pytest.mark.parametrize("network", ["googlenet", "alexnet", "resnet101"])
def test_the_times_of_parts_add_up(artefact: haxconn.Artefact, network: str) -> None:
    end = networks.built(network).end + 1
    whole = [artefact.measured_ms(network, 0, end, engine) for engine in ("gpu", "dla")]
    for cut in (5, 12, 14):
        halves = [
            artefact.measured_ms(network, 0, cut, engine) + artefact.measured_ms(network, cut, end, engine)
            for engine in ("gpu", "dla")
        ]
        assert halves == pytest.approx(whole)


def test_a_network_fitted_to_another_takes_the_published_time(artefact: haxconn.Artefact) -> None:
    """ResNet-101 alone on the GPU: the artefact's authors typed in 5.45 ms."""
    parts = artefact.resnet101()
    assert sum(part.gpu_ms for part in parts) == pytest.approx(5.45, rel=0.15)
