"""docs/api.md: its examples run as written, and it names everything the package exports."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import socsched

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_examples_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)):
        exec(compile(code, f"{PAGE.name} example {number + 1}", "exec"), space)
    assert capsys.readouterr().out.startswith("feasible 5.928 ms\n")
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
