"""Task-set files: periodic tasks on identical processors, in the form used in real-time research.

JSON or YAML with plain numbers in `time_unit`; integer ns once read.  A late job runs to completion, never aborted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import core_schema

from socsched.descriptor.fields import OR_NULL, Entry, FileModel, Listed, Name, Title, doc
from socsched.descriptor.source import Document, parse, read_bytes
from socsched.descriptor.validation import Tree, plain, suggest, validate
from socsched.limits import HORIZON_NS, LONGEST_NS
from socsched.text import LINE_PATTERN

UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
"""Time unit of a file -> ns; the default unit is ns."""
RULES = {"EDF": "edf", "FP": "fp", "RM": "rm", "DM": "dm", "FIFO": "fifo"}
POLICY = re.compile(
    r"(?:(?P<scheme>P|G|partitioned|global)[_ ])?(?P<np>NP[-_ ])?(?P<rule>EDF|FP|RM|DM|FIFO)"
    r"(?P<last>[-_ ]NP|-P|_mono)?",
    re.IGNORECASE,
)
TIMES = ("period", "deadline", "wcet", "bcet", "offset", "phase", "jitter", "blocking", "longest_region", "suspension",
         "distance", "time", "handling", "overhead", "latency", "contention", "horizon")  # fmt: skip
_POSITIVE = ("period", "deadline", "wcet", "time")


class _PlainTime:
    """Annotation of an exact time in the file's unit, in ns once read; the checks report what is not a whole number."""

    @staticmethod
    def read(value: object, info: Any) -> int:
        """Return the time in ns; the context of the validation is the unit."""
        if isinstance(value, bool) or not isinstance(value, (int, Decimal, float)):
            raise ValueError("expected a time as a plain number in the file's time_unit, such as 12 or 4.5")
        return int(Fraction(str(value)) * info.context)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.with_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "number", "minimum": 0}


Time = Annotated[int, _PlainTime()]
Accesses = Annotated[int, Field(ge=1, le=2**40)]
Reader = Annotated[Any, doc("for the reader only")]
Answer = Annotated[Any, doc("published answer, not read")]


@dataclass(frozen=True, slots=True)
class Policy:
    """The scheduling policy: `rule`, partitioned or global, preemptive or not."""

    rule: Literal["edf", "fp", "rm", "dm", "fifo"]
    scheme: Literal["global", "partitioned"]
    preemptive: bool


@dataclass(frozen=True, slots=True)
class AcceleratorRequest(Entry):
    """A request to the accelerator."""

    time_ns: Annotated[Time, doc("on the accelerator", "time")]
    handling_ns: Annotated[
        Time, OR_NULL, doc("before that, on the processor that serves requests; default 0", "handling")
    ] = 0


@dataclass(frozen=True, slots=True)
class Node(Entry):
    """A piece of a parallel job."""

    wcet_ns: Annotated[Time, doc("longest execution time", "wcet")]
    type: Annotated[str, doc("type of processor it runs on, a key of types")] = ""


@dataclass(frozen=True, slots=True)
class Graph(Entry):
    """A parallel job; its nodes add up to the wcet of the task."""

    nodes: Annotated[Listed[Node], doc("the pieces", min_length=1)]
    edges: tuple[tuple[int, int], ...] = ()

    class File:
        """Edges are lists; the checks report those that are no pairs."""

        edges: Annotated[list[list[int]], doc("pairs [earlier, later] of positions (from 0)")] = []  # noqa: RUF012

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Graph:
        """Return the graph with its edges as pairs."""
        return cls(values["nodes"], tuple(tuple(edge) for edge in values.get("edges", ())))


@dataclass(frozen=True, slots=True)
class Accelerator(Entry):
    """How requests to the accelerator are waited for.

    The server incurs `overhead_ns` each time it receives, starts or completes a request.
    """

    wait: Annotated[Literal["busy", "server"], doc("busy: on the processor; server: suspended")]
    cpu: Annotated[int, doc("processor the server runs on, above every task", ge=0, le=1023)] = 0
    overhead_ns: Annotated[Time, OR_NULL, doc("overhead of the server per intervention; default 0", "overhead")] = 0


@dataclass(frozen=True, slots=True)
class Memory(Entry):
    """What memory accesses cost."""

    latency_ns: Annotated[Time, doc("time of one access without contention", "latency")]
    contention_ns: Annotated[Time, OR_NULL, doc("largest extra time of one access; default 0", "contention")] = 0


