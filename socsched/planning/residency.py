"""Which networks stay in an engine's memory, and how the others get there: loads as stages of the plan.

An engine whose `weights` names `copies` keeps at most `size` bytes.  Where the networks of a plan need more, some stay
and the others share slots: before each job its weights are copied by a stage of its own, on an engine that stands for
the copy engine, while the engine computes something else (RT-Swap, Kim et al., RTAS 2024, swaps models behind the
computation of others).  Two networks share a slot only if they follow each other in the frames of one source: the load
of the next waits for the end of the one before, and a chain from the source to the end of the slot's last network,
with the shortest time between two frames as its deadline, proves that the next frame's load comes later.  So a slot has
one owner by precedence alone; search, analysis and simulation see stages, times and one more chain.

A copy is not preempted, so that a job whose input comes from the host can wait for one whole load on the same link.
Each such job is charged the longest load that precedence allows to run concurrently.

Who stays: the choice with the least bytes copied a second that fits, exactly up to `MOST` networks, else the busiest
first.  Rejected: eviction of the least recently used (a bound has to charge a load for every dispatch, and the engine
waits for each), a token for a slot in the simulator (a state that every reader of plans would have to know).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from socsched.cost.cost import Cost, Segment
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.pipeline import Anchor, Chain, Pipeline, Stage
from socsched.descriptor.platform import Engine, EngineMode, Figure, Platform, PowerMode, Preemption, WeightsMemory
from socsched.errors import UsageError
from socsched.graph.taskgraph import TaskGraph, task_graph
from socsched.planning.deployment import activations_of, weights_of
from socsched.planning.plan import Plan, Violation
from socsched.planning.search import CostCache, SearchRequest, search
from socsched.planning.task import COPY, LOAD, SLOT

MOST = 12
"""Networks of which every choice is tried."""
SLOTS = 2
"""Slots of the networks of one source: one is loaded while the other's network runs."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a network keeps on its engine: bytes of weights, of activations at their peak, and its period (ns)."""

    stage: str
    weights: int
    activations: int
    period_ns: int
    source: str


@dataclass(frozen=True, slots=True)
class Residency:
    """The networks that stay on an engine, and by slot those that are loaded into it, in the order of a frame.

    `workspace`: bytes of activations, the largest network's, since jobs follow each other there.
    """

    engine: str
    limit: int
    stay: tuple[Held, ...]
    slots: tuple[tuple[Held, ...], ...]
    workspace: int

    @property
    def bytes(self) -> int:
        """Return the most bytes that are resident at once."""
        slots = sum(max(one.weights for one in slot) for slot in self.slots)
        return self.workspace + sum(one.weights for one in self.stay) + slots

    @property
    def rate(self) -> float:
        """Return the bytes loaded a nanosecond."""
        return sum(one.weights / one.period_ns for slot in self.slots for one in slot)


def with_residency(request: SearchRequest, plan: Plan) -> tuple[SearchRequest, Plan]:
    """Return a request whose engines' networks fit, with loads where they have to take turns, and its plan.

    Both are the given ones where everything fits, and where no engine limits what stays.  A plan whose engine cannot
    hold its networks even in turn is undecided, with what it needs at least.
    """
    for engine in request.costs.platform.engines:
        if engine.weights is None or not engine.weights.copies or not plan.tasks:
            continue
        graph = task_graph(request.pipeline)
        held = networks(request, plan, graph, engine)
        limit = round(engine.weights.size.value)
        ways = list(choices(engine.id, limit, held))
        found = chosen(ways)
        if found is None:
            unmet = _too_large(min(ways, key=lambda one: one.bytes))
            return request, replace(plan, verdict="undecided", violations=(*plan.violations, unmet))
        request = _swapping(request, plan, graph, engine, found)
        plan = search(replace(request, explain=False)) if found.slots else plan
        plan = replace(plan, solver=replace(plan.solver, notes={**(plan.solver.notes or {}), **_notes(found)}))
    return request, plan


def refuse_loads(plan: Plan) -> None:
    """Raise UsageError for a plan that loads weights during a frame: bundles were not tried with one."""
    loads = [task.name.removeprefix(LOAD) for task in plan.tasks if task.name.startswith(LOAD)]
    if loads:
        raise UsageError(
            f"weights of {', '.join(loads)} are loaded for every frame, which a bundle does not do",
            "run the plan on its machine, or plan with a larger memory",
        )


def with_limits(platform: Platform, limits: Mapping[str, int]) -> Platform:
    """Return a platform whose engines keep no more than so many bytes of networks, by engine; others are loaded.

    Loads come over the link of an engine with memory of its own, else at its bandwidth.  UsageError for an engine that
    the platform does not have.
    """
    known = {engine.id: engine for engine in platform.engines}
    if unknown := [name for name in limits if name not in known]:
        raise UsageError(f"{platform.name} has no engine {unknown[0]!r}", f"its engines: {', '.join(known)}")

    def limited(engine: Engine) -> Engine:
        swap = engine.weights.swap if engine.weights else engine.link.bandwidth if engine.link else engine.bandwidth
        room = Figure(limits[engine.id], "assumed", note="--memory")
        return replace(engine, weights=WeightsMemory(room, swap, copies=True))

    engines = tuple(limited(one) if one.id in limits else one for one in platform.engines)
    return replace(platform, engines=engines)


