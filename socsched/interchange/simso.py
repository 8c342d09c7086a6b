"""Task sets of SimSo (XML): tried on files of SimSo 0.8.5.

Times are in ms, the duration and overheads in cycles.  The partitioned schedulers pack tasks as SimSo does: P_EDF first
fit and P_EDF_WF (whatever its name) next fit by decreasing utilisation, P_EDF2 first fit in the order of the file, P_RM
on the processor with the least utilisation so far.  Under FP the larger `priority` goes first.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from socsched.interchange.taskset_import import ImportedTaskSet, TaskNames, decimal_of, set_of
from socsched.interchange.xml_file import Element, XmlFile

_HINT = "expected a simulation of SimSo (XML)"
_POLICIES = {"EDF_mono": "EDF", "EDF": "EDF", "EDF2": "EDF", "RM_mono": "RM", "RM": "RM", "FP": "FP"}
_POLICIES |= {"P_EDF": "EDF", "P_EDF2": "EDF", "P_EDF_WF": "EDF", "P_RM": "RM"}
_OVERHEADS = ("overhead", "overhead_activate", "overhead_terminate", "cs_overhead", "cl_overhead", "migration_overhead")
_LARGEST, _SLOWEST = Decimal(10) ** 12, Decimal("0.000001")


def read_simso(path: Path, processors: int = 0) -> ImportedTaskSet:
    """Return the task set of a simulation; DescriptorError for faults and what cannot be analysed."""
    file = XmlFile(path, "simulation", _HINT)
    root = file.root
    if root.tag != "simulation":
        file.refuse(root, f"expected the root element simulation, got {root.tag}")
    parts = {child.tag: child for child in root.children}
    for tag in ("sched", "processors", "tasks"):
        if tag not in parts:
            file.refuse(root, f"expected the element {tag}")
    units = parts["processors"].all("processor")
    rule, speed = _scheduler(file, parts["sched"], parts["processors"])
    count = len(units)
    notes = [f"Imported from {path.name}. Times are the WCETs; SimSo's caches and random times are left out."]
    costs = [
        name
        for element in (parts["sched"], parts["processors"], *units, *parts["tasks"].all("task"))
        for name in (*_OVERHEADS, "preemption_cost")
        if element.get(name) and _number(file, element, name)
    ]
    if costs:
        notes.append(f"Overheads are left out: {', '.join(dict.fromkeys(costs))}.")
    names, rows, places = TaskNames(), list[dict[str, Any]](), list[tuple[int, int]]()
    for element in parts["tasks"].all("task"):
        row = _task(file, element, speed, notes)
        row["name"] = names.take(element.get("name") or f"task {element.get('id')}")
        if rule == "FP":
            row["prio"] = -int(_number(file, element, "priority", "0", signed=True))
        rows.append(row)
        places.append((element.line, element.column))
    if not rows:
        file.refuse(parts["tasks"], "expected a task")
    if rule.startswith("P_"):
        cpus = _packed(rule, [Fraction(row["wcet"]) / Fraction(row["period"] or 1) for row in rows], count)
        for row, cpu, place in zip(rows, cpus, parts["tasks"].all("task"), strict=True):
            if cpu < 0:
                file.refuse(place, f"expected a task that {rule} can place: no processor has enough utilisation left")
            row["cpu"] = cpu
    key = {"FP": "prio", "RM": "period"}.get(_POLICIES[rule], "")
    if key and len({row[key] for row in rows}) < len(rows):
        notes.append(
            "Of tasks with one priority, the earlier in the file goes first; in SimSo the one that arrived first."
        )
    if any(element.get("abort_on_miss") == "yes" for element in parts["tasks"].all("task")):
        notes.append("SimSo aborts late jobs; here they run to their end.")
    scheme = "P_" if rule.startswith("P_") else "G_" if count > 1 else ""
    mapping = set_of(path, "simso", "ms", f"{scheme}{_POLICIES[rule]}", count, rows)
    cycles = _number(file, root, "cycles_per_ms", "1000000")
    horizon = _number(file, root, "duration", "0") / cycles if cycles >= 1 else Decimal(0)
    if 0 < horizon <= _LARGEST and (horizon * 10**6) % 1 == 0:
        mapping["horizon"] = horizon
    return ImportedTaskSet(mapping, tuple(places), tuple(notes))


def _scheduler(file: XmlFile, sched: Element, processors: Element) -> tuple[str, Decimal]:
    """Return the scheduler's name, and the speed of all processors."""
    units = processors.all("processor")
    speeds = {_number(file, unit, "speed", "1") for unit in units}
    if not units or len(speeds) > 1 or not min(speeds) >= _SLOWEST:
        file.refuse(processors, f"expected processors of one speed of at least {_SLOWEST}")
    rule = sched.get("class").rpartition(".")[2] or Path(sched.get("className")).stem
    if rule not in _POLICIES:
        known = ", ".join(sorted(_POLICIES))
        file.refuse(sched, f"expected one of the schedulers {known}, got {rule or 'none'!r}")
    if rule.endswith("_mono") and len(units) > 1:
        file.refuse(processors, f"expected one processor under {rule}, got {len(units)}")
    return rule, speeds.pop()