@dataclass(frozen=True, slots=True)
class MemGuard(Entry):
    """Memory-bandwidth reservations."""

    period_ns: Annotated[Time, doc("regulation period", "period")]
    budgets: Annotated[Listed[Accesses], doc("accesses per period, by processor", min_length=1)]
    guaranteed: Annotated[Accesses, doc("minimum accesses that the memory serves per period")]


class DegradedService(FileModel):
    """What remains of a task of lower criticality after a mode switch."""

    wcet: Time = Field(description="longest execution time, at most the task's")
    period: Time = Field(description="time between arrivals, at least the task's")


@dataclass(frozen=True, slots=True)
class PeriodicTask(Entry):
    """A periodic task.

    Its job k arrives at `offset_ns` + k `period_ns` and is released up to `jitter_ns` later.  `deadline_ns` counts from
    the arrival.  Under a global policy `cpu` is None; `prio` is None where the rule needs none.  `regions_ns` add up to
    the WCET, `longest_region_ns` may lie anywhere.  `requests` are each awaited immediately.  Releases are at least
    `distance_ns` apart, however late some are.  `degraded_ns`: execution time and period; None: it is dropped.
    """

    id: int
    name: Annotated[
        str, Field(pattern=LINE_PATTERN, min_length=1, max_length=64), OR_NULL, doc("name; default: t and the id")
    ]
    period_ns: Annotated[Time, doc("time between arrivals", "period")]
    deadline_ns: Annotated[Time, OR_NULL, doc("relative to the arrival; default: the period", "deadline")]
    wcet_ns: Annotated[Time, doc("longest execution time", "wcet")]
    bcet_ns: Annotated[Time, OR_NULL, doc("shortest execution time; default: the longest", "bcet")]
    offset_ns: Annotated[Time, OR_NULL, doc("arrival of the first job; default 0", "offset")]
    jitter_ns: Annotated[
        Time,
        OR_NULL,
        doc("release jitter: largest delay of a release after its arrival; default 0", "jitter"),
    ]
    cpu: Annotated[
        int | None,
        doc("its processor (from 0) under a partitioned policy", default=None, ge=0, le=1023),
    ]
    prio: Annotated[int | None, doc("priority, lower number first; under RM and DM it breaks ties only", default=None)]
    blocking_ns: Annotated[
        Time,
        OR_NULL,
        doc("blocking: longest time a job of lower priority holds a resource it needs", "blocking"),
    ] = 0
    regions_ns: Annotated[Listed[Time], doc("lengths between fixed preemption points", "regions")] = ()
    longest_region_ns: Annotated[
        Time, OR_NULL, doc("longest non-preemptive region, anywhere in the job", "longest_region")
    ] = 0
    suspension_ns: Annotated[Time, OR_NULL, doc("longest total self-suspension of a job", "suspension")] = 0
    requests: Annotated[Listed[AcceleratorRequest], doc("requests to the accelerator, in addition to the wcet")] = ()
    graph: Annotated[Graph | None, doc("nodes of the job that may run in parallel")] = None
    accesses: Annotated[int, doc("memory accesses not in the wcet", ge=0, le=2**40)] = 0
    distance_ns: Annotated[
        Time, OR_NULL, doc("shortest time between two releases, where jitter could bring them closer", "distance")
    ] = 0
    wcets_ns: Annotated[
        Listed[Time],
        doc(
            "bounds of the execution time by criticality level, lowest first, up to the task's own; the last is the "
            "wcet",
            "wcets",
            max_length=8,
        ),
    ] = ()
    degraded_ns: tuple[int, int] | None = None
    sporadic: bool = False

    class File:
        """Further names, and what has another form."""

        id: Annotated[int | None, doc("number in reports; default: its position (from 0)", ge=0)] = None
        phase: Annotated[Time | None, doc("another name of offset")] = None
        rm_rank: Annotated[int | None, doc("another name of prio")] = None
        arrivals: Annotated[
            Literal["periodic", "sporadic"],
            doc("sporadic: the period is the shortest time between arrivals, which may come at any time"),
        ] = "periodic"
        degraded: Annotated[
            DegradedService | None,
            doc("service after a switch to a higher level than the task's own; default: dropped"),
        ] = None

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> PeriodicTask:
        """Return the task; without an id it has -1 until its position is known (`TaskSet.of_file`)."""
        phase, rank, degraded = values.pop("phase", None), values.pop("rm_rank", None), values.pop("degraded", None)
        sporadic = values.pop("arrivals", "periodic") == "sporadic"
        stated = {name: value for name, value in values.items() if value != "" and value is not None}
        defaults = {"deadline_ns": values["period_ns"], "bcet_ns": values["wcet_ns"], "offset_ns": phase or 0}
        defaults |= {"id": -1, "name": "", "jitter_ns": 0, "cpu": None, "prio": rank}
        service = (degraded.wcet, degraded.period) if degraded else None
        return cls(**{**defaults, **stated, "degraded_ns": service, "sporadic": sporadic})

    @property
    def level(self) -> int:
        """Return the task's criticality level, 0 being the lowest."""
        return max(len(self.wcets_ns) - 1, 0)

    def wcet_at(self, level: int) -> int:
        """Return the bound (ns) of the execution time at a criticality level, at most the task's own."""
        return self.wcets_ns[min(level, self.level)] if self.wcets_ns else self.wcet_ns

    @property
    def region_ns(self) -> int:
        """Return the longest non-preemptive stretch, 0 when every instant is a preemption point."""
        return max((*self.regions_ns, self.longest_region_ns))

    @property
    def utilisation(self) -> Fraction:
        """Return the WCET divided by the period."""
        return Fraction(self.wcet_ns, self.period_ns)