def networks(request: SearchRequest, plan: Plan, graph: TaskGraph, engine: Engine) -> list[Held]:
    """Return what the networks of a plan keep on an engine, in the order of the graph."""
    model = request.costs.model(request.costs.platform.mode(plan.mode))
    tasks = {task.name: task for task in plan.tasks if task.engine == engine.id and task.model is not None}
    found = []
    for name in graph.order:
        work = model.work_of(graph.stage(name), tasks[name].precision) if name in tasks else None
        if work is not None:
            sources = ",".join(sorted(graph.sources[name]))
            found.append(Held(name, weights_of(work), activations_of(work), graph.period_ns[name], sources))
    return found


def choices(engine: str, limit: int, held: Sequence[Held]) -> Iterator[Residency]:
    """Yield ways to keep some networks and load the others, the one that loads none first."""
    workspace = max((one.activations for one in held), default=0)
    yield Residency(engine, limit, tuple(held), (), workspace)
    able = [one for one in held if one.weights and "," not in one.source]
    ordered = sorted(able, key=lambda one: one.weights / one.period_ns)
    for count in range(1, len(able) + 1):
        for moved in combinations(able, count) if len(able) <= MOST else (tuple(ordered[:count]),):
            stay = tuple(one for one in held if one not in moved)
            for slots in range(1, SLOTS + 1):
                yield Residency(engine, limit, stay, _slots(held, set(moved), slots), workspace)


def chosen(found: Iterable[Residency]) -> Residency | None:
    """Return the choice that fits with the least bytes loaded a second, more slots among equals; None if none fits."""
    fitting = [one for one in found if one.bytes <= one.limit]
    return min(fitting, key=lambda one: (one.rate, -len(one.slots)), default=None)


def _slots(held: Sequence[Held], moved: set[Held], count: int) -> tuple[tuple[Held, ...], ...]:
    """Deal the networks of each source to its slots in turn."""
    slots = []
    for source in dict.fromkeys(one.source for one in held if one in moved):
        own = [one for one in held if one in moved and one.source == source]
        slots += [tuple(own[number::count]) for number in range(min(count, len(own)))]
    return tuple(slots)


def _too_large(least: Residency) -> Violation:
    """Return the violation of an engine whose networks do not fit in turn, with what they need at least."""
    terms = [(f"weights of {one.stage}", one.weights) for one in least.stay if one.weights]
    for slot in least.slots:
        largest = max(slot, key=lambda one: one.weights)
        terms.append((f"a slot for {', '.join(one.stage for one in slot)}", largest.weights))
    terms.append(("activations of the largest", least.workspace))
    gap = least.bytes - least.limit
    return Violation(f"memory of {least.engine}", least.bytes, least.limit, gap, "B", tuple(terms), ())


def _notes(found: Residency) -> dict[str, str]:
    if not found.slots:
        return {}
    notes = {one.stage: f"stays in the memory of {found.engine}" for one in found.stay if one.weights}
    for number, slot in enumerate(found.slots):
        for one in slot:
            notes[one.stage] = f"is loaded for every frame, into slot {number} of {found.engine}"
    return notes


# -- the plan with loads


def _swapping(request: SearchRequest, plan: Plan, graph: TaskGraph, engine: Engine, found: Residency) -> SearchRequest:
    """Return the request with loads: networks where the plan has them, weights copied by an engine of their own."""
    platform = with_copier(request.costs.platform, engine)
    pipeline = with_loads(request.pipeline, platform, plan, graph, found)
    waits, before = waits_of(pipeline, plan, found), request.costs.adjust

    def adjust(cost: Cost) -> Cost:
        changed = before(cost) if before else cost
        wait = waits.get(cost.stage, 0) if cost.engine == engine.id else 0
        if not wait:
            return changed
        behind = Segment("input behind a load", wait, wait, 0)
        return replace(changed, time_ns=changed.time_ns + wait, segments=(behind, *changed.segments))

    costs = CostCache(platform, request.costs.work, request.costs.profile, adjust=adjust)
    modes = tuple(mode for mode in platform.modes if mode.name == plan.mode)
    return replace(request, pipeline=pipeline, costs=costs, modes=modes, cuts=False)


def waits_of(pipeline: Pipeline, plan: Plan, found: Residency) -> dict[str, int]:
    """Return by stage of the engine the longest load (ns) behind which its input can be: not one of its own slot,
    whose loads and networks take turns; nothing where all its inputs lie on the engine."""
    times = {
        one.name.removeprefix(LOAD): round(one.costs[0].time_ns.value)
        for one in pipeline.stages
        if one.name.startswith(LOAD)
    }
    own = {one.stage: {other.stage for other in slot} for slot in found.slots for one in slot}
    there = {task.name for task in plan.tasks if task.engine == found.engine}
    waits = {}
    for stage in pipeline.stages:
        given = {name for name in (*stage.after, *stage.reads) if not name.startswith(LOAD)}
        if stage.name in there and not given <= there:
            waits[stage.name] = max(
                (time for name, time in times.items() if name not in own.get(stage.name, ())), default=0
            )
    return waits


