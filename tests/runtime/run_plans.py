"""Small plans and scripted stages for tests of the executor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from socsched.cost.cost import Segment
from socsched.descriptor import host
from socsched.descriptor.host import HostFacts
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.descriptor.platform import Platform
from socsched.executor.run_native import execute
from socsched.planning.plan import Bandwidth, ChainResult, Plan, PlannedEngine, PlannedSensor, Power, SearchReport, Task
from socsched.runtime.backends import Call, Outputs, Setting
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.options import PLAIN, Inputs
from socsched.trace.trace import Trace

MS = 1_000_000
WARMUP_FRAMES = 3
"""Frames that every stage runs before time zero."""


def task(name: str, *after: str, lanes: tuple[int, ...] = (0,), **changes: Any) -> Task:
    """Return a task of 1 ms on lane 0 that follows `after`, a timer where it follows nothing.

    Its queue takes whatever a loaded machine lets pile up.
    """
    values: dict[str, Any] = {
        "kind": "stage", "engine": "cpu", "precision": "fp32", "reads": (), "timer": not after, "period_ns": 10 * MS,
        "offset_ns": 0, "queue": 1000, "cost_ns": MS, "wcet_ns": MS, "bytes": 0, "energy_uj": 0,
        "segments": (Segment(name, MS, 0, 0),), "priority": 0, "deadline_ns": 10 * MS, "jitter_ns": 0,
        "criticality": "firm", "provenance": "assumed", "source": "", "error": 0.0,
    }  # fmt: skip
    return Task(name=name, lanes=lanes, after=tuple(after), **{**values, **changes})


def plan(*tasks: Task, sensors: Mapping[str, int] | None = None, policy: str = "edf", lanes: int = 4) -> Plan:
    """Return a plan of `tasks` on one engine; `sensors` maps names to periods; one chain ends in every last task."""
    behind = {name for t in tasks for name in t.after}
    chains = tuple(
        ChainResult(f"to {t.name}", _path(t, tasks), t.deadline_ns, 0, None, None, ())
        for t in tasks
        if t.name not in behind
    )
    return Plan(
        platform="host", mode="default", pipeline="toy", verdict="undecided", policy=policy,
        engines=(PlannedEngine("cpu", "cpu", lanes, "none", 0, policy, 10**10, 0, 0),),
        sensors=tuple(PlannedSensor(name, period, 0, 0, 0) for name, period in (sensors or {}).items()),
        tasks=tasks, transitions=(), chains=chains, violations=(),
        power=Power(), bandwidth=Bandwidth(), solver=SearchReport(), inputs={},
    )  # fmt: skip


def _path(last: Task, tasks: tuple[Task, ...]) -> tuple[str, ...]:
    known = {t.name: t for t in tasks}
    path = [last.name]
    while path[0] in known and known[path[0]].after:
        path.insert(0, known[path[0]].after[0])
    return tuple(path)


def pipeline(made: Plan) -> Pipeline:
    """Return a pipeline without models whose stages and sensors are those of the plan."""
    return Pipeline(
        name="toy",
        title="toy",
        sensors=tuple(Sensor(s.name, "imu", s.period_ns) for s in made.sensors),
        stages=tuple(
            Stage(t.name, t.name, None, t.after, None if t.after else t.period_ns, reads=t.reads) for t in made.tasks
        ),
        chains=tuple(Chain(c.name, c.path, c.deadline_ns) for c in made.chains),
    )


class Scripted:
    """A backend whose stages run a function of (stage, nth call); `calls` lists what ran, in order of start."""

    title = "scripted"
    real = False

    def __init__(self, script: Callable[[str, int], Any] | None = None) -> None:
        self.calls: list[str] = []
        self.threads: dict[str, set[str]] = {}
        self._script, self._lock = script, threading.Lock()

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the scripted stage."""

        def call(values: Mapping[str, Outputs]) -> Outputs:
            with self._lock:
                number = self.calls.count(task.name)
                self.calls.append(task.name)
                self.threads.setdefault(task.name, set()).add(threading.current_thread().name)
            given = self._script(task.name, number) if self._script else None
            return given if isinstance(given, dict) else {}

        return call


def roomy() -> Platform:
    """Return this machine with at least four lanes, which plans of the tests use even where there is one processor."""
    here = host.detect()
    (cpu,) = here.engines
    units = max(cpu.units, 4)
    modes = tuple(
        replace(mode, engines={name: replace(e, units=units) for name, e in mode.engines.items()})
        for mode in here.modes
    )
    return replace(here, engines=(replace(cpu, units=units),), modes=modes)


def sleep(milliseconds: float) -> None:
    """Keep a lane occupied without using a processor."""
    time.sleep(milliseconds / 1e3)


FACTS = HostFacts("test", "x86_64", (0, 1, 2, 3), (), 10**9, "", 2**20, 2**30, 1e9, 1e9, 1e9, 4e9, (), "2026", {})
HERE = host.build(FACTS)


def executed(made: Plan, pipe: Pipeline | None = None, **changes: Any) -> Trace:
    """Run with the fields of `Inputs` and `Options` as arguments, on the machine of the tests or another `platform`."""
    names = {part.name for part in fields(Inputs)}
    inputs = Inputs(**{name: changes.pop(name) for name in names & changes.keys()})
    given = ("board", "backends", "on_frame", "accounts")
    board = changes.pop("board", None) or LocalBoard(changes.pop("platform", HERE))
    direct = {name: changes.pop(name) for name in given if name in changes}
    options = replace(changes.pop("options", PLAIN), **changes)
    return execute(made, pipe or pipeline(made), inputs, options, board=board, **direct)


def run(made: Plan, backend: Scripted, pipe: Pipeline | None = None, **changes: Any) -> Trace:
    """Run with scripted stages for whatever sort a stage is."""
    backends = dict.fromkeys(("synthetic", "function", "network"), backend)
    return executed(made, pipe, backends=backends, **changes)


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(("stage ", "results", "frames", "power"))]
