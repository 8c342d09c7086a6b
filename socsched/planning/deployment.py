"""A mapping as a deployment: stages and conversions as tasks on lanes, with worst-case times and the memory they need.

Everything stays allocated while the plan runs, as runtimes of accelerators allocate a network's memory when they load
it: the weights of every network, the activations that are alive at once in it, and a buffer for every frame that may be
on its way between two stages.  Code, the runtimes' own memory and stages known by their time only are not counted; what
firmware and the operating system take is the platform's `dram.reserved`.  A margin for runtimes has no published
figure.  Sizes depend on stage and data type alone and are kept, so that a candidate costs a few additions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from socsched.cost.conversion import crossing_ns
from socsched.cost.cost import Cost
from socsched.deadline import check
from socsched.errors import CompileError
from socsched.graph.operators import DTYPE_BYTES, tensor_bytes
from socsched.graph.taskgraph import TaskGraph
from socsched.planning.execution import (
    assign_lanes,
    degraded_segments,
    execution_times,
    handing_over,
    high_ns,
    slowed_by_lanes,
    with_wcet,
)
from socsched.planning.plan import Task, Transition
from socsched.planning.workload import Mapping_, Workload

if TYPE_CHECKING:
    from socsched.cost.cost import Cost
    from socsched.cost.model import CostModel
    from socsched.descriptor.pipeline import Stage
    from socsched.descriptor.platform import Platform
    from socsched.graph.operators import StageWork
    from socsched.planning.workload import Workload


CAPACITY = "DRAM capacity"
"""Name of the requirement."""
LOOK_NS = 15_000
"""How long the executor may take to see that a device has ended (`executor/native/cuda_frame.hpp`)."""
WEIGHTS = "weights of "
"""Start of the names of terms that are weights."""


def capacity(platform: Platform) -> int:
    """Return the bytes of main memory that a plan may use."""
    dram = platform.dram
    return max(round(dram.size.value - (dram.reserved.value if dram.reserved else 0)), 0)


def footprint(deployment: Deployment) -> tuple[tuple[str, int], ...]:
    """Return the terms (name, bytes) of a deployment's memory; what takes none is left out."""
    workload = deployment.workload
    terms = []
    for name, cost in deployment.mapping.items():
        weights, activations = stage_bytes(workload, cost)
        terms += [(WEIGHTS + name, weights), (f"activations of {name}", activations)]
    frames = frames_kept(deployment.tasks)
    for task in deployment.tasks:
        size = written_bytes(workload, task, deployment.mapping.get(task.name))
        terms.append((f"output of {task.name}", size * (1 + frames.get(task.name, 1))))
    for sensor in workload.sensors():
        terms.append((f"frames of {sensor.name}", sensor.bytes_per_frame * (1 + frames.get(sensor.name, 1))))
    return tuple(term for term in terms if term[1])


def frames_kept(tasks: Sequence[Task]) -> dict[str, int]:
    """Return how many frames of a task or sensor are kept, besides the one that is written, where tasks read it."""
    frames: dict[str, int] = {}
    for task in tasks:
        for producer in task.after:  # the frames that wait, and the one read
            frames[producer] = max(frames.get(producer, 1), task.queue + 1)
        for producer in task.reads:  # the latest, which may be read while the next one is written
            frames.setdefault(producer, 1)
    return frames


def written_bytes(workload: Workload, task: Task, cost: Cost | None) -> int:
    """Return the bytes of a task's result, of a stage as it runs; a conversion writes about half of what it moves."""
    return task.bytes // 2 if cost is None else workload.output_bytes(cost)


def stage_bytes(workload: Workload, cost: Cost) -> tuple[int, int]:
    """Return the bytes of a stage's weights, and of its activations at their peak."""
    if workload.model.platform.engine(cost.engine).link is not None:
        return 0, 0  # in the engine's own memory
    known = workload.sizes
    key = (cost.stage, cost.precision)
    if key not in known:
        work = workload.model.work_of(workload.graph.stage(cost.stage), cost.precision)
        known[key] = (weights_of(work), activations_of(work)) if work else (0, 0)
    return known[key]


def least_weights(model: CostModel, stage: Stage) -> int:
    """Return the bytes of a stage's weights in the accepted data type that needs least, whole or cut.

    None are needed in main memory where an engine with memory of its own may take the stage.
    """
    if any(engine.link is not None for engine in model.platform.engines):
        return 0
    found = []
    for precision in stage.precisions:
        try:
            work = model.work_of(stage, precision)
        except CompileError:  # a limit of this machine says nothing about the stage
            return 0
        found.append(weights_of(work) if work else 0)
    return min(found, default=0)