def _packed(rule: str, shares: list[Fraction], count: int) -> list[int]:
    """Return the processor of every task, -1 for one that fits on none."""
    order = list(range(len(shares)))
    if rule in ("P_EDF", "P_EDF_WF"):
        order.sort(key=lambda index: -shares[index])
    load, found, last = [Fraction(0)] * count, [-1] * len(shares), 0
    for index in order:
        if rule == "P_RM":
            cpu = load.index(min(load))
        else:
            places = [(last + step) % count for step in range(count)] if rule == "P_EDF_WF" else range(count)
            cpu = next((cpu for cpu in places if load[cpu] + shares[index] <= 1), -1)
        if cpu >= 0:
            found[index] = last = cpu
            load[cpu] += shares[index]
    return found


def _task(file: XmlFile, element: Element, speed: Decimal, notes: list[str]) -> dict[str, Any]:
    kind = element.get("task_type") or ("APeriodic" if element.get("periodic") == "no" else "Periodic")
    wcet = _number(file, element, "WCET") / speed
    row: dict[str, Any] = {"wcet": _whole(wcet), "deadline": _number(file, element, "deadline")}
    if kind == "Periodic":
        row["period"] = _number(file, element, "period")
        row["offset"] = _number(file, element, "activationDate", "0")
    elif kind == "Sporadic":
        texts = [text for text in element.get("list_activation_dates").split(",") if text.strip()]
        dates = sorted(_decimal(file, element, "list_activation_dates", text) for text in texts)
        stated = _number(file, element, "period", "0")
        gaps = [later - first for first, later in pairwise(dates)]
        if not stated and not gaps:
            file.refuse(element, "expected a period, or two activation dates or more, for a sporadic task")
        row["period"] = min([*gaps, stated] if stated else gaps)
        row["arrivals"] = "sporadic"
        notes.append(f"{element.get('name')} is sporadic: its shortest distance is {row['period']} ms.")
    else:
        file.refuse(element, f"expected a periodic or sporadic task, got {kind}: what activates it is another task")
    return row


def _number(file: XmlFile, element: Element, name: str, default: str = "", signed: bool = False) -> Decimal:
    return _decimal(file, element, name, element.get(name) or default, signed)


def _decimal(file: XmlFile, element: Element, name: str, text: str, signed: bool = False) -> Decimal:
    value = decimal_of(text)
    if not value.is_finite() or abs(value) > _LARGEST or (value < 0 and not signed):
        file.refuse(element, f"{name}: expected a number from 0 to {_LARGEST:f}, got {text!r}")
    return value


def _whole(value_ms: Decimal) -> Decimal:
    """Return a time rounded up to a nanosecond, the resolution of task sets."""
    return (value_ms * 10**6).to_integral_value(ROUND_CEILING) / 10**6
