"""The input of mapping: a graph of stages under a cost model, the data edges between stages, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from socsched.cost.contention import ContentionModel, contention_model
from socsched.cost.conversion import (
    Hop,
    conversion_cost,
    converter,
    handover_ns,
    matching,
    visible_ns,
)
from socsched.cost.cost import Cost
from socsched.cost.model import CostModel
from socsched.deadline import check
from socsched.descriptor.platform import Engine, EngineMode, Figure, WeightsMemory, contention_of, dynamic_power
from socsched.errors import UsageError
from socsched.graph.operators import tensor_bytes
from socsched.graph.taskgraph import TaskGraph
from socsched.planning.plan import Level, Plan, PlannedEngine, PlannedSensor, Task
from socsched.schedulability.chains import Sources


@dataclass(frozen=True, slots=True)
class Observed:
    """Mean times (ns) in excess of those expected without interference.

    `extra_ns` by (task, engine): waiting and the effect of other traffic, from activation to completion; of a task on
    other engines, only the mean of an engine's tasks is known, if that (`typical_ns`), and it changes by `factors`
    with the engine's load from that at the time (`loads`: lanes in use on average, of how many).  `offset_ns` by chain:
    deviation of sampling delays from half a period, due to their phases.
    """

    extra_ns: Mapping[tuple[str, str], int] = field(default_factory=dict)
    offset_ns: Mapping[str, int] = field(default_factory=dict)
    typical_ns: Mapping[str, int] = field(default_factory=dict)
    loads: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)

    def extra(self, task: str, engine: str) -> int:
        """Return the excess (ns) of a task on an engine."""
        known = self.extra_ns.get((task, engine))
        value = self.typical_ns.get(engine, 0) if known is None else known
        return round(value * self.factors[engine]) if value > 0 and engine in self.factors else value

    def beside(self, tasks: Sequence[Task]) -> Observed:
        """Return the same with the factors by which waiting changes with the engines' load, as in an M/G/1 queue."""
        if not self.loads:
            return self
        now = loads_of(tasks)
        factors = {
            name: min(max(_queued(now.get(name, 0.0) / lanes) / _queued(then / lanes), 0.2), 10.0)
            for name, (then, lanes) in self.loads.items()
        }
        return replace(self, factors=factors)


def loads_of(tasks: Iterable[Task]) -> dict[str, float]:
    """Return the mean number of lanes in use on every engine, each task counting for one."""
    found: dict[str, float] = {}
    for task in tasks:
        found[task.engine] = found.get(task.engine, 0.0) + task.cost_ns / task.period_ns
    return found


def _queued(used: float) -> float:
    used = min(max(used, 0.02), 0.98)
    return used / (1 - used)


NOTHING = Observed()
T = TypeVar("T")


GOVERNORS = ("static", "ccedf", "load")


def levels(engine: Engine, state: EngineMode) -> tuple[Level, ...]:
    """Return the operating points of an engine up to its planned clock, slowest first; () if there is no choice.

    Power is that of all online units by the mode's power model; a slower point that would draw more than the planned
    one is left out.
    """
    if engine.points is None or state.units <= 0:
        return ()
    top = round(state.dynamic_mw.value)
    slower = [point.clock_hz for point in engine.points.points if point.clock_hz < state.clock_hz]
    found = [Level(clock, round(dynamic_power(engine, state.units, clock).value)) for clock in slower]
    kept = [level for level in found if level.dynamic_mw <= top]
    return (*kept, Level(state.clock_hz, top)) if kept else ()


def governable(engine: PlannedEngine, governor: str) -> bool:
    """Return whether a governor can serve an engine: it has a choice of clocks, and states how it follows the load."""
    return len(engine.levels) > 1 and (governor != "load" or engine.look_ns > 0)


def apply_governor(plan: Plan, governor: str) -> Plan:
    """Return the plan with a governor on every engine it can serve; UsageError if there is none."""
    if governor not in GOVERNORS:
        raise UsageError(f"unknown governor {governor!r}", f"one of {', '.join(GOVERNORS)}")
    served = [engine.id for engine in plan.engines if governable(engine, governor)]
    if governor != "static" and not served:
        fields = "operating_points and governor" if governor == "load" else "operating_points"
        raise UsageError(
            f"governor {governor}: no engine of the plan has operating points to choose from",
            f"give engines of the platform {fields}, and plan again",
        )
    engines = (replace(e, governor=governor) if e.id in served else e for e in plan.engines)
    return replace(plan, engines=tuple(engines))


