"""BTF traces are read back as they were, follow the state chart of a process, and are refused with a position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from socsched.errors import SocschedError
from socsched.sim.engine import simulate
from socsched.trace import btf
from socsched.trace.trace import Job, Trace
from tests.sim.rich_plan import DURATION, rich_faults, rich_plan


def jobs(trace: Trace) -> list[tuple[Any, ...]]:
    return [
        (j.task, j.frame, j.activation_ns, j.deadline_ns, j.start_ns, j.finish_ns if j.finish_ns >= 0 else -1, j.status)
        for j in trace.jobs
    ]


def pieces(trace: Trace) -> list[tuple[Any, ...]]:
    owners = trace.jobs
    return sorted(
        (s.engine, s.lanes, owners[s.job].task, owners[s.job].frame, s.name, s.start_ns, s.end_ns) for s in trace.slices
    )


@pytest.fixture(scope="module")
def simulated() -> Trace:
    return simulate(rich_plan(), DURATION, faults=rich_faults())


def test_a_trace_is_read_back_as_it_was(simulated: Trace, tmp_path: Path) -> None:
    (tmp_path / "t.btf").write_text(btf.text(simulated))
    found = btf.read(tmp_path / "t.btf")
    assert {job.status for job in simulated.jobs} >= {"done", "dropped", "aborted"}
    assert sorted(jobs(found)) == sorted(jobs(simulated))
    assert pieces(found) == pieces(simulated)
    assert (found.kind, found.seed, found.duration_ns) == (simulated.kind, simulated.seed, simulated.duration_ns)


def test_processes_follow_the_state_chart_of_the_specification(simulated: Trace) -> None:
    """Activate, start, then preempt and resume in turn, then terminate; times never go back."""
    states: dict[tuple[str, str], str] = {}
    follows = {"start": ("activate",), "preempt": ("start", "resume"), "resume": ("preempt",),
               "terminate": ("start", "resume")}  # fmt: skip
    before = 0
    for line in btf.text(simulated).splitlines():
        if line.startswith("#"):
            continue
        time, _, _, kind, target, instance, event, *_ = line.split(",")
        assert int(time) >= before
        before = int(time)
        if kind == "T" and event in follows:
            last = states.get((target, instance), "activate" if "/" in target else "")
            assert last in follows[event], line
        if kind == "T":
            states[target, instance] = event


def test_names_with_separators_are_kept(tmp_path: Path) -> None:
    name = "#a,b/1 é\n%2C"
    made = Trace("measured", 10, 0, [Job(name, 0, 1, 5)])
    (tmp_path / "t.btf").write_text(btf.text(made))
    assert btf.read(tmp_path / "t.btf").jobs[0].task == name


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("0,a,0", "t.btf:1:1: event: expected time,source"),
        ("x,a,0,T,a,0,activate", "t.btf:1:1: event: expected a whole number"),
        ("0,s,0,T,a,-1,activate", "t.btf:1:11: event: expected a whole number"),
        ("0,c.0,0,T,a,0,start", "expected an activation of 'a'"),
        ("0,s,0,T,a,0,activate\n0,c,0,T,a,0,start", "t.btf:2:1: event: expected a core"),
        ("5,s,0,T,a,0,activate\n4,s,0,T,a,1,activate", "t.btf:2:1: event: expected a time from 5 on"),
        ("#timeScale us", "t.btf:1:1: event: expected #timeScale ns"),
    ],
)
def test_a_wrong_trace_is_reported_with_its_position(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "t.btf").write_text(text)
    with pytest.raises(SocschedError) as caught:
        btf.read(tmp_path / "t.btf")
    assert where in str(caught.value)
