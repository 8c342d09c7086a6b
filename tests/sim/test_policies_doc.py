"""The example policy of docs/policies.md behaves as described, and the page lists every policy."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest
from builders import MS, plan, task

from socsched import plugins
from socsched.sim import policies
from socsched.sim.simulate import run, simulate
from socsched.trace.metrics import result

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
MADE = plan([task("short", 2 * MS, period_ns=20 * MS), task("long", 9 * MS, period_ns=19 * MS)])


def example() -> ModuleType:
    """Return the page's policy as a module."""
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "def key" in block]
    module = ModuleType("calm")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    return module


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Registered(EntryPoint):
        def load(self) -> object:
            return example().POLICY

    entry = Registered("calm", "my_package.calm:POLICY", policies.GROUP)
    monkeypatch.setitem(plugins.entries(policies.GROUP), "calm", entry)


def test_the_example_serves_short_jobs_first_and_is_never_late(installed: None) -> None:
    assert (
        "calm" in policies.list_policies()
        and policies.describe_policies()["calm"] == "installed: my_package.calm:POLICY"
    )
    calm, edf = (simulate(MADE, 400 * MS, policy=name) for name in ("calm", "edf"))
    assert [result(trace, MADE)["stages"]["long"]["jobs"] for trace in (calm, edf)] == [21, 21]
    assert all(job.finish_ns <= job.deadline_ns for job in calm.jobs if job.status == "done")
    responses = [[j.finish_ns - j.activation_ns for j in t.jobs if j.status == "done"] for t in (calm, edf)]
    assert fmean(responses[0]) < fmean(responses[1])


def test_both_kernels_ask_the_example_alike(installed: None) -> None:
    traces = [run(MADE, 400 * MS, policy="calm", implementation=which).trace for which in ("python", None)]
    assert traces[0] == traces[1]


def test_the_page_lists_every_policy_and_every_field() -> None:
    text = PAGE.read_text()
    assert {name for name in plugins.names(policies.GROUP, own=True) if f"| `{name}` |" not in text} == set()
    assert {term.name for term in policies.Term if term.name not in text} == {"CUSTOM"}


@pytest.mark.slow
def test_the_environment_of_the_page_runs() -> None:
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "Environment(" in block]
    found: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), found)
    assert found["over"] is True
