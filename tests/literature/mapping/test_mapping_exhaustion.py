"""Bounds by exhaustion against CP-SAT and against enumeration, on small problems of every supported kind."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest

from socsched.cost.cost import Segment
from socsched.planning.mapping.problem import FREE, Edge, Group, Hop, Lanes, Option, Problem, Requirement
from socsched_literature.mapping.backwards import Backwards
from socsched_literature.mapping.beam import enumerate_below
from socsched_literature.mapping.destructive import exhaust, suitable
from socsched_literature.mapping.evaluate import evaluate
from socsched_literature.mapping.guided import rise, search
from socsched_literature.mapping.relaxation import relax

pytest.importorskip("ortools", reason="the bounds start from OR-Tools' linear programs")

from socsched.planning.mapping.cpsat import Program
from socsched.planning.mapping.solvers import linear

UNIT = 1000
FOREVER = 1e12


def chain_problem(seed: int) -> Problem:
    """Return two or three chains on two or three engines, with pick-ups, delays, releases and gaps in the options."""
    rng = Random(seed)
    names = ["a", "b", "c"][: rng.choice((2, 3))]
    alike = rng.random() < 0.5
    groups: list[Group] = []
    edges: list[Edge] = []
    for net in range(rng.choice((2, 3))):
        release = rng.choice((0, 0, rng.randint(1, 9))) * UNIT
        for position in range(rng.randint(2, 4)):
            times = [rng.randint(2, 20) for _ in names]
            if alike:
                times[1:] = [times[1]] * len(times[1:])
            draws = [rng.randint(5, 60) for _ in names]
            taken = [i for i in range(len(names)) if i == 0 or alike or rng.random() < 0.8]
            options = tuple(
                Option(names[i], (Segment("run", times[i] * UNIT, 0, draws[i] * times[i] * UNIT),)) for i in taken
            )
            groups.append(Group(f"n{net}.{position}", options, f"n{net}", release if position == 0 else 0))
            if position:
                hop = Hop(pickup_ns=rng.randint(0, 3) * UNIT, delay_ns=rng.choice((0, 2)) * UNIT)
                rows = tuple(
                    tuple(FREE if one.engine == other.engine else hop for other in options)
                    for one in groups[-2].options
                )
                edges.append(Edge(groups[-2].name, groups[-1].name, rows))
    return Problem(tuple(Lanes(name) for name in names), tuple(groups), tuple(edges), bandwidth=70_000_000_000)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sampled(4)
def test_exhaustion_finds_the_optimum_cp_sat_proves(seed: int) -> None:
    problem = replace(chain_problem(seed), bandwidth=0)
    assert suitable(problem)
    answer = Program(problem).solve("makespan", 20, 1, 0)
    assert answer.status == "optimal"
    relaxed = relax(problem, "makespan", linear())
    shown = exhaust(problem, relaxed, 10**9, 0.03, FOREVER)
    assert shown.complete and shown.schedule is not None
    assert shown.bound == shown.value == answer.value
    assert evaluate(problem, shown.schedule).makespan_ns == shown.value


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(3)
def test_a_limit_below_the_optimum_is_exhausted(seed: int) -> None:
    problem = replace(chain_problem(seed), bandwidth=0)
    relaxed = relax(problem, "makespan", linear())
    value = exhaust(problem, relaxed, 10**9, 0.1, FOREVER).value
    below = exhaust(problem, relaxed, value - 1, 0.02, FOREVER)
    assert below.schedule is None and below.bound == max(value, relaxed.bound)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(3)
def test_guided_enumeration_finds_the_same_as_plain_enumeration(seed: int) -> None:
    problem = chain_problem(seed)
    relaxed = relax(problem, "makespan", linear())
    plain = replace(problem, bandwidth=0)
    shown = exhaust(plain, relax(plain, "makespan", linear()), 10**9, 0.03, FOREVER)
    assert shown.ends is not None and shown.schedule is not None
    top = evaluate(problem, search(problem, relaxed, shown.ends, 4) or shown.schedule).makespan_ns
    found, reached = rise(problem, relaxed, shown.ends, shown.bound - 1, top, 0.01, FOREVER)
    best = min(top, evaluate(problem, found).makespan_ns) if found else top
    assert reached <= best
    # Nothing better than a grain below: enumeration without the ends sees every such schedule, too.
    other, complete = enumerate_below(problem, relaxed, reached, 10**6, FOREVER)
    assert complete and other is None
    below, complete = enumerate_below(problem, relaxed, best, 10**6, FOREVER)
    assert complete
    if below is not None:
        # One enumeration stops at the first limit within which there is a schedule, rounding apart.
        assert evaluate(problem, below).makespan_ns >= reached


def delayed_problem(seed: int) -> Problem:
    """Return two chains on an engine and two others that take the same times, and differ in what passes before them."""
    rng = Random(seed)
    groups: list[Group] = []
    edges: list[Edge] = []
    for net in range(2):
        for position in range(3):
            times = [rng.randint(2, 8)] + [rng.randint(2, 8)] * 2
            options = tuple(
                Option(name, (Segment("run", time * UNIT, 0, 0),)) for name, time in zip("abc", times, strict=True)
            )
            groups.append(Group(f"n{net}.{position}", options, f"n{net}"))
            if position:
                rows = tuple(
                    tuple(FREE if i == j else Hop(delay_ns=rng.choice((0, 6)) * UNIT) for j in range(3))
                    for i in range(3)
                )
                edges.append(Edge(groups[-2].name, groups[-1].name, rows))
    return Problem(tuple(map(Lanes, "abc")), tuple(groups), tuple(edges))


@pytest.mark.parametrize("seed", [3, 8, 15])
def test_engines_that_differ_in_delays_only_do_not_swap_names(seed: int) -> None:
    problem = delayed_problem(seed)
    answer = Program(problem).solve("makespan", 20, 1, 0)
    assert answer.status == "optimal"
    relaxed = relax(problem, "makespan", linear())
    found, complete = enumerate_below(problem, relaxed, answer.value + 1, 10**6, FOREVER)
    assert complete and found is not None
    assert evaluate(problem, found).makespan_ns == answer.value


def test_limits_of_time_and_memory_end_a_sweep_with_the_bounds_so_far() -> None:
    problem = replace(chain_problem(1), bandwidth=0)
    relaxed = relax(problem, "makespan", linear())
    for width, until in ((10**6, time.monotonic() - 1), (1, FOREVER)):
        shown = exhaust(problem, relaxed, 10**9, 0.03, until, width)
        assert not shown.complete and shown.schedule is None and shown.bound >= relaxed.bound


def test_a_larger_allowance_gives_no_weaker_bounds() -> None:
    problem = replace(chain_problem(3), bandwidth=0)
    shown = exhaust(problem, relax(problem, "makespan", linear()), 10**9, 0.03, FOREVER)
    assert isinstance(shown.ends, Backwards)
    wider = shown.ends.wider(1.5, FOREVER)
    assert wider is not None and len(wider.keys) >= len(shown.ends.keys)
    known = dict(zip(shown.ends.keys.tolist(), shown.ends.costs.tolist(), strict=True))
    for key, cost in zip(wider.keys.tolist(), wider.costs.tolist(), strict=True):
        assert known.get(key, cost) == pytest.approx(cost)


def test_problems_with_deadlines_of_frames_are_left_to_others() -> None:
    problem = chain_problem(0)
    frames = tuple(replace(group, frames=2, period_ns=10**6) for group in problem.groups)
    assert not suitable(replace(problem, groups=frames))
    needs = (Requirement("r", (problem.groups[-1].name,)),)
    assert suitable(replace(problem, requirements=needs))