Mapping_ = Mapping[str, Cost]
"""Stage -> the cost (engine, precision, share) chosen for it."""


def place_of(cost: Cost) -> tuple[str, str, int]:
    """Return where and how a stage runs: engine, precision and share."""
    return cost.engine, cost.precision, cost.share


def place_name(cost: Cost) -> str:
    """Return where and how a stage runs, in words."""
    return f"{cost.engine} {cost.precision}" + (f" x{cost.share}" if cost.share > 1 else "")


class Unconnectable(Exception):
    """A mapping whose neighbours need a conversion that no powered engine can run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a plan in addition to the mode's: mean power (mW) and DRAM traffic (bytes/s), if stated."""

    power_mw: int | None = None
    bytes_per_s: int | None = None


NO_LIMITS = Limits()


MOST_RESULTS, MOST_TERMS = 4096, 1_000_000
"""Analyses that are kept, and what their bounds may be sums of altogether: about 200 MB."""


MOST_MADE = 50_000
"""Tasks that are kept: about 50 MB."""


@dataclass(slots=True)
class Results:
    """Analyses of mappings so far: searches with other budgets, or with observed times, come back to many of them."""

    _graphs: dict[tuple[str, ...], list[TaskGraph]] = field(default_factory=dict)
    analyses: dict[Hashable, Any] = field(default_factory=dict)

    def shared(self, graph: TaskGraph) -> TaskGraph:
        """Return the first graph of a pipeline that equals this graph's."""
        alike = self._graphs.setdefault(graph.order, [])
        for other in alike:
            if other.pipeline == graph.pipeline:
                return other
        alike.append(graph)
        return graph


