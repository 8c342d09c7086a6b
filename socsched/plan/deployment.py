"""A mapping made concrete: stages and the conversions between them as tasks on lanes, with their worst-case times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.contention import ContentionModel, Rival, contention_model, draw
from socsched.cost.conversion import Hop, conversion_cost, converter, hops, matching, tensor_bytes, visible_ns
from socsched.cost.cost import Cost
from socsched.cost.model import CostModel
from socsched.descriptor.platform import Figure
from socsched.graph.taskgraph import TaskGraph
from socsched.plan.engine_levels import levels
from socsched.plan.execution import degraded_segments, execution_times, handing_over, longest_ns, slowed_by_lanes
from socsched.plan.observed import NOTHING, Observed
from socsched.plan.plan import PlannedEngine, PlannedSensor, Task, Transition

Mapping_ = Mapping[str, Cost]
"""Stage -> the cost (engine, precision, share) chosen for it."""


class Unconnectable(Exception):
    """A mapping whose neighbours need a conversion that no powered engine can run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may draw beside what the mode allows: mean power (mW) and DRAM traffic (bytes/s), if stated."""

    power_mw: int | None = None
    bytes_per_s: int | None = None


NO_LIMITS = Limits()


@dataclass(slots=True)
class Workload:
    """What stays the same while mappings change: the graph, the cost model, and who hands data to whom.

    `edges` lists (producer, consumer) stages; `observed`: what a simulation says of times; the rest remembers answers.
    """

    graph: TaskGraph
    model: CostModel
    policy: str
    edges: tuple[tuple[str, str], ...] = ()
    observed: Observed = NOTHING
    limits: Limits = NO_LIMITS
    _hops: dict[tuple[str, ...], list[Hop]] = field(default_factory=dict)
    _contention: ContentionModel | None = None
    _engines: tuple[PlannedEngine, ...] = ()

    @staticmethod
    def of(
        graph: TaskGraph, model: CostModel, policy: str, observed: Observed = NOTHING, limits: Limits = NO_LIMITS
    ) -> Workload:
        """Return the workload of a graph under a cost model."""
        return Workload(graph, model, policy, tuple(_edges(graph, model)), observed, limits)

    def asking(self, graph: TaskGraph) -> Workload:
        """Return the same with another graph."""
        return Workload.of(graph, self.model, self.policy, self.observed, self.limits)

    def engines(self) -> tuple[PlannedEngine, ...]:
        """Return the powered engines as the plan shows them."""
        if not self._engines:
            self._engines = tuple(
                _planned(self.model, e.id, self.policy) for e in self.model.platform.engines if self.units(e.id) > 0
            )
        return self._engines

    def contention(self) -> ContentionModel:
        """Return the platform's model of contention for DRAM; UsageError when its parameters cannot be used."""
        if self._contention is None:
            engines = {engine.id: engine.kind for engine in self.model.platform.engines}
            self._contention = contention_model(self.model.platform.contention(), self.model.dram, engines)
        return self._contention

    def sensors(self) -> tuple[PlannedSensor, ...]:
        """Return the pipeline's sensors as the plan shows them."""
        return tuple(
            PlannedSensor(s.name, s.period_ns, s.offset_ns, s.jitter_ns, s.bytes_per_frame, s.gap_ns)
            for s in self.graph.pipeline.sensors
        )

    def units(self, engine: str) -> int:
        """Return how many units of an engine are online."""
        return self.model.mode.engines[engine].units

    def lanes(self, engine: str) -> int:
        """Return how many jobs can run side by side on an engine."""
        return self.units(engine) if self.model.platform.engine(engine).shares == "unit" else 1

    def hops(self, producer: Cost, consumer: Cost) -> list[Hop]:
        """Return the tensors handed from one chosen stage to another."""
        key = (producer.stage, producer.engine, producer.precision, consumer.stage, consumer.engine, consumer.precision)
        if key not in self._hops:
            graph, platform = self.graph, self.model.platform
            given = self.model.work_of(graph.stage(producer.stage), producer.precision)
            wanted = self.model.work_of(graph.stage(consumer.stage), consumer.precision)
            self._hops[key] = (
                hops(given, platform.engine(producer.engine), wanted, platform.engine(consumer.engine))
                if given and wanted
                else []
            )
        return self._hops[key]

    def conversion(self, producer: Cost, consumer: Cost) -> Cost | None:
        """Return the cost of converting between two chosen stages, None when nothing changes; Unconnectable."""
        changed = [hop for hop in self.hops(producer, consumer) if hop.converts]
        if not changed:
            return None
        platform, mode = self.model.platform, self.model.mode
        engine = converter(platform, mode, platform.engine(producer.engine), platform.engine(consumer.engine))
        if engine is None:
            raise Unconnectable(f"no engine converts between {producer.stage!r} and {consumer.stage!r}")
        return conversion_cost(f"{producer.stage}>{consumer.stage}", changed, engine, platform, mode)

    def visible_ns(self, source: str, sink: str, size: int) -> int:
        """Return what making `size` bytes visible to another engine costs the producer (ns)."""
        return visible_ns(self.model.platform.engine(source), self.model.platform.engine(sink), size)

    def weights_bytes(self, cost: Cost) -> int:
        """Return how many bytes of weights a stage keeps on its engine, 0 where the engine has room for all."""
        if self.model.platform.engine(cost.engine).weights is None:
            return 0
        work = self.model.work_of(self.graph.stage(cost.stage), cost.precision)
        return sum(operator.weight_bytes for operator in work.operators) if work else 0

    def output_bytes(self, cost: Cost) -> int:
        """Return how many bytes a stage hands on when it runs as chosen."""
        stage = self.graph.stage(cost.stage)
        work = self.model.work_of(stage, cost.precision)
        return sum(map(tensor_bytes, work.outputs)) if work else stage.output_bytes


