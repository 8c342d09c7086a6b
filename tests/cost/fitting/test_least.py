"""Fits of parameters: what is known is found, slopes are right, and the same data give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from socsched.cost.fitting.families import families, get_family
from socsched.cost.fitting.least import cross_validate, fit, mean_error, predict_left_out
from socsched.cost.timing import NAMES, from_logs, job_times, slopes, table
from tests.cost.fitting.synthetic import ENGINE, TRUE, cell, networks

FAMILY = get_family("rknpu")


def test_slopes_are_finite_differences() -> None:
    work, logs, step = table(networks(6)), np.log([getattr(TRUE, name) for name in NAMES]), 1e-6
    _, found = slopes(work, ENGINE, TRUE)
    for number in range(len(NAMES)):
        shift = step * (np.arange(len(NAMES)) == number)
        up, down = (job_times(work, ENGINE, from_logs(logs + sign * shift)) for sign in (1, -1))
        assert found[:, number] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-3), NAMES[number]


def test_known_parameters_are_recovered_within_the_limits_of_the_prior() -> None:
    known = cell("board", 60)
    fitted = fit([known], FAMILY)
    times = job_times(known.work, ENGINE, fitted.parameters(known))
    assert np.abs(times / known.measured_us - 1).max() < 0.02
    found = fitted.parameters(known)
    for name in NAMES:
        spread = FAMILY.prior[name][1] + FAMILY.own[name]
        assert abs(np.log(getattr(found, name) / getattr(TRUE, name))) < 2 * spread, name
    assert found.conv == pytest.approx(TRUE.conv, rel=0.25)
    assert found.spill == pytest.approx(TRUE.spill, rel=0.25)


def test_networks_that_were_left_out_are_predicted() -> None:
    known = cell("board", 30, noise=0.05)
    errors = cross_validate([known], FAMILY, fit([known], FAMILY))
    assert mean_error([known], errors.fitted) < mean_error([known], errors.network) < 0.12


def test_a_network_left_out_does_not_influence_its_prediction() -> None:
    known = cell("board", 8, noise=0.05)
    wrong = cell("board", 8, noise=0.05)
    wrong.measured_us[3] *= 5
    fitted = fit([known], FAMILY)
    right, other = (
        predict_left_out([one], FAMILY, lambda _, network: network, fitted)["board"] for one in (known, wrong)
    )
    assert other[3] == pytest.approx(right[3], rel=1e-3)
    assert other[0] != pytest.approx(right[0], rel=1e-3)


def test_a_new_board_borrows_from_its_family() -> None:
    boards = [cell("a", 20, 1), cell("b", 20, 2), cell("c", 3, 3)]
    fitted = fit(boards, FAMILY, keep={"a": np.ones(20, bool), "b": np.ones(20, bool), "c": np.zeros(3, bool)})
    alone = from_logs(np.log([FAMILY.prior[name][0] for name in NAMES]))
    new = boards[2]
    off = [
        np.abs(np.log(job_times(new.work, ENGINE, p) / new.measured_us)).mean() for p in (fitted.parameters(new), alone)
    ]
    assert off[0] < off[1] / 2


def test_an_anchor_moves_the_prediction_to_it() -> None:
    slower = TRUE.changed(conv=0.2, spill=0.3)
    family, new = [cell("a", 20, 1), cell("b", 20, 2)], cell("c", 6, 3, slower)
    first = {"a": np.ones(20, bool), "b": np.ones(20, bool), "c": np.arange(6) == 0}
    without = {**first, "c": np.zeros(6, bool)}
    before, after = (
        job_times(new.work, ENGINE, fit([*family, new], FAMILY, keep).parameters(new)) for keep in (without, first)
    )
    off = [np.abs(np.log(times / new.measured_us)) for times in (before, after)]
    assert off[1][0] < 0.5 * off[0][0]
    assert off[1].mean() < off[0].mean()


def test_the_same_data_give_the_same_numbers() -> None:
    one, other = (fit([cell("a", 12, noise=0.1), cell("b", 9, 4, noise=0.1)], FAMILY).solution for _ in range(2))
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", families())
def test_every_prior_has_a_median_a_spread_and_an_argument(name: str) -> None:
    family = get_family(name)
    assert set(family.prior) == set(family.own) == set(family.notes) == set(NAMES)
    assert all(median > 0 and 0 < spread <= 1 for median, spread in family.prior.values())
    assert all(family.notes.values()) and all(one.note for one in family.figures)
    assert family.memory in ("dram", "engine") and set(family.shares) <= {"core", "precision", "threads"}
