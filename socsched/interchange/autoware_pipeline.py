"""Pipelines from thread configurations of Autoware's callback isolated executor.

The file states budgets, deadlines and periods of SCHED_DEADLINE threads; ids of callback groups the periods of timers.
Threads without either are left out: a priority alone does not say how often a thread runs, or for how long.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.interchange.pipeline_text import ImportedPipeline, Names, document, duration, unstated_cost
from socsched.planning.export import autoware
from socsched.planning.export.linux import Thread
from socsched.text import one_line

_SOURCE = "configuration"
_WORKER = re.compile(r"(.+)/\d{1,6}")
_BUDGET = "the budget of SCHED_DEADLINE; the file does not state execution times"


def import_autoware(path: Path) -> ImportedPipeline:
    """Return the pipeline of a configuration; DescriptorError with positions for faults, InputError without periods."""
    groups: dict[tuple[str, str], list[Thread]] = {}
    for thread in autoware.load(path):
        match = _WORKER.fullmatch(thread.name)
        owner = match[1] if match and (match[1], thread.scope) in groups else thread.name
        groups.setdefault((owner, thread.scope), []).append(thread)
    stages, chains, left, notes, names = dict[str, Any](), dict[str, Any](), list[str](), list[str](), Names()
    for (owner, scope), threads in groups.items():
        first = threads[0]
        called = f"{owner} in {scope}" if scope else owner
        timers = [int(text) for text in autoware.TIMER.findall(owner) if int(text)]
        period = first.period_ns or min(timers, default=0)
        if not period:
            left.append(called)
            continue
        if len(timers) > 1:
            notes.append(f"{called} has {len(timers)} timers; one stage stands for them, with the shortest period.")
        if first.period_ns and timers and first.period_ns not in timers:
            notes.append(
                f"{called}: the timer runs every {timers[0]} ns, its budget is renewed every {first.period_ns} ns, "
                "which is taken."
            )
        name = names.take(owner.strip("/"))
        stages[name] = _stage(called, threads, period)
        if first.deadline_ns:
            limit = {"path": [name], "deadline": duration(first.deadline_ns), "source": _SOURCE}
            chains[f"{name[:55]}-deadline"] = limit
    if not stages:
        raise InputError(
            f"{path}: no thread has a period: neither SCHED_DEADLINE nor a timer in its id",
            "import the trace of a run instead: pipelines import ros2",
        )
    notes = [
        f"Imported from {path.name}. Execution times are the budgets; where the file has none, 1 ns is a placeholder.",
        "The file states neither data flow nor data types: stages are independent, fp32 is assumed.",
        *notes,
    ]
    if left:
        notes.append(f"Left out, since the file does not state how often they run: {', '.join(left)}.")
    what, where = "thread configuration of the callback isolated executor", one_line(path.name)
    title = one_line(f"threads of {path.name}")
    mapping = document(path.stem, title, _SOURCE, what, where, stages=stages, chains=chains)
    return ImportedPipeline(mapping, tuple(map(one_line, notes)))


def _stage(owner: str, threads: list[Thread], period: int) -> dict[str, Any]:
    first = threads[0]
    value = {"deadline": "", "fifo": f" {first.priority}", "rr": f" {first.priority}"}.get(
        first.policy, f" {first.nice}"
    )
    cpus = ", ".join(str(cpu) for thread in threads for cpu in thread.processors) or "all"
    place = {"platform": "configured host", "mode": "as configured", "engine": "cpu", "precision": "fp32"}
    time = {"value": f"{first.runtime_ns} ns", "kind": "assumed", "note": _BUDGET, "error": 0.1}
    stated = {**place, "units": len(threads), "time": time} if first.runtime_ns else None
    return {
        "title": one_line(f"{owner}: {autoware.POLICIES[first.policy]}{value} on CPUs {cpus}")[:300],
        "source": _SOURCE,
        "period": duration(period),
        "precisions": ["fp32"],
        "share": len(threads),
        "output_bytes": "0 B",
        "costs": [stated or unstated_cost("configured", len(threads))],
    }