def _planned(model: CostModel, name: str, policy: str) -> PlannedEngine:
    engine, state = model.platform.engine(name), model.mode.engines[name]
    preemption, weights = engine.preemption, engine.weights
    return PlannedEngine(
        id=name,
        kind=engine.kind,
        lanes=state.units if engine.shares == "unit" else 1,
        preemption=engine.preemption.kind,
        switch_ns=round(engine.preemption.cost_ns.value),
        policy=policy,
        bandwidth=round(min(engine.bandwidth.value, model.dram)),
        idle_mw=round(engine.idle_mw.value),
        dynamic_mw=round(state.dynamic_mw.value),
        migration_ns=_rounded(preemption.migration_ns),
        reshape_ns=_rounded(engine.reconfigure_ns),
        reset_ns=_rounded(preemption.reset_ns),
        in_flight=preemption.in_flight,
        quantum_ns=engine.quantum_ns,
        capacities=engine.capacities[: state.units] if engine.shares == "unit" else (),
        memory_bytes=_rounded(weights.size if weights else None),
        swap_bandwidth=_rounded(weights.swap if weights else None),
        levels=levels(engine, state),
    )


def _rounded(figure: Figure | None) -> int:
    return round(figure.value) if figure else 0


def _edges(graph: TaskGraph, model: CostModel) -> list[tuple[str, str]]:
    """Return who hands data to whom: direct neighbours, for inputs these lack the nearest ancestor that has them."""
    stages, found = set(graph.order), []
    for name in graph.order:
        stage = graph.stage(name)
        direct = [n for n in dict.fromkeys((*stage.after, *stage.reads)) if n in stages]
        found += [(n, name) for n in direct]
        work = model.some_work(stage)
        if work is None:
            continue
        missing, queue, seen = work, list(direct), set()
        while queue and missing.inputs:
            other = queue.pop(0)
            if other in seen:
                continue
            seen.add(other)
            ancestor = graph.stage(other)
            source = model.some_work(ancestor)
            matched = [wanted for _, wanted in matching(source, missing)] if source else []
            if matched and (other, name) not in found:
                found.append((other, name))
            missing = replace(missing, inputs=tuple(t for t in missing.inputs if t not in matched))
            queue += [n for n in (*ancestor.after, *ancestor.reads) if n in stages]
    return found


@dataclass(frozen=True, slots=True)
class Deployment:
    """A mapping as tasks (deadlines and priorities still open) with the transitions between its stages."""

    workload: Workload
    mapping: Mapping_
    tasks: tuple[Task, ...]
    transitions: tuple[Transition, ...]


