"""Task-set files: periodic tasks on identical processors, as real-time research exchanges them.

JSON or YAML with plain numbers in `time_unit`; inside, integer ns.  A job that is late is finished, never aborted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import core_schema

from socsched.descriptor.fields import FileModel
from socsched.descriptor.source import Document, parse, read_bytes
from socsched.descriptor.validation import Tree, plain, suggest, validate

UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
"""Time unit of a file -> ns; a file that names none counts in ns."""
LARGEST_NS = 2**62
RULES = {"EDF": "edf", "FP": "fp", "RM": "rm", "DM": "dm", "FIFO": "fifo"}
_POLICY = re.compile(
    r"(?:(?P<scheme>P|G|partitioned|global)[_ ])?(?P<np>NP[-_ ])?(?P<rule>EDF|FP|RM|DM|FIFO)"
    r"(?P<last>[-_ ]NP|-P|_mono)?",
    re.IGNORECASE,
)
_TIMES = ("period", "deadline", "wcet", "bcet", "offset", "phase", "jitter")
_POSITIVE = ("period", "deadline", "wcet")


@dataclass(frozen=True, slots=True)
class Policy:
    """How jobs are served: by `rule`, on one processor each or on any of them, giving way within a job or not."""

    rule: Literal["edf", "fp", "rm", "dm", "fifo"]
    scheme: Literal["global", "partitioned"]
    preemptive: bool


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task whose job k arrives at `offset_ns` + k `period_ns`, is released up to `jitter_ns` later; times in ns.

    `deadline_ns` counts from the arrival.  `cpu` is the processor of a partitioned task, None where any will do;
    `prio` the priority given, lower first, None where the rule needs none.
    """

    id: int
    name: str
    period_ns: int
    deadline_ns: int
    wcet_ns: int
    bcet_ns: int
    offset_ns: int
    jitter_ns: int
    cpu: int | None
    prio: int | None

    @property
    def utilisation(self) -> Fraction:
        """WCET over period."""
        return Fraction(self.wcet_ns, self.period_ns)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks on `processors` identical processors; `unit_ns` is the file's time unit, `chain` task indices in order."""

    name: str
    unit_ns: int
    policy: Policy
    processors: int
    horizon_ns: int | None
    tasks: tuple[PeriodicTask, ...]
    chain: tuple[int, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Fixed priority of every task, 0 first: by `prio`, period (rm) or deadline (dm), then `prio`, then order."""
        first = {"rm": [t.period_ns for t in self.tasks], "dm": [t.deadline_ns for t in self.tasks]}
        key = first.get(self.policy.rule, [0] * len(self.tasks))
        order = sorted(range(len(key)), key=lambda i: (key[i], self.tasks[i].prio or 0, i))
        ranks = [0] * len(order)
        for rank, index in enumerate(order):
            ranks[index] = rank
        return tuple(ranks)


def _time(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, float)):
        raise ValueError("expected a time as a plain number in the file's time_unit, such as 12 or 4.5")
    return Fraction(str(value))


@dataclass(frozen=True, slots=True)
class _PlainTime:
    """Annotation of a time in the file's unit; exact, its sign and size are for the checks."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(_time)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "number", "minimum": 0}


Time = Annotated[Fraction, _PlainTime()]


class TaskFile(FileModel):
    """A periodic task."""

    id: int | None = Field(None, ge=0, description="number it is reported under; its position (from 0) without one")
    name: str | None = Field(None, min_length=1, max_length=64, description="name; t and the id without one")
    period: Time = Field(description="time between arrivals")
    deadline: Time | None = Field(None, description="relative to the arrival; the period without one")
    wcet: Time = Field(description="longest execution time")
    bcet: Time | None = Field(None, description="shortest execution time; the longest without one")
    offset: Time | None = Field(None, description="arrival of the first job; 0 without one")
    phase: Time | None = Field(None, description="another name of offset")
    jitter: Time | None = Field(None, description="most a release comes after its arrival; 0 without one")
    cpu: int | None = Field(None, ge=0, le=1023, description="its processor (from 0) under a partitioned policy")
    prio: int | None = Field(None, description="priority, lower number first; under RM and DM it breaks ties only")
    rm_rank: int | None = Field(None, description="another name of prio")


class TaskSetFile(FileModel):
    """Periodic tasks on identical processors."""

    name: str | None = Field(None, min_length=1, description="name; the file's without one")
    time_unit: Literal["ns", "us", "µs", "ms", "s"] = Field("ns", description="what every time here is counted in")
    policy: str | None = Field(
        None,
        description="EDF, FP, RM, DM or FIFO; P_ or G_ before it: partitioned or global; NP-: no preemption; "
        "without one FP when every task has a prio, else EDF",
    )
    processors: int = Field(1, ge=1, le=1024, description="identical processors")
    horizon: Time | None = Field(None, description="how long to simulate")
    tasks: list[TaskFile] = Field(min_length=1, description="the tasks")
    chain: list[int | str] = Field(default_factory=list, description="cause-effect chain: positions (from 0) or names")
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
        """Return the task set as the rest of socsched sees it."""
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
                )
            )
        names = {task.name: index for index, task in enumerate(tasks)}
        return TaskSet(
            name=self.name or Path(file).name.split(".")[0],
            unit_ns=unit,
            policy=_policy(self.policy, self.processors, tasks),
            processors=self.processors,
            horizon_ns=None if self.horizon is None else ns(self.horizon),
            tasks=tuple(tasks),
            chain=tuple(names[entry] if isinstance(entry, str) else entry for entry in self.chain),
        )


