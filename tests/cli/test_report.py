"""`socsched report` on plans, simulations and runs: its inputs, and its messages where one is missing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from socsched.api import folders
from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate
from socsched.cli.root import run
from socsched.faults.model import Faults, Stall
from socsched.planning import io
from socsched.reporting.report import gather
from socsched.units import format_duration

BOARD = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a second of PointPillars on a board."""
    folder = tmp_path_factory.mktemp("report") / "out"
    assert run(["simulate", "pointpillars", "-p", BOARD, "--duration", "1s", "-q", "-o", str(folder)]) == 0
    return folder


def section(page: str, heading: str) -> str:
    """Return the text from a heading to the next one."""
    begin = page.index(f">{heading}</h2>")
    return page[begin : page.find("<h2", begin)]


@pytest.mark.slow
def test_rooflines_show_the_planned_stages(simulated: Path) -> None:
    page = (simulated / "report.html").read_text(encoding="utf-8")
    shown = section(page, "Roofline")
    for stage in ("voxelise", "pfn", "backbone", "head", "decode"):  # scatter counts no operations
        assert f"<td>{stage}</td>" in shown
    shares = [float(share) for share in re.findall(r">([\d.]+)%</td>", shown)]
    assert len(shares) >= 5 and all(0 < share < 400 for share in shares)


def test_a_plan_is_shown_by_its_first_hyperperiods(simulated: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.json"
    shutil.copy(simulated / "plan.json", plan)
    assert run(["report", str(plan), "-q"]) == 0
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "a simulation of its first hyperperiods" in page
    assert "simulated for 200 ms" in page
    assert run(["report", str(plan), "-q", "-o", str(tmp_path / "p.pftrace")]) == 0
    assert run(["plan", str(plan), "--export", "perfetto", "-q", "-o", str(tmp_path / "q.pftrace")]) == 0
    assert (tmp_path / "p.pftrace").read_bytes() == (tmp_path / "q.pftrace").read_bytes()


def test_the_command_that_made_a_folder_is_kept(simulated: Path) -> None:
    made = json.loads((simulated / "made.json").read_text(encoding="utf-8"))
    assert made["command"].startswith("socsched")
    assert {"socsched", "python", "machine", "apache-tvm"} <= set(made)
    page = (simulated / "report.html").read_text(encoding="utf-8")
    reported = section(page + "<h2", "How this was made")
    assert made["machine"] in reported
    for name, digest in json.loads((simulated / "plan.json").read_text(encoding="utf-8"))["inputs"].items():
        assert f"sha256 of {name}" in reported and digest in reported


FRONT = {
    "mode": "MAXN",
    "objective": "latency,energy",
    "verdict": "feasible",
    "on_front": True,
    "latency_ns": 15_000_000,
    "power_mw": 11_000,
    "energy_uj": 1_100_000,
    "operations": {"gpu": 1.0},
}


def test_the_front_is_shown_where_there_is_one(simulated: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(simulated, folder)
    assert "to add them: <code>" in (folder / "report.html").read_text(encoding="utf-8")
    (folder / "pareto.json").write_text(json.dumps({"points": [FRONT]}), encoding="utf-8")
    assert run(["report", str(folder), "-q"]) == 0
    shown = section((folder / "report.html").read_text(encoding="utf-8"), "Power modes")
    assert "● MAXN (this report)" in shown and "15 ms" in shown and "gpu 100%" in shown


@pytest.mark.slow
def test_the_front_is_embedded_where_it_was_explored(simulated: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(simulated, folder)
    assert run(["report", str(folder), "--pareto", "-q"]) == 0
    shown = section((folder / "report.html").read_text(encoding="utf-8"), "Power modes")
    front = json.loads((folder / "pareto.json").read_text(encoding="utf-8"))["points"]
    assert len(front) >= 4
    assert shown.count("●") == sum(point["on_front"] for point in front)
    assert "MAXN (this report)" in shown


def test_other_descriptors_than_the_plan_s_are_not_drawn_upon(simulated: Path, tmp_path: Path) -> None:
    plan = io.load(simulated / "plan.json")
    changed = tmp_path / "pointpillars.yaml"
    source = Path(__file__).parents[2] / "pipelines" / "pointpillars.yaml"
    changed.write_text(source.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    found = gather(plan, None, str(changed), None)
    assert not found.roofs
    assert "differs from the version that the plan was made from" in found.missing["roofline"]
    missing = gather(plan, None, "no-such-pipeline", None)
    assert "no-such-pipeline" in missing.missing["roofline"]


def test_a_run_is_compared_with_the_simulation_in_the_same_folder(simulated: Path, tmp_path: Path) -> None:
    shutil.copytree(simulated, tmp_path / "simulated")
    plan, trace, result = folders.load(simulated)
    trace.kind = "measured"
    folders.save(tmp_path / "run", plan, trace, result, page=False)
    assert run(["report", str(tmp_path), "-q"]) == 0
    shown = section((tmp_path / "report.html").read_text(encoding="utf-8"), "Predicted against measured")
    assert "simulated p50" in shown
    assert "chain lidar-detection" in shown


@pytest.mark.slow
def test_a_minute_of_a_whole_stack_fits_a_megabyte_and_keeps_the_worst(tmp_path: Path) -> None:
    plan = plan_with("perception-stack", BOARD, "15W", PlanOptions(refine=False, explain=False, cuts=False))
    last = next(chain for chain in plan.chains if chain.name == "camera-detection").path[-1]
    engine = next(task.engine for task in plan.tasks if task.name == last)
    stalled = Faults(stalls=(Stall(engine, 10 * 10**9, 10 * 10**9 + 10**8),))
    done = simulate(plan, 60_000_000_000, seed=1, faults=stalled)
    assert done.trace is not None and len(done.trace.columns.slices) > 20_000
    result = done.figures
    done.save(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 1_000_000
    worst = format_duration(result["chains"]["camera-detection"]["response_time_ns"]["max"])
    assert re.search(rf"Worst miss of camera-detection: frame \d+, {worst} of 66 ms", page)
