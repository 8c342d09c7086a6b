"""Consecutive stages of a GPU as one graph: the first one starts the kernels of all (`native/cuda_frame.hpp`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from socsched.planning.plan import Plan, Task

Described = Mapping[str, Mapping[str, Any]]


def joined(plan: Plan, stages: Described, watched: bool = False) -> dict[str, dict[str, Any]]:
    """Return the stages of run.json, those that follow each other on a GPU as parts of one graph.

    A stage joins the one it follows where nothing else can come between: both are graphs as a whole on the same lanes,
    it waits for that one alone, and all its data are of the graph, in the form that it takes.  The end of one that
    nothing outside of the graph waits for is learnt later, from the GPU's clock, unless running jobs are `watched`.
    """
    frames: list[list[str]] = []
    ends: dict[str, list[str]] = {}
    tasks, made = {task.name: task for task in plan.tasks}, {name: dict(how) for name, how in stages.items()}
    order = TopologicalSorter({task.name: [name for name in task.after if name in tasks] for task in plan.tasks})
    for name in order.static_order():
        task = tasks[name]
        frame = ends.get(task.after[0]) if len(task.after) == 1 else None
        if frame is not None and _joins(task, tasks[frame[0]], frame, stages):
            del ends[frame[-1]]
            frame.append(name)
        elif name in stages:
            frames.append(frame := [name])
        else:
            continue
        ends[name] = frame
    conversions = {move.task for move in plan.transitions}  # whose readers name the stage before
    for first, *others in (frame for frame in frames if len(frame) > 1):
        readers = {
            one["from"]: name for name, how in stages.items() for one in how.get("inputs", ()) if name not in others
        }
        for number, name in enumerate((first, *others)):
            read = name in readers or name in conversions or any(port["on_host"] for port in stages[name]["outputs"])
            awaited = any(name in (*task.after, *task.reads) for task in plan.tasks if task.name not in others)
            made[name] |= {"inner": not read, "shown": watched or read or awaited}
            made[name] |= {"follows": first, "part": number} if number else {}
        made[first]["followers"] = [{"task": name, "stage": made[name]} for name in others]
    return made


def _joins(task: Task, first: Task, frame: Sequence[str], stages: Described) -> bool:
    how, leader = stages.get(task.name, {}), stages[first.name]
    if any(one.get("kind") != "cuda" or "longest_ns" in one for one in (how, leader)) or task.reads or task.timer:
        return False
    alike = (task.engine, task.lanes, task.criticality, task.period_ns)
    if alike != (first.engine, first.lanes, first.criticality, first.period_ns):
        return False
    return all(
        one["from"] in frame and _lies_as(one, stages[one["from"]]["outputs"][one["port"]]) for one in how["inputs"]
    )


def _lies_as(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return whether a tensor lies as it is wanted; rows that vary are as many as there is room for in either."""
    sizes = list(zip(wanted["shape"], found["shape"], strict=False))
    same = len(wanted["shape"]) == len(found["shape"]) and all(a == b or min(a, b) < 0 for a, b in sizes)
    return same and wanted["dtype"] == found["dtype"] and (len(sizes) != 4 or wanted["layout"] == found["layout"])
