"""The scores of the mappings that a search tries, by flat tables: those of `candidate.judge` but for what is explained.

A search judges thousands of mappings and explains one.  Here a mapping is a row of numbers a task, kept from one
mapping to the next where the task is the same; deadlines, priorities and responses follow in C
(`schedulability.native_choices`), and requirements are looked at in detail only where one is not met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from socsched.cost.cost import Cost
from socsched.cost.power import power_terms
from socsched.descriptor.pipeline import Chain
from socsched.planning.assess import requirements
from socsched.planning.deployment import Deployment, frames_kept, stage_bytes, written_bytes
from socsched.planning.execution import slowest_lane
from socsched.planning.plan import PlannedEngine, Task
from socsched.planning.workload import Workload
from socsched.schedulability.chains import Stretch
from socsched.schedulability.native_choices import CODES, OVERLOADED, WINDOWS, Choice, Row, Shape, choose
from socsched.schedulability.path_windows import PathSystem
from socsched.schedulability.plan_analysis import Corunning, shorten
from socsched.schedulability.tasks import Response, RtTask, convert, dispatch_ns, longest_segment

QUICK = 5
"""Steps of a bisection in an analysis that is not thorough."""
_KEPT = 16
"""Shapes of deployments that are kept."""
_MOST = 50_000
"""Tasks whose rows are kept."""
SECOND = 10**9
_FULL = 1 - 1e-6
"""Utilisation of a lane from which on `assess` has to find out."""


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses (ns) of a deployment's tasks by name, and which are no bounds; whether EDF demand overflows.

    `overloaded` may be said of an analysis that does not tell.  `since`: as of `Response`.  `chains`: with their
    stretches; `rooms`: of the tasks in order, the longest responses with which no frame is lost.
    """

    values: Mapping[str, int]
    unbounded: frozenset[str]
    overloaded: bool
    chains: Sequence[tuple[Chain, Sequence[Stretch]]]
    rooms: Sequence[int]
    since: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)

    def _from_release(self, part: Stretch) -> int:
        if not part.last:
            return 0
        known = (value for name, value in self.since.get(part.last, ()) if name == part.root)
        return min([self.values[part.last] - part.lead, *known])

    def reaction(self, parts: Sequence[Stretch]) -> int:
        """Return the value (ns) of `chains.reaction_time`."""
        total = self._from_release(parts[0])
        for part in parts[1:]:
            total += max(part.period, part.begin - parts[0].begin - total)
            total += self.values[part.last] - part.lead if part.last else 0
        return total

    def age(self, parts: Sequence[Stretch]) -> int:
        """Return the value (ns) of `chains.data_age`."""
        if len(parts) == 1:
            return self._from_release(parts[0])
        ends = sum(self.values[part.last] - part.lead if part.last else 0 for part in parts)
        return ends + sum(part.period + (0 if part.last else part.jitter) for part in parts[:-1])

    def is_bound(self, parts: Sequence[Stretch]) -> bool:
        """Return whether a chain of these stretches has a bound."""
        paced = len(parts) == 1 or all(part.paced for part in parts)
        return paced and self.unbounded.isdisjoint([part.last for part in parts])


@dataclass(frozen=True, slots=True)
class _Form:
    """What deployments with the same conversions share: their shape, chains, and budgets but for costs."""

    shape: Shape
    like: PathSystem
    chains: Sequence[tuple[Chain, Sequence[Stretch]]]
    budgets: Sequence[int]
    rooms: Sequence[int]
    frames: Sequence[int]
    sensed: int


class _Known(NamedTuple):
    """A task with its row, utilisation, dispatch (ns), and what a job that is killed loses (ns).

    `busy`: the share of its engine's lanes that it takes; `traffic`: bytes/s; `held`, `written`: bytes of what stays in
    memory, and of a result.
    """

    task: Task
    row: Row
    used: float
    dispatch: int
    lost: int
    waits: bool
    busy: float
    traffic: int
    held: int
    written: int