def load_taskset(path: str | Path) -> TaskSet:
    """Return the task set of a JSON or YAML file; DescriptorError lists every fault of it with its position."""
    raw = read_bytes(path)
    if raw.lstrip().startswith(b"{"):
        raw = raw.replace(b"\t", b" ")  # JSON may be indented with tabs, and has none within text
    return _taskset(parse(raw, str(path)))


def taskset_from_mapping(mapping: Mapping[str, Any], file: str) -> TaskSet:
    """Return a task set from data in the form of a task-set file, checked the same way; `file` names it in errors.

    A float counts as the shortest decimal number that reads back as it.
    """
    return _taskset(Document(file, plain(mapping)))


def _taskset(document: Document) -> TaskSet:
    _put_decimals(document)
    return validate(document, TaskSetFile, (_check_times, _check_tasks, _check_policy, _check_chain)).lower(
        document.file
    )


def _put_decimals(document: Document) -> None:
    """Replace times with a fraction by what is written, which a float may not hold."""
    for path, text in document.decimals.items():
        if path[-1] in (*_TIMES, "horizon"):
            holder = document.data
            for part in path[:-1]:
                holder = holder[part]
            holder[path[-1]] = Decimal(text)


def _policy(text: str | None, processors: int, tasks: list[PeriodicTask]) -> Policy:
    match = _POLICY.fullmatch(text or ("FP" if all(task.prio is not None for task in tasks) else "EDF"))
    assert match is not None
    rule: Any = RULES[match["rule"].upper()]
    stated = (match["scheme"] or "").lower()[:1]
    partitioned = processors == 1 or stated == "p" or (not stated and tasks[0].cpu is not None)
    last = (match["last"] or "").lower()
    preemptive = not match["np"] and not last.endswith("np") and rule != "fifo"
    return Policy(rule, "partitioned" if partitioned else "global", preemptive)


def _numbers(task: Tree, keys: tuple[str, ...]) -> Iterator[tuple[Tree, Fraction]]:
    for key in keys:
        item = task.at(key)
        if not isinstance(item.value, bool) and isinstance(item.value, (int, float, Decimal)) and isfinite(item.value):
            yield item, Fraction(str(item.value))


def _check_times(root: Tree) -> None:
    unit = root.at("time_unit").text or "ns"
    scale = UNITS.get(unit, 1)
    found = [pair for task in root.at("tasks").items() for pair in _numbers(task, _TIMES)]
    for item, value in [*found, *_numbers(root, ("horizon",))]:
        exact = value * scale
        if exact < 0 or (exact == 0 and item.key in _POSITIVE):
            item.report(f"expected {'a positive' if item.key in _POSITIVE else 'no negative'} time, got {item.value}")
        elif exact.denominator != 1:
            item.report(f"expected a whole number of ns, got {item.value} {unit}; nothing is rounded")
        elif exact > LARGEST_NS:
            item.report(f"expected at most {LARGEST_NS // scale} {unit}, got {item.value}")


def _check_tasks(root: Tree) -> None:
    seen: dict[str, set[Any]] = {"id": set(), "name": set()}
    for index, task in enumerate(root.at("tasks").items()):
        number = task.at("id").value if task.at("id").value is not None else index
        for key, value in (("id", number), ("name", task.at("name").text or f"t{number}")):
            if isinstance(value, (int, str)) and value in seen[key]:
                task.at(key).report(f"expected every {key} once, got {value!r} again")
            else:
                seen[key].add(value if isinstance(value, (int, str)) else None)
        times = {item.key: value for item, value in _numbers(task, ("bcet", "wcet"))}
        if len(times) == 2 and times["bcet"] > times["wcet"]:
            task.at("bcet").report(f"expected at most the wcet of {task.at('wcet').value}, got {task.at('bcet').value}")
        for one, other in (("offset", "phase"), ("prio", "rm_rank")):
            if task.at(one).value is not None and task.at(other).value is not None:
                task.at(other).report(f"expected {one} or {other}, which mean the same, not both")


def _check_policy(root: Tree) -> None:
    policy, tasks = root.at("policy"), list(root.at("tasks").items())
    processors = root.at("processors").value if isinstance(root.at("processors").value, int) else 1
    match = _POLICY.fullmatch(policy.text) if policy.text else None
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


def _check_chain(root: Tree) -> None:
    tasks = list(root.at("tasks").items())
    names = [
        task.at("name").text or f"t{index if task.at('id').value is None else task.at('id').value}"
        for index, task in enumerate(tasks)
    ]
    for entry in root.at("chain").items():
        if entry.text and entry.text not in names:
            entry.unknown("task", names)
        elif isinstance(entry.value, int) and not 0 <= entry.value < len(tasks):
            entry.report(f"expected a position from 0 to {len(tasks) - 1}, got {entry.value}")
