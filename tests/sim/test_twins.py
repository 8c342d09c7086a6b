"""Compiled and interpreted kernel agree, and running figures with those of the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import HORIZON, faults, plans
from twins import compiled, same

from socsched.faults.model import Faults
from socsched.sim.results import totals
from socsched.sim.simulate import run
from socsched.trace.metrics import result
from socsched.trace.summary import result as summary


@settings(max_examples=40)
@given(st.data())
@pytest.mark.needs("Python headers")
def test_compiled_kernel_equals_the_interpreted_one(data: st.DataObject) -> None:
    made = data.draw(plans(rich=True))
    harm = data.draw(faults(made, rich=True))
    one, other = (run(made, HORIZON, 3, None, harm, implementation=i) for i in (compiled(), "python"))
    assert one.trace is not None and other.trace is not None
    same(one.trace, other.trace)
    names = (
        "released",
        "done",
        "dropped",
        "aborted",
        "late",
        "busy_time",
        "chain_missed",
        "chain_completed",
        "chain_stale",
    )
    for name in names:
        assert np.array_equal(one.outcome.ints(name), other.outcome.ints(name)), name


@settings(max_examples=40)
@given(st.data())
def test_every_frame_is_accounted_for(data: st.DataObject) -> None:
    made = data.draw(plans(rich=True))
    harm: Faults = data.draw(faults(made, rich=True))
    trace = run(made, HORIZON, 3, None, harm).trace
    assert trace is not None
    for owner in made.tasks:
        jobs = [job for job in trace.jobs if job.task == owner.name]
        states = [job.status for job in jobs]
        assert len(jobs) == sum(states.count(s) for s in ("done", "dropped", "aborted", "unfinished"))
        frames = [job.frame for job in jobs]
        assert len(set(frames)) == len(frames)


def close(one: Any, other: Any) -> bool:
    """Whether figures agree: exactly, but for floating-point sums and the resolution of percentiles."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k]) for k in one)
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-6 + 2**-10 * abs(one)
    return bool(one == other)


@settings(max_examples=40)
@given(st.data())
def test_a_simulation_without_trace_gives_the_same_result(data: st.DataObject) -> None:
    made = data.draw(plans(rich=True))
    harm = data.draw(faults(made, rich=True))
    kept, lean = (run(made, HORIZON, 3, None, harm, record=record) for record in (True, False))
    assert kept.trace is not None
    found = summary(totals(lean), made)
    assert found.pop("resolution") == "2^-10"
    expected = result(kept.trace, made)
    for name, value in expected.items():
        assert close(value, found[name]), (name, value, found[name])
