"""Fits of parameters: what is known is found, slopes are right, and the same data give the same numbers.

Conformal intervals hold the share that they state.

Files of measurements for a fit: wrong rows are refused with their line; patterns over rows.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from socsched.cost import measurements
from socsched.cost.fitting.cells import fastest, pattern, read_pairs
from socsched.cost.fitting.families import families, get_family
from socsched.cost.fitting.least import (
    LEAST,
    LEVEL,
    Cell,
    Score,
    cross_validate,
    doubt,
    fit,
    judged,
    learned,
    mean_error,
    predict_left_out,
    quantile,
    residuals,
    scores_of,
)
from socsched.cost.fitting.table import from_logs, job_times, slopes, table
from socsched.cost.measurements import Row
from socsched.descriptor.fit import NAMES
from socsched.errors import InputError, UsageError
from socsched.graph.accelerator_kernels import place
from tests.cost.fitting.synthetic import ENGINE, TRUE, cell, networks

FAMILY = get_family("rknpu")


def test_slopes_are_finite_differences() -> None:
    work, logs, step = table(networks(6), ENGINE), np.log([getattr(TRUE, name) for name in NAMES]), 1e-6
    _, found = slopes(work, TRUE)
    for number in range(len(NAMES)):
        shift = step * (np.arange(len(NAMES)) == number)
        up, down = (job_times(work, from_logs(logs + sign * shift)) for sign in (1, -1))
        assert found[:, number] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-3), NAMES[number]


def test_known_parameters_are_recovered_within_the_limits_of_the_prior() -> None:
    known = cell("board", 60)
    fitted = fit([known], FAMILY)
    times = job_times(known.work, fitted.parameters(known))
    assert np.abs(times / known.measured_us - 1).max() < 0.04
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
    off = [np.abs(np.log(job_times(new.work, p) / new.measured_us)).mean() for p in (fitted.parameters(new), alone)]
    assert off[0] < off[1] / 2


def test_an_anchor_moves_the_prediction_to_it() -> None:
    slower = TRUE.changed(conv=0.2, spill=0.3)
    family, new = [cell("a", 20, 1), cell("b", 20, 2)], cell("c", 6, 3, slower)
    first = {"a": np.ones(20, bool), "b": np.ones(20, bool), "c": np.arange(6) == 0}
    without = {**first, "c": np.zeros(6, bool)}
    before, after = (
        job_times(new.work, fit([*family, new], FAMILY, keep).parameters(new)) for keep in (without, first)
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
    assert family.memory in ("dram", "engine", "link") and set(family.shares) <= {"core", "precision", "threads"}


@pytest.mark.parametrize("count", [10, 20, 50])
def test_a_new_exchangeable_score_is_inside_as_often_as_the_level_says(count: int) -> None:
    random = np.random.default_rng(count)
    draws = np.abs(random.standard_t(3, (4000, count + 1)))
    inside = [draw[-1] <= quantile(list(draw[:-1])) for draw in draws]
    assert np.mean(inside) >= LEVEL - 0.01


def test_the_quantile_is_the_stated_order_statistic() -> None:
    assert quantile(range(1, 100), 0.9) == 90
    assert quantile([3.0, 1.0], 0.9) == 3.0


def score(network: str, value: float, distance: float = 0.0, cell: str = "board.npu.int8 mode") -> Score:
    return Score(cell, network, value, distance)


def share_inside(scores: list[Score]) -> float:
    held = judged(scores, lambda one: one.network)
    assert len(held) == len(scores)
    return float(np.mean([one.value <= width for one, width in held]))


def test_intervals_from_other_networks_hold_the_stated_share() -> None:
    values = np.abs(np.random.default_rng(0).normal(0, 0.2, 300))
    assert share_inside([score(f"n{n}", float(value)) for n, value in enumerate(values)]) >= LEVEL - 0.04


def test_near_networks_get_narrower_intervals_than_far_ones() -> None:
    random = np.random.default_rng(1)
    scores = [
        score(f"n{n}", abs(random.normal(0, 0.05 + 0.5 * d)), d) for n, d in enumerate(random.uniform(0, 0.5, 400))
    ]
    found = doubt(scores)
    assert found.width(0.5) > 3 * found.width(0.0)
    assert np.mean([one.value <= found.width(one.distance) for one in scores]) == pytest.approx(LEVEL, abs=0.01)
    for near in (True, False):
        part = [one for one in scores if (one.distance < 0.25) == near]
        held = np.mean([one.value <= found.width(one.distance) for one in part])
        assert held == pytest.approx(LEVEL, abs=0.05), "as many of the near as of the far ones"


def test_a_precision_with_many_networks_has_widths_of_its_own() -> None:
    good, bad = ([score(f"n{n}", v, cell=f"b.npu.{p} m") for n in range(40)] for p, v in (("fp16", 0.1), ("int8", 0.4)))
    assert doubt([*good, *bad], "fp16").near == pytest.approx(0.1, rel=0.01)
    assert doubt([*good, *bad], "int8").near == pytest.approx(0.4, rel=0.01)
    assert 0.1 < doubt([*good, *bad], "w8a16").near <= 0.4, "one without takes that of all"


def test_few_networks_give_neither_narrow_nor_absurd_intervals() -> None:
    scores = [score(network, 0.01, cell=f"b.npu.int8 mode {mode}") for mode in range(9) for network in ("a", "b")]
    assert doubt(scores).near == LEAST
    many = [score(f"n{number}", 0.01) for number in range(9)]
    assert doubt(many).near == pytest.approx(0.01, rel=0.01)
    outlier = [*(score(f"n{number}", 0.1) for number in range(12)), score("odd", 3.0)]
    assert doubt(outlier).near < 1.5, "one odd network of thirteen"
    assert doubt(many).width(1.0) > 0.02, "nothing far was measured: not as if it had been near"


def test_distances_are_to_networks_of_other_labels() -> None:
    plain = ({"conv": 1.0, "size": 10.0}, {"conv": 0.5, "gemm": 0.5, "size": 10.0}, {"gemm": 1.0, "size": 20.0})
    places = tuple(tuple(sorted(one.items())) for one in plain)
    known = replace(cell("board", 3), places=places)
    names, times = known.networks, {known.name: known.measured_us * 1.1}
    assert [one.distance for one in scores_of([known], times, str)] == pytest.approx([0.5, 0.5, 0.8])
    labels = dict(zip(names, "aab", strict=True))
    assert [one.distance for one in scores_of([known], times, labels.__getitem__)] == pytest.approx([1.0, 0.8, 0.8])
    assert {one.distance for one in scores_of([known], times, None)} == {0.0}, "networks measured on other boards"


HEAD = "platform,engine,precision,mode,share,network,measured_ms,flag,source"
ROW = "qcs8550,npu,int8,performance,1,resnet50,0.767,,quic/ai-hub-models"


def write(path: Path, *rows: str, head: str = HEAD) -> Path:
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def test_a_row_is_read_without_the_columns_of_a_validation(tmp_path: Path) -> None:
    (pair,) = read_pairs(write(tmp_path / "p.csv", ROW))
    cells = tuple(ROW.split(","))
    source = "quic/ai-hub-models"
    assert pair == Row(
        "qcs8550", "npu", "int8", "performance", 1, "resnet50", 0.767, source=source, line=2, cells=cells
    )
    assert pair.measured_us == pytest.approx(767)
    packed = tmp_path / "p.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "p.csv").read_bytes()))
    assert read_pairs(packed) == [pair]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ROW.replace("0.767", "-1"), "measured_ms"),
        (ROW.replace("0.767", "nan"), "measured_ms"),
        (ROW.replace("0.767", "inf"), "measured_ms"),
        (ROW.replace("0.767", "fast"), "measured_ms"),
        (ROW.replace("resnet50", "../../etc/passwd"), "network"),
        (ROW.replace("resnet50", ""), "network"),
        (ROW.replace(",1,", ",-1,"), "share"),
        (ROW + ",more", "10 cells, the header has 9"),
        ("a,b", "2 cells"),
        (ROW + "x" * 200_000, "CSV"),
        ('"' + ROW, "CSV"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as raised:
        read_pairs(write(tmp_path / "p.csv", ROW, row))
    assert "p.csv" in str(raised.value)
    assert problem == "CSV" or ":3:" in str(raised.value)


def test_files_that_are_no_measurements_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"", b"\xff\xfe\x00", b"\x1f\x8bbroken", HEAD.encode(), b"a,b\n1,2\n", (HEAD + ",mode\n").encode()):
        (tmp_path / "p.csv").write_bytes(content)
        with pytest.raises(InputError, match=r"p\.csv"):
            read_pairs(tmp_path / "p.csv")
    monkeypatch.setattr(measurements, "MOST_ROWS", 2)
    with pytest.raises(InputError, match="more than 2 rows"):
        read_pairs(write(tmp_path / "p.csv", ROW, ROW, ROW))


def test_patterns_need_every_column_and_one_glob_of_each() -> None:
    pair = Row("a", "gpu", "int8", "", 0, "resnet50", 1.0, source="x/y")
    assert pattern("engine=cpu|gpu,source=x/*").holds(pair) and pattern("resnet*").holds(pair)
    assert not pattern("engine=gpu,source=z/*").holds(pair)
    for wrong in ("colour=red", "engine=", ""):
        with pytest.raises(UsageError):
            pattern(wrong)


def test_the_fastest_row_of_a_network_counts() -> None:
    rows = [Row("a", "gpu", "int8", "", 0, name, time) for name, time in (("b", 3.0), ("a", 2.0), ("b", 1.0))]
    assert fastest(rows) == {"a": 2000.0, "b": 1000.0}


def test_networks_measured_on_a_board_improve_what_is_said_of_its_others() -> None:
    cells = [cell("first", 30), cell("second", 30), cell("odd", 30)]
    cells[2] = replace(cells[2], measured_us=cells[2].measured_us * 1.6)
    found = learned(cells, FAMILY, "odd", (0, 1, 10, 30))
    assert list(found) == [0, 1, 10]
    off = []
    for count, predicted in found.items():
        times = predicted[cells[2].name]
        assert np.isnan(times).sum() == count
        off.append(float(np.nanmean(np.abs(times / cells[2].measured_us - 1))))
    assert off[2] < off[0] / 2


def missed(boards: Sequence[str], spread: float) -> list[Cell]:
    """Return cells of the same 30 networks, each of which every board computes slower or faster by a factor of its
    own."""
    factors = np.exp(np.random.default_rng(5).normal(0, spread, 30))
    places = tuple(place(passes) for passes in networks(30, 3))
    cells = [cell(f"{board}.npu.int8", 30, 3, noise=0.02) for board in boards]
    return [replace(one, measured_us=one.measured_us * factors, places=places) for one in cells]


def test_what_boards_miss_alike_is_carried_to_another_board() -> None:
    cells = missed(("first", "second", "third"), 0.25)
    keep = {one.name: np.full(30, one is not cells[2]) for one in cells}
    fitted = fit(cells, FAMILY, keep)
    plain = job_times(cells[2].work, fitted.parameters(cells[2]))
    errors = [np.abs(np.log(times / cells[2].measured_us)).mean() for times in (plain, fitted.times(cells[2]))]
    assert errors[1] < errors[0] / 2


def test_noise_is_carried_nowhere() -> None:
    noise = np.random.default_rng(7).normal(0, 0.2, (2, 30))
    points = [
        ("int8", f"net{n}", (("size", 100.0 * n),), float(noise[board, n])) for board in (0, 1) for n in range(30)
    ]
    assert not residuals(points).weights
    alike = [(precision, name, where, float(noise[0, int(name[3:])])) for precision, name, where, _ in points]
    assert residuals(alike).of("int8", ["net3"], [points[3][2]]) == pytest.approx(noise[0, 3], rel=0.2)
