"""The mapping search: against brute force, and its messages for missing or infeasible input."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.cost.cost import Segment
from socsched.errors import MachineError
from socsched.planning.mapping.problem import FREE, Budget, Edge, Group, Hop, Lanes, Option, Problem, Requirement
from socsched.planning.mapping.program import Program, conflict, linear
from socsched_literature.mapping.evaluate import evaluate
from socsched_literature.mapping.lists import list_schedule
from socsched_literature.mapping.search import TOLERANCE, relax, solve
from tests.literature.mapping.mapping_problems import brute_force, every_schedule, random_problem, random_schedule

pytest.importorskip("ortools", reason="the exact solver needs OR-Tools")
SIZES = st.sampled_from([(2, 2, 2), (3, 1, 2), (1, 4, 2), (2, 1, 3), (1, 3, 3)])


def single(time: int, size: int = 0) -> tuple[Segment, ...]:
    return (Segment("run", time, 0, size),)


def chain_problem(rng: Random, networks: int, groups: int, engines: int, bandwidth: int) -> Problem:
    """Return chains of single segments, hand-overs picked up or waited for."""
    names = [f"e{i}" for i in range(engines)]
    made: list[Group] = []
    edges: list[Edge] = []
    for network in range(networks):
        for position in range(groups):
            options = tuple(
                Option(name, single(time, time * rng.choice([0, 4, 8, 11])))
                for name in names
                for time in (rng.randint(1, 9) * 1000,)
            )
            made.append(Group(f"n{network}.{position}", options, f"n{network}"))
            if position:
                hop = rng.choice([Hop(pickup_ns=1000), Hop(delay_ns=1500), FREE])
                rows = tuple(tuple(FREE if a == b else hop for b in names) for a in names)
                edges.append(Edge(made[-2].name, made[-1].name, rows))
    return Problem(tuple(map(Lanes, names)), tuple(made), tuple(edges), bandwidth=bandwidth * 10**9)


@given(st.integers(0, 2**32), SIZES)
@settings(max_examples=25, deadline=None)
def test_without_contention_the_optimum_is_that_of_brute_force(seed: int, size: tuple[int, int, int]) -> None:
    problem = random_problem(Random(seed), *size, bandwidth=0)
    found = solve(problem, "cpsat", time_limit=20)
    assert found.status == "optimal"
    assert found.values["makespan"] == found.evaluation.makespan_ns == brute_force(problem)


@given(st.integers(0, 2**32), st.sampled_from([(2, 2, 2), (3, 1, 2), (1, 4, 2), (2, 2, 3), (3, 1, 3)]))
@settings(max_examples=25, deadline=None)
def test_with_contention_bounds_hold_and_what_is_called_optimal_is(seed: int, size: tuple[int, int, int]) -> None:
    rng = Random(seed)
    problem = chain_problem(rng, *size, rng.choice([9, 14]))
    found, least = solve(problem, "cpsat", time_limit=3), brute_force(problem)
    assert found.bounds["makespan"] <= min(least, found.evaluation.makespan_ns)
    assert found.evaluation.makespan_ns <= evaluate(problem, list_schedule(problem)).makespan_ns
    if found.status == "optimal":
        shown = found.evaluation.makespan_ns * (1 - TOLERANCE)
        assert all(shown <= evaluate(problem, random_schedule(rng, problem)).makespan_ns + 1 for _ in range(200))


@given(st.integers(0, 2**32), SIZES, st.sampled_from([8, 14]))
@settings(max_examples=8, deadline=None)
def test_bounds_hold_and_what_is_called_optimal_is(seed: int, size: tuple[int, int, int], bandwidth: int) -> None:
    """Several segments, conversions that occupy engines: here the program alone has to bound contention."""
    problem = random_problem(Random(seed), *size, bandwidth=bandwidth)
    found, least = solve(problem, "cpsat", time_limit=3), brute_force(problem)
    assert found.bounds["makespan"] <= min(least, found.evaluation.makespan_ns)
    if found.status == "optimal":
        assert found.evaluation.makespan_ns <= least / (1 - TOLERANCE) + 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(3)
def test_on_two_engines_the_program_means_what_the_evaluation_says(seed: int) -> None:
    problem = chain_problem(Random(seed), 2, 2, 2, 10)
    program = Program(problem)
    answer = program.solve("makespan", 5, 1, 0)
    assert answer.schedule is not None
    clocked = tuple((key, start * program.grain) for key, start in answer.starts.items())
    found = evaluate(problem, replace(answer.schedule, earliest=clocked)).makespan_ns
    assert found == pytest.approx(answer.value, rel=0.01)
    assert answer.bound <= solve(problem, "cpsat", time_limit=20).evaluation.makespan_ns


@given(st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_relaxations_bound_every_objective(seed: int) -> None:
    problem = random_problem(Random(seed), 2, 2, 2, bandwidth=12)
    values = [evaluate(problem, schedule) for schedule in every_schedule(problem)]
    for name in ("makespan", "latency", "energy", "interval"):
        assert relax(problem, name, linear()) <= min(value.value(name) for value in values)


@given(st.integers(0, 2**32), st.sampled_from(["latency", "energy"]))
@settings(max_examples=15, deadline=None)
def test_objectives_follow_each_other(seed: int, first: str) -> None:
    problem = replace(random_problem(Random(seed), 2, 2, 2, bandwidth=0), objectives=(first, "makespan"))
    found = solve(problem, "cpsat", time_limit=20)
    values = [evaluate(problem, schedule) for schedule in every_schedule(problem)]
    assert found.status == "optimal"
    least = min(value.value(first) for value in values)
    assert found.values[first] == least
    assert found.values["makespan"] == min(v.makespan_ns for v in values if v.value(first) == least)


def test_the_interval_is_what_the_busiest_engine_needs_a_frame() -> None:
    ways = tuple(Option(name, single(1000)) for name in ("a", "b"))
    groups = tuple(Group(f"g{i}", ways, frames=2, period_ns=500) for i in range(4))
    problem = Problem((Lanes("a"), Lanes("b")), groups, objectives=("interval", "makespan"))
    found = solve(problem, "cpsat", time_limit=10)
    assert (found.status, found.values) == ("optimal", {"interval": 2000, "makespan": 4000})


def test_the_same_input_gives_the_same_answer() -> None:
    problem = chain_problem(Random(5), 2, 3, 2, 14)
    first, second = (solve(problem, "cpsat", time_limit=20) for _ in range(2))
    assert (first.schedule, first.status, first.bounds) == (second.schedule, second.status, second.bounds)


def test_a_limit_that_the_program_alone_uses_up_leaves_the_list_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain_problem(Random(5), 3, 4, 3, 14)
    monkeypatch.setattr("socsched_literature.mapping.search.time.monotonic", iter(range(0, 10**6, 8)).__next__)
    found = solve(problem, "cpsat", time_limit=15)
    assert (found.solver, found.status) == ("heft", "feasible")


def test_what_is_no_chain_is_solved() -> None:
    groups = tuple(Group(name, (Option("a", single(10)), Option("b", single(10)))) for name in "xyz")
    free = ((FREE, FREE), (FREE, FREE))
    problem = Problem((Lanes("a"), Lanes("b")), groups, (Edge("x", "z", free), Edge("y", "z", free)))
    assert solve(problem, "cpsat", time_limit=10).values == {"makespan": 20}


def test_a_limit_that_can_be_kept_is_kept_and_one_that_cannot_is_named() -> None:
    ways = (Option("a", single(100), draws=(("power", 5),)), Option("b", single(300), draws=(("power", 1),)))
    problem = Problem(
        (Lanes("a"), Lanes("b")),
        (Group("x", ways), Group("y", ways)),
        requirements=(Requirement("fast x", ("x",), 150), Requirement("y", ("y",), 400)),
        budgets=(Budget("power", 6), Budget("memory", 10)),
    )
    found = solve(problem, "cpsat", time_limit=10)
    assert (found.status, found.schedule.choice, found.evaluation.excess) == ("optimal", (0, 1), ())
    tight = replace(problem, requirements=(Requirement("fast x", ("x",), 150), Requirement("y", ("y",), 250)))
    found = solve(tight, "cpsat", time_limit=10)
    assert found.status == "infeasible" and found.evaluation.excess
    assert conflict(tight) == ("fast x", "y", "power")
    assert conflict(problem) == ()


def test_without_or_tools_the_list_schedule_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(Random(3), 2, 3, 2)
    for name in ("ortools", "ortools.linear_solver", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = solve(problem)
    assert (found.solver, found.status, found.schedule) == ("heft", "feasible", list_schedule(problem))
    with pytest.raises(MachineError, match="OR-Tools") as caught:
        solve(problem, "cpsat")
    assert "pip install" in caught.value.hint and "heft" in caught.value.hint
