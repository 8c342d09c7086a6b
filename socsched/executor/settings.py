"""The settings of the native executor (run.json): a plan, how its stages are executed, rules and options of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from socsched.errors import UsageError
from socsched.faults.model import Faults, Overrun
from socsched.files import write_file
from socsched.planning import io
from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.runtime.options import Options, Policies
from socsched.sim.policies import Term, get_policy

# Declared orders of policies, as an executor can serve them: two terms that are constant while a job waits.

Terms = tuple[str, str]
CONSTANT = frozenset(
    (
        Term.NOTHING, Term.PRIORITY, Term.DEADLINE, Term.ACTIVATION, Term.PERIOD, Term.RELATIVE_DEADLINE,
        Term.CRITICALITY, Term.LAXITY, Term.REMAINING, Term.COST, Term.BEST_EFFORT,
    )
)  # fmt: skip
"""The terms that do not change while a job waits: the time common to all waiting jobs does not change their order."""


def declared_terms(name: str) -> Terms:
    """Return the two terms by which the policy `name` orders jobs that are not preempted.

    Raises UsageError for a policy whose order changes while jobs wait, or that needs more than an order.
    """
    rule = get_policy(name)
    more = rule.sliced or rule.serves or rule.across or rule.tokens or rule.corun
    if callable(rule.order) or more or not set(rule.order) <= CONSTANT:
        raise UsageError(f"policy {name!r} cannot be run on a machine", "plan again with edf, fp or fifo")
    first, second = rule.order
    return first.name.lower(), second.name.lower()


def preemption_of(name: str) -> str:
    """Return how the policy `name` preempts: "as-engine", "never", or "mechanism" for one that the policy declares."""
    rule = get_policy(name)
    return "never" if not rule.preemptive else "mechanism" if rule.preemption else "as-engine"


# Executors to compare the planned one with, as other rules for the same plan, and the planned one with `steal`.
#
# event-chained     every job on its planned lanes, in the order of the planned policy; a finished stage starts the next
#                   one (`native` and `auto` are other names for it)
# sequential        one job at a time, frame after frame
# stream-per-frame  every frame in flight has a thread of its own that runs its stages in turn; engines are shared
#                   without arbitration, as with one CUDA stream per frame
# shared-queue      all ready jobs in one queue, served by threads that can run any of them and wait for each to end

NATIVE, AUTO = "native", "auto"
PLANNED = ("event-chained", NATIVE, AUTO)
BASELINES = ("sequential", "stream-per-frame", "shared-queue")
EXECUTORS = (*PLANNED, *BASELINES)
LEAST_STREAMS = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """`order` replaces the orders of all policies, which then do not preempt.  `places`: see `native/settings.hpp`.

    `threads` run all stages in place of lanes; `equal_engines`: groups of engines that differ in name only.
    """

    order: tuple[str, str] | None = None
    places: str = "planned"
    threads: int = 1
    equal_engines: tuple[tuple[str, ...], ...] = ()
    one_job: bool = False

    @property
    def shares_lanes(self) -> bool:
        """Return whether threads run jobs on all lanes of the plan."""
        return self.places in ("any-thread", "thread-of-frame")


def rules_of(plan: Plan, options: Options) -> Rules:
    """Return the rules of a run's executor; UsageError if it is unknown.

    A job that is to run `alone` follows its producer at once: it finds the data in the caches, as on lanes of its own.

    With `steal`, a job whose lanes are taken may run on as many idle lanes that other tasks use, on its own engine or
    on one that is declared alike; the analysis assumes fixed lanes, so that its bounds no longer apply.
    """
    executor = options.executor
    if executor not in EXECUTORS:
        raise UsageError(f"unknown executor {executor!r}", f"executors: {', '.join(EXECUTORS)}")
    if options.alone:
        return Rules(("newest", "nothing"), one_job=True)
    if executor == "sequential":
        return Rules(("release", "nothing"), one_job=True)
    if executor == "stream-per-frame":
        return Rules(("release", "nothing"), "thread-of-frame", max(options.in_flight, LEAST_STREAMS))
    if executor == "shared-queue":
        return Rules(("activation", "nothing"), "any-thread", len({(task.engine, task.lanes) for task in plan.tasks}))
    return Rules(places="equal", equal_engines=_alike(plan)) if options.steal else Rules()


def _alike(plan: Plan) -> tuple[tuple[str, ...], ...]:
    groups: dict[tuple[object, ...], list[str]] = {}
    for engine in plan.engines:
        declared = tuple(getattr(engine, name) for name in PlannedEngine.__slots__ if name != "id")
        groups.setdefault(declared, []).append(engine.id)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


PLAN, SETTINGS, JOURNAL, EXECUTED = "plan.json", "run.json", "journal.jsonl", "executed.json"
_MOST_JOBS = 100_000
"""Jobs of a stage that can overrun; the executor takes no longer list."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """A run of `plan`; times in ns.

    `needs`: task -> stages and sensors whose data it cannot do without.  `stages`: task -> how it is executed (see
    `native/settings.hpp`).  `processors`: engine -> processor of each lane, -1 for none.  `times`: for a virtual clock,
    the execution times of a task's jobs in turn; -1 hangs, less fails after that time.  `limp_home_stages`: the stages
    of each limp-home plan; those of `plan` if empty.  `inputs`: sensor -> its frames (`executor.frames`).  `in_flight`:
    frames in progress at once, released as soon as there is room; 0: at their rates.
    `rules`: what a baseline or `--steal` does otherwise than the plan.
    """

    plan: Plan
    horizon_ns: int
    needs: Mapping[str, set[str]] = field(default_factory=dict)
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    processors: Mapping[str, Sequence[int]] = field(default_factory=dict)
    policies: Policies = field(default_factory=Policies)
    faults: Faults = field(default_factory=Faults)
    limp_home: tuple[Plan, ...] = ()
    times: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shield: bool = False
    hang_ns: int = 0
    awake_ns: int | None = None
    realtime: str = "off"
    seed: int = 0
    limp_home_stages: tuple[Mapping[str, Mapping[str, Any]], ...] = ()
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    in_flight: int = 0
    rules: Rules = field(default_factory=Rules)


def write_settings(settings: RunSettings, folder: Path) -> Path:
    """Write the settings and the plans they name to a folder; return the settings file.

    Raises UsageError for a policy that cannot be run.
    """
    plans = (settings.plan, *settings.limp_home)
    names = [PLAN, *(f"limp-home-{number}.json" for number in range(1, len(plans)))]
    for plan, name in zip(plans, names, strict=True):
        io.save(plan, folder / name)
    file = folder / SETTINGS
    write_file(file, json.dumps(document_of(settings, names), indent=1) + "\n")
    return file


def document_of(settings: RunSettings, names: Sequence[str]) -> dict[str, Any]:
    """Return the settings file for plans in files called `names`, the plan first; UsageError as `write_settings`."""
    plans = (settings.plan, *settings.limp_home)
    rules = settings.rules
    orders = {
        engine.policy: list(rules.order or declared_terms(engine.policy)) for plan in plans for engine in plan.engines
    }
    policies, faults = settings.policies, settings.faults
    high = any(task.high_ns for plan in plans for task in plan.tasks)
    watched = settings.shield or bool(settings.hang_ns or settings.limp_home or high) or faults != Faults()
    stages = joined(settings.plan, settings.stages, watched)
    limp_home = [
        joined(plan, one, watched) for plan, one in zip(settings.limp_home, settings.limp_home_stages, strict=False)
    ]
    needs = {task: set(needed) for task, needed in settings.needs.items()}
    for found in (stages, *limp_home):
        for task, how in found.items():
            if "follows" in how:
                needs.setdefault(task, set()).add(how["follows"])
    return {
        "format": "socsched-run",
        "version": 1,
        "plan": names[0],
        "limp_home": names[1:],
        "orders": orders,
        "preemption": {policy: "never" if rules.order else preemption_of(policy) for policy in orders},
        "needs": {task: sorted(needed) for task, needed in needs.items()},
        "stages": stages,
        "limp_home_stages": limp_home,
        "inputs": {sensor: dict(frames) for sensor, frames in settings.inputs.items()},
        "processors": {engine: list(lanes) for engine, lanes in settings.processors.items()},
        "overload": {
            "stages": {task: stage.policy for task, stage in policies.stages.items()},
            "shed_below": policies.shed_below,
            "shed_ns": policies.shed_ns,
        },
        "failures": [
            {"engine": f.engine, "lanes": list(f.lanes), "at_ns": f.at_ns, "kind": f.kind} for f in faults.failures
        ],
        "prolongings": [
            *(_prolonging(f.factor, engine=f.engine, from_ns=f.from_ns, until_ns=f.until_ns) for f in faults.slowdowns),
            *(_prolonging(f.factor, stage=f.stage, jobs=_overrunning(f, settings)) for f in faults.overruns),
        ],
        "dropouts": [{"sensor": f.sensor, "from_ns": f.from_ns, "until_ns": f.until_ns} for f in faults.dropouts],
        "times": {task: list(times) for task, times in settings.times.items()},
        "horizon_ns": settings.horizon_ns,
        "hang_ns": settings.hang_ns,
        "awake_ns": -1 if settings.awake_ns is None else settings.awake_ns,
        "seed": settings.seed,
        "shield": settings.shield,
        "in_flight": settings.in_flight,
        "alone": rules.one_job,
        "places": rules.places,
        "threads": rules.threads,
        "equal_engines": [list(group) for group in rules.equal_engines],
        "realtime": settings.realtime,
    }


def _prolonging(factor: Fraction, **which: Any) -> dict[str, Any]:
    """Return jobs that take `factor` times as long: those of an engine in a window, or single ones of a stage."""
    every = {"engine": "", "stage": "", "from_ns": 0, "until_ns": 0, "jobs": []}
    return {**every, **which, "factor_millionths": round(factor * 1_000_000)}


def _overrunning(fault: Overrun, settings: RunSettings) -> list[int]:
    """Return the numbers of a stage's jobs that overrun, counted as they are begun."""
    periods = [task.period_ns for task in settings.plan.tasks if task.name == fault.stage]
    count = min(settings.horizon_ns // min(periods, default=settings.horizon_ns or 1) + 2, _MOST_JOBS)
    return [number for number, late in zip(range(count), fault.jobs(settings.seed), strict=False) if late]


# Consecutive stages of a GPU as one graph: the first one starts the kernels of all (`native/cuda_frame.hpp`).

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