def weights_of(work: StageWork) -> int:
    """Return the bytes of a stage's weights."""
    return sum(operator.weight_bytes for operator in work.operators)


def activations_of(work: StageWork) -> int:
    """Return the most bytes alive at once: by pass where these are known, else of the largest operator."""
    if work.passes:
        return max(one.live for one in work.passes) * DTYPE_BYTES[work.precision]
    return max((operator.read_bytes + operator.write_bytes for operator in work.operators), default=0)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A mapping as tasks, deadlines and priorities not yet set, and the conversions among them."""

    workload: Workload
    mapping: Mapping_
    tasks: tuple[Task, ...]
    conversions: Mapping[tuple[str, str], Cost]

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """Return the transitions between the stages."""
        return tuple(_transitions(self.workload, self.mapping, self.conversions))


def deploy(workload: Workload, mapping: Mapping_) -> Deployment:
    """Turn a mapping into tasks on lanes; Unconnectable if no engine can run a needed conversion."""
    return placed(outlined(workload, mapping))


@dataclass(frozen=True, slots=True)
class Outline:
    """A mapping as tasks without lanes, their `cost_ns` final; `found`: the conversion on every edge, if there is one.

    `parts`: the tasks of every stage, its conversions with it; `plain`: before what it hands over is charged.
    """

    workload: Workload
    mapping: Mapping_
    tasks: list[Task]
    found: Mapping[tuple[str, str], Cost | None]
    plain: Mapping[str, Sequence[Task]]
    parts: Mapping[str, Sequence[Task]]


def outlined(workload: Workload, mapping: Mapping_) -> Outline:
    """Turn a mapping into tasks without lanes, which most mappings of a search need not have; Unconnectable.

    Of the outline before, what is not near a stage that has moved is kept.
    """
    check()
    around, order = workload.around(), workload.graph.order
    last: Outline | None = workload.outline
    found, plain, parts = dict.fromkeys(workload.edges), dict[str, Sequence[Task]](), dict[str, Sequence[Task]]()
    moved: Sequence[str] = order
    if last is not None:
        found, plain, parts = dict(last.found), dict(last.plain), dict(last.parts)
        moved = [name for name in order if mapping[name] is not last.mapping[name]]
    near = dict.fromkeys(moved)
    for name in moved:
        for edge in around[name]:
            found[edge] = workload.conversion(mapping[edge[0]], mapping[edge[1]])
            near |= dict.fromkeys(edge)
    for name in near:
        converted = tuple([edge[0] for edge in around[name] if edge[1] == name and found[edge]])
        behind = [cost for edge in around[name] if edge[0] == name and (cost := found[edge])]
        cost = mapping[name]
        plain[name] = [
            workload.once(cost, converted, _stage_task, workload, cost, converted),
            *(workload.once(c, name, _conversion_task, workload, name, c) for c in behind),
        ]
    for name in near | dict.fromkeys(edge[0] for sink in near for edge in around[sink]):
        readers = [plain[sink] for source, sink in around[name] if source == name]
        parts[name] = _hand_over(workload, mapping[name], plain[name], readers)
    tasks = _cross(workload, mapping, [task for name in order for task in parts[name]])
    outline = workload.outline = Outline(workload, dict(mapping), tasks, found, plain, parts)
    return outline


def placed(outline: Outline) -> Deployment:
    """Assign lanes to the tasks of an outline, and the worst-case times that follow."""
    workload, mapping = outline.workload, outline.mapping
    lanes = {e.id: e.lanes for e in workload.engines()}
    tasks = assign_lanes(outline.tasks, mapping, lanes, workload.once, _portions(outline))
    tasks = with_wcet(tasks, workload.contention(), once=workload.once)
    tasks = slowed_by_lanes(tasks, workload.engines(), workload.once)
    conversions = {edge: cost for edge, cost in outline.found.items() if cost is not None}
    return Deployment(workload, mapping, tuple(tasks), conversions)


def _portions(outline: Outline) -> dict[str, range]:
    """Return the lanes of tasks on divided engines; a conversion runs on one of its producer's."""
    found = dict[str, range]()
    if not any(stage.portions for stage in outline.workload.graph.pipeline.stages):
        return found
    for task in outline.tasks:
        stage = outline.workload.graph.stage(task.name if task.kind == "stage" else task.name.split(">")[0])
        if task.engine in stage.portions:
            first, count = stage.portions[task.engine]
            found[task.name] = range(first, first + (count if task.kind == "stage" else 1))
    return found


