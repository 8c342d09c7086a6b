"""Random plans and settings from a seed, for comparing executors with each other and with the simulator."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from socsched.cost.cost import Segment
from socsched.executor.settings import RunSettings
from socsched.faults.model import Dropout, Faults
from socsched.planning.plan import Bandwidth, ChainResult, Plan, PlannedEngine, PlannedSensor, Power, SearchReport, Task
from socsched.planning.task import ExecutionTimes
from socsched.runtime.options import CRITICALITIES, Policies, StagePolicy
from socsched.sim.simulate import simulate

MS = 1_000_000
SEEDS = [
    *range(15),
    *(pytest.param(n, marks=pytest.mark.slow) for n in range(15, int(os.environ.get("SOCSCHED_SEEDS", "200")))),
]
"""Of each kind of run; SOCSCHED_SEEDS=2000 draws more."""
ORDERS = (
    "edf", "fp", "fifo", "rm", "dm", "edf-criticality", "sjf", "srtf", "llf", "np-edf", "np-sjf",
)  # fmt: skip


def random_plan(draw: Random, engines: int = 0) -> Plan:
    """Return a plan of up to 8 tasks: timers, chains, joins, samplers and gangs, without preemption or contention."""
    hosts = [
        PlannedEngine(name, "cpu", draw.randint(1, 3), "none", 0, draw.choice(ORDERS), 10**10, 0, 0)
        for name in ("x", "y")[: engines or draw.randint(1, 2)]
    ]
    unit = draw.choice((MS, MS, 1))  # times that coincide often, and times that hardly do
    sensors = tuple(
        PlannedSensor(name, draw.randint(4, 20) * unit + (draw.randint(0, 999) if unit > 1 else MS), 0, 0, 0)
        for name in ("a", "b")[: draw.randint(1, 2)]
    )
    period = max(s.period_ns for s in sensors)
    tasks: list[Task] = []
    for number in range(draw.randint(1, 8)):
        known = [*(s.name for s in sensors), *(t.name for t in tasks)]
        host = draw.choice(hosts)
        after = draw.sample(known, min(draw.choice((0, 1, 1, 1, 2)), len(known)))
        reads = [name for name in draw.sample(known, min(draw.choice((0, 0, 1, 2)), len(known))) if name not in after]
        cost = draw.randint(1, max(period // 2, 2)) // unit * unit + (draw.randint(0, 50) if unit == MS else 0) or unit
        lanes = tuple(sorted(draw.sample(range(host.lanes), draw.randint(1, host.lanes))))
        values: dict[str, Any] = {
            "kind": "stage", "engine": host.id, "lanes": lanes, "precision": "fp32", "after": tuple(after),
            "reads": tuple(reads), "timer": not after, "period_ns": draw.randint(5, 25) * MS,
            "offset_ns": draw.choice((0, 0, draw.randint(0, 10) * MS)), "queue": draw.choice((0, 1, 1, 2, 3, 10)),
            "overflow": draw.choice(("newest", "newest", "oldest")), "cost_ns": cost, "wcet_ns": cost + cost // 4,
            "bytes": 0, "energy_uj": 0, "segments": (Segment(f"t{number}", cost, 0, 0),),
            "priority": draw.randint(0, 5),
            "deadline_ns": draw.randint(1, 60) * MS, "jitter_ns": 0, "criticality": draw.choice(CRITICALITIES),
            "provenance": "assumed", "source": "", "error": 0.0,
        }  # fmt: skip
        tasks.append(Task(name=f"t{number}", **values))
    chains = (ChainResult("c", (tasks[-1].name,), 50 * MS, 0, None, None, ()),)
    return Plan(
        platform="host", mode="default", pipeline="toy", verdict="undecided", policy="edf", engines=tuple(hosts),
        sensors=sensors, tasks=tuple(tasks), transitions=(), chains=chains, violations=(), power=Power(),
        bandwidth=Bandwidth(), solver=SearchReport(), inputs={},
    )  # fmt: skip


def plain_run(seed: int) -> RunSettings:
    """Return a run of a random plan that the simulator models too."""
    draw = Random(seed)
    return RunSettings(random_plan(draw), draw.randint(50, 300) * MS, seed=seed)


def preemptive_run(seed: int) -> RunSettings:
    """Return a run of a random plan with engines that preempt, which the simulator models too."""
    draw = Random(f"preemptive {seed}")
    made = random_plan(draw)
    return RunSettings(_preemptive(made, draw), draw.randint(50, 300) * MS, seed=seed)


LEVELLED = ("edf", "fp", "fifo", "rm", "dm", "edf-criticality")
"""Orders that do not depend on the execution times of jobs, which differ from the planned ones at the high level."""


def levels_run(seed: int) -> RunSettings:
    """Return a run of a random plan with levels of criticality, and overruns that the simulator draws."""
    return _levels_run(Random(f"levels {seed}"), preemptive=False)


def preemptive_levels_run(seed: int) -> RunSettings:
    """Return a run with levels of criticality on engines that preempt."""
    return _levels_run(Random(f"preemptive levels {seed}"), preemptive=True)


def _levels_run(draw: Random, preemptive: bool) -> RunSettings:
    made = random_plan(draw)
    kinds = ("full", "full", "full", "none") if preemptive else ("none",)
    engines = tuple(
        replace(engine, preemption=draw.choice(kinds), policy=draw.choice(LEVELLED)) for engine in made.engines
    )
    certain, tasks = draw.randrange(len(made.tasks)), []
    for number, task in enumerate(made.tasks):
        if number == certain or (task.criticality == "hard" and draw.random() < 0.7):
            times = sorted(max(task.cost_ns * draw.randint(4, 24) // 10, 1) for _ in range(draw.randint(1, 5)))
            task = replace(
                task, criticality="hard", wcet_ns=task.cost_ns, high_ns=max(*times, task.cost_ns + 1),
                times=ExecutionTimes(tuple(times)),
            )  # fmt: skip
        tasks.append(task)
    plan, horizon = replace(made, engines=engines, tasks=tuple(tasks)), draw.randint(50, 300) * MS
    taken: dict[str, list[int]] = {}
    for job in sorted(simulate(plan, horizon).jobs, key=lambda job: job.start_ns):
        if job.start_ns >= 0:
            longer = horizon if job.status == "unfinished" else 0
            taken.setdefault(job.task, []).append(job.exec_ns + longer)
    return RunSettings(plan, horizon, times=taken)


def eventful_preemptive_run(seed: int) -> RunSettings:
    """Return an eventful run on engines that preempt."""
    settings, draw = eventful_run(seed), Random(f"eventful preemptive {seed}")
    spare = tuple(_preemptive(one, draw) for one in settings.limp_home)
    return replace(settings, plan=_preemptive(settings.plan, draw), limp_home=spare)


def _preemptive(made: Plan, draw: Random) -> Plan:
    """Return the plan with engines that mostly preempt, at some cost, in an order that is constant for a job."""
    engines = tuple(
        replace(
            engine,
            preemption=draw.choice(("full", "full", "full", "none")),
            switch_ns=draw.choice((0, 1, draw.randint(1, MS))),
            policy=draw.choice([name for name in ORDERS if name not in ("llf", "srtf")]),
        )
        for engine in made.engines
    )
    return replace(made, engines=engines)


def eventful_run(seed: int) -> RunSettings:
    """Return a run with overload policies, needs, isolation, lost frames, failing and hanging jobs, and spare plans."""
    draw = Random(f"eventful {seed}")
    made = random_plan(draw, draw.choice((0, 2)))
    names = [t.name for t in made.tasks]
    providers = [*(s.name for s in made.sensors), *names]
    policies = {name: StagePolicy(draw.choice(("skip", "abort", "degrade"))) for name in names if draw.random() < 0.3}
    horizon = draw.randint(100, 400) * MS
    times: dict[str, list[int]] = {}
    for task in made.tasks:
        if draw.random() < 0.3:
            times[task.name] = [max(1, int(task.cost_ns * draw.uniform(0.1, 3))) for _ in range(draw.randint(1, 7))]
        if draw.random() < 0.12:
            times.setdefault(task.name, [task.cost_ns] * draw.randint(2, 30)).append(
                -1 if draw.random() < 0.7 else -max(task.cost_ns, 2)
            )
    spare = tuple(_moved(made, draw) for _ in range(draw.choice((0, 0, 1, 2))))
    lost = tuple(Dropout(s.name, draw.randint(0, 50) * MS, draw.randint(50, 90) * MS) for s in made.sensors[:1])
    return RunSettings(
        made, horizon,
        needs={name: {draw.choice(providers)} - {name} for name in names if draw.random() < 0.3},
        policies=Policies(policies, draw.choice(("", "", "firm", "hard")), draw.randint(5, 40) * MS),
        faults=Faults(dropouts=lost if draw.random() < 0.3 else ()),
        limp_home=spare, times=times, shield=draw.random() < 0.3,
        hang_ns=draw.choice((0, 0, 30 * MS)) if spare else 30 * MS, seed=seed,
    )  # fmt: skip


def _moved(made: Plan, draw: Random) -> Plan:
    """Return the plan with every task on one engine's lanes, chosen anew."""
    host = draw.choice(made.engines)
    tasks = tuple(replace(t, engine=host.id, lanes=(draw.randrange(host.lanes),)) for t in made.tasks)
    return replace(made, tasks=tasks)
