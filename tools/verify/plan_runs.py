"""Simulated runs of a plan against everything that its analysis states: bounds and verdict, at both levels.

A run that contradicts a statement is a `Fault`.  `search` returns those of a case, `shrink` the smallest case that
still has one, and `traits` names what that case consists of, so that equal kinds of fault can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from socsched.errors import DescriptorError
from socsched.faults.model import Faults, Overrun
from socsched.planning.plan import ExecutionTimes, Plan, Task
from socsched.planning.recheck import recheck
from socsched.schedulability.chains import data_age, reaction_time
from socsched.schedulability.coverage import sources as sources_of
from socsched.schedulability.high_level import high_level, is_mixed
from socsched.schedulability.high_level import unmet as unmet_high
from socsched.schedulability.plan_analysis import stretches
from socsched.schedulability.tasks import Response, families, rt_tasks
from socsched.sim.build import load_kernel
from socsched.sim.simulate import simulate
from socsched.trace.chains import Record
from socsched.trace.columns import DONE, DROP_LATE, DROP_QUEUE
from socsched.trace.trace import Trace
from tools.verify.cases import Tally
from tools.verify.random_plans import Case, Json, draw_case, dropped, make_plan

BROKEN = "the planner raises"
FRAMES = 30
"""Frames of the slowest task in a run."""
Bounds = dict[str, int]


@dataclass(frozen=True, slots=True)
class Level:
    """What is stated at one level: bounds (ns, by name) of responses, reactions and ages, and whether all is met.

    Responses count from nominal releases, `since` from the release of a source, by task and source.  `kept`: names of
    tasks whose frames are not lost.
    """

    responses: Bounds = field(default_factory=dict)
    since: dict[tuple[str, str], int] = field(default_factory=dict)
    reactions: Bounds = field(default_factory=dict)
    ages: Bounds = field(default_factory=dict)
    met: bool = False
    kept: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stated:
    """What a plan's analysis states at both levels."""

    low: Level
    high: Level


@dataclass(frozen=True, slots=True)
class Fault:
    """A statement that a run contradicts: its kind, the task or chain, the bound and what was seen (ns)."""

    kind: str
    name: str
    bound: int
    seen: int
    run: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.name}: {self.seen / 1e6:g} ms above {self.bound / 1e6:g} ms ({self.run})"


def stated(plan: Plan) -> Stated:
    """Return what the analysis of a plan states, and its verdict."""
    checked = recheck(plan)
    if checked.whole is None:  # no analysis covers it
        return Stated(Level(), Level())
    responses = checked.whole.tight
    losses = [v for v in checked.plan.violations if v.requirement.startswith(("queue", "local deadline"))]
    lossless = not losses and all(answer.bounded for answer in responses.values())
    met = "feasible" in (plan.verdict, checked.plan.verdict)
    low = Level(*_responses(plan, responses), met=met)
    for chain, planned in zip(checked.plan.chains, plan.chains, strict=True) if lossless else ():
        known = [bound for bound in (chain.bound_ns, planned.bound_ns) if bound is not None]
        if known:
            low.reactions[chain.name] = min(known)
        age, bounded, _ = data_age(stretches(plan, chain), responses)
        if bounded:
            low.ages[chain.name] = age
    low = replace(low, kept=frozenset(responses) if lossless else frozenset())
    return Stated(low, _high(checked.plan, met, lossless) if is_mixed(plan) else Level())


def _responses(plan: Plan, answers: Mapping[str, Response]) -> tuple[Bounds, dict[tuple[str, str], int]]:
    """Return the bounds of responses from nominal releases, and from the releases of sources."""
    lone = {name: next(iter(of)) for name, of in sources_of(plan).items() if len(of) == 1}
    bounded = {name: answer for name, answer in answers.items() if answer.bounded}
    since = {(name, lone[name]): answer.value for name, answer in bounded.items() if name in lone}
    for name, answer in bounded.items():
        since |= {(name, source): value for source, value in answer.since}
    return {name: answer.value for name, answer in bounded.items()}, since