def _stage_task(workload: Workload, cost: Cost, converted: Sequence[str]) -> Task:
    """Return the task of a stage; `converted`: the producers whose data are converted for it."""
    graph = workload.graph
    stage = graph.stage(cost.stage)
    times = execution_times(stage, cost, workload.model)
    renamed = {producer: f"{producer}>{stage.name}" for producer in converted}
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
        times=times,
        high_ns=high_ns(stage, cost, times),
        shared=cost.shared,
        release_jitter_ns=stage.jitter_ns,
        weights_bytes=workload.weights_bytes(cost),
        runtime=cost.runtime,
    )


def _triggers(graph: TaskGraph, ancestor: str, name: str) -> bool:
    queue = list(graph.predecessors(name))
    while queue:
        other = queue.pop()
        if other == ancestor:
            return True
        queue += graph.predecessors(other)
    return False


# A conversion is a task of its own: time added to its consumer would hide the engine it occupies, and when it does so.
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


def _hand_over(workload: Workload, cost: Cost, tasks: Sequence[Task], readers: Sequence[Sequence[Task]]) -> list[Task]:
    """Charge the tasks of a stage whose results another engine reads with making them visible there."""
    own = {task.name: task for task in tasks}
    paid = dict.fromkeys(own, 0)
    for reader in (*tasks, *(one for each in readers for one in each)):
        for name in (*reader.after, *reader.reads):
            task = own.get(name)
            if task is not None and task.engine != reader.engine:  # on one engine data are visible at once
                size = written_bytes(workload, task, cost if task.kind == "stage" else None)
                paid[name] = max(paid[name], workload.visible_ns(task.engine, reader.engine, size))
    return [
        workload.once(task, paid[task.name], handing_over, task, paid[task.name]) if paid[task.name] > 0 else task
        for task in tasks
    ]


def _cross(workload: Workload, mapping: Mapping_, tasks: list[Task]) -> list[Task]:
    """Charge tasks on engines that keep their tensors with what comes from elsewhere, and what goes there.

    What two read elsewhere goes there once; outputs that no stage reads leave, and frames of sensors arrive.
    The first of stages that follow each other submits them all.  Times that were measured have their copies.
    """
    keeping = workload.keeping
    if not any(task.engine in keeping for task in tasks):
        return tasks
    engine = {task.name: task.engine for task in tasks}
    arriving, leaving = dict[str, int](), dict[str, int]()
    read = set[str]()
    for edge in workload.edges:
        producer, consumer = (mapping[name] for name in edge)
        read.add(producer.stage)
        for source, sink, size in workload.handovers(producer, consumer):
            if engine[source] != engine[sink]:
                arriving[sink] = arriving.get(sink, 0) + size
                leaving[source] = max(leaving.get(source, 0), size)
    sensors = {sensor.name for sensor in workload.sensors()}
    for name, cost in mapping.items():
        stage = workload.graph.stage(name)
        if sensors.intersection((*stage.after, *stage.reads)):
            arriving[name] = arriving.get(name, 0) + workload.frame_bytes(cost)
        if name not in read:
            leaving[name] = workload.output_bytes(cost)
    result, named = [], {task.name: task for task in tasks}
    for task in tasks:
        if task.engine in keeping and task.provenance != "measured":
            there = workload.model.platform.engine(task.engine)
            sizes = (arriving.get(task.name, 0), leaving.get(task.name, 0))
            time = sum(crossing_ns(size, there) for size in sizes if size)
            time += 0 if _follows(task, named) else round(there.submit_ns.value)
            task = workload.once(task, time, _seen, task, time)
        result.append(task)
    return result


def _seen(task: Task, time: int) -> Task:
    """Return a task whose jobs take `time` (ns) more, and whose end is seen up to a look later."""
    made = handing_over(task, time) if time else task
    return replace(made, error=made.error + LOOK_NS / max(made.cost_ns, 1))


def _follows(task: Task, tasks: Mapping[str, Task]) -> bool:
    """Return whether a task's kernels are queued with those of the one before (`executor.settings.joined`)."""
    before = tasks.get(task.after[0]) if len(task.after) == 1 else None
    if before is None or task.reads or task.timer:
        return False
    return (before.engine, before.period_ns, before.criticality) == (task.engine, task.period_ns, task.criticality)


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
