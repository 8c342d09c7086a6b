"""Random frames of random plans: the parts of a response add up to it, and every job that is named exists."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from why_checks import check

from socsched.faults.model import Faults
from socsched.planning.plan import Plan
from socsched.sim.simulate import run
from socsched.trace.trace import Trace
from socsched.trace.why import KINDS, Explanation, Why
from tests.sim.random_plans import HORIZON, faults, plans

LATE = 1_000


@st.composite
def simulations(draw: st.DrawFn, rich: bool, certain: bool = False) -> tuple[Plan, Faults, Trace]:
    """Draw a plan with faults, and its simulation; if `certain`, every job takes its planned time."""
    made = draw(plans(rich=rich))
    harm: Faults = draw(faults(made, rich=rich))
    if certain:
        harm = replace(harm, overruns=())
        made = replace(made, tasks=tuple(replace(task, times=None) for task in made.tasks))
    found = run(made, HORIZON, draw(st.integers(0, 3)), None, harm, implementation="python")
    assert found.trace is not None
    return made, harm, found.trace


def explained(made: Plan, trace: Trace, most: int) -> list[tuple[Explanation, Plan]]:
    """Return explanations of up to `most` frames a chain, each chain's deadline such that every frame is late."""
    why, found = Why(trace, made), []
    for chain in made.chains:
        tight = replace(chain, deadline_ns=1)
        changed = replace(made, chains=tuple(tight if c.name == chain.name else c for c in made.chains))
        count = len(why.record.released(chain))
        for frame in Random(count).sample(range(count), min(most, count)):
            found.append((why.explain(tight, frame), changed))
    return found


def drawn(
    rich: bool, certain: bool, number: int, examples: int, most: int
) -> list[tuple[Explanation, Plan, Faults, Trace]]:
    """Return explanations of frames of `examples` random simulations."""
    found: list[tuple[Explanation, Plan, Faults, Trace]] = []

    @seed(number)
    @settings(max_examples=examples, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(simulations(rich, certain))
    def collect(simulated: tuple[Plan, Faults, Trace]) -> None:
        made, harm, trace = simulated
        found.extend((one, changed, harm, trace) for one, changed in explained(made, trace, most))

    collect()
    return found


def add_up(wanted: int, kinds: set[str]) -> None:
    """Check random frames until so many late ones, and all kinds of parts, have been seen."""
    seen: Counter[str] = Counter()
    for number in range(8, 28):
        for rich in (False, True):
            for one, changed, _, trace in drawn(rich, False, number, 20, 8):
                check(one, trace, changed)
                seen.update({part.kind for part in one.parts})
                seen[one.outcome] += 1
                seen["late"] += one.outcome == "completed" and one.lateness_ns > 0
        if seen["late"] >= wanted and kinds <= seen.keys():
            return
    raise AssertionError(f"only {seen}, without {kinds - seen.keys()}")


def test_the_parts_of_random_late_frames_add_up_to_the_nanosecond() -> None:
    add_up(LATE // 5, {"execution", "above", "waiting", "bandwidth", "sampling"})


@pytest.mark.slow
def test_and_those_of_a_thousand_which_have_parts_of_every_kind() -> None:
    add_up(LATE, KINDS.keys() - {"conversion"})


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.slow
def test_where_jobs_take_what_is_planned_nothing_is_left_unexplained(rich: bool) -> None:
    counted = 0
    for one, _, _, _ in drawn(rich, True, 3, 25, 6):
        for part in one.parts:
            # what is left of a segment is rounded up to a whole ns when its pace changes
            assert part.kind != "above" or 0 <= part.ns <= 1, part
            counted += part.kind == "execution"
    assert counted > 10


@pytest.mark.slow
def test_blocking_is_what_the_dispatcher_booked_as_such() -> None:
    compared = blocked = 0
    for number in range(5, 25):
        for one, made, harm, trace in drawn(False, False, number, 20, 6) + drawn(True, False, number, 5, 6):
            engines, tasks = {e.id: e for e in made.engines}, {t.name: t for t in made.tasks}
            arrived = one.release_ns
            for name, frame in one.jobs if one.outcome == "completed" and not harm.stalls and not harm.delays else ():
                job = [job for job in trace.jobs if (job.task, job.frame, job.status) == (name, frame, "done")][-1]
                static = engines[tasks[name].engine].policy.removeprefix("np-") in ("edf", "fp", "fifo", "rm", "dm")
                # of a job that was ready before its data came only the rest of the wait is the frame's
                if static and job.activation_ns >= arrived and not any(s.engine for s in tasks[name].segments):
                    own = sum(part.ns for part in one.parts if part.task == name and part.kind == "blocking")
                    assert own == job.blocking_ns, (one, name)
                    compared, blocked = compared + 1, blocked + (own > 0)
                arrived = job.finish_ns
        if compared > 50 and blocked > 5:
            return
    raise AssertionError(f"{compared} compared, {blocked} blocked")