def _high(plan: Plan, met: bool, lossless: bool) -> Level:
    judged = high_level(plan)
    found = judged.responses
    hard = frozenset(task.name for task in plan.tasks if task.criticality == "hard")
    level = Level(*_responses(plan, found), met=met, kept=hard)
    try:
        open_ = unmet_high(plan, judged)
    except KeyError:
        return Level()
    lossless = lossless and all(violation.requirement.startswith(("deadline", "data age")) for violation in open_)
    for chain in plan.chains:
        parts = stretches(plan, chain)
        named = {task.name for task in plan.tasks} & set(chain.path)
        if not lossless or not named <= hard or not all(not part.last or part.last in found for part in parts):
            continue
        reaction, age = reaction_time(parts, found), data_age(parts, found)
        if reaction[1]:
            level.reactions[chain.name], level.ages[chain.name] = reaction[0], age[0]
    return level


def search(plan: Plan, runs: int, seed: int) -> Iterator[Fault]:
    """Yield statements of a plan that simulated runs contradict, the same for the same arguments."""
    load_kernel()  # once for all: the compiled one, although each run is short
    if not plan.tasks:
        return
    given = stated(plan)
    draw = Random(seed)
    shifts = sources(plan)
    for chain in plan.chains:
        bound = chain.bound_ns
        if bound is not None and chain.expected_ns > bound:
            yield Fault("expected above bound", chain.name, bound, chain.expected_ns, "no run")
    for number in range(runs):
        phases = [draw.choice((0, draw.randrange(period))) for period, _ in shifts]
        base = shifted(plan, shifts, phases) if number % 4 else plan
        times = ("worst", "worst", "random", "short")[number // 2 % 4]
        high = bool(given.high.responses) and number % 2 == 1
        faults = _overruns(base, draw) if high else None
        run = f"run {number}: {'as planned' if base is plan else 'shifted'}, {times} times{', overruns' * high}"
        trial = replace(base, tasks=tuple(_timed(task, times) for task in base.tasks))
        length = FRAMES * max(task.period_ns for task in plan.tasks) + max(_offsets(base), default=0)
        trace = simulate(trial, length, draw.randrange(10**6), None, faults)
        found = list(compare(trial, trace, given, high, run))
        if found and base is not plan:  # phases are part of a plan: what is stated of some is not of others
            unstated = tuple(replace(chain, bound_ns=None) for chain in base.chains)
            again = stated(replace(base, verdict="undecided", chains=unstated))
            found = list(compare(trial, trace, again, high, run))
        yield from found


def compare(plan: Plan, trace: Trace, given: Stated, high: bool, run: str) -> Iterator[Fault]:
    """Yield what of `given` a trace contradicts; `high`: it reaches the high level."""
    level = given.high if high else given.low
    label = "high: " if high else ""
    record = Record(trace.columns, plan, trace.duration_ns)
    jobs = trace.columns.jobs
    rt = rt_tasks(plan)
    gaps = _sporadic(plan)
    for task in plan.tasks:
        bound = level.responses.get(task.name)
        rows = record.rows(task.name)
        done = rows[jobs.status[rows] == DONE]
        if bound is not None and len(done) and task.name not in gaps:
            late = jobs.finish_ns[done] - rt[task.name].offset - jobs.frame[done] * task.period_ns
            if late.max() > bound:
                yield Fault(f"{label}response", task.name, bound, int(late.max()), run)
    for (name, source), bound in level.since.items():
        rows, released = record.rows(name), trace.columns.releases.get(source)
        done = rows[jobs.status[rows] == DONE]
        if released is not None and len(done):
            late = jobs.finish_ns[done] - released[jobs.frame[done]]
            if late.max() > bound:
                yield Fault(f"{label}response from a source", f"{name} from {source}", bound, int(late.max()), run)
    notes = trace.columns.instants
    for code, word in ((DROP_QUEUE, "queue"), (DROP_LATE, "dropped late")):
        for number in np.unique(notes.subject[notes.kind == code]).tolist():
            name = trace.columns.subjects[number]
            if level.met and name in level.kept:
                yield Fault(f"{label}{word}", name, 0, int((notes.subject[notes.kind == code] == number).sum()), run)
    hard = {task.name for task in plan.tasks if task.criticality == "hard"}
    for chain in plan.chains:
        arrivals = record.arrivals(chain)
        fates, ages = record.fates(chain, arrivals), record.ages(chain, arrivals)
        age = int(ages.max(initial=0))
        bound = level.reactions.get(chain.name)
        promised = level.met and (not high or hard.issuperset(_stages(plan, chain.path)))
        if bound is not None:
            seen = int(fates.response_ns.max(initial=0))
            if seen > bound:
                yield Fault(f"{label}reaction", chain.name, bound, seen, run)
            waiting = fates.release_ns[~fates.completed]
            lost = waiting[waiting + bound < trace.duration_ns]
            if len(lost):
                yield Fault(f"{label}lost frame", chain.name, bound, trace.duration_ns - int(lost.min()), run)
        if promised and (fates.missed.any() or fates.dropped.any()):
            count = int(fates.missed.sum() + fates.dropped.sum())
            yield Fault(f"{label}late in a feasible plan", chain.name, chain.deadline_ns, count, run)
        bound = level.ages.get(chain.name)
        if bound is not None and age > bound:
            yield Fault(f"{label}age", chain.name, bound, age, run)
        if promised and chain.max_age_ns is not None and age > chain.max_age_ns:
            yield Fault(f"{label}old in a feasible plan", chain.name, chain.max_age_ns, age, run)


def _stages(plan: Plan, path: tuple[str, ...]) -> set[str]:
    return {task.name for task in plan.tasks} & set(path)


def _sporadic(plan: Plan) -> set[str]:
    """Return the tasks whose frames do not come at multiples of a period."""
    return {name for name, task in rt_tasks(plan).items() if task.sporadic}


def sources(plan: Plan) -> list[tuple[int, list[str]]]:
    """Return the period and the sources of every group of sources whose frames meet in a task."""
    tasks = rt_tasks(plan)
    periods = {s.name: s.period_ns for s in plan.sensors} | {t.name: t.period_ns for t in plan.tasks if t.timer}
    by_name = {task.name: task for task in plan.tasks}
    groups = [[name] for name in periods]
    for family in families(tasks):
        mine = {source for name in family for source in (*by_name[name].after, name) if source in periods}
        joined = [group for group in groups if mine & set(group)]
        groups = [group for group in groups if group not in joined] + [sorted({n for g in joined for n in g})]
    return [(periods[group[0]], group) for group in groups if group]


def shifted(plan: Plan, groups: Sequence[tuple[int, list[str]]], phases: Sequence[int]) -> Plan:
    """Return a plan in other phases: the first arrival (ns) of every group of sources."""
    offsets = {s.name: s.offset_ns for s in plan.sensors} | {t.name: t.offset_ns for t in plan.tasks if t.timer}
    for (_, names), phase in zip(groups, phases, strict=True):
        first = min(offsets[name] for name in names)
        offsets |= {name: offsets[name] - first + phase for name in names}
    return replace(
        plan,
        sensors=tuple(replace(sensor, offset_ns=offsets[sensor.name]) for sensor in plan.sensors),
        tasks=tuple(replace(task, offset_ns=offsets[task.name]) if task.timer else task for task in plan.tasks),
    )


def _offsets(plan: Plan) -> list[int]:
    return [s.offset_ns for s in plan.sensors] + [t.offset_ns for t in plan.tasks if t.timer]


def _timed(task: Task, times: str) -> Task:
    """Return a task whose jobs take the longest of its times, random ones up to it, or short ones."""
    longest = max(task.times.values_ns) if task.times else task.cost_ns
    if times == "worst":
        return replace(task, times=ExecutionTimes((longest,)) if task.times else None)
    if times == "short":
        return replace(task, times=ExecutionTimes((max(longest // 10, 1), max(longest // 2, 1))))
    return replace(task, times=ExecutionTimes(tuple(max(longest * step // 20, 1) for step in range(1, 21))))


def _overruns(plan: Plan, draw: Random) -> Faults:
    """Return overruns of stages with two times that take their jobs to the longer one, less a ns lost to rounding."""
    chance = draw.choice((Fraction(1), Fraction(1, 2), Fraction(1, 10)))
    rows = []
    for task in plan.tasks:
        if task.high_ns > task.cost_ns + 1:
            longest = max(task.times.values_ns) if task.times else task.cost_ns
            rows.append(Overrun(task.name, chance, Fraction(task.high_ns - 1, longest)))
    return Faults(overruns=tuple(rows))


def check_case(number: int, runs: int) -> Tally:
    """Return verdict, runs and kinds of faults of the plan of a number; its faults name the number."""
    tally = Tally()
    try:
        plan = make_plan(draw_case(number))
        by_kind = {fault.kind: str(fault) for fault in search(plan, runs, number)}
    except Exception as error:  # whatever a planner raises for a valid file is its fault
        by_kind = {BROKEN: f"{type(error).__name__}: {error}"}
    else:
        tally.count("verdicts", plan.verdict)
        tally.count("runs", "", runs)
    for kind, text in by_kind.items():
        tally.count("kinds", kind)
        tally.faults.append(f"{number}: {text}")
    if by_kind:
        tally.count("cases", number)
    return tally


def minimal(number: int, runs: int) -> tuple[str, str]:
    """Return the kind with its traits, and the smallest case as YAML with its faults, of a case that has one."""
    case = draw_case(number)
    kind = next(iter(check_case(number, runs).counts.get("kinds", ())), "")
    if not kind:
        return "no fault", case.text()
    small = shrink(case, kind, runs, number)
    try:
        plan = make_plan(small)
        by_kind: dict[str, str] = {}
        for fault in search(plan, runs, number):
            by_kind.setdefault(fault.kind, f"# {fault}\n")
    except Exception as error:
        return f"{kind}: {type(error).__name__}", small.text()
    return f"{kind}: {traits(small, plan)}", f"{small.text()}{''.join(by_kind.values())}"


def shrink(case: Case, kind: str, runs: int, seed: int) -> Case:
    """Return a smaller case that still has a fault of this kind: parts and attributes left out while it remains."""

    def holds(smaller: Case | None) -> bool:
        if smaller is None:
            return False
        try:
            return any(fault.kind == kind for fault in search(make_plan(smaller), runs, seed))
        except DescriptorError:  # no valid case
            return False
        except Exception:
            return kind == BROKEN

    progress = True
    while progress:
        progress = False
        for smaller in list(_smaller(case)):
            trial = smaller(case)
            if trial is not None and trial != case and holds(trial):
                case, progress = trial, True
    return case


def _smaller(case: Case) -> Iterator[Callable[[Case], Case | None]]:
    """Yield ways to make a case smaller, whole parts first."""
    for section in ("chains", "stages", "sensors"):
        for name in [*case.pipeline[section]][::-1]:
            yield lambda now, section=section, name=name: (  # type: ignore[misc]
                dropped(now, section, name) if name in now.pipeline[section] else None
            )
    for place, key in _attributes(case):
        yield lambda now, place=place, key=key: _without(now, place, key)  # type: ignore[misc]
    yield lambda now: replace(now, policy="fp")
    yield lambda now: replace(now, mapping=None)


_KEPT = {
    "title", "period", "path", "deadline", "kind", "assumed", "platform", "mode", "engine", "precision", "time",
    "units", "costs", "bandwidth", "preemption", "reset",
}  # fmt: skip
_PLAIN: Json = {"cost": "0 us", "queue": 1, "share": 1}


def _attributes(case: Case) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the place and key of everything that a case can do without."""
    for section in ("sensors", "stages", "chains"):
        for name, row in case.pipeline[section].items():
            yield from (((1, section, name), key) for key in row if key not in _KEPT)
            for key in ("after", "reads"):
                yield from (((1, section, name, key), number) for number in range(len(row.get(key, ())))[::-1])
            for number, cost in [*enumerate(row.get("costs", ()))][::-1]:
                yield (1, section, name, "costs"), number
                yield from (((1, section, name, "costs", number), key) for key in cost if key not in _KEPT)
    yield from (((0,), key) for key in ("contention",) if key in case.board)
    for name, engine in case.board["engines"].items():
        yield from (((0, "engines", name), key) for key in engine if key not in _KEPT)
        yield from (((0, "engines", name, "preemption"), key) for key in engine["preemption"] if key not in _KEPT)
        yield (0, "engines", name, "preemption"), "kind"
    yield from (((2, name), key) for name, row in case.edits.items() for key in row)


def _without(case: Case, place: tuple[Any, ...], key: Any) -> Case | None:
    """Return a case without an attribute, or with its plain value."""
    contents = deepcopy([case.board, case.pipeline, dict(case.edits)])
    row: Any = contents
    try:
        for part in place:
            row = row[part]
        if key == "kind":
            row |= {"kind": "full"}
            for other in ("reset", "in_flight"):
                row.pop(other, None)
        elif key in _PLAIN:
            row[key] = _PLAIN[key]
        elif key == "on_late":
            row.pop("degraded", None)
            del row[key]
        elif key == "criticality":
            row.pop("high", None)
            del row[key]
        else:
            del row[key]
            if isinstance(row, list) and not row:
                return None
    except (KeyError, IndexError):
        return None
    return Case(contents[0], contents[1], case.policy, case.mapping, contents[2])


def traits(case: Case, plan: Plan) -> str:
    """Return what a case consists of, in words: the label of its kind."""
    sensors, stages = case.pipeline["sensors"], case.pipeline["stages"]
    found: dict[str, bool] = {}
    reads = {name for stage in stages.values() for name in stage.get("reads", ())}
    found["sampled sensor"] = bool(reads & set(sensors))
    found["sampled stage"] = bool(reads & set(stages))
    found["join"] = any(len(stage.get("after", ())) > 1 for stage in stages.values())
    rows = [*sensors.values(), *(stage for stage in stages.values() if "period" in stage)]
    found["offset above its period"] = any(_number(r.get("offset")) > _number(r["period"]) for r in rows)
    found["offset"] = any(0 < _number(r.get("offset")) <= _number(r["period"]) for r in rows)
    found["sensor jitter"] = any("jitter" in row for row in sensors.values())
    found["timer jitter"] = any("jitter" in stage for stage in stages.values())
    found["sporadic"] = any("sporadic" in row for row in sensors.values())
    found["high"] = any("high" in stage for stage in stages.values())
    levels = {stage.get("criticality", "firm") for stage in stages.values()}
    found["firm and hard"] = "hard" in levels and len(levels) > 1
    for key in ("on_late", "overflow", "execution"):
        found[key] = any(key in stage for stage in stages.values())
    found["queue"] = any(stage.get("queue", 1) > 1 for stage in stages.values())
    found["traffic"] = any(task.wcet_ns > task.cost_ns for task in plan.tasks)
    used = {task.engine for task in plan.tasks}
    for engine in plan.engines:
        if engine.id in used:
            found[engine.preemption] = engine.preemption != "full"
            found["in flight"] = engine.in_flight > 1
            found["migration or regrouping"] = bool(engine.migration_ns or engine.reshape_ns)
            found["unequal lanes"] = bool(engine.capacities)
    found["gang"] = any(len(task.lanes) > 1 for task in plan.tasks)
    found["pairwise contention"] = "contention" in case.board
    found |= {"conversion" if ">" in key else key: True for row in case.edits.values() for key in row}
    return ", ".join(name for name, there in found.items() if there) or "nothing of note"


def _number(text: str | None) -> float:
    return float(text.split()[0]) if text else 0.0
