"""Task sets of PARTSim and RTSIM (YAML): tried on files of gabrieleara/PARTSim, 2023.

`iat` is the period or a distribution of distances, `rdl` the deadline, `ph` the offset; `code` lists what a job runs:
fixed(n[, workload]) and delay(distribution).  Ticks are taken as ms.  Scheduler and processors are in the system file.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from socsched.bounded import read_plain
from socsched.descriptor.source import Document, kind_of, parse
from socsched.interchange.taskset_import import MOST_BYTES, ImportedTaskSet, TaskNames, decimal_of, set_of

_HINT = "expected a task set of PARTSim (YAML)"
_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*;?\s*", re.DOTALL)
_UNIFORM = re.compile(r"unif(?:orm)?\(([^,()]+),([^,()]+)\)")
_WAITS = ("lock", "wait", "unlock", "signal", "activate", "suspend")
_LARGEST = Decimal(10) ** 9


def read_partsim(path: Path, processors: int = 0) -> ImportedTaskSet:
    """Return the task set; `processors`: those of the system file.  DescriptorError lists every fault."""
    document = parse(read_plain(path, "task set", _HINT, MOST_BYTES), str(path))
    listed = document.data.get("taskset")
    if not isinstance(listed, list) or not listed:
        document.report(("taskset",), f"expected a list of tasks, got {kind_of(listed)}")
    document.check()
    names, rows = TaskNames(), list[dict[str, Any]]()
    notes = [
        f"Imported from {path.name}. Ticks are taken as ms, at full speed; EDF is assumed, as the scheduler is in the "
        "system file.",
    ]
    budgets = False
    for number, item in enumerate(listed):
        if isinstance(item, dict):
            rows.append(_task(document, ("taskset", number), item, names))
            budgets = budgets or any(key in item for key in ("runtime", "cbs_runtime"))
        else:
            document.report(("taskset", number), f"expected a mapping of fields, got {kind_of(item)}")
    document.check()
    places = tuple((document.mark(("taskset", n)).line, document.mark(("taskset", n)).column) for n in range(len(rows)))
    if budgets:
        notes.append("Budgets of servers are left out: the tasks run what their code states.")
    cpus = {row["cpu"] for row in rows if "cpu" in row}
    count = processors or max(cpus, default=0) + 1
    if len(cpus) < 2:
        for row in rows:
            row.pop("cpu", None)
    elif not all("cpu" in row for row in rows):
        document.report(("taskset",), "expected startcpu for every task, or for none")
        document.check()
    if not processors:
        notes.append(f"Processors assumed, from startcpu: {count}; others with --processors.")
    scheme = "P_" if len(cpus) > 1 else "G_" if count > 1 else ""
    mapping = set_of(path, "partsim", "ms", f"{scheme}EDF", count, rows)
    return ImportedTaskSet(mapping, places, tuple(notes))


def _task(document: Document, path: tuple[str, int], item: dict[str, Any], names: TaskNames) -> dict[str, Any]:
    row: dict[str, Any] = {"name": names.take(str(item.get("name", "task")))}
    apart = item.get("iat")
    match = _UNIFORM.fullmatch(apart.replace(" ", "")) if isinstance(apart, str) else None
    if match:
        row["period"], row["arrivals"] = _decimal(document, (*path, "iat"), match[1]), "sporadic"
    else:
        row["period"] = _decimal(document, (*path, "iat"), apart)
    due = [_decimal(document, (*path, key), item[key]) for key in ("rdl", "deadline") if key in item]
    row["deadline"] = min(due, default=row["period"])
    for key in ("ph", "phase"):
        if key in item:
            row["offset"] = _decimal(document, (*path, key), item[key])
    cpu = item.get("startcpu")
    if cpu is not None:
        if type(cpu) is int and 0 <= cpu < 1024:
            row["cpu"] = cpu
        else:
            document.report((*path, "startcpu"), f"expected a processor from 0 to 1023, got {kind_of(cpu)}")
    code = item.get("code")
    least = most = Decimal(0)
    faults = len(document.findings)
    for place, step in enumerate(code if isinstance(code, list) else []):
        low, high = _step(document, (*path, "code", place), step)
        least, most = least + low, most + high
    if not most and len(document.findings) == faults:
        document.report((*path, "code"), "expected a list of instructions with a fixed(n) or delay(unif(a, b))")
    return row | {"bcet": least, "wcet": most}


def _step(document: Document, path: tuple[str | int, ...], step: object) -> tuple[Decimal, Decimal]:
    """Return the shortest and longest time of an instruction."""
    call = _CALL.fullmatch(step) if isinstance(step, str) else None
    name, inside = (call[1], call[2].replace(" ", "")) if call else ("", "")
    if name == "fixed":
        value = _decimal(document, path, inside.partition(",")[0])
        return value, value
    if name == "delay":
        match = _UNIFORM.fullmatch(inside.partition("),")[0].rstrip(")") + ")")
        if match:
            return _decimal(document, path, match[1]), _decimal(document, path, match[2])
        document.report(path, f"expected delay(unif(a, b)): {inside!r} has no longest time")
    elif name in _WAITS:
        document.report(path, f"expected tasks that do not wait for each other: {name} is not analysed")
    else:
        document.report(path, "expected fixed(n), fixed(n, workload) or delay(unif(a, b))")
    return Decimal(0), Decimal(0)


def _decimal(document: Document, path: tuple[str | int, ...], value: object) -> Decimal:
    number = decimal_of(value if type(value) in (int, float, str) else None)
    if not number.is_finite() or not 0 <= number <= _LARGEST:
        document.report(path, f"expected a time from 0 to {_LARGEST:f}, got {kind_of(value)}")
        return Decimal(0)
    return number