def deploy(workload: Workload, mapping: Mapping_) -> Deployment:
    """Turn a mapping into tasks on lanes; Unconnectable when a needed conversion cannot run anywhere."""
    graph = workload.graph
    conversions: dict[tuple[str, str], Cost] = {}
    for producer, consumer in workload.edges:
        cost = workload.conversion(mapping[producer], mapping[consumer])
        if cost is not None:
            conversions[producer, consumer] = cost
    tasks = []
    for name in graph.order:
        tasks.append(_stage_task(workload, mapping[name], conversions))
        tasks += [_conversion_task(workload, p, c) for (p, _), c in conversions.items() if p == name]
    tasks = _hand_over(workload, mapping, tasks)
    tasks = assign_lanes(tasks, mapping, {e.id: e.lanes for e in workload.engines()})
    transitions = _transitions(workload, mapping, conversions)
    tasks = slowed_by_lanes(with_wcet(tasks, workload.contention()), workload.engines())
    return Deployment(workload, mapping, tuple(tasks), tuple(transitions))


def _stage_task(workload: Workload, cost: Cost, conversions: Mapping[tuple[str, str], Cost]) -> Task:
    graph = workload.graph
    stage = graph.stage(cost.stage)
    renamed = {p: c.stage for (p, consumer), c in conversions.items() if consumer == stage.name}
    extra = [renamed[p] for p in renamed if p not in (*stage.after, *stage.reads)]
    after = [renamed.get(n, n) for n in stage.after] + [
        c for c in extra if _triggers(graph, c.split(">")[0], stage.name)
    ]
    reads = [renamed.get(n, n) for n in stage.reads] + [c for c in extra if c not in after]
    return Task(
        name=stage.name,
        kind="stage",
        engine=cost.engine,
        lanes=(),
        precision=cost.precision,
        after=tuple(after),
        reads=tuple(reads),
        timer=stage.period_ns is not None,
        period_ns=graph.period_ns[stage.name],
        offset_ns=graph.offset_ns[stage.name],
        queue=stage.queue,
        cost_ns=cost.time_ns,
        wcet_ns=cost.time_ns,
        bytes=cost.bytes,
        energy_uj=cost.energy_uj,
        segments=cost.segments,
        priority=0,
        deadline_ns=graph.period_ns[stage.name],
        jitter_ns=graph.jitter_ns[stage.name],
        criticality=stage.criticality,
        provenance=cost.provenance,
        source=cost.source,
        error=cost.error,
        model=stage.model,
        params=stage.params,
        overflow=stage.overflow,
        on_late=stage.on_late,
        degraded=degraded_segments(stage, cost, workload.model),
        times=execution_times(stage, cost, workload.model),
        release_jitter_ns=stage.jitter_ns,
        weights_bytes=workload.weights_bytes(cost),
    )


def _triggers(graph: TaskGraph, ancestor: str, name: str) -> bool:
    queue = list(graph.predecessors(name))
    while queue:
        other = queue.pop()
        if other == ancestor:
            return True
        queue += graph.predecessors(other)
    return False


def _conversion_task(workload: Workload, producer: str, cost: Cost) -> Task:
    graph = workload.graph
    consumer = cost.stage.split(">")[1]
    return Task(
        name=cost.stage,
        kind="conversion",
        engine=cost.engine,
        lanes=(),
        precision=cost.precision,
        after=(producer,),
        reads=(),
        timer=False,
        period_ns=graph.period_ns[producer],
        offset_ns=graph.offset_ns[producer],
        queue=max(graph.stage(producer).queue, graph.stage(consumer).queue),
        cost_ns=cost.time_ns,
        wcet_ns=cost.time_ns,
        bytes=cost.bytes,
        energy_uj=cost.energy_uj,
        segments=cost.segments,
        priority=0,
        deadline_ns=graph.period_ns[producer],
        jitter_ns=graph.jitter_ns[producer],
        criticality=graph.stage(consumer).criticality,
        provenance=cost.provenance,
        source=cost.source,
        error=cost.error,
        why=f"{producer} and {consumer} do not share a format",
    )


def _hand_over(workload: Workload, mapping: Mapping_, tasks: list[Task]) -> list[Task]:
    """Let every task whose result another engine reads pay for making it visible there."""
    engine = {task.name: task.engine for task in tasks}
    paid: dict[str, int] = {}
    for reader in tasks:
        for name in (*reader.after, *reader.reads):
            if name in engine:
                time = workload.visible_ns(engine[name], reader.engine, _handed(workload, mapping, name, tasks))
                paid[name] = max(paid.get(name, 0), time)
    result = []
    for task in tasks:
        time = paid.get(task.name, 0)
        if time > 0:
            task = handing_over(task, time)
        result.append(task)
    return result


