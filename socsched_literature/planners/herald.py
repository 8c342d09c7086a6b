"""Herald: layers of several networks onto sub-accelerators, each on the fastest one unless loads become unbalanced.

Kwon, Lai, Pellauer, Krishna, Chen, Chandra, "Heterogeneous Dataflow Accelerators for Multi-DNN Workloads", HPCA 2021
(arXiv 1909.07437), its scheduler: layers are taken network by network (depth first) or one of each in turn (breadth
first); each goes to the accelerator that is best for it by latency, energy or their product, unless that would leave
accelerators unbalanced by more than a factor; then idle time is removed by moving layers.  The choice ignores
hand-overs and memory contention, which HaX-CoNN criticises.

Reconstructed: the balance compares accumulated times, the busiest accelerator against the least busy one that could
take the layer; the post-processing moves layers of the accelerator that ends last whenever the makespan falls (the
paper also reorders layers; here order is left to the dispatcher).
"""

from __future__ import annotations

from collections.abc import Sequence

from socsched.errors import UsageError
from socsched.planning.mapping.problem import Problem
from socsched.planning.planners import Ask, Option, Planner, Proposal, cut_proposal
from socsched_literature.mapping.evaluate import Impossible, chosen_hops, evaluate
from socsched_literature.mapping.lists import list_schedule
from socsched_literature.planners.line import Line, chosen_of, line_of, problem_of

METRICS = ("latency", "energy", "edp")
ORDERS = ("breadth", "depth")


def layers_in_order(lines: Sequence[Line], order: str) -> list[tuple[int, int]]:
    """Return (line, group) pairs in the order in which layers are assigned."""
    pairs = [(number, group) for number, line in enumerate(lines) for group in range(len(line))]
    return pairs if order == "depth" else sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def assign_groups(lines: Sequence[Line], order: str, metric: str, balance: float) -> list[list[int]]:
    """Return the place of every group by line: the best by `metric` that keeps loads within `balance`, if any does."""
    load: dict[str, int] = {place.engine: 0 for line in lines for place in line.places}
    found = [[-1] * len(line) for line in lines]
    for number, group in layers_in_order(lines, order):
        line = lines[number]
        able = [(time, p) for p, time in enumerate(line.time[group]) if time is not None]
        ranked = sorted(able, key=lambda pair: (_value(line, group, pair[1], metric), pair[1]))
        kept = [(time, p) for time, p in ranked if _balanced(line, load, able, time, p, balance)]
        time, place = (kept or ranked)[0]
        load[line.places[place].engine] += time
        found[number][group] = place
    return found


def _value(line: Line, group: int, place: int, metric: str) -> int:
    time, energy = line.time[group][place], line.energy[group][place]
    assert time is not None
    return {"latency": time, "energy": energy, "edp": time * energy}[metric]


def _balanced(
    line: Line, load: dict[str, int], able: Sequence[tuple[int, int]], time: int, place: int, factor: float
) -> bool:
    """Return whether a load stays within `factor` of the least load any accelerator would have with the layer."""
    least = min(load[line.places[p].engine] + t for t, p in able)
    return load[line.places[place].engine] + time <= factor * least


def makespan_ns(problem: Problem, lines: Sequence[Line], places: Sequence[Sequence[int]]) -> float:
    """Return the end of the last network (ns) if all start together, infinite if engines cannot be connected."""
    by_name = {line.name: way for line, way in zip(lines, places, strict=True)}
    chosen = chosen_of(problem, lines, by_name)
    try:
        chosen_hops(problem, chosen)
        return evaluate(problem, list_schedule(problem, chosen)).makespan_ns
    except Impossible:
        return float("inf")


def postprocess(problem: Problem, lines: Sequence[Line], places: list[list[int]]) -> tuple[float, list[list[int]]]:
    """Move single layers as long as the makespan falls; return the makespan and the places."""
    best, improved = makespan_ns(problem, lines, places), True
    while improved:
        improved = False
        for number, line in enumerate(lines):
            for group in range(len(line)):
                for place, time in enumerate(line.time[group]):
                    if time is None or place == places[number][group]:
                        continue
                    trial = [list(row) for row in places]
                    trial[number][group] = place
                    found = makespan_ns(problem, lines, trial)
                    if found < best:
                        best, places, improved = found, trial, True
    return best, places


def propose(ask: Ask) -> Proposal:
    """Assign the layers of all networks; other stages are mapped by our search."""
    options = ask.options
    for name, known in (("metric", METRICS), ("order", ORDERS)):
        if options[name] not in known:
            raise UsageError(f"option {name}={options[name]}", f"one of {', '.join(known)}")
    lines = [line_of(ask, name, options["groups"]) for name in ask.some_networks("herald")]
    places = assign_groups(lines, options["order"], options["metric"], options["balance"])
    facts = {"assigned_ns": _finite(makespan_ns(problem_of(lines), lines, places))}
    if options["postprocess"]:
        # Herald ignores hand-overs and considers layer times only.
        blind = [
            Line(x.name, x.places, x.ends, x.time, x.energy, x.traffic, ((0, 0),) * len(x.places), _free) for x in lines
        ]
        _, places = postprocess(problem_of(blind), blind, places)
        facts["postprocessed_ns"] = _finite(makespan_ns(problem_of(lines), lines, places))
    cuts = {line.name: line.legs(way) for line, way in zip(lines, places, strict=True)}
    return cut_proposal(ask, ask.rest(), cuts, **facts)


def _free(border: int, before: int, after: int) -> tuple[int, int]:
    return 0, 0


def _finite(value: float) -> int | None:
    return None if value == float("inf") else int(value)


PLANNER = Planner(
    "herald",
    "layers of all networks to the engine that is best for each, loads kept balanced",
    propose,
    "Kwon et al., HPCA 2021",
    {
        "metric": Option("latency", "what makes an engine best for a layer: latency, energy or edp"),
        "order": Option("breadth", "breadth: one layer of each network in turn, depth: network by network"),
        "balance": Option(2.0, "largest ratio of an engine's load to that of the least loaded"),
        "postprocess": Option(True, "move layers while the makespan falls"),
        "groups": Option(10, "layer groups a network; 0: every unit of layers"),
    },
)
