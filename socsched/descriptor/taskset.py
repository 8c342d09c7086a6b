"""Task-set files: periodic tasks on identical processors, in the form used in real-time research.

JSON or YAML with plain numbers in `time_unit`; internally integer ns.  A late job runs to completion, never aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import core_schema

from socsched.descriptor.fields import FileModel, Name, Title
from socsched.descriptor.source import Document, parse, read_bytes
from socsched.descriptor.taskset_checks import CHECKS, POLICY, RULES, TIMES, UNITS
from socsched.descriptor.taskset_model import (
    Accelerator,
    Graph,
    MemGuard,
    Memory,
    Node,
    PeriodicTask,
    Policy,
    Request,
    TaskSet,
)
from socsched.descriptor.validation import plain, validate
from socsched.text import LINE_PATTERN

__all__ = ["PeriodicTask", "Policy", "TaskSet", "TaskSetFile", "load_taskset", "taskset_from_mapping"]


def _time(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, float)):
        raise ValueError("expected a time as a plain number in the file's time_unit, such as 12 or 4.5")
    return Fraction(str(value))


@dataclass(frozen=True, slots=True)
class _PlainTime:
    """Annotation of an exact time in the file's unit; sign and magnitude are left to the checks."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(_time)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "number", "minimum": 0}


Time = Annotated[Fraction, _PlainTime()]


class RequestFile(FileModel):
    """A request to the accelerator."""

    time: Time = Field(description="on the accelerator")
    handling: Time | None = Field(None, description="before that, on the processor that serves requests; default 0")


class NodeFile(FileModel):
    """A piece of a parallel job."""

    wcet: Time = Field(description="longest execution time")
    type: str = Field("", description="type of processor it runs on, a key of types")


class GraphFile(FileModel):
    """A parallel job; its nodes add up to the wcet of the task."""

    nodes: list[NodeFile] = Field(min_length=1, description="the pieces")
    edges: list[list[int]] = Field(default_factory=list, description="pairs [earlier, later] of positions (from 0)")


class AcceleratorFile(FileModel):
    """How requests to the accelerator are waited for."""

    wait: Literal["busy", "server"] = Field(description="busy: on the processor; server: suspended")
    cpu: int = Field(0, ge=0, le=1023, description="processor the server runs on, above every task")
    overhead: Time | None = Field(None, description="overhead of the server per intervention; default 0")


class MemoryFile(FileModel):
    """What memory accesses cost."""

    latency: Time = Field(description="time of one access without contention")
    contention: Time | None = Field(None, description="largest extra time of one access; default 0")


class MemGuardFile(FileModel):
    """Memory-bandwidth reservations."""

    period: Time = Field(description="regulation period")
    budgets: list[Annotated[int, Field(ge=1, le=2**40)]] = Field(
        min_length=1, description="accesses per period, by processor"
    )
    guaranteed: Annotated[int, Field(ge=1, le=2**40)] = Field(
        description="minimum accesses that the memory serves per period"
    )


class DegradedFile(FileModel):
    """What remains of a task of lower criticality after a mode switch."""

    wcet: Time = Field(description="longest execution time, at most the task's")
    period: Time = Field(description="time between arrivals, at least the task's")


