"""Fleets: vehicles by their seed, intervals, replays, the same table from every engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables are Parquet")

from socsched.cli.root import run
from socsched.descriptor.study import Thermal, load_study
from socsched.study import bounds
from socsched.study import store as table
from socsched.study.runs import scale_wcet, with_thermal_limit
from socsched.study.work import unpack, vehicle

FLEET = """schema_version: "1"
name: small
parameters:
  platform: jetson-agx-orin-64gb
  mode: MODE_15W
  pipeline: camera-detection
fleet:
  vehicles: 40
  duration: 2 s
  seed: 7
  load: {normal: {mean: 1.2, sd: 0.4, least: 0.5, most: 3}}
  ambient: {uniform: [-10 C, 60 C]}
  thermal: {resistance: 2, time_constant: 5 s, assumed: a fan and a small heat sink}
  faults_per_minute: {uniform: [0, 10]}
  worst: 3
"""


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a study and its fleet, simulated by one worker."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "small.yaml").write_text(FLEET)
    assert fleet(folder, "-o", str(folder / "out"), "--workers", "1", "-q") == 1
    return folder


def fleet(folder: Path, *more: str) -> int:
    return run(["fleet", str(folder / "small.yaml"), *more])


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return table.read(folder / "fleet.parquet")


def test_vehicles_draw_what_the_study_says(driven: Path) -> None:
    rows = rows_of(driven / "out")
    assert [row["seed"] for row in rows] == list(range(7, 47))
    assert all(0.5 <= row["load"] <= 3 and -10 <= row["ambient_c"] <= 60 for row in rows)
    middle = sorted(row["load"] for row in rows)[20]
    assert 1.0 < middle < 1.4
    assert len({row["ambient_c"] for row in rows}) == len({row["load"] for row in rows}) == 40


def test_more_load_is_more_time(driven: Path) -> None:
    calm = [row for row in rows_of(driven / "out") if row["missed"] + row["dropped"] == 0]
    ordered = sorted(calm, key=lambda row: row["load"])
    assert ordered[0]["worst_response_share"] < ordered[-1]["worst_response_share"]


def test_the_interval_is_that_of_clusters_and_the_worst_come_first(
    driven: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fleet(driven, "-o", str(driven / "out"), "--resume", "--json") == 1
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    lost = [(row["missed"] + row["dropped"], row["frames"]) for row in rows_of(driven / "out")]
    low, high, effect = bounds.cluster_interval(lost, 0.95)
    assert group["misses"] == sum(k for k, _ in lost) > 0
    assert [group["misses_low_per_million"], group["misses_high_per_million"]] == [1e6 * low, 1e6 * high]
    assert group["design_effect"] == effect > 1
    assert len(group["worst"]) == 3
    shares = [(row["missed"] + row["dropped"]) / row["frames"] for row in group["worst"]]
    assert shares == sorted((k / n for k, n in lost), reverse=True)[:3]
    assert group["worst"][0]["replay"].startswith(f"socsched fleet {driven / 'small.yaml'} --vehicle ")


@pytest.mark.slow
def test_a_replay_is_the_vehicle(driven: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for row in sorted(rows_of(driven / "out"), key=lambda row: -row["missed"] - row["dropped"])[:2]:
        capsys.readouterr()
        fleet(driven, "--vehicle", str(row["seed"]), "--json", "-o", str(driven / f"v{row['seed']}"))
        (chain,) = json.loads(capsys.readouterr().out)["chains"].values()
        again = (chain["released"], chain["missed"], chain["dropped"], chain["response_time_ns"]["max"])
        assert again == (row["frames"], row["missed"], row["dropped"], row["worst_response_max_ns"])
        assert (driven / f"v{row['seed']}" / "report.html").exists()


@pytest.mark.slow
def test_two_workers_make_the_same_table_and_more_vehicles_extend_it(driven: Path, tmp_path: Path) -> None:
    assert fleet(driven, "-o", str(tmp_path / "two"), "--workers", "2", "-q") == 1
    first, second = ((folder / "fleet.parquet").read_bytes() for folder in (driven / "out", tmp_path / "two"))
    assert first == second


def test_every_vehicle_has_faults_of_its_own(driven: Path) -> None:
    (packed,) = (driven / "out" / "plans").iterdir()
    planned, study = unpack(packed.read_bytes(), driven / "out" / "inputs"), load_study(driven / "small.yaml")
    first, again, *others = (vehicle(study, planned, seed) for seed in (7, 7, *range(8, 47)))
    assert first == again
    busy = [one.faults for one in (first, *others) if one.faults != type(one.faults)()]
    assert len(busy) > 5 and len({repr(faults) for faults in busy}) == len(busy)
    rates = [float(one.faults_per_minute) for one in (first, *others)]
    assert 0 <= min(rates) < 3 and 7 < max(rates) <= 10


def test_the_page_estimates_the_cost_of_a_larger_fleet(driven: Path) -> None:
    page = (driven / "out" / "report.html").read_text()
    for text in ("frames missed", "Worst vehicles", "--vehicle", "design effect", "worst response against load"):
        assert text in page


def test_load_and_warmth_change_what_is_simulated_only(driven: Path) -> None:
    (packed,) = (driven / "out" / "plans").iterdir()
    plan = unpack(packed.read_bytes(), driven / "out" / "inputs").plan
    assert scale_wcet(plan, 1_000_000) is plan
    heavy = scale_wcet(plan, 1_500_000)
    for before, after in zip(plan.tasks, heavy.tasks, strict=True):
        assert after.cost_ns == -(-before.cost_ns * 3 // 2)
        assert (after.deadline_ns, after.bytes, after.priority) == (before.deadline_ns, before.bytes, before.priority)
        for a, b in zip(before.segments, after.segments, strict=True):
            assert b.time_ns - b.fixed_ns == -(-(a.time_ns - a.fixed_ns) * 3 // 2) and b.fixed_ns == a.fixed_ns
    board = with_thermal_limit(plan, Thermal(2000, 10**9), 40_000, 90_000, 15_000).throttle
    assert board is not None and (board.ambient_mc, board.trip_mc, board.recover_mc) == (40_000, 90_000, 85_000)
