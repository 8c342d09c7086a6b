"""One recipe: the same plan from the command line, a sweep and Python, without a compiler; docs/api.md runs."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

import socsched
import socsched as ss
from socsched import plugins
from socsched.cli.root import run
from socsched.descriptor.catalog import pipeline_names
from socsched.descriptor.study import load_study
from socsched.planning.io import to_document
from socsched.study.design import points
from socsched.study.inputs import gather
from socsched.study.work import make, open_inputs, pack, unpack

PLATFORMS = ("jetson-agx-orin-64gb", "rk3588", "qcs8550")


STUDY = """
schema_version: "1"
name: one
title: one plan
parameters: {{platform: [{platform}], pipeline: [{pipeline}]}}
simulate: {{duration: 1 s, runs: 1}}
"""


def text(plan: ss.Plan) -> str:
    return json.dumps(to_document(plan), indent=1) + "\n"


def planned_by_a_sweep(pipeline: str, platform: str, folder: Path) -> ss.Plan:
    """Return the plan of the only configuration of a study, as its rows are made from it."""
    file = folder / "one.study.yaml"
    file.write_text(STUDY.format(pipeline=pipeline, platform=platform))
    opened = open_inputs(gather(load_study(file)), folder / "inputs")
    (point,) = points(opened.inputs.study, {platform: ()})
    return unpack(pack(make(opened, point), opened.folder), opened.folder).plan


def four_ways(pipeline: str, platform: str, folder: Path) -> dict[str, str]:
    run(["plan", pipeline, "-p", platform, "-o", str(folder / "plan.json"), "-q"])
    run(["simulate", pipeline, "-p", platform, "--duration", "1s", "-o", str(folder / "out"), "-q"])
    ways = {"plan": (folder / "plan.json").read_text()}
    if (folder / "out" / "plan.json").exists():
        ways["simulate"] = (folder / "out" / "plan.json").read_text()
    ways["python"] = text(ss.plan(pipeline, platform))
    ways["sweep"] = text(planned_by_a_sweep(pipeline, platform, folder))
    return ways


def test_every_entry_point_makes_the_same_plan(tmp_path: Path) -> None:
    ways = four_ways("camera-detection", "jetson-agx-orin-64gb", tmp_path)
    assert len(set(ways.values())) == 1, sorted(ways)


@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "platform"), list(product(pipeline_names(), PLATFORMS)))
def test_every_entry_point_makes_the_same_plans(pipeline: str, platform: str, tmp_path: Path) -> None:
    ways = four_ways(pipeline, platform, tmp_path)
    assert len(set(ways.values())) == 1, sorted(ways)


def test_planning_and_simulating_import_no_compiler() -> None:
    program = (
        "import sys; import socsched as ss; heavy = lambda: {m.partition('.')[0] for m in sys.modules} "
        "& {'tvm', 'tvm_ffi', 'matplotlib', 'ortools', 'onnx', 'click', 'rich'}; print(heavy());"
        "p = ss.plan('pointpillars', 'jetson-agx-orin-64gb', mode='MAXN'); ss.simulate(p, '1s'); print(heavy())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set()", "set()"]


def test_the_core_never_imports_the_literature() -> None:
    for file in Path(ss.__file__).parent.rglob("*.py"):
        assert not re.search(r"(import|from) socsched_literature", file.read_text(encoding="utf-8")), file


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["study", "policies"], "unknown command 'study'"),
        (["plan", "pointpillars", "-p", "rk3588", "--planner", "jedi"], "no planner 'jedi'"),
        (["simulate", "pointpillars", "-p", "rk3588", "--policy", "prema"], "unknown scheduling policy 'prema'"),
    ],
)
def test_without_the_literature_its_names_say_how_to_get_it(
    words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    core = {
        group: {name: entry for name, entry in plugins.entries(group).items() if "_literature" not in entry.value}
        for group in plugins.GROUPS
    }
    monkeypatch.setattr(plugins, "_registered", lambda: core)
    assert run(words) == 2
    errors = capsys.readouterr().err
    assert problem in errors
    assert "pip install '/path/to/socsched/socsched_literature'" in " ".join(errors.split())
    assert run(["simulate", "--policies"]) == 0


PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_examples_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)):
        exec(compile(code, f"{PAGE.name} example {number + 1}", "exec"), space)
    assert re.match(r"feasible 6\.2\d+ ms\n", capsys.readouterr().out)
    assert {"plan.json", "result.json", "report.html"} <= {file.name for file in (tmp_path / "out").iterdir()}
    assert "lidar-detection" in (tmp_path / "summary.md").read_text()


def test_every_export_is_there_and_every_function_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in socsched.__all__:
        found = getattr(socsched, name)
        if name[0].islower():
            assert f"ss.{name}" in text
            assert found.__doc__


def test_a_result_shows_itself_in_a_notebook() -> None:
    plan = socsched.plan("pointpillars-s", "jetson-agx-orin-64gb", "MAXN", refine=False, explain=False)
    for record in (True, False):
        shown = socsched.simulate(plan, "300ms", record=record)._repr_html_()
        assert shown.startswith("<iframe srcdoc=") and "lidar-detection" in shown and "<script" not in shown
        assert ('class="gantt' in html.unescape(shown)) == record