@dataclass(frozen=True, slots=True)
class TaskSet(Entry):
    """Periodic tasks on identical processors.

    `unit_ns` is the file's time unit, `chain` task indices in order.
    """

    name: Annotated[Title, OR_NULL, doc("name; default: the file's name")]
    unit_ns: int
    policy: Policy
    processors: Annotated[int, doc("identical processors", ge=1, le=1024, default=1)]
    horizon_ns: Annotated[Time | None, doc("simulated time", "horizon", default=None)]
    tasks: Annotated[Listed[PeriodicTask], doc("the tasks", min_length=1)]
    chain: tuple[int, ...]
    communication: Annotated[
        Literal["implicit", "let"],
        doc("data move at start and end of jobs, or at arrival and deadline (let)"),
    ] = "implicit"
    types: tuple[tuple[str, int], ...] = ()
    accelerator: Annotated[Accelerator | None, doc("how tasks wait for requests to the accelerator")] = None
    memory: Annotated[Memory | None, doc("cost of memory accesses")] = None
    memguard: Annotated[MemGuard | None, doc("memory-bandwidth reservations")] = None

    class File:
        """Units, names and what is not read."""

        time_unit: Annotated[Literal["ns", "us", "µs", "ms", "s"], doc("unit of every time in this file")] = "ns"
        policy: Annotated[
            str | None,
            doc(
                "EDF, FP, RM, DM or FIFO; P_ or G_ before it: partitioned or global; NP-: no preemption; default: FP "
                "if every task has a prio, else EDF"
            ),
        ] = None
        chain: Annotated[list[int | str], doc("cause-effect chain: positions (from 0) or names")] = []  # noqa: RUF012
        types: Annotated[
            dict[Name, Annotated[int, Field(ge=1, le=1024)]],
            doc("processors by type, for graphs whose nodes have types"),
        ] = {}  # noqa: RUF012
        id: Reader = None
        seed: Reader = None
        target_utilisation: Reader = None
        utilisation: Reader = None
        source: Reader = None
        note: Reader = None
        schedulable: Answer = None
        jobs: Answer = None
        per_task: Answer = None
        wcrt: Answer = None
        bounds: Answer = None

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> TaskSet:
        """Return the task set with every task's id, name and processor; positions in the chain are checked later."""
        count = values["processors"]
        numbered = [(place if task.id < 0 else task.id, task) for place, task in enumerate(values["tasks"])]
        tasks = [
            replace(task, id=number, name=task.name or f"t{number}", cpu=0 if count == 1 else task.cpu)
            for number, task in numbered
        ]
        places = {task.name: place for place, task in enumerate(tasks)}
        known = {
            field: values[field] for field in ("communication", "accelerator", "memory", "memguard") if field in values
        }
        return cls(
            name=values["name"],
            unit_ns=UNITS[values.get("time_unit", "ns")],
            policy=_policy(values["policy"], count, tasks),
            processors=count,
            horizon_ns=values["horizon_ns"],
            tasks=tuple(tasks),
            chain=tuple(places.get(entry, -1) if isinstance(entry, str) else entry for entry in values["chain"] or ()),
            types=tuple(values.get("types", {}).items()),
            **known,
        )

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return fixed priorities, 0 highest: by `prio`, period (rm) or deadline (dm), then `prio`, then order."""
        first = {"rm": [t.period_ns for t in self.tasks], "dm": [t.deadline_ns for t in self.tasks]}
        key = first.get(self.policy.rule, [0] * len(self.tasks))
        order = sorted(range(len(key)), key=lambda i: (key[i], self.tasks[i].prio or 0, i))
        ranks = [0] * len(order)
        for rank, index in enumerate(order):
            ranks[index] = rank
        return tuple(ranks)


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
    unit = document.data.get("time_unit")
    tasks = validate(document, TaskSet, CHECKS, UNITS.get(unit, 1) if isinstance(unit, str) else 1)
    return replace(tasks, name=tasks.name or Path(document.file).name.split(".")[0])


def _put_decimals(document: Document) -> None:
    """Replace fractional times by their exact text, which a float may not represent."""
    for path, text in document.decimals.items():
        if path[-1] in TIMES or "regions" in path or "wcets" in path:
            holder = document.data
            for part in path[:-1]:
                holder = holder[part]
            holder[path[-1]] = Decimal(text)


def _policy(text: str | None, processors: int, tasks: Sequence[PeriodicTask]) -> Policy:
    match = POLICY.fullmatch(text or ("FP" if all(task.prio is not None for task in tasks) else "EDF"))
    if match is None:  # reported by the checks
        return Policy("edf", "global", True)
    rule: Any = RULES[match["rule"].upper()]
    stated = (match["scheme"] or "").lower()[:1]
    partitioned = processors == 1 or stated == "p" or (not stated and tasks[0].cpu is not None)
    last = (match["last"] or "").lower()
    preemptive = not match["np"] and not last.endswith("np") and rule != "fifo"
    return Policy(rule, "partitioned" if partitioned else "global", preemptive)


def _number(item: Tree) -> Fraction | None:
    """Return the value as a number, None when it is not one (which is reported elsewhere)."""
    value = item.value
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not isfinite(value):
        return None
    return Fraction(str(value))


def _times(tree: Tree) -> Iterator[Tree]:
    """Yield every time of a file."""
    for item in tree.items():
        if item.key in TIMES and not isinstance(item.value, (dict, list)):
            yield item
        elif item.key in ("regions", "wcets"):
            yield from item.items()
        else:
            yield from _times(item)


def _check_times(root: Tree) -> None:
    unit = root.at("time_unit").text or "ns"
    scale = UNITS.get(unit, 1)
    for item in _times(root):
        value = _number(item)
        if value is None:
            continue
        positive = item.key in _POSITIVE or "regions" in item.path or "wcets" in item.path
        if value < 0 or (value == 0 and positive):
            item.report(f"expected {'a positive' if positive else 'no negative'} time, got {item.value}")
        elif (value * scale).denominator != 1:
            item.report(f"expected a whole number of ns, got {item.value} {unit}; nothing is rounded")
        elif value * scale > (most := HORIZON_NS if item.key == "horizon" else LONGEST_NS):
            item.report(f"expected at most {most // scale} {unit}, got {item.value}")


def _check_tasks(root: Tree) -> None:
    seen: dict[str, set[Any]] = {"id": set(), "name": set()}
    for index, task in enumerate(root.at("tasks").items()):
        number = task.at("id").value if task.at("id").value is not None else index
        for key, value in (("id", number), ("name", task.at("name").text or f"t{number}")):
            if isinstance(value, (int, str)) and value in seen[key]:
                task.at(key).report(f"expected every {key} once, got {value!r} again")
            else:
                seen[key].add(value if isinstance(value, (int, str)) else None)
        wcet, bcet = _number(task.at("wcet")), _number(task.at("bcet"))
        if wcet is not None and bcet is not None and bcet > wcet:
            task.at("bcet").report(f"expected at most the wcet of {task.at('wcet').value}, got {task.at('bcet').value}")
        period, distance = _number(task.at("period")), _number(task.at("distance"))
        if period is not None and distance is not None and distance > period:
            task.at("distance").report(f"expected at most the period of {task.at('period').value}")
        for one, other in (("offset", "phase"), ("prio", "rm_rank")):
            if task.at(one).value is not None and task.at(other).value is not None:
                task.at(other).report(f"expected {one} or {other}, which mean the same, not both")


def _check_policy(root: Tree) -> None:
    policy, tasks = root.at("policy"), list(root.at("tasks").items())
    processors = root.at("processors").value if isinstance(root.at("processors").value, int) else 1
    match = POLICY.fullmatch(policy.text) if policy.text else None
    if policy.text and match is None:
        policy.report(f"unknown policy {policy.text!r}; {suggest(policy.text, [*RULES, 'P_RM', 'NP-FP', 'EDF_mono'])}")
        return
    rule = match["rule"].upper() if match else ""
    stated = (match["scheme"] or "").lower()[:1] if match else ""
    placed = [task for task in tasks if isinstance(task.at("cpu").value, int)]
    for task in tasks:
        cpu = task.at("cpu")
        if processors > 1 and cpu.value is None and (stated == "p" or placed):
            task.report("expected cpu, as the policy or the other tasks are partitioned")
        if isinstance(cpu.value, int) and cpu.value >= processors:
            cpu.report(f"expected a processor below {processors}, got {cpu.value}")
        if isinstance(cpu.value, int) and stated == "g":
            cpu.report("expected no cpu under a global policy")
        if rule == "FP" and task.at("prio").value is None and task.at("rm_rank").value is None:
            task.report("expected prio, as the policy is FP (lower number first)")
    if match and (match["last"] or "").lower() == "_mono" and processors != 1:
        root.at("processors").report(f"expected 1 processor under {policy.text}, got {processors}")


def _check_parts(root: Tree) -> None:
    """Check features beyond plain tasks: that parts add up, and that references resolve."""
    types = root.at("types").names()
    for task in root.at("tasks").items():
        wcet = _number(task.at("wcet"))
        nodes = list(task.at("graph").at("nodes").items())
        for part, times in (("regions", list(task.at("regions").items())), ("graph", [n.at("wcet") for n in nodes])):
            total = sum((_number(time) or Fraction(0) for time in times), Fraction(0))
            if times and wcet is not None and total != wcet:
                task.at(part).report(f"expected times that add up to the wcet of {task.at('wcet').value}")
        for node in nodes:
            if node.at("type").text not in types and (types or node.at("type").text):
                node.at("type").unknown("type", types)
        for edge in task.at("graph").at("edges").items():
            ends = edge.value if isinstance(edge.value, list) else []
            good = len(ends) == 2 and all(isinstance(end, int) and 0 <= end < len(nodes) for end in ends)
            if not good or ends[0] >= ends[1]:
                edge.report("expected [earlier, later], positions of nodes in ascending order, which rules out cycles")
        if task.at("requests").value and root.at("accelerator").value is None:
            task.at("requests").report("expected accelerator next to tasks: how tasks wait for requests")
    processors, cpu = root.at("processors").value, root.at("accelerator").at("cpu")
    count = processors if isinstance(processors, int) else 1
    if isinstance(cpu.value, int) and cpu.value >= count:
        cpu.report(f"expected a processor below {count}, got {cpu.value}")
    budgets = root.at("memguard").at("budgets")
    if isinstance(budgets.value, list) and len(budgets.value) != count:
        budgets.report(f"expected a budget for each of {count} processors, got {len(budgets.value)}")


def _check_chain(root: Tree) -> None:
    tasks = list(root.at("tasks").items())
    names = [
        task.at("name").text or f"t{index if task.at('id').value is None else task.at('id').value}"
        for index, task in enumerate(tasks)
    ]
    for entry in root.at("chain").items():
        if isinstance(entry.value, str) and entry.value not in names:
            entry.unknown("task", names)
        elif isinstance(entry.value, int) and not 0 <= entry.value < len(tasks):
            entry.report(f"expected a position from 0 to {len(tasks) - 1}, got {entry.value}")


def _check_levels(root: Tree) -> None:
    """Check that bounds grow with criticality up to the wcet, and that degraded service is less than full service."""
    for task in root.at("tasks").items():
        wcet, period = _number(task.at("wcet")), _number(task.at("period"))
        levels = [_number(item) for item in task.at("wcets").items()]
        known = [value for value in levels if value is not None]
        if known and (known != sorted(known) or known[-1] != wcet):
            task.at("wcets").report(f"expected ascending times, the last being the wcet of {task.at('wcet').value}")
        degraded = task.at("degraded")
        least, most = _number(degraded.at("wcet")), _number(degraded.at("period"))
        if least is not None and wcet is not None and least > wcet:
            degraded.at("wcet").report(f"expected at most the wcet of {task.at('wcet').value}")
        if most is not None and period is not None and most < period:
            degraded.at("period").report(f"expected at least the period of {task.at('period').value}")


CHECKS = (_check_times, _check_tasks, _check_policy, _check_parts, _check_chain, _check_levels)
