"""Pipelines from thread configurations of Autoware's callback isolated executor.

The file states budgets, deadlines and periods of SCHED_DEADLINE threads; ids of callback groups the periods of timers.
Threads without either are left out: a priority alone does not say how often a thread runs, or for how long.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.interchange.pipeline_text import ImportedPipeline, duration, stage_name, unstated_cost
from socsched.planning.export import autoware
from socsched.planning.export.threads import Thread

_SOURCE = "configuration"
_TIMER = re.compile(r"@Timer\((\d{1,17})\)")
_WORKER = re.compile(r"(.+)/\d{1,6}")
_BUDGET = "the budget of SCHED_DEADLINE; the file does not state execution times"


def import_autoware(path: Path) -> ImportedPipeline:
    """Return the pipeline of a configuration; DescriptorError with positions for faults, InputError without periods."""
    groups: dict[str, list[Thread]] = {}
    for thread in autoware.load(path):
        match = _WORKER.fullmatch(thread.name)
        owner = match[1] if match and match[1] in groups else thread.name
        groups.setdefault(owner, []).append(thread)
    stages, chains, left = dict[str, Any](), dict[str, Any](), list[str]()
    for owner, threads in groups.items():
        first, name = threads[0], stage_name(owner.strip("/"))
        timer = _TIMER.search(owner)
        period = first.period_ns or (int(timer[1]) if timer else 0)
        if not period:
            left.append(owner)
            continue
        if name in stages:
            raise InputError(f"{path}: two groups have the name {name!r} as stages", "rename one of them")
        stages[name] = _stage(owner, threads, period)
        if first.deadline_ns:
            limit = {"path": [name], "deadline": duration(first.deadline_ns), "source": _SOURCE}
            chains[f"{name}-deadline"] = limit
    if not stages:
        raise InputError(
            f"{path}: no thread has a period: neither SCHED_DEADLINE nor a timer in its id",
            "import the trace of a run instead: pipelines import ros2",
        )
    notes = [
        f"Imported from {path.name}. Execution times are the budgets; where the file has none, 1 ns is a placeholder.",
        "The file states neither data flow nor data types: stages are independent, fp32 is assumed.",
    ]
    if left:
        notes.append(f"Left out, since the file does not state how often they run: {', '.join(left)}.")
    mapping: dict[str, Any] = {
        "schema_version": "1",
        "name": stage_name(path.stem),
        "title": f"threads of {path.name}"[:300],
        "sources": {_SOURCE: {"title": "thread configuration of the callback isolated executor", "where": path.name}},
        "stages": stages,
    }
    if chains:
        mapping["chains"] = chains
    return ImportedPipeline(mapping, tuple(notes))


def _stage(owner: str, threads: list[Thread], period: int) -> dict[str, Any]:
    first = threads[0]
    how = {"fifo": f"SCHED_FIFO {first.priority}", "other": f"SCHED_OTHER {first.nice}"}.get(first.policy)
    cpus = ", ".join(str(cpu) for thread in threads for cpu in thread.processors) or "all"
    document: dict[str, Any] = {
        "title": f"{owner}: {how or 'SCHED_DEADLINE'} on CPUs {cpus}"[:300],
        "source": _SOURCE,
        "period": duration(period),
        "precisions": ["fp32"],
        "share": len(threads),
        "output_bytes": "0 B",
    }
    document["costs"] = [unstated_cost("configured", len(threads))]
    if first.runtime_ns:
        time = {"value": f"{first.runtime_ns} ns", "kind": "assumed", "note": _BUDGET, "error": 0.1}
        place = {"platform": "configured host", "mode": "as configured", "engine": "cpu", "precision": "fp32"}
        document["costs"] = [{**place, "units": len(threads), "time": time}]
    return document
