"""The agreement required of two simulations of the same plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from socsched.errors import MachineError
from socsched.sim.build import load_kernel
from socsched.sim.simulate import SimulationRun
from socsched.trace.trace import Trace


def compiled() -> str:
    try:
        load_kernel("compiled")
    except MachineError as error:
        pytest.skip(str(error))
    return "compiled"


def content(trace: Trace) -> dict[str, Any]:
    return {
        "jobs": trace.jobs,
        "slices": sorted(trace.slices, key=lambda s: (s.start_ns, s.engine, s.lanes, s.end_ns)),
        "instants": sorted((i.time_ns, i.kind, i.subject, i.frame) for i in trace.instants),
        "releases": trace.releases,
        "counters": trace.counters,
    }


def same(one: Trace, other: Trace) -> None:
    for name, value in content(one).items():
        assert value == content(other)[name], name


def equal_outcomes(one: SimulationRun, other: SimulationRun) -> None:
    """Raise AssertionError unless two simulations found the same, figures and trace."""
    assert one.trace is not None and other.trace is not None
    same(one.trace, other.trace)
    for name in sorted(one.outcome.found.keys() - {"execs", "responses", "chains", "guest_energy"}):
        ours, theirs = one.outcome.found[name], other.outcome.found[name]
        assert list(ours) == list(theirs) if hasattr(ours, "__len__") else ours == theirs, name
    for name in ("execs", "responses", "chains"):
        for which in range(1, 5):
            assert np.array_equal(one.outcome.ints_of(name, which), other.outcome.ints_of(name, which)), name
