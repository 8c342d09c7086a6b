"""Pipelines from BTF traces (Best Trace Format 2): every task is a stage with the period and times that it showed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.interchange.pipeline_text import ImportedPipeline, Names, NoRate, document, duration, rate_of
from socsched.interchange.results import RecordedTask, tasks_of
from socsched.runtime.profile import quantiles
from socsched.text import one_line
from socsched.trace import btf
from socsched.trace.trace import Trace

_SOURCE = "trace"


def import_btf(path: Path) -> ImportedPipeline:
    """Return the pipeline of a trace; DescriptorError with a position for a faulty file, InputError if it has no task.

    Deadlines are those that notes of activations state, as in socsched's own traces; others have none.
    """
    trace, assumed = btf.read_noted(path)
    tasks = tasks_of(trace)
    bursts = _bursts(trace)
    timed = [task for task in tasks if task.period_ns and task.name not in bursts]
    if not timed:
        what = (
            "no task was activated twice, over the recording, and finished a job" if trace.jobs else "it holds no jobs"
        )
        raise InputError(f"{path}: {what}", "record a longer time")
    unique = Names()
    names = {task.name: unique.take(task.name) for task in timed}
    notes = [
        f"Imported from {path.name}. BTF states neither predecessors nor data types: every task is periodic with the "
        "lateness it showed as jitter, and fp32 is assumed.",
        *assumed,
    ]
    if left := [one_line(name) for name in bursts]:
        notes.append(f"Left out, activated in a burst, not over the recording: {', '.join(left)}.")
    left = [one_line(task.name) for task in tasks if not task.period_ns]
    if left:
        notes.append(f"Left out, activated only once: {', '.join(left)}.")
    chains = {
        f"{names[task.name]}-deadline": {
            "path": [names[task.name]],
            "deadline": duration(task.deadline_ns),
            "source": _SOURCE,
        }
        for task in timed
        if task.deadline_ns
    }
    if len(chains) < len(timed):
        notes.append("Tasks without a deadline in the trace have no chain.")
    what, stages = "trace in Best Trace Format", {names[task.name]: _stage(task) for task in timed}
    mapping = document(path.stem, f"BTF trace {path.name}", _SOURCE, what, path.name, stages=stages, chains=chains)
    return ImportedPipeline(mapping, tuple(notes))


def _bursts(trace: Trace) -> list[str]:
    """Return the tasks whose activations cover too little of the recording for a period."""
    times: dict[str, list[int]] = {}
    for job in trace.jobs:
        times.setdefault(job.task, []).append(job.activation_ns)
    last = max((piece.end_ns for piece in trace.slices), default=0)
    first = min((listed[0] for listed in times.values()), default=0)
    found = []
    for name, listed in times.items():
        span = listed[-1] - listed[0]
        few = len(listed) < 3 and 4 * span < last - first
        if few or (len(listed) > 2 and isinstance(rate_of(listed, [(first, last)]), NoRate)):
            found.append(name)
    return found


def _stage(task: RecordedTask) -> dict[str, Any]:
    longest = {"value": f"{task.times_ns[-1]} ns", "kind": "measured", "source": _SOURCE}
    longest["note"] = f"longest of {len(task.times_ns)} jobs"
    cost = {"platform": "recorded", "mode": "as recorded", "engine": task.engine, "precision": "fp32"}
    return {
        "title": one_line(task.name)[:300],
        "source": _SOURCE,
        "period": duration(task.period_ns),
        "jitter": duration(min(task.jitter_ns, task.period_ns)),
        "precisions": ["fp32"],
        "share": task.width,
        "output_bytes": "0 B",
        "costs": [{**cost, "units": task.width, "time": longest}],
        "execution": {"samples": [f"{time} ns" for time in quantiles(task.times_ns)], "source": _SOURCE},
    }
