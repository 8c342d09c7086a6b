"""Planners over lines of layer groups: AxoNN, Jedi, Herald, H2H, HaX-CoNN against worked examples and brute force."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from socsched_literature.mapping.evaluate import evaluate
from socsched_literature.mapping.lists import list_schedule
from socsched_literature.mapping.search import solve
from socsched_literature.planners.axonn import fastest_within
from socsched_literature.planners.h2h import computation_first, fetching, four_steps, resident
from socsched_literature.planners.herald import assign_groups, layers_in_order, makespan_ns, postprocess
from socsched_literature.planners.jedi import find_pipeline
from socsched_literature.planners.line import Line, choices_of, problem_of
from tests.literature.planners.small_graphs import line, random_line, ways


def changes(way: tuple[int, ...]) -> int:
    return sum(a != b for a, b in itertools.pairwise(way))


# -- AxoNN


def test_axonn_by_hand() -> None:
    """Three layers on a fast (e0) and a frugal (e1) engine, a change takes 1: all fast is 6 at 18; giving the last to
    e1 is 2 + 2 + 1 + 4 = 9 at 13, all frugal 12 at 3.  Under 13 the second, under 12 the frugal one with a change less.
    """
    costs = line([[2, 4]] * 3, [[6, 1]] * 3, change=1)
    assert fastest_within(costs, 18, 2) == (0, 0, 0)
    assert costs.cost((0, 0, 1)) == (9, 13)
    way = fastest_within(costs, 13, 2)
    assert way is not None and costs.cost(way) == (9, 13)
    way = fastest_within(costs, 12, 2)
    assert way is not None and costs.cost(way) == (11, 8)
    assert fastest_within(costs, 7, 2) == (1, 1, 1)
    assert fastest_within(costs, 2, 2) is None


@pytest.mark.parametrize("seed", range(20))
def test_axonn_is_the_fastest_within_its_cap(seed: int) -> None:
    rng = Random(seed)
    costs = random_line(rng, rng.randint(1, 5), rng.randint(2, 3))
    cap, most = rng.randint(5, 70), rng.randint(0, 3)
    known = [costs.cost(way) for way in ways(costs) if changes(way) <= most]
    within = [cost for cost in known if cost is not None and cost[1] <= cap]
    found = fastest_within(costs, cap, most)
    if not within:
        assert found is None
        return
    assert found is not None and changes(found) <= most
    cost = costs.cost(found)
    assert cost is not None and cost[1] <= cap and cost[0] == min(time for time, _ in within)


# -- Jedi


def test_jedi_by_hand() -> None:
    """Four layers of 4 on e0 and 6 on e1, a change takes 3: alone 16 a frame; three here and one there, 12 a frame."""
    found = find_pipeline(line([[4, 6]] * 4, change=3), 2)
    assert found == ((12, 12 + 3 + 6), (0, 0, 0, 1))
    assert find_pipeline(line([[4, 6]] * 4, change=3), 1) == ((16, 16), (0, 0, 0, 0))


@pytest.mark.parametrize("seed", range(20))
def test_jedi_has_the_shortest_interval(seed: int) -> None:
    rng = Random(seed)
    costs = random_line(rng, rng.randint(1, 6), 3)
    stages = rng.randint(1, 3)
    found = find_pipeline(costs, stages)
    values = []
    for way in ways(costs):
        runs = [place for place, _ in itertools.groupby(way)]
        if len(set(runs)) < len(runs) or len(runs) > stages:
            continue
        busy = {p: costs.entry[p][0] + sum(costs.time[g][p] or 0 for g, q in enumerate(way) if q == p) for p in runs}
        total = costs.cost(way)
        assert total is not None
        values.append((max(busy.values()), total[0]))
    assert (found[0] if found else None) == min(values, default=None)


# -- Herald


def test_herald_by_hand() -> None:
    """Two networks of two layers; e0 is best for all (2 against 3).  Breadth first with balance 2, the load of e0 may
    reach twice the least a layer could bring an engine to: a0 to e0 (2 <= 2 x 2), b0 to e0 (4 <= 2 x 3), a1 would bring
    e0 to
    6 <= 2 x 3, b1 to 8 > 2 x 3: e1.
    """
    two = [line([[2, 3]] * 2, name="a"), line([[2, 3]] * 2, name="b")]
    assert layers_in_order(two, "breadth") == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert layers_in_order(two, "depth") == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert assign_groups(two, "breadth", "latency", 2.0) == [[0, 0], [0, 1]]
    assert assign_groups(two, "breadth", "latency", 1e9) == [[0, 0], [0, 0]]
    problem = problem_of(two)
    assert makespan_ns(problem, two, [[0, 0], [0, 0]]) == 8
    best, places = postprocess(problem, two, [[0, 0], [0, 0]])
    assert best == makespan_ns(problem, two, places) < 8


def test_herald_chooses_by_energy_when_requested() -> None:
    one = [line([[2, 3]], [[9, 1]])]
    assert assign_groups(one, "breadth", "energy", 9.0) == [[1]]
    assert assign_groups(one, "breadth", "edp", 9.0) == [[1]]
    assert assign_groups(one, "breadth", "latency", 9.0) == [[0]]


# -- H2H


def test_h2h_by_hand() -> None:
    """A layer is a job of its own first: e0 takes 3, 3, 5 with an entry of 1 each, e1 takes 4, 4, 2 and 1, a change 4.

    Step 1: all on e0 up to the last, which ends at 8 + 6 = 14 there, or at 8 + 4 + 1 + 2 = 15 on e1: 14.  Nothing to
    keep resident: 14.  Fused, entries are paid once: 12.  Remapping finds nothing below.
    """
    costs = line([[3, 4], [3, 4], [5, 2]], change=4, entry=[(1, 0), (1, 0)])
    steps, places = four_steps([costs], [[0, 0, 0]])
    assert computation_first([costs]) == [[0, 0, 0]]
    assert steps == [14, 14, 12, 12] and places == [[0, 0, 0]]


def test_h2h_keeps_weights_where_they_save_most() -> None:
    """Room for 6: of items saving 4, 5, 6 of size 3, 3, 5 the first two."""
    assert resident([4, 5, 6], [3, 3, 5], 6) == (0, 1)
    assert resident([4, 5, 6], [3, 3, 5], 11) == (0, 1, 2)
    assert resident([4, 5, 6], [3, 3, 5], 2) == ()
    costs = line([[10, 20], [10, 20]])
    slow = fetching(costs, [50, 100], [0, 0], {1}, [10.0, 0.0])
    assert slow.time == ((15, 20), (10, 20))  # the second layer's weights are resident on e0; e1 fetches none
    steps, _ = four_steps([costs], [[50, 100]], {"e0": (100, 10.0)})
    assert steps[0] == 35 and steps[1] == 25


@pytest.mark.parametrize("seed", range(8))
def test_h2h_knapsack_is_the_best_that_fits(seed: int) -> None:
    rng = Random(seed)
    savings, sizes = ([rng.randint(1, 20) for _ in range(7)] for _ in range(2))
    room = rng.randint(5, 60)
    best = max(
        sum(savings[i] for i in chosen)
        for n in range(8)
        for chosen in itertools.combinations(range(7), n)
        if sum(sizes[i] for i in chosen) <= room
    )
    found = resident(savings, sizes, room)
    assert sum(sizes[i] for i in found) <= room and sum(savings[i] for i in found) == best


@pytest.mark.parametrize("seed", range(12))
def test_h2h_is_never_worse_than_its_own_steps_before(seed: int) -> None:
    rng = Random(seed)
    lines = [random_line(rng, rng.randint(1, 4), 2, name) for name in ("a", "b")]
    weights = [[rng.randint(0, 9) for _ in range(len(each))] for each in lines]
    steps, places = four_steps(lines, weights, {"e0": (rng.randint(0, 20), 1.0)})
    assert steps == sorted(steps, reverse=True)
    assert all(each.cost(way) is not None for each, way in zip(lines, places, strict=True))


# -- HaX-CoNN


def best_by_force(lines: list[Line], most: int) -> int:
    """Return the shortest makespan over every choice of places; the order of jobs by list scheduling and by force."""
    problem = problem_of(lines)
    best = 1 << 60
    for choice in itertools.product(*(ways(each) for each in lines)):
        if any(changes(way) > most for way in choice):
            continue
        chosen = [0] * len(problem.groups)
        for each, way in zip(lines, choice, strict=True):
            for group, place in enumerate(way):
                able = [p for p in range(len(each.places)) if each.time[group][p] is not None]
                chosen[problem.index[f"{each.name}:{group}"]] = able.index(place)
        first = list_schedule(problem, chosen)
        for order in _orders(first.order, [len(each) for each in lines], problem.index):
            best = min(best, evaluate(problem, type(first)(tuple(chosen), order)).makespan_ns)
    return best


def _orders(keys, sizes, index):  # type: ignore[no-untyped-def]
    """Yield every merge of the networks' jobs."""
    by_index = {key.index: key for key in keys}
    names = [name for number, size in enumerate(sizes) for name in [number] * size]
    for merge in set(itertools.permutations(names)):
        at = [0] * len(sizes)
        order = []
        for network in merge:
            order.append(by_index[index[f"{'ab'[network]}:{at[network]}"]])
            at[network] += 1
        yield tuple(order)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.sampled(3)
def test_haxconn_program_is_as_good_as_brute_force(seed: int) -> None:
    pytest.importorskip("ortools", reason="the exact solver needs OR-Tools")
    rng = Random(seed)
    lines = [random_line(rng, 2, 2, "a"), random_line(rng, 2, 2, "b")]
    most = rng.randint(0, 1)
    problem = problem_of(lines, transitions=most)
    found = solve(problem, "cpsat", 10.0)
    assert found.status == "optimal"
    places = choices_of(problem, lines, found.schedule.choice)
    assert all(changes(way) <= most for way in places.values())
    assert found.evaluation.makespan_ns == best_by_force(lines, most)
