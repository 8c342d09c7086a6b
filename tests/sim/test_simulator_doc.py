"""The examples of docs/simulator.md and docs/descriptors.md are valid as written."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from builders import engine, plan, sensor, task

from socsched.descriptor.pipeline import Execution
from socsched.descriptor.validation import adapter
from socsched.faults.file import load_faults

DOCS = Path(__file__).parents[2] / "docs"


def test_the_faults_file_of_the_page_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(dropouts.*?)```", (DOCS / "simulator.md").read_text(), re.S)
    made = plan([task("head", 1, engine="gpu")], [engine("gpu")], sensors=[sensor("lidar", 10**8)])
    file = tmp_path / "faults.yaml"
    file.write_text(text)
    found = load_faults(file, made)
    assert len(found.stalls) + len(found.delays) == 3 + 2
    assert all((found.dropouts, found.bursts, found.slowdowns, found.overruns, found.hogs))


def test_the_execution_times_of_the_page_are_read() -> None:
    page = (DOCS / "descriptors.md").read_text()
    shown = [yaml.safe_load(text) for text in re.findall(r"^\| `((?:samples|quantiles|uniform): \[.*?\])`", page, re.M)]
    shown += [yaml.safe_load(text) for text in re.findall(r"^ +(lognormal: \{.*\})$", page, re.M)]
    assert [list(entry) for entry in shown] == [["samples"], ["quantiles"], ["uniform"], ["lognormal"]]
    for entry in shown:
        values = adapter(Execution).validate_python(entry).values
        assert values == tuple(sorted(values)) and values[0] > 0
