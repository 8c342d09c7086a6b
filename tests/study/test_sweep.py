"""Sweeps by the command line: the same table from every engine, resumed, settled, reported; docs/sweeps.md."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_files import Writer

pytest.importorskip("pyarrow", reason="tables are Parquet")

from socsched.cli.root import run
from socsched.descriptor.source import parse
from socsched.descriptor.study import study_from
from socsched.study import store as table
from socsched.study.report import effects
from socsched.study.store import encode
from socsched.study.sweep import front

LOADS = "  load: [1.0, 4.0]\n  seed: [0, 50]\n  policy: [edf, fifo]"


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "table.parquet").read_bytes()).hexdigest()


def sweep(study: Path, folder: Path, *more: str) -> int:
    return run(["sweep", str(study), "-o", str(folder), "-q", *more])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small sweep by one worker; the study is in the same parent folder."""
    folder = tmp_path_factory.mktemp("swept")
    study = folder / "small.yaml"
    study.write_text(f"""schema_version: "1"
name: small
parameters:
  platform: jetson-agx-orin-64gb
  mode: [MODE_30W, MODE_15W]
  pipeline: camera-detection
{LOADS}
simulate: {{duration: 2 s, runs: 4, confidence: 0.9}}
holds: {{misses: 0.1, slack: 0.5}}
""")
    assert sweep(study, folder / "out", "--workers", "1") == 0
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return table.read(folder / "table.parquet")


@pytest.mark.slow
def test_every_configuration_has_its_row_and_shares_its_plan(swept: Path) -> None:
    rows = rows_of(swept / "out")
    assert [row["config"] for row in rows] == list(range(16))
    # fifo has no bounds: it is planned as edf is, so that load, seed and policy share one plan a mode
    assert len({row["plan"] for row in rows}) == len(list((swept / "out" / "plans").iterdir())) == 2
    assert {row["error"] for row in rows} == {""}
    light = [row for row in rows if row["load"] == 1.0]
    heavy = [row for row in rows if row["load"] == 4.0 and row["mode"] == "MODE_15W"]
    assert all(row["missed"] + row["dropped"] == 0 for row in light)
    assert all(row["missed"] + row["dropped"] > row["frames"] / 2 and row["settled"] == "fails" for row in heavy)
    assert all(row["holds"] == (row["slack"] >= 0.5 and row["settled"] == "holds") for row in rows)
    assert {row["holds"] for row in rows} == {True, False}


@pytest.mark.slow
def test_runs_end_when_misses_are_settled(swept: Path) -> None:
    from socsched.study.bounds import compare_with_limit

    for row in rows_of(swept / "out"):
        lost, each = row["missed"] + row["dropped"], row["frames"] // row["runs"]
        assert compare_with_limit(lost, row["frames"], 0.1, 0.9, 4) == row["settled"] != "open"
        if not lost:
            assert compare_with_limit(0, row["frames"] - each, 0.1, 0.9, 4) == "open", (
                "it ended at the first look that settles"
            )


@pytest.mark.slow
def test_two_workers_and_a_second_session_make_the_same_bytes(swept: Path) -> None:
    study = swept / "small.yaml"
    assert sweep(study, swept / "two", "--workers", "2") == 0
    assert digest(swept / "two") == digest(swept / "out")
    rows = rows_of(swept / "out")
    (part,) = (swept / "two" / "parts").iterdir()
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:5]) + lines[5][:30])
    (swept / "two" / "table.parquet").unlink()
    assert sweep(study, swept / "two") == 2, "results are not overwritten"
    assert sweep(study, swept / "two", "--resume", "--workers", "1") == 0
    assert digest(swept / "two") == digest(swept / "out")
    written = sum(len(path.read_bytes().splitlines()) for path in (swept / "two" / "parts").iterdir())
    assert written == len(rows) + 1, "11 rows were computed again, in addition to the torn line"
    assert encode(json.loads(lines[0].partition(b" ")[2])) == lines[0]