def _handed(workload: Workload, mapping: Mapping_, name: str, tasks: Sequence[Task]) -> int:
    """Return the bytes a task hands on; a conversion writes about half of what it moves."""
    if name in mapping:
        return workload.output_bytes(mapping[name])
    return next(task.bytes for task in tasks if task.name == name) // 2


def assign_lanes(tasks: Sequence[Task], mapping: Mapping_, lanes: Mapping[str, int]) -> list[Task]:
    """Give gangs the first lanes of their engine, then all others the least loaded lane (worst fit decreasing).

    Where every task finds lanes of its own, gangs lie side by side.
    """
    load = {engine: [0.0] * count for engine, count in lanes.items()}
    taken: dict[str, tuple[int, ...]] = {}

    def share(task: Task) -> int:
        return min(mapping[task.name].share, lanes[task.engine]) if task.kind == "stage" else 1

    def utilisation(task: Task) -> float:
        return task.cost_ns / task.period_ns

    wanted = {engine: sum(share(task) for task in tasks if task.engine == engine) for engine in lanes}
    for task in sorted(tasks, key=lambda t: (-share(t), -utilisation(t))):
        loads = load[task.engine]
        if share(task) > 1:
            first = sum(map(bool, loads)) if wanted[task.engine] <= len(loads) else 0  # room for all: side by side
            chosen = tuple(range(first, first + share(task)))
        else:
            chosen = (min(range(len(loads)), key=lambda lane: (round(loads[lane], 9), lane)),)
        for lane in chosen:
            loads[lane] += utilisation(task)
        taken[task.name] = chosen
    return [replace(task, lanes=taken[task.name]) for task in tasks]


def with_wcet(tasks: Sequence[Task], contention: ContentionModel, foreign: Sequence[Rival] = ()) -> list[Task]:
    """Stretch every task by the worst that lanes outside its own can do to it while they use the DRAM.

    `foreign`: what else draws on it, each from a place of its own.
    """
    rivals = {
        t.name: Rival(t.engine, max(map(draw, (*t.segments, *t.degraded)), default=0.0), max(len(t.lanes), 1))
        for t in tasks
    }
    lanes: dict[tuple[str, int], list[Task]] = {}
    for task in tasks:
        for lane in task.lanes:
            lanes.setdefault((task.engine, lane), []).append(task)
    result = []
    for task in tasks:
        own = {(task.engine, lane) for lane in task.lanes}
        others = [
            [rivals[t.name] for t in members if not own & {(t.engine, n) for n in t.lanes}]
            for lane, members in lanes.items()
            if lane not in own
        ]
        others += [[rival] for rival in foreign]
        variants = [segments for segments in (task.segments, task.degraded) if segments or segments is task.segments]
        worst = max(contention.worst_pace(task.engine, segments, others) for segments in variants)
        result.append(replace(task, wcet_ns=longest_ns(task, worst)))
    return result


def _transitions(
    workload: Workload, mapping: Mapping_, conversions: Mapping[tuple[str, str], Cost]
) -> list[Transition]:
    result = []
    for producer, consumer in workload.edges:
        source, sink = mapping[producer], mapping[consumer]
        found = workload.hops(source, sink)
        cost = conversions.get((producer, consumer))
        if source.engine == sink.engine and cost is None:
            continue
        changed = [hop for hop in found if hop.converts] or found
        stage = workload.graph.stage(producer)
        size = sum(tensor_bytes(hop.given) for hop in found) or stage.output_bytes
        handoff = workload.visible_ns(source.engine, cost.engine if cost else sink.engine, size)
        result.append(
            Transition(
                source=producer,
                sink=consumer,
                bytes=size,
                layout_from=_joined(hop.given.layout for hop in changed),
                layout_to=_joined(hop.wanted.layout for hop in changed),
                dtype_from=_joined(hop.given.dtype for hop in changed),
                dtype_to=_joined(hop.wanted.dtype for hop in changed),
                engine=cost.engine if cost else "",
                task=cost.stage if cost else "",
                cost_ns=(cost.time_ns if cost else 0) + handoff,
            )
        )
    return result


def _joined(names: object) -> str:
    return "+".join(dict.fromkeys(name for name in names if name))  # type: ignore[attr-defined]
