"""Shares of engines as choices of a plan: how many of an engine's units each stage has, decided before the search.

An engine that declares `division` becomes, for one search, an engine whose lanes are groups of units; stages of the
most urgent class there have the first lanes, all others the rest.  A few such vectors are tried, the most balanced
first, with the engines and data types of the plan for whole engines, so that each search is a small one.  Loads decide
the order: a share whose stages need more than all its time is never tried.

Rejected: parts as engines of their own, a share per candidate inside the search (docs/sharing.md, Shares in plans).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from socsched.cost.conversion import conversion_pace
from socsched.cost.model import CostModel
from socsched.cost.shares import PORT, Neighbour, neighbour_of, on_share
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Engine, Figure, Platform
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.planning.plan import Plan
from socsched.planning.search import CostCache, SearchRequest, search
from socsched.units import format_duration

VECTORS = 2
"""Vectors of shares that are searched."""
EVALUATIONS = 96
"""Evaluations of each search: a ninth of the default budget, for a mapping that is known but for the shares."""
RANK = ("hard", "firm", "soft")


@dataclass(frozen=True, slots=True)
class Vector:
    """The groups of an engine's units: `first` of `groups` for the stages `urgent`, the rest for `others`."""

    engine: str
    groups: int
    first: int
    urgent: tuple[str, ...]
    others: tuple[str, ...]

    def portions(self) -> dict[str, tuple[int, int]]:
        """Return the first lane and the number of lanes by stage."""
        rest = self.first, self.groups - self.first
        return {**dict.fromkeys(self.urgent, (0, self.first)), **dict.fromkeys(self.others, rest)}


def with_shares(request: SearchRequest, plan: Plan, wanted: Mapping[str, int]) -> Plan:
    """Return the best of a plan and those with shares of its divisible engines.

    `wanted`: the groups of the urgent stages by engine, where the caller chose them; such a plan is returned whatever
    the one for whole engines is.  Raises UsageError for an engine that cannot be divided so.
    """
    platform = request.costs.platform
    _check(platform, plan, wanted)
    if not plan.tasks:
        return plan
    found = []
    for vector in vectors(request, plan, wanted):
        costs = CostCache(divided(platform, vector), request.costs.work, request.costs.profile)
        costs.adjust, costs.undivided, costs.apart = request.costs.adjust, request.costs, request.costs.apart
        costs.others = neighbours(request.costs.model(platform.mode(plan.mode)), request.pipeline, plan, vector)
        pipeline = portioned(request.pipeline, vector, plan)
        modes = tuple(mode for mode in costs.platform.modes if mode.name == plan.mode)
        small = replace(
            request, pipeline=pipeline, costs=costs, modes=modes, cuts=False, evaluations=EVALUATIONS, explain=False
        )
        found.append(search(small))
    kept = [one for one in found if one.verdict == "feasible"]
    return _noted(min(kept or found, key=_rank, default=plan) if wanted else min((plan, *kept), key=_rank))


def _noted(plan: Plan) -> Plan:
    """Return a plan that says of each stage on a share what that costs, and what its bound assumes of the others."""
    notes = dict(plan.solver.notes or {})
    for task in plan.tasks:
        if (parts := task.shared) is None:
            continue
        costs = (
            (parts.share_ns, f"on {len(task.lanes)} groups of {task.engine}"),
            *((ns, f"for its {what} beside {parts.by}") for ns, what in (
                (parts.memory_ns, "own memory"), (parts.cache_ns, "cache"), (parts.launches_ns, "launch queue"),
            )),
        )  # fmt: skip
        said = ", ".join(f"+{format_duration(ns)} {where}" for ns, where in costs if ns)
        notes[task.name] = f"{said}; bounds count the DRAM traffic of all lanes besides"
    return replace(plan, solver=replace(plan.solver, notes=notes)) if notes else plan


def _check(platform: Platform, plan: Plan, wanted: Mapping[str, int]) -> None:
    for name, groups in wanted.items():
        engine = next((one for one in platform.engines if one.id == name), None)
        division = engine.division if engine else None
        if engine is None or division is None:
            able = ", ".join(one.id for one in platform.engines if one.division) or "none"
            raise UsageError(f"--shares {name}: no engine that can be divided", f"those that can: {able}")
        units = platform.mode(plan.mode).engines[name].units
        if groups not in division.counts(units):
            counts = ", ".join(map(str, division.counts(units))) or "none"
            raise UsageError(
                f"--shares {name}={groups}: not a share of its {units} {engine.unit} in groups of {division.group}",
                f"one of {counts}",
            )


def _rank(plan: Plan) -> tuple[bool, float, float]:
    """Order plans: feasible ones, then the largest part of its deadline that a hard chain needs, then the objective."""
    top = {task.name for task in plan.tasks if task.criticality == RANK[0]}
    hard = {chain.name for chain in plan.chains if not top.isdisjoint(chain.path)}
    used = [
        (chain.bound_ns if chain.bound_ns is not None else 10 * chain.deadline_ns) / max(chain.deadline_ns, 1)
        for chain in plan.chains
        if chain.name in hard or not hard
    ]
    return plan.verdict != "feasible", max(used, default=0.0), float(plan.solver.value or 0)


