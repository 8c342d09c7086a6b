"""Contention for memory in a constraint program: the loss of any two overlapping jobs to each other.

While it overlaps with j, group i loses the share 1 - alone/stretched of that time, by the same max-min fair shares as
elsewhere.  Every pair that may overlap has its overlap as a variable, and the duration of i is at least its time alone
plus its losses to the groups of any one other engine, which run in sequence.  With two engines this is the fluid model
itself.  With more it is a lower bound, as a third engine only shrinks shares further.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.planning.mapping import grains
from socsched.planning.mapping.grains import SCALE
from socsched.planning.mapping.jobs import Jobs
from socsched.planning.mapping.problem import JobKey, Problem, alone_ns

PAIRS = 400
"""Maximum number of job pairs whose overlap is modelled; each costs a dozen variables."""

Losses = Mapping[tuple[int, int, int, int], tuple[int, int]]
"""(i, a, j, b) -> losses of groups i and j with options a and b to each other (1 / SCALE of their overlap)."""


def losses_of(problem: Problem) -> Losses:
    """Return the losses of groups to each other; empty if more than `PAIRS` pairs of jobs would be modelled."""
    found = dict[tuple[int, int, int, int], tuple[int, int]]()
    related = grains.successors(problem)
    several = {engine.id for engine in problem.engines if engine.count > 1}
    pairs = 0
    for i, left in enumerate(problem.groups):
        for j in range(i + 1, len(problem.groups)):
            right = problem.groups[j]
            if j in related[i] or i in related[j]:
                continue
            losses = {
                (i, a, j, b): lost
                for a, first in enumerate(left.options)
                for b, second in enumerate(right.options)
                if first.engine != second.engine or first.engine in several
                if any(lost := grains.losses(first, second, problem.bandwidth))
            }
            if losses:
                pairs += left.frames * right.frames
                found.update(losses)
            if pairs > PAIRS:
                return {}
    return found


def add_losses(of: Jobs, stretch: Losses) -> None:
    """Constrain every job to take at least its time alone plus its losses to overlapping jobs."""
    problem, model, groups = of.problem, of.model, of.problem.groups
    losses: dict[tuple[JobKey, str, int], list[Any]] = {}
    for i, j in dict.fromkeys((i, j) for i, _, j, _ in stretch):
        options = [(a, b, lost) for (x, a, y, b), lost in stretch.items() if (x, y) == (i, j)]
        for f in range(groups[i].frames):
            for g in range(groups[j].frames):
                overlap = _overlap(of, JobKey(f, i), JobKey(g, j))
                for side, (key, other) in enumerate(((JobKey(f, i), j), (JobKey(g, j), i))):
                    rows: dict[tuple[str, int], list[tuple[int, Any, int]]] = {}
                    for a, b, lost in options:
                        option = groups[other].options[b if side == 0 else a]
                        # On an engine with several lanes two jobs may run at once: each then bounds separately.
                        single = problem.lanes(option.engine) == 1
                        rows.setdefault((option.engine, -1 if single else other), []).append(
                            (lost[side], of.taken[i][a], b)
                        )
                    for (engine, number), terms in rows.items():
                        part = model.new_int_var(0, of.horizon * SCALE, "")
                        for factor, x, b in terms:
                            if factor:
                                model.add(part >= factor * (overlap - 3)).only_enforce_if([x, of.taken[j][b]])
                        losses.setdefault((key, engine, number), []).append(part)
    for (key, _, _), parts in losses.items():
        group = groups[key.index]
        alone = sum(
            of.grains_of(alone_ns(option, problem.bandwidth)) * x
            for x, option in zip(of.taken[key.index], group.options, strict=True)
        )
        ran = of.jobs[key].over - of.jobs[key].begun
        model.add(ran * SCALE >= alone * SCALE + sum(parts) - 3 * SCALE)


def _overlap(of: Jobs, first: JobKey, second: JobKey) -> Any:
    model, a, b = of.model, of.jobs[first], of.jobs[second]
    overlap = model.new_int_var(0, of.horizon, "")
    low, high = model.new_int_var(0, of.horizon, ""), model.new_int_var(0, of.horizon, "")
    model.add_max_equality(low, [a.begun, b.begun])
    model.add_min_equality(high, [a.over, b.over])
    model.add(overlap >= high - low)
    return overlap