def test_a_row_is_what_simulate_says_of_its_plan(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(row for row in rows_of(swept / "out") if row["policy"] == "fifo" and row["load"] == 1.0)
    plan = swept / "plan.json"
    from socsched.planning import io
    from socsched.study.work import unpack

    packed = (swept / "out" / "plans" / f"{row['plan']}.json.gz").read_bytes()
    io.save(unpack(packed, swept / "out" / "inputs").plan, plan)
    lost = frames = longest = 0
    for number in range(row["runs"]):
        seed = str(row["seed"] + number)
        capsys.readouterr()
        run(["simulate", str(plan), "--duration", "2s", "--seed", seed, "--policy", "fifo", "--json"])
        chains = json.loads(capsys.readouterr().out)["chains"].values()
        lost += sum(chain["missed"] + chain["dropped"] for chain in chains)
        frames += sum(chain["released"] for chain in chains)
        longest = max(longest, *(chain["response_time_ns"]["max"] for chain in chains))
    found = (row["missed"] + row["dropped"], row["frames"], row["worst_response_max_ns"])
    assert (lost, frames, longest) == found


@pytest.mark.slow
def test_policies_reach_the_simulation(write: Writer, tmp_path: Path) -> None:
    """Without preemption the 20 ms controller waits for others on its core, with it it does not."""
    study = write("simulate: {duration: 3 s}\ncuts: false", "  policy: [edf, np-fifo, fp]")
    text = study.read_text().replace("camera-detection", "perception-stack")
    study.write_text(text.replace("MODE_30W", "MAXN"))
    assert sweep(study, tmp_path / "out", "--workers", "2") in (0, 1)
    edf, fifo, fp = rows_of(tmp_path / "out")
    assert edf["plan"] == fifo["plan"] != fp["plan"]
    figures = ("worst_response_max_ns", "data_age_max_ns", "power_peak_mw", "worst_response_share")
    assert [edf[name] for name in figures] != [fifo[name] for name in figures]
    study.write_text(text.replace("np-fifo", "np-fife"))
    assert sweep(study, tmp_path / "none") == 2


def test_the_page_shows_answer_front_map_and_tornado(swept: Path) -> None:
    page = (swept / "out" / "report.html").read_text()
    for text in ("configurations hold", "Fronts", "feasibility over", "sensitivity of", "smallest", "MODE_15W"):
        assert text in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "<script src" not in page
    assert "<circle" in page and "<polyline" not in page.split("Sensitivities")[1]
    best = swept / "out" / "best" / "smallest.plan.json"
    held = [row for row in rows_of(swept / "out") if row["holds"]]
    assert json.loads(best.read_text())["mode"] == min(held, key=lambda row: row["tdp_mw"])["mode"]


def test_columns_are_documented_in_the_file(swept: Path) -> None:
    import pyarrow.parquet as pq

    schema = pq.read_schema(swept / "out" / "table.parquet")
    assert all(schema.field(name).metadata[b"meaning"] for name in schema.names)
    assert schema.metadata[b"study"] == b"small"


@pytest.mark.slow
def test_halving_gives_the_better_half_more_runs(write: Writer, tmp_path: Path) -> None:
    more = "design: {kind: halving, keep: 0.5, first: 1}\nsimulate: {duration: 1 s, runs: 4, settle: false}"
    study = write(more, "  load: [1.0, 2.0, 3.0, 40.0]")
    assert sweep(study, tmp_path / "out", "--workers", "1") == 0
    rows = rows_of(tmp_path / "out")
    assert sorted((row["rung"], row["runs"]) for row in rows) == [(0, 1), (0, 1), (1, 2), (2, 4)]
    assert rows[3]["rung"] == 0, "forty times the load misses most"


@pytest.mark.slow
def test_what_cannot_be_planned_is_a_row_that_says_why(write: Writer, tmp_path: Path) -> None:
    (tmp_path / "harm.yaml").write_text("stalls: [{engine: dla7, from: 0 s, until: 1 s}]")
    study = write("simulate: {duration: 1 s}", "  faults: [none, harm.yaml]")
    assert sweep(study, tmp_path / "out", "--workers", "1") == 0
    good, bad = rows_of(tmp_path / "out")
    assert good["verdict"] == "feasible" and good["holds"]
    assert bad["verdict"] == "error" and "expected an engine of the plan" in bad["error"] and bad["holds"] is False
    assert bad["error"].startswith("faults/harm.yaml:1:19: stalls[0].engine"), "named as the study ships it"


@pytest.mark.slow
def test_fields_of_both_files_reach_the_plan(write: Writer, tmp_path: Path) -> None:
    fields = "  rate.camera: 10\n  pipeline.chains.camera-detection.deadline: 50 ms\n"
    study = write("simulate: {duration: 1 s}", fields + "  platform.dram.achievable.value: [20 GB/s, 170 GB/s]")
    assert sweep(study, tmp_path / "out", "--workers", "2") == 0
    rows = rows_of(tmp_path / "out")
    assert len({row["plan"] for row in rows}) == 2
    rate, deadline = "rate.camera_hz", "pipeline.chains.camera-detection.deadline_ns"
    assert {(row[rate], row["frames"]) for row in rows} == {(10.0, 10)}, "the file's camera has 15 frames a second"
    assert {row[deadline] for row in rows} == {50e6}
    assert all(row["worst_response_share"] == pytest.approx(row["worst_response_max_ns"] / 50e6) for row in rows)
    memory = {row["platform.dram.achievable.value_bytes_per_s"]: row["latency_ns"] for row in rows}
    assert memory[20e9] > memory[170e9]


AXES = ("latency_ns", "tdp_mw")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9) | st.none()), max_size=30))
def test_a_front_is_what_no_other_row_beats(places: list[tuple[int, int | None]]) -> None:
    rows = [{"config": n, "latency_ns": a, "tdp_mw": b} for n, (a, b) in enumerate(places)]
    known = [row for row in rows if row["tdp_mw"] is not None]

    def beats(a: dict[str, Any], b: dict[str, Any]) -> bool:
        ends = [(a[axis], b[axis]) for axis in AXES]
        return all(x <= y for x, y in ends) and any(x < y for x, y in ends)

    best = [row for row in known if not any(beats(other, row) for other in known)]
    found = front(rows, AXES)
    assert {tuple(row[a] for a in AXES) for row in best} == {tuple(rows[n][a] for a in AXES) for n in found}
    assert len(found) == len({tuple(row[a] for a in AXES) for row in best}), "one of those alike"


def test_effects_are_means_over_all_else_widest_first() -> None:
    rows = [{"slack": 10 * a + b, "a": a, "b": b, "c": 1} for a in (0, 1) for b in (0, 1, 4)]
    rows.append({"slack": None, "a": 5, "b": 5, "c": 1})
    wide, narrow = effects(rows, ["b", "a", "c"], "slack")
    assert wide == ("a", ((5 / 3, 0), (35 / 3, 1)))
    assert narrow == ("b", ((5.0, 0), (9.0, 4)))


@pytest.fixture(scope="module")
def text(checkout: Path) -> str:
    return (checkout / "docs" / "sweeps.md").read_text(encoding="utf-8")


def test_the_study_shown_is_one(text: str, tmp_path: Path) -> None:
    study, fleet = re.findall(r"```yaml\n(.*?)```", text, re.S)
    (tmp_path / "harm.yaml").write_text("{}")
    found = study_from(parse((study + fleet).encode(), str(tmp_path / "rates.yaml")))
    assert found.fleet is not None and found.fleet.vehicles == 10_000
    assert len(found.parameters) == 10