@dataclass(slots=True)
class Workload:
    """The data that stay the same while mappings change: the graph, the cost model, and the edges between stages.

    `edges` lists (producer, consumer) stages; `observed`: times from a simulation; the remaining fields cache
    results, `sizes` those of `planning.deployment`, `results` of `planning.assess`, `flat` of `planning.scores`,
    `outline` of `planning.deployment`.
    """

    graph: TaskGraph
    model: CostModel
    policy: str
    edges: tuple[tuple[str, str], ...] = ()
    observed: Observed = NOTHING
    limits: Limits = NO_LIMITS
    sizes: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    results: Results = field(default_factory=Results)
    flat: Any = None
    outline: Any = None
    _shared: TaskGraph | None = None
    _around: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _hops: dict[tuple[str, ...], list[Hop]] = field(default_factory=dict)
    _conversions: dict[tuple[str, ...], Cost | None] = field(default_factory=dict)
    _outputs: dict[tuple[str, str], int] = field(default_factory=dict)
    _made: dict[tuple[int, Hashable], tuple[object, Any]] = field(default_factory=dict)
    _contention: ContentionModel | None = None
    _engines: tuple[PlannedEngine, ...] = ()
    _sensors: tuple[PlannedSensor, ...] | None = None
    _sources: dict[tuple[str, ...], Sources] = field(default_factory=dict)

    @staticmethod
    def of(
        graph: TaskGraph,
        model: CostModel,
        policy: str,
        observed: Observed = NOTHING,
        limits: Limits = NO_LIMITS,
        results: Results | None = None,
    ) -> Workload:
        """Return the workload of a graph under a cost model; `results`: of workloads with models of this platform."""
        workload = Workload(graph, model, policy, tuple(_edges(graph, model)), observed, limits)
        workload.results = workload.results if results is None else results
        return workload

    def asking(self, graph: TaskGraph) -> Workload:
        """Return the same workload with another graph."""
        return Workload.of(graph, self.model, self.policy, self.observed, self.limits, self.results)

    def key(self) -> Hashable:
        """Return what analyses depend on besides a deployment's tasks: equal for equal workloads that share results."""
        if self._shared is None:
            self._shared = self.results.shared(self.graph)
        lanes = tuple((engine.lanes, engine.capacities) for engine in self.engines())
        return id(self._shared), self.model.mode.name, self.policy, lanes

    def engines(self) -> tuple[PlannedEngine, ...]:
        """Return the powered engines as the plan shows them."""
        if not self._engines:
            self._engines = tuple(
                _planned(self.model, e.id, self.policy) for e in self.model.platform.engines if self.units(e.id) > 0
            )
        return self._engines

    def contention(self) -> ContentionModel:
        """Return the platform's DRAM contention model; UsageError if its parameters cannot be used."""
        if self._contention is None:
            engines = {engine.id: engine.kind for engine in self.model.platform.engines}
            self._contention = contention_model(contention_of(self.model.platform), self.model.dram, engines)
        return self._contention

    def options(self) -> dict[str, list[Cost]]:
        """Return the costs of every stage wherever it can run, stages in their order."""
        return {name: self.model.candidates(self.graph.stage(name)) for name in self.graph.order}

    def sensors(self) -> tuple[PlannedSensor, ...]:
        """Return the pipeline's sensors as the plan shows them."""
        if self._sensors is None:
            self._sensors = tuple(
                PlannedSensor(s.name, s.period_ns, s.offset_ns, s.jitter_ns, s.bytes_per_frame, s.gap_ns)
                for s in self.graph.pipeline.sensors
            )
        return self._sensors

    def sources(self, tasks: Sequence[Task]) -> Sources:
        """Return the sources of the tasks of a mapping, which depend on the conversions among them alone."""
        names = tuple(task.name for task in tasks)
        if names not in self._sources:
            self._sources[names] = Sources.of(tasks, self.graph.pipeline.sensors)
        return self._sources[names].alike(tasks)

    def around(self) -> dict[str, list[tuple[str, str]]]:
        """Return the edges of every stage."""
        if not self._around:
            self._around = {name: [] for name in self.graph.order}
            for edge in self.edges:
                self._around[edge[0]].append(edge)
                self._around[edge[1]].append(edge)
        return self._around

    def units(self, engine: str) -> int:
        """Return the number of online units of an engine."""
        return self.model.mode.engines[engine].units

    def lanes(self, engine: str) -> int:
        """Return the number of jobs that can run concurrently on an engine."""
        return self.units(engine) if self.model.platform.engine(engine).shares == "unit" else 1

    def hops(self, producer: Cost, consumer: Cost) -> list[Hop]:
        """Return the tensors handed from one chosen stage to another."""
        key = _handed(producer, consumer)
        if key not in self._hops:
            source, sink = self.graph.stage(producer.stage), self.graph.stage(consumer.stage)
            self._hops[key] = self.model.hops(
                source, (producer.engine, producer.precision), sink, (consumer.engine, consumer.precision)
            )
        return self._hops[key]

    def conversion(self, producer: Cost, consumer: Cost) -> Cost | None:
        """Return the cost of converting between two chosen stages, None if nothing changes; Unconnectable."""
        key = _handed(producer, consumer)
        if key not in self._conversions:
            self._conversions[key] = self._conversion(producer, consumer)
        return self._conversions[key]

    def _conversion(self, producer: Cost, consumer: Cost) -> Cost | None:
        changed = [hop for hop in self.hops(producer, consumer) if hop.converts]
        if not changed:
            return None
        platform, mode = self.model.platform, self.model.mode
        engine = converter(platform, mode, platform.engine(producer.engine), platform.engine(consumer.engine))
        if engine is None:
            raise Unconnectable(f"no engine converts between {producer.stage!r} and {consumer.stage!r}")
        pace = self.model.conversion_pace(engine)
        cost = conversion_cost(
            f"{producer.stage}>{consumer.stage}", changed, producer.engine, engine, platform, mode, pace
        )
        return self.model.adjust(cost) if self.model.adjust else cost

    def once(self, of: object, detail: Hashable, make: Callable[..., T], *given: Any) -> T:
        """Return what is made of an object, a cost or a task, some detail, and what these imply; each only once."""
        key = (id(of), detail)  # the object is kept, so that no other can have its identity
        known = self._made.get(key)
        if known is None:
            check()
            if len(self._made) > MOST_MADE:
                self._made.clear()
            known = self._made[key] = (of, make(*given))
        return known[1]

    def visible_ns(self, source: str, sink: str, size: int) -> int:
        """Return the producer's cost (ns) of making `size` bytes visible to another engine."""
        return visible_ns(self.model.platform.engine(source), self.model.platform.engine(sink), size)

    def handovers(self, producer: Cost, consumer: Cost) -> list[tuple[str, str, int]]:
        """Return (task, task, bytes) of what one chosen stage hands to another, through a conversion if need be."""
        found, conversion = self.hops(producer, consumer), self.conversion(producer, consumer)
        moved = [hop for hop in found if hop.converts]
        here = sum(tensor_bytes(hop.given) for hop in found if not hop.converts)
        made = [(producer.stage, consumer.stage, here)] if here else []
        if conversion is not None:
            made.append((producer.stage, conversion.stage, sum(tensor_bytes(hop.given) for hop in moved)))
            made.append((conversion.stage, consumer.stage, sum(tensor_bytes(hop.wanted) for hop in moved)))
        return made

    def handover_ns(self, producer: Cost, consumer: Cost) -> int:
        """Return the time (ns) of what one chosen stage hands to another over links of engines that keep tensors."""
        if not self.keeping:
            return 0
        conversion = self.conversion(producer, consumer)
        engines = {one.stage: self.model.platform.engine(one.engine) for one in (producer, consumer, conversion) if one}
        return sum(handover_ns(engines[a], engines[b], size) for a, b, size in self.handovers(producer, consumer))

    @property
    def keeping(self) -> set[str]:
        """Return the engines that keep tensors in their own memory."""
        return {engine.id for engine in self.model.platform.engines if engine.keeps}

    def weights_bytes(self, cost: Cost) -> int:
        """Return the bytes of weights that a stage keeps on its engine, 0 if the engine has room for all."""
        if _limit(self.model.platform.engine(cost.engine)) is None:
            return 0
        work = self.model.work_of(self.graph.stage(cost.stage), cost.precision)
        return sum(operator.weight_bytes for operator in work.operators) if work else 0

    def frame_bytes(self, cost: Cost) -> int:
        """Return the bytes that a stage reads of sensors when it runs as chosen; numbers of theirs come in fp32."""
        work = self.model.work_of(self.graph.stage(cost.stage), cost.precision)
        sources = [self.model.some_work(self.graph.stage(one)) for one, sink in self.edges if sink == cost.stage]
        left = list(work.inputs) if work else []
        for source in sources:
            for _, wanted in matching(source, replace(work, inputs=tuple(left))) if source and work else ():
                left.remove(wanted)
        return sum(tensor_bytes(replace(one, dtype="fp32") if one.dtype.startswith("fp") else one) for one in left)

    def output_bytes(self, cost: Cost) -> int:
        """Return the bytes that a stage hands on when it runs as chosen."""
        key = (cost.stage, cost.precision)
        if key not in self._outputs:
            stage = self.graph.stage(cost.stage)
            work = self.model.work_of(stage, cost.precision)
            self._outputs[key] = sum(map(tensor_bytes, work.outputs)) if work else stage.output_bytes
        return self._outputs[key]