class TaskFile(FileModel):
    """A periodic task."""

    id: int | None = Field(None, ge=0, description="number in reports; default: its position (from 0)")
    name: Annotated[str, Field(pattern=LINE_PATTERN)] | None = Field(
        None, min_length=1, max_length=64, description="name; default: t and the id"
    )
    period: Time = Field(description="time between arrivals")
    arrivals: Literal["periodic", "sporadic"] = Field(
        "periodic", description="sporadic: the period is the shortest time between arrivals, which may come at any time"
    )
    deadline: Time | None = Field(None, description="relative to the arrival; default: the period")
    wcet: Time = Field(description="longest execution time")
    bcet: Time | None = Field(None, description="shortest execution time; default: the longest")
    offset: Time | None = Field(None, description="arrival of the first job; default 0")
    phase: Time | None = Field(None, description="another name of offset")
    jitter: Time | None = Field(
        None, description="release jitter: largest delay of a release after its arrival; default 0"
    )
    distance: Time | None = Field(
        None, description="shortest time between two releases, where jitter could bring them closer"
    )
    cpu: int | None = Field(None, ge=0, le=1023, description="its processor (from 0) under a partitioned policy")
    prio: int | None = Field(None, description="priority, lower number first; under RM and DM it breaks ties only")
    rm_rank: int | None = Field(None, description="another name of prio")
    blocking: Time | None = Field(
        None, description="blocking: longest time a job of lower priority holds a resource it needs"
    )
    regions: list[Time] = Field(default_factory=list, description="lengths between fixed preemption points")
    longest_region: Time | None = Field(None, description="longest non-preemptive region, anywhere in the job")
    suspension: Time | None = Field(None, description="longest total self-suspension of a job")
    requests: list[RequestFile] = Field(
        default_factory=list, description="requests to the accelerator, in addition to the wcet"
    )
    graph: GraphFile | None = Field(None, description="nodes of the job that may run in parallel")
    accesses: Annotated[int, Field(ge=0, le=2**40)] = Field(0, description="memory accesses not in the wcet")
    wcets: list[Time] = Field(
        default_factory=list,
        max_length=8,
        description="bounds of the execution time by criticality level, lowest first, up to the task's own; "
        "the last is the wcet",
    )
    degraded: DegradedFile | None = Field(
        None, description="service after a switch to a higher level than the task's own; default: dropped"
    )


class TaskSetFile(FileModel):
    """Periodic tasks on identical processors."""

    name: Title | None = Field(None, description="name; default: the file's name")
    time_unit: Literal["ns", "us", "µs", "ms", "s"] = Field("ns", description="unit of every time in this file")
    policy: str | None = Field(
        None,
        description="EDF, FP, RM, DM or FIFO; P_ or G_ before it: partitioned or global; NP-: no preemption; "
        "default: FP if every task has a prio, else EDF",
    )
    processors: int = Field(1, ge=1, le=1024, description="identical processors")
    horizon: Time | None = Field(None, description="simulated time")
    tasks: list[TaskFile] = Field(min_length=1, description="the tasks")
    chain: list[int | str] = Field(default_factory=list, description="cause-effect chain: positions (from 0) or names")
    communication: Literal["implicit", "let"] = Field(
        "implicit", description="data move at start and end of jobs, or at arrival and deadline (let)"
    )
    types: dict[Name, Annotated[int, Field(ge=1, le=1024)]] = Field(
        default_factory=dict, description="processors by type, for graphs whose nodes have types"
    )
    accelerator: AcceleratorFile | None = Field(None, description="how tasks wait for requests to the accelerator")
    memory: MemoryFile | None = Field(None, description="cost of memory accesses")
    memguard: MemGuardFile | None = Field(None, description="memory-bandwidth reservations")
    id: Any = Field(None, description="for the reader only")
    seed: Any = Field(None, description="for the reader only")
    target_utilisation: Any = Field(None, description="for the reader only")
    utilisation: Any = Field(None, description="for the reader only")
    source: Any = Field(None, description="for the reader only")
    note: Any = Field(None, description="for the reader only")
    schedulable: Any = Field(None, description="published answer, not read")
    jobs: Any = Field(None, description="published answer, not read")
    per_task: Any = Field(None, description="published answer, not read")
    wcrt: Any = Field(None, description="published answer, not read")
    bounds: Any = Field(None, description="published answer, not read")

    def lower(self, file: str) -> TaskSet:
        """Return the internal `TaskSet`."""
        unit = UNITS[self.time_unit]

        def ns(value: Fraction | None, default: int = 0) -> int:
            return default if value is None else int(value * unit)

        tasks: list[PeriodicTask] = []
        for index, task in enumerate(self.tasks):
            number = index if task.id is None else task.id
            wcet, period = ns(task.wcet), ns(task.period)
            tasks.append(
                PeriodicTask(
                    id=number,
                    name=task.name or f"t{number}",
                    period_ns=period,
                    deadline_ns=ns(task.deadline, period),
                    wcet_ns=wcet,
                    bcet_ns=ns(task.bcet, wcet),
                    offset_ns=ns(task.offset, ns(task.phase)),
                    jitter_ns=ns(task.jitter),
                    cpu=0 if self.processors == 1 else task.cpu,
                    prio=task.rm_rank if task.prio is None else task.prio,
                    blocking_ns=ns(task.blocking),
                    regions_ns=tuple(ns(region) for region in task.regions),
                    longest_region_ns=ns(task.longest_region),
                    suspension_ns=ns(task.suspension),
                    requests=tuple(Request(ns(r.time), ns(r.handling)) for r in task.requests),
                    graph=_graph(task.graph, ns),
                    accesses=task.accesses,
                    distance_ns=ns(task.distance),
                    wcets_ns=tuple(ns(value) for value in task.wcets),
                    sporadic=task.arrivals == "sporadic",
                    degraded_ns=(ns(task.degraded.wcet), ns(task.degraded.period)) if task.degraded else None,
                )
            )
        names = {task.name: index for index, task in enumerate(tasks)}
        a, m, g = self.accelerator, self.memory, self.memguard
        return TaskSet(
            name=self.name or Path(file).name.split(".")[0],
            unit_ns=unit,
            policy=_policy(self.policy, self.processors, tasks),
            processors=self.processors,
            horizon_ns=None if self.horizon is None else ns(self.horizon),
            tasks=tuple(tasks),
            chain=tuple(names[entry] if isinstance(entry, str) else entry for entry in self.chain),
            communication=self.communication,
            types=tuple(self.types.items()),
            accelerator=Accelerator(a.wait, a.cpu, ns(a.overhead)) if a else None,
            memory=Memory(ns(m.latency), ns(m.contention)) if m else None,
            memguard=MemGuard(ns(g.period), tuple(g.budgets), g.guaranteed) if g else None,
        )


