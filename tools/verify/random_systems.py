"""Random task sets for checking and comparing analyses: UUniFast utilisations, periods log-uniform, small integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from socsched.descriptor.taskset import (
    Accelerator,
    AcceleratorRequest,
    Graph,
    MemGuard,
    Node,
    PeriodicTask,
    Policy,
    TaskSet,
    taskset_from_mapping,
)
from socsched_literature.studies.acceptance import uunifast


def plain(
    count: int, total: float, draw: Random, shortest: int = 4, longest: int = 30, deadlines: str = "implicit"
) -> list[PeriodicTask]:
    """Return tasks with periods between `shortest` and `longest`; a share over 1 is cut to 1."""
    tasks = []
    for index, share in enumerate(uunifast(count, total, draw)):
        period = round(math.exp(draw.uniform(math.log(shortest), math.log(longest))))
        wcet = min(max(round(share * period), 1), period)
        due = {
            "implicit": period,
            "constrained": draw.randint(wcet, period),
            "arbitrary": draw.randint(wcet, 3 * period),
        }[deadlines]
        tasks.append(PeriodicTask(index, f"t{index}", period, due, wcet, draw.randint(1, wcet), 0, 0, None, None))
    return tasks


def from_any_phase(made: TaskSet) -> TaskSet:
    """Return a task set whose bounds must hold from every phase, not from the stated offsets alone.

    Chains are left as they are: nothing bounds how long a sporadic task of a chain stays away.
    """
    if made.chain:
        return made
    return replace(made, tasks=tuple(replace(task, sporadic=True) for task in made.tasks))


def taskset(tasks: list[PeriodicTask], policy: Policy, processors: int = 1, draw: Random | None = None) -> TaskSet:
    """Return a set of tasks; priorities by deadline, in random order where `draw` is given."""
    order = sorted(range(len(tasks)), key=lambda i: tasks[i].deadline_ns)
    if draw is not None:
        draw.shuffle(order)
    placed = [
        replace(task, prio=order.index(index), cpu=(task.cpu or 0) if policy.scheme == "partitioned" else None)
        for index, task in enumerate(tasks)
    ]
    return TaskSet("random", 1, policy, processors, None, tuple(placed), ())


def cut(task: PeriodicTask, draw: Random, most: int) -> PeriodicTask:
    """Return a task with up to `most` preemption points, at drawn places."""
    points = sorted(draw.sample(range(1, task.wcet_ns), min(draw.randint(0, most), task.wcet_ns - 1)))
    return replace(task, regions_ns=tuple(b - a for a, b in itertools.pairwise([0, *points, task.wcet_ns])))


def _one(
    rule: str, preemptive: bool = True, deadlines: str = "constrained", jitter: bool = False
) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        tasks = plain(draw.randint(2, 5), draw.uniform(0.3, 1.0), draw, deadlines=deadlines)
        if jitter:
            tasks = [replace(task, jitter_ns=draw.choice([0, draw.randint(0, task.period_ns)])) for task in tasks]
        shuffle = draw if rule == "fp" and draw.random() < 0.3 else None
        return taskset(tasks, Policy(rule, "partitioned", preemptive), 1, shuffle)  # type: ignore[arg-type]

    return make


def _regions(rule: str) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        tasks = []
        for task in plain(draw.randint(2, 4), draw.uniform(0.3, 0.95), draw, deadlines="constrained"):
            if draw.random() < 0.5:
                tasks.append(replace(task, longest_region_ns=draw.randint(1, task.wcet_ns)))
            else:
                tasks.append(cut(task, draw, 3) if draw.random() < 0.7 else task)
        return taskset(tasks, Policy(rule, "partitioned", True))  # type: ignore[arg-type]

    return make


def _many(
    rule: str, preemptive: bool = True, jitter: bool = False, deadlines: str = "constrained"
) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        m = draw.randint(2, 3)
        tasks = plain(draw.randint(m, m + 4), draw.uniform(0.3, 0.95) * m, draw, 4, 24, deadlines)
        if jitter:
            tasks = [replace(task, jitter_ns=draw.randint(0, task.period_ns // 2)) for task in tasks]
        return taskset(tasks, Policy(rule, "global", preemptive), m)  # type: ignore[arg-type]

    return make


def graph(draw: Random, kinds: list[str]) -> Graph:
    """Return a random graph of up to eight nodes."""
    nodes = tuple(Node(draw.randint(1, 4), draw.choice(kinds)) for _ in range(draw.randint(1, 8)))
    edges = tuple((a, b) for b in range(len(nodes)) for a in range(b) if draw.random() < 0.3)
    return Graph(nodes, edges)


def _graph_task(index: int, draw: Random, share: float, kinds: list[str], m: int) -> PeriodicTask:
    made = graph(draw, kinds)
    volume = sum(node.wcet_ns for node in made.nodes)
    period = max(round(volume / (share * m)), 2)
    return PeriodicTask(index, f"t{index}", period, period, volume, volume, 0, 0, None, None, graph=made)


def _graphs(rule: str, alone: bool, typed: bool = False) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        m = draw.randint(2, 3)
        types = (("cpu", m), ("gpu", draw.randint(1, 2))) if typed else ()
        kinds = [name for name, _ in types] or [""]
        count = 1 if alone else draw.randint(2, 3)
        tasks = [_graph_task(index, draw, draw.uniform(0.1, 0.6) / count, kinds, m) for index in range(count)]
        made = taskset(tasks, Policy(rule, "global", not alone or draw.random() < 0.5), m)  # type: ignore[arg-type]
        return replace(made, types=types)

    return make


def _streams(draw: Random) -> TaskSet:
    tasks = []
    for task in plain(draw.randint(2, 4), draw.uniform(0.3, 0.95), draw, deadlines="arbitrary"):
        jitter = draw.choice([0, draw.randint(0, 3 * task.period_ns)])
        tasks.append(replace(task, jitter_ns=jitter, distance_ns=draw.randint(0, task.period_ns)))
    return taskset(tasks, Policy("fp", "partitioned", True))


def _suspending(draw: Random) -> TaskSet:
    tasks = [
        replace(task, suspension_ns=draw.choice([0, draw.randint(0, max(task.deadline_ns - task.wcet_ns, 0))]))
        for task in plain(draw.randint(2, 4), draw.uniform(0.2, 0.8), draw)
    ]
    return taskset(tasks, Policy("fp", "partitioned", True))


def _accelerator(wait: str) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        m, tasks = draw.randint(1, 3), []
        for task in plain(draw.randint(2, 5), draw.uniform(0.1, 0.5) * m, draw, 8, 60):
            count = draw.choice([0, 1, 1, 2])
            requests = tuple(
                AcceleratorRequest(draw.randint(1, max(task.period_ns // 8, 1)), draw.choice([0, 1]))
                for _ in range(count)
            )
            tasks.append(replace(task, cpu=draw.randrange(m), requests=requests))
        made = taskset(tasks, Policy("fp", "partitioned", True), m)
        return replace(made, accelerator=Accelerator(wait, draw.randrange(m), 0))  # type: ignore[arg-type]

    return make


def _reserved(draw: Random) -> TaskSet:
    tasks = [
        replace(task, accesses=draw.randint(0, task.wcet_ns))
        for task in plain(draw.randint(1, 3), draw.uniform(0.1, 0.4), draw, 20, 80)
    ]
    budget = draw.randint(2, 8)
    made = taskset(tasks, Policy("fp", "partitioned", True))
    return replace(made, memguard=MemGuard(draw.randint(3, 10), (budget,), budget))


def _chain(communication: str, processors: int) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        periods = [4, 5, 8, 10, 16, 20]
        count = draw.randint(3, 5)
        tasks = []
        for index, share in enumerate(uunifast(count, draw.uniform(0.2, 0.9) * processors, draw)):
            period = draw.choice(periods)
            wcet = min(max(round(share * period), 1), period)
            bcet = wcet if draw.random() < 0.6 else draw.randint(1, wcet)
            offset = 0 if draw.random() < 0.5 else draw.randrange(period)
            cpu = draw.randrange(processors)
            tasks.append(PeriodicTask(index, f"t{index}", period, period, wcet, bcet, offset, 0, cpu, None))
        if draw.random() < 0.5:
            tasks = [replace(task, offset_ns=0, bcet_ns=task.wcet_ns) for task in tasks]
        made = taskset(tasks, Policy("fp", "partitioned", True), processors, draw)
        chain = tuple(draw.sample(range(count), draw.randint(2, 3)))
        return replace(made, chain=chain, communication=communication)  # type: ignore[arg-type]

    return make


def _levels(policy: str) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        rows = []
        for rank in range(draw.randint(2, 4)):
            period = draw.choice((5, 6, 8, 10, 12, 15))
            low = draw.randint(1, max(period // 4, 1))
            row: dict[str, Any] = {"period": period, "wcet": low, "prio": rank}
            if rank == 0 or draw.random() < 0.6:
                row |= {"wcet": draw.randint(low, min(3 * low, period))}
                row["wcets"] = [low, row["wcet"]]
            elif policy == "FP" and draw.random() < 0.4:
                row["degraded"] = {"wcet": draw.randint(1, low), "period": draw.randint(period, 2 * period)}
            rows.append(row)
        draw.shuffle(rows)
        return taskset_from_mapping({"policy": policy, "tasks": rows}, "levels")

    return make


FAMILIES: dict[str, Callable[[Random], TaskSet]] = {
    "rate monotonic": _one("rm", deadlines="implicit"),
    "fixed priorities": _one("fp"),
    "fixed priorities, any deadlines, jitter": _one("fp", deadlines="arbitrary", jitter=True),
    "fixed priorities, event streams": _streams,
    "fixed priorities, no preemption": _one("fp", False, "arbitrary"),
    "fixed priorities, no preemption, jitter": _one("fp", False, "arbitrary", True),
    "fixed priorities, regions": _regions("fp"),
    "EDF, implicit": _one("edf", deadlines="implicit"),
    "EDF": _one("edf"),
    "EDF, any deadlines, jitter": _one("edf", deadlines="arbitrary", jitter=True),
    "EDF, no preemption": _one("edf", False, "implicit"),
    "EDF, no preemption, any deadlines, jitter": _one("edf", False, "arbitrary", True),
    "EDF, regions": _regions("edf"),
    "FIFO": _one("fifo", False, "arbitrary"),
    "global EDF": _many("edf"),
    "global EDF, implicit": _many("edf", deadlines="implicit"),
    "global fixed priorities": _many("fp"),
    "global fixed priorities, jitter": _many("fp", jitter=True),
    "global fixed priorities, no preemption": _many("fp", False),
    "graph alone": _graphs("fp", True),
    "typed graph alone": _graphs("fp", True, True),
    "graphs, fixed priorities": _graphs("fp", False),
    "graphs, EDF": _graphs("edf", False),
    "self-suspension": _suspending,
    "accelerator, busy waiting": _accelerator("busy"),
    "accelerator, server": _accelerator("server"),
    "bandwidth reservations": _reserved,
    "levels of criticality, fixed priorities": _levels("FP"),
    "levels of criticality, EDF": _levels("EDF"),
    "chain, one processor": _chain("implicit", 1),
    "chain, two processors": _chain("implicit", 2),
    "chain, LET": _chain("let", 1),
}
"""Kind of system -> a draw of one."""
