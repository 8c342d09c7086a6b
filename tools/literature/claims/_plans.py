"""Plans built directly for workloads of papers: inference requests, closed loops, and their outcomes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from socsched.cost.cost import Segment
from socsched.limits import LONGEST_NS
from socsched.planning.plan import Bandwidth, Plan, PlannedEngine, Power, SearchReport, Task
from socsched.sim.results import _histogram
from socsched.sim.simulate import SimulationRun, run
from tools import DATA

SECOND = 10**9
NETWORKS = ("alexnet", "bert", "densenet", "inception", "mobilenet", "resnet", "resnet152", "resnet18", "vgg")


@lru_cache
def kernels(network: str) -> tuple[tuple[str, int], ...]:
    """Return the kernels of a network, as (NETWORK.INDEX, ns)."""
    profile = json.loads((DATA / "reef" / f"{network}.json").read_text(encoding="utf-8"))
    return tuple((f"{network}.{index}", round(kernel["us"] * 1000)) for index, kernel in enumerate(profile["kernels"]))


def engine(name: str, kind: str = "gpu", preemption: str = "segment", **more: Any) -> PlannedEngine:
    """Return an engine that one job has whole."""
    base: dict[str, Any] = {"lanes": 1, "switch_ns": 0, "policy": "fifo", "bandwidth": 0, "idle_mw": 0, "dynamic_mw": 0}
    return PlannedEngine(id=name, kind=kind, preemption=preemption, **{**base, **more})


def task(name: str, segments: Sequence[tuple[str, int]], **more: Any) -> Task:
    """Return a task that a timer releases, once unless it has a period."""
    made = tuple(Segment(label, time, 0, 0) for label, time in segments)
    cost = sum(time for _, time in segments)
    base: dict[str, Any] = {
        "kind": "stage", "engine": "npu", "lanes": (0,), "precision": "fp16", "after": (), "reads": (),
        "timer": not more.get("after"), "period_ns": LONGEST_NS, "offset_ns": 0, "queue": 1 << 40, "wcet_ns": cost,
        "energy_uj": 0, "priority": 0, "jitter_ns": 0, "criticality": "firm", "provenance": "published", "source": "",
        "error": 0.0,
    }  # fmt: skip
    base.update(more)
    base.setdefault("deadline_ns", base["period_ns"])
    return Task(name=name, cost_ns=cost, bytes=0, segments=made, **base)


def plan(tasks: Sequence[Task], engines: Sequence[PlannedEngine]) -> Plan:
    """Return a plan of these tasks."""
    parts = (Power(), Bandwidth(), SearchReport())
    return Plan("paper", "-", "paper", "undecided", "fifo", tuple(engines), (), tuple(tasks), (), (), (), *parts, {})


def mean_responses(done: SimulationRun) -> list[float]:
    """Return the mean response of every task's jobs (ns); infinite where none was done."""
    sums, counts = done.outcome.ints_of("responses", 1), done.outcome.ints_of("responses", 3)
    rows = zip(sums.tolist(), counts.tolist(), strict=True)
    return [total / count if count else math.inf for total, count in rows][: len(done.lowered.plan.tasks)]


def tail(done: SimulationRun, number: int, per_mille: int) -> float:
    """Return a percentile of a task's responses (ns)."""
    return float(_histogram(done, "responses", number).percentile(per_mille))


def jobs_done(done: SimulationRun) -> list[int]:
    """Return the number of completed jobs of every task."""
    return [int(count) for count in done.outcome.ints("done")]


def simulate(made: Plan, policy: str | None, duration_ns: int = 1000 * SECOND, seed: int = 0) -> SimulationRun:
    """Simulate without a trace."""
    return run(made, duration_ns, seed, policy, record=False)


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))