def _graph(file: GraphFile | None, ns: Callable[[Fraction], int]) -> Graph | None:
    if file is None:
        return None
    nodes = tuple(Node(ns(node.wcet), node.type) for node in file.nodes)
    return Graph(nodes, tuple((edge[0], edge[1]) for edge in file.edges))


def load_taskset(path: str | Path) -> TaskSet:
    """Return the task set of a JSON or YAML file; DescriptorError lists all its faults with their positions."""
    raw = read_bytes(path)
    if raw.lstrip().startswith(b"{"):
        raw = raw.replace(b"\t", b" ")  # JSON may be indented with tabs, and cannot contain them within strings
    return _taskset(parse(raw, str(path)))


def taskset_from_mapping(mapping: Mapping[str, Any], file: str) -> TaskSet:
    """Return a task set from data in the form of a task-set file, checked the same way; `file` names it in errors.

    A float stands for the shortest decimal number that round-trips to it.
    """
    return _taskset(Document(file, plain(mapping)))


def _taskset(document: Document) -> TaskSet:
    _put_decimals(document)
    return validate(document, TaskSetFile, CHECKS).lower(document.file)


def _put_decimals(document: Document) -> None:
    """Replace fractional times by their exact text, which a float may not represent."""
    for path, text in document.decimals.items():
        if path[-1] in TIMES or "regions" in path or "wcets" in path:
            holder = document.data
            for part in path[:-1]:
                holder = holder[part]
            holder[path[-1]] = Decimal(text)


def _policy(text: str | None, processors: int, tasks: list[PeriodicTask]) -> Policy:
    match = POLICY.fullmatch(text or ("FP" if all(task.prio is not None for task in tasks) else "EDF"))
    assert match is not None
    rule: Any = RULES[match["rule"].upper()]
    stated = (match["scheme"] or "").lower()[:1]
    partitioned = processors == 1 or stated == "p" or (not stated and tasks[0].cpu is not None)
    last = (match["last"] or "").lower()
    preemptive = not match["np"] and not last.endswith("np") and rule != "fifo"
    return Policy(rule, "partitioned" if partitioned else "global", preemptive)