def _handed(producer: Cost, consumer: Cost) -> tuple[str, ...]:
    return producer.stage, producer.engine, producer.precision, consumer.stage, consumer.engine, consumer.precision


def _planned(model: CostModel, name: str, policy: str) -> PlannedEngine:
    engine, state = model.platform.engine(name), model.mode.engines[name]
    preemption, weights = engine.preemption, _limit(engine)
    return PlannedEngine(
        id=name,
        kind=engine.kind,
        lanes=state.units if engine.shares == "unit" else 1,
        preemption=engine.preemption.kind,
        switch_ns=round(engine.preemption.cost_ns.value),
        policy=policy,
        bandwidth=round(engine.host_bandwidth(model.dram)),
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
        look_ns=_rounded(engine.governor.period_ns if engine.governor else None),
        busy_ppm=round(1e6 * engine.governor.load.value) if engine.governor else 0,
    )


def _limit(engine: Engine) -> WeightsMemory | None:
    """Return the room for weights that jobs fetch theirs into; where a copy engine loads them, `residency` plans it."""
    return None if engine.weights is None or engine.weights.copies else engine.weights


def _rounded(figure: Figure | None) -> int:
    return round(figure.value) if figure else 0


def _edges(graph: TaskGraph, model: CostModel) -> list[tuple[str, str]]:
    """Return the data edges: direct neighbours, and for inputs these lack the nearest ancestor that has them."""
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
