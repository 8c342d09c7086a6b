"""XAuto's offline program: assign an engine and an end to every node so that the last one ends soonest.

XAuto (arXiv 2508.09503), as far as known second-hand: every node has implementations for some engines, exactly one is
chosen (sum p = 1), nodes follow their predecessors, each ends no sooner than its worst case after its start, and for
every engine and interval between a start and an end the demand within it fits (engines are preemptive); the latest end
is minimised, and run-time priorities are the order of ends.  Reconstructed: the horizon is one round of all nodes,
released together; among equal latest ends the sum of all ends decides, so that priorities are not arbitrary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from socsched.errors import UsageError
from socsched.planning.mapping.solvers import constraints


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its worst case (ns) on every engine that has an implementation, and its predecessors."""

    name: str
    times_ns: tuple[tuple[str, int], ...]
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Engine, end (ns) and priority (0 is highest) of every node by name; `optimal`: proved so."""

    engines: dict[str, str]
    ends_ns: dict[str, int]
    priorities: dict[str, int]
    makespan_ns: int
    optimal: bool


def schedule(nodes: Sequence[Node], time_limit: float = 10.0, grain_ns: int = 1000) -> Schedule:
    """Return the solution for nodes that are released together; times count in grains, rounded up.

    UsageError for nodes without engines or with unknown predecessors, MachineError without OR-Tools.
    """
    names = [node.name for node in nodes]
    for node in nodes:
        if not node.times_ns:
            raise UsageError(f"node {node.name!r} has no implementation")
        if unknown := set(node.after) - set(names):
            raise UsageError(f"node {node.name!r} follows unknown nodes: {', '.join(sorted(unknown))}")
    cp_model = constraints()

    model = cp_model.CpModel()
    times = {node.name: {engine: -(-time // grain_ns) for engine, time in node.times_ns} for node in nodes}
    horizon = sum(max(options.values()) for options in times.values())
    starts = {name: model.new_int_var(0, horizon, f"s:{name}") for name in names}
    ends = {name: model.new_int_var(0, horizon, f"f:{name}") for name in names}
    chosen = {(n, e): model.new_bool_var(f"p:{n}:{e}") for n in names for e in times[n]}
    last = model.new_int_var(0, horizon, "last")
    for node in nodes:
        model.add_exactly_one(chosen[node.name, engine] for engine in times[node.name])
        for engine, time in times[node.name].items():
            model.add(ends[node.name] - starts[node.name] >= time).only_enforce_if(chosen[node.name, engine])
        for before in node.after:
            model.add(starts[node.name] >= ends[before])
        model.add(last >= ends[node.name])
    _demand(model, names, times, starts, ends, chosen)
    # lexicographic: the last end first, then all of them
    model.minimize(last * (horizon * len(names) + 1) + sum(ends.values()))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise UsageError(f"no schedule found within {time_limit:g} s", "give it more time")
    found = {n: next(e for e in times[n] if solver.value(chosen[n, e])) for n in names}
    ended = {name: solver.value(ends[name]) * grain_ns for name in names}
    order = sorted(names, key=lambda name: (ended[name], names.index(name)))
    ranks = {name: rank for rank, name in enumerate(order)}
    return Schedule(found, ended, ranks, solver.value(last) * grain_ns, status == cp_model.OPTIMAL)


def _demand(
    model: Any, names: Sequence[str], times: dict[str, dict[str, int]], starts: dict[str, Any], ends: dict[str, Any],
    chosen: dict[tuple[str, str], Any],
) -> None:  # fmt: skip
    """Bound the demand: on each engine, nodes that start and end within [s_a, f_b] take no longer than the interval."""
    begins: dict[tuple[str, str], Any] = {}
    stops: dict[tuple[str, str], Any] = {}
    for a in names:
        for b in names:
            # b starts no sooner than a; b ends no later than a
            begins[a, b], stops[a, b] = model.new_bool_var(""), model.new_bool_var("")
            model.add(starts[b] < starts[a]).only_enforce_if(~begins[a, b])
            model.add(ends[b] > ends[a]).only_enforce_if(~stops[a, b])
    for a in names:
        for b in names:
            for engine in sorted({engine for options in times.values() for engine in options}):
                parts = []
                for name in (name for name in names if engine in times[name]):
                    inside = model.new_bool_var("")
                    needed = (begins[a, name], stops[b, name], chosen[name, engine])
                    model.add_bool_or([*(~term for term in needed), inside])
                    parts.append(times[name][engine] * inside)
                # an interval that ends before it begins contains nothing: a node that starts after s_a ends after it
                if parts:
                    both = model.new_bool_var("")
                    model.add(ends[b] < starts[a]).only_enforce_if(~both)
                    model.add(sum(parts) <= ends[b] - starts[a]).only_enforce_if(both)