@dataclass(slots=True)
class Flat:
    """The tables of a workload."""

    workload: Workload
    _forms: dict[tuple[str, ...], _Form] = field(default_factory=dict)
    _rows: dict[int, _Known] = field(default_factory=dict)
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    _rt: dict[tuple[int, int], RtTask] = field(default_factory=dict)
    _planned: dict[str, PlannedEngine] = field(default_factory=dict)

    def sums(self, deployment: Deployment) -> tuple[int, int, int]:
        """Return the mean power (mW), DRAM traffic (bytes/s) and memory (bytes) of a deployment: those of `balance`."""
        workload, form = self.workload, self._form(deployment.tasks)
        used, traffic, memory = dict.fromkeys(self._engines(), 0.0), 0, form.sensed
        for known, frames in zip(self._known(deployment), form.frames, strict=True):
            used[known.task.engine] += known.busy
            traffic += known.traffic
            memory += known.held + known.written * frames
        traffic += sum(s.bytes_per_frame * SECOND // s.period_ns for s in workload.sensors())
        power = power_terms(workload.model.platform, workload.model.mode, used, traffic)
        return sum(value for _, value in power), traffic, memory

    def responses(
        self, deployment: Deployment, hopeless: Callable[[Responses], bool] | None = None
    ) -> Responses | None:
        """Return the responses of an analysis that is not thorough; None where only `assess` finds them.

        `hopeless`: whether responses that windows of paths might shorten need not be shortened.
        """
        tasks, known, load = deployment.tasks, self._known(deployment), dict[int, float]()
        for each in known:
            for lane in each.row.lanes:
                load[lane] = load.get(lane, 0.0) + each.used
        if max(load.values(), default=0.0) > _FULL:
            return None
        form, change = self._form(tasks), self._changes(known)
        rows = [each.row._replace(change=change[each.task.engine]) if change else each.row for each in known]
        rooms = [room + max(task.cost_ns - 1, 0) for room, task in zip(form.rooms, tasks, strict=True)]
        movable = not any(each.waits for each in known)
        choice = choose(form.shape, rows, [*form.budgets, *rooms], self.workload.policy, QUICK, movable)
        if choice is None or (choice.kind == WINDOWS and self.workload.policy != "edf"):
            return None
        unbounded = frozenset(task.name for task, held in zip(tasks, choice.bounded, strict=False) if not held)
        values = {task.name: value for task, value in zip(tasks, choice.values, strict=False)}
        rough = Responses(values, unbounded, choice.kind in (OVERLOADED, WINDOWS), form.chains, rooms)
        if choice.kind != WINDOWS or (hopeless is not None and hopeless(rough)):
            return rough
        shorter = self._shortened(form, tasks, rows, choice)
        values = {name: response.value for name, response in shorter.items()}
        since = {name: response.since for name, response in shorter.items() if response.since}
        return Responses(values, unbounded, True, form.chains, rooms, since)

    def _shortened(
        self, form: _Form, tasks: Sequence[Task], rows: Sequence[Row], choice: Choice
    ) -> dict[str, Response]:
        """Return responses shortened by windows of paths, under EDF."""
        given, deadlines, responses = dict[str, RtTask](), dict[str, int](), dict[str, Response]()
        if len(self._rt) > _MOST:
            self._rt.clear()
        every = zip(tasks, rows, choice.values, choice.bounded, choice.deadlines, strict=False)
        for task, row, value, bounded, deadline in every:
            rt = self._rt.get((id(task), row.change))
            if rt is None:
                lanes = frozenset((task.engine, lane) for lane in task.lanes)
                preemption = next(name for name, code in CODES.items() if code == row.code)
                like = form.shape.tasks[task.name]
                rt = replace(like, lanes=lanes, preemption=preemption, wcet=row.wcet, segment=row.segment)
                rt = self._rt[id(task), row.change] = replace(rt, switch=row.change)
            given[task.name], deadlines[task.name] = rt, deadline
            responses[task.name] = Response(value, bool(bounded), ())
        load = self.workload
        quieter = Corunning(tasks, load.engines(), load.contention(), True).without_absent
        return shorten(given, deadlines, responses, quieter, form.like)

    def _known(self, deployment: Deployment) -> list[_Known]:
        if len(self._rows) > _MOST:
            self._rows.clear()
            self._rt.clear()  # its keys are identities of tasks that only the rows keep
        rows, found = self._rows, list[_Known]()
        for task in deployment.tasks:
            known = rows.get(id(task))
            if known is None:  # a task that is kept keeps its identity
                known = rows[id(task)] = self._made(task, deployment.mapping.get(task.name))
            found.append(known)
        return found

    def _made(self, task: Task, cost: Cost | None) -> _Known:
        engine = self._engines()[task.engine]
        dispatch, segment = dispatch_ns(task, engine), longest_segment(task, engine.preemption, engine.in_flight)
        numbers = self._numbers
        lanes = tuple(numbers.setdefault((task.engine, lane), len(numbers)) for lane in task.lanes)
        code = CODES["full" if engine.preemption == "restart" else engine.preemption]
        row = Row(task.wcet_ns + dispatch, segment + dispatch if segment else 0, 0, code, lanes)
        lost = longest_segment(task, "segment", engine.in_flight) if engine.preemption == "restart" else 0
        used = row.wcet / task.period_ns
        busy = task.cost_ns * 1024 / slowest_lane(task, engine.capacities) / task.period_ns * len(lanes) / engine.lanes
        held = sum(stage_bytes(self.workload, cost)) if cost else 0
        written, traffic = written_bytes(self.workload, task, cost), task.bytes * SECOND // task.period_ns
        return _Known(task, row, used, dispatch, lost, task.on_late != "continue", busy, traffic, held, written)

    def _engines(self) -> Mapping[str, PlannedEngine]:
        if not self._planned:
            self._planned.update({engine.id: engine for engine in self.workload.engines()})
        return self._planned

    def _changes(self, known: Sequence[_Known]) -> dict[str, int]:
        """Return the cost (ns) of a preemption on every engine, as `tasks.switch_cost`."""
        found = dict.fromkeys(self._engines(), 0)
        lost = dict(found)
        for each in known:
            engine = each.task.engine
            if each.dispatch > found[engine]:
                found[engine] = each.dispatch
            if each.lost > lost[engine]:
                lost[engine] = each.lost
        return {
            name: 0 if one.preemption == "none" else one.switch_ns + one.migration_ns + found[name] + lost[name]
            for name, one in self._engines().items()
        }

    def _form(self, tasks: Sequence[Task]) -> _Form:
        key = tuple([task.name for task in tasks])
        if key in self._forms:
            return self._forms[key]
        if len(self._forms) >= _KEPT:
            self._forms.clear()
        workload = self.workload
        pipeline, sources = workload.graph.pipeline, workload.sources(tasks)
        needs = requirements(pipeline, tasks, sources)
        places = {task.name: place for place, task in enumerate(tasks)}
        ends = [[places[end] for end in need.ends] for need in needs]
        chains = [(chain, sources.stretches(chain.path)) for chain in pipeline.chains]
        own = len(needs) - len(tasks)
        rooms = [need.budget - max(task.cost_ns - 1, 0) for need, task in zip(needs[own:], tasks, strict=True)]
        shape = Shape.of(convert(tasks, workload.engines(), workload.sensors()), ends)
        like, budgets = PathSystem.of(shape.tasks, None), [need.budget for need in needs[:own]]
        frames = frames_kept(tasks)
        sensed = sum(s.bytes_per_frame * (1 + frames.get(s.name, 1)) for s in workload.sensors())
        kept = [1 + frames.get(task.name, 1) for task in tasks]
        self._forms[key] = _Form(shape, like, chains, budgets, rooms, kept, sensed)
        return self._forms[key]