def vectors(request: SearchRequest, plan: Plan, wanted: Mapping[str, int]) -> Iterator[Vector]:
    """Yield the vectors to try, the most balanced first: those under which no share is busy all the time."""
    model = request.costs.model(request.costs.platform.mode(plan.mode))
    for engine in model.platform.engines:
        units = model.mode.engines[engine.id].units
        if engine.division is None or (wanted and engine.id not in wanted):
            continue
        urgent, others = classes(request.pipeline, plan, engine)
        if not urgent or not others:
            continue
        groups = engine.division.count(units)
        rest = set(engine.division.counts(units))
        counts = [n for n in engine.division.counts(units) if groups - n in rest or not engine.division.sizes]
        if engine.id in wanted:
            yield Vector(engine.id, groups, wanted[engine.id], urgent, others)
            continue
        loaded = []
        for count in counts:
            vector = Vector(engine.id, groups, count, urgent, others)
            load = max(_load(model, request.pipeline, plan, vector))
            if load <= 1.0:
                loaded.append((load, vector))
        yield from (vector for _, vector in sorted(loaded, key=lambda one: one[0])[:VECTORS])


def classes(pipeline: Pipeline, plan: Plan, engine: Engine) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the most urgent stages on an engine and the others: by criticality, else by the tightest chain."""
    stages = {stage.name for stage in pipeline.stages}
    here = [task for task in plan.tasks if task.engine == engine.id and task.name in stages]
    ranks = {RANK.index(task.criticality) for task in here}
    if len(ranks) > 1:
        urgent = {task.name for task in here if RANK.index(task.criticality) == min(ranks)}
    else:
        tight = min(pipeline.chains, key=lambda chain: chain.deadline_ns, default=None)
        urgent = {task.name for task in here if tight is not None and task.name in tight.path}
    names = [task.name for task in here]
    return tuple(n for n in names if n in urgent), tuple(n for n in names if n not in urgent)


def neighbours(model: CostModel, pipeline: Pipeline, plan: Plan, vector: Vector) -> dict[str, list[Neighbour]]:
    """Return by stage the stages on the other share of the engine, as they are there."""
    engine, state = model.platform.engine(vector.engine), model.mode.engines[vector.engine]
    assert engine.division is not None
    graph, portions, tasks = task_graph(pipeline), vector.portions(), {task.name: task for task in plan.tasks}
    sides = []
    for names in (vector.urgent, vector.others):
        found = []
        for name in names:
            work = model.work_of(graph.stage(name), tasks[name].precision)
            cost = model.at(graph.stage(name), engine.id, tasks[name].precision, state.units)
            assert cost is not None, "a task of the plan"
            units = min(portions[name][1] * engine.division.group, state.units)
            alone = on_share(cost, work, engine, state, portions[name][1], model.dram)
            found.append(neighbour_of(alone, work, engine, state, units, model.dram))
        sides.append(found)
    return {**dict.fromkeys(vector.urgent, sides[1]), **dict.fromkeys(vector.others, sides[0])}


def _load(model: CostModel, pipeline: Pipeline, plan: Plan, vector: Vector) -> tuple[float, float]:
    """Return the utilisation of the shares of urgent stages and of the others."""
    others = neighbours(model, pipeline, plan, vector)
    whole = CostModel(
        divided(model.platform, vector), model.mode, model.work, model.profile, undivided=model, others=others
    )
    graph, portions = task_graph(pipeline), vector.portions()
    tasks = {task.name: task for task in plan.tasks}
    loads = []
    for names in (vector.urgent, vector.others):
        total = 0.0
        for name in names:
            stage = replace(graph.stage(name), portions={vector.engine: portions[name]})
            cost = whole.at(stage, vector.engine, tasks[name].precision, portions[name][1])
            total += (cost.time_ns if cost else 0) / graph.period_ns[name]
        loads.append(total)
    return loads[0], loads[1]


def divided(platform: Platform, vector: Vector) -> Platform:
    """Return the platform whose engine is its groups, as lanes; conversions there run on one group."""

    def changed(engine: Engine) -> Engine:
        division = engine.division
        assert division is not None
        whole = conversion_pace(engine, platform, platform.mode())
        port = division.port.value if division.port else PORT * engine.clock_hz.value
        note = f"{division.group} {engine.unit} of {engine.units}"
        pace = Figure(min(whole.rate, port * division.group), "derived", note=note, error=0.3)
        lanes: dict[str, object] = {"shares": "unit", "units": vector.groups, "unit": f"group-of-{engine.unit}"}
        return replace(engine, conversion=pace, capacities=(), **lanes)  # type: ignore[arg-type]

    engines = tuple(changed(one) if one.id == vector.engine else one for one in platform.engines)
    modes = tuple(
        replace(
            mode,
            engines={
                name: replace(state, units=min(vector.groups, state.units)) if name == vector.engine else state
                for name, state in mode.engines.items()
            },
        )
        for mode in platform.modes
    )
    return replace(platform, engines=engines, modes=modes)


def portioned(pipeline: Pipeline, vector: Vector, plan: Plan) -> Pipeline:
    """Return the pipeline whose stages have their shares, and the engines and data types of a plan."""
    portions, tasks = vector.portions(), {task.name: task for task in plan.tasks}
    rest = vector.first, vector.groups - vector.first

    def changed(name: str) -> dict[str, object]:
        found: dict[str, object] = {"portions": {vector.engine: portions.get(name, rest)}}
        if name in tasks:
            found |= {"engines": (tasks[name].engine,), "precisions": (tasks[name].precision,)}
        return found

    stages = tuple(replace(stage, **changed(stage.name)) for stage in pipeline.stages)  # type: ignore[arg-type]
    return replace(pipeline, stages=stages)