def with_copier(platform: Platform, engine: Engine) -> Platform:
    """Return the platform with the copy engine of another; what stays is settled, so that this one has no limit."""
    assert engine.weights is not None
    nothing = Figure(0, "assumed", note="part of its engine")
    first = next(iter(engine.precisions.values()))
    copier = Engine(
        id=f"{engine.id}-{COPY}", kind=COPY, title=f"copy engine of {engine.id}", units=1, unit="queue", shares="whole",
        clock_hz=Figure(1e9, "assumed"), precisions={"fp32": replace(first, dtype="fp32", fitted=())},
        bandwidth=engine.weights.swap, sram=None, preemption=Preemption("none", nothing), launch_ns=nothing,
        submit_ns=engine.submit_ns, handoff_ns=nothing, converts=False, operators=OperatorRules(), idle_mw=nothing,
        dynamic_mw=nothing, target={"kind": "simulated"},
    )  # fmt: skip
    engines = tuple(replace(one, weights=None) if one.id == engine.id else one for one in platform.engines)

    def powered(mode: PowerMode) -> PowerMode:
        return replace(mode, engines={**mode.engines, copier.id: EngineMode(1, 10**9, nothing)})

    return replace(platform, engines=(*engines, copier), modes=tuple(map(powered, platform.modes)))


def with_loads(pipeline: Pipeline, platform: Platform, plan: Plan, graph: TaskGraph, found: Residency) -> Pipeline:
    """Return the pipeline with a stage before every network that is loaded, and a chain for every slot."""
    copier = platform.engine(f"{found.engine}-{COPY}")
    before = {one.stage: earlier for slot in found.slots for earlier, one in zip((None, *slot), slot, strict=False)}
    tasks = {task.name: task for task in plan.tasks}
    stages: list[Stage] = []
    for stage in pipeline.stages:
        engines = (tasks[stage.name].engine,) if stage.name in tasks else tuple(
            engine.id for engine in platform.engines if engine.kind != COPY
        )  # fmt: skip
        pinned = replace(stage, engines=engines)
        if stage.name in tasks:
            pinned = replace(pinned, precisions=(tasks[stage.name].precision,))
        if stage.name not in before:
            stages.append(pinned)
            continue
        earlier = before[stage.name]
        size = next(one.weights for slot in found.slots for one in slot if one.stage == stage.name)
        load = _load(stage, copier, platform, plan.mode, size, earlier.stage if earlier else "")
        triggered = replace(pinned, after=(*stage.after, load.name))
        if stage.period_ns is not None:
            triggered = replace(triggered, period_ns=None, offset_ns=0, jitter_ns=0)
        stages += [load, triggered]
    chains = tuple(_slot_chain(pipeline, graph, found, number, slot) for number, slot in enumerate(found.slots))
    return replace(pipeline, stages=tuple(stages), chains=(*pipeline.chains, *chains))


def _load(stage: Stage, copier: Engine, platform: Platform, mode: str, size: int, earlier: str) -> Stage:
    """Return the stage that copies the weights of another, once the network before it in its slot has ended."""
    time = math.ceil(size / copier.bandwidth.value * 1e9) + round(copier.submit_ns.value)
    rate = copier.bandwidth
    figure = Figure(time, "derived", rate.source, f"{size} bytes at the swap rate", rate.error)
    anchor = Anchor(platform.name, mode, copier.id, "fp32", figure, scales_with="nothing")
    return Stage(
        f"{LOAD}{stage.name}", f"weights of {stage.name}", None, (*stage.after, *([earlier] if earlier else [])),
        stage.period_ns, stage.offset_ns, jitter_ns=stage.jitter_ns, precisions=("fp32",), costs=(anchor,),
        queue=stage.queue, criticality=stage.criticality, engines=(copier.id,), output_bytes=size,
    )  # fmt: skip


def _slot_chain(pipeline: Pipeline, graph: TaskGraph, found: Residency, number: int, slot: Sequence[Held]) -> Chain:
    """Return the chain whose deadline keeps a slot's loads of the next frame behind this frame's last network."""
    source = slot[0].source
    sensor = next((one for one in pipeline.sensors if one.name == source), None)
    first = graph.stage(slot[0].stage)
    path: list[str] = [] if sensor is None else [source, *_way(graph, source, first)]
    for one in slot:
        path += [f"{LOAD}{one.stage}", one.stage]
    jitter = sensor.jitter_ns if sensor else first.jitter_ns
    return Chain(f"{SLOT}{found.engine}:{number}", tuple(path), slot[0].period_ns - jitter, criticality="hard")


def _way(graph: TaskGraph, source: str, stage: Stage) -> list[str]:
    """Return the stages from a source to what triggers a stage."""
    if source in stage.after:
        return []
    before = next(name for name in stage.after if name in graph.order)
    return [*_way(graph, source, graph.stage(before)), before]
