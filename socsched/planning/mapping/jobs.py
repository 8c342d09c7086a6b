"""Options, hand-overs and jobs of a mapping problem as variables of a constraint program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from socsched.planning.mapping import grains
from socsched.planning.mapping.problem import Hop, JobKey, Problem, alone_ns
from socsched.planning.mapping.solvers import constraints


@dataclass(slots=True)
class Job:
    """Start, end and duration; from `begun` to `over` the option itself runs, without pick-up and hand-over."""

    start: Any
    end: Any
    duration: Any
    begun: Any = None
    over: Any = None


class Jobs:
    """The variables of a problem: placement, timing and hand-overs.

    `taken[i][a]`: group i has option a; `flows[n][a][b]`: edge n leads from option a to option b; `intervals` and
    `loads` of every engine.  Where jobs are `contended`, their durations may exceed the time alone; `grown` lengthens
    option a of group i, as (i, a), by ns.
    """

    def __init__(self, problem: Problem, contended: bool, grown: Mapping[tuple[int, int], int]) -> None:
        self.problem, self.contended, self.grown = problem, contended, grown
        self.cp = constraints()
        self.model = self.cp.CpModel()
        self.grain = grains.grain(problem)
        self.horizon = grains.horizon(problem) // self.grain + 2
        self.taken = [[self.model.new_bool_var("") for _ in group.options] for group in problem.groups]
        self.flows: list[list[list[Any]]] = []
        self.jobs: dict[JobKey, Job] = {}
        self.conversions: dict[JobKey, list[tuple[Any, str]]] = {}
        self.intervals: dict[str, list[tuple[Any, int]]] = {engine.id: [] for engine in problem.engines}
        self.loads: dict[str, list[Any]] = {engine.id: [] for engine in problem.engines}
        for row in self.taken:
            self.model.add_exactly_one(row)
        for row, group in zip(self.taken, problem.groups, strict=True):
            if group.twin:
                for x, y in zip(row, self.taken[problem.index[group.twin]], strict=True):
                    self.model.add(x == y)
        self._flows()
        self._groups()
        self._edges()

    def grains_of(self, value: int) -> int:
        """Return a time (ns) in grains, rounded down."""
        return value // self.grain

    def _flows(self) -> None:
        model, problem = self.model, self.problem
        for edge in problem.edges:
            sources, sinks = (self.taken[problem.index[name]] for name in (edge.source, edge.sink))
            flow = [[model.new_bool_var("") for _ in sinks] for _ in sources]
            for i, x in enumerate(sources):
                model.add(sum(flow[i]) == x)
            for j, x in enumerate(sinks):
                model.add(sum(row[j] for row in flow) == x)
            for row, hops in zip(flow, edge.hops, strict=True):
                for y, hop in zip(row, hops, strict=True):
                    if hop is None:
                        model.add(y == 0)
            self.flows.append(flow)

    def hops(self, number: int) -> list[tuple[Any, Hop]]:
        """Return the hops that edge `number` can take, each with the variable that selects it."""
        edge = self.problem.edges[number]
        return [
            (y, hop)
            for ys, hops in zip(self.flows[number], edge.hops, strict=True)
            for y, hop in zip(ys, hops, strict=True)
            if hop
        ]

    def _groups(self) -> None:
        model, problem = self.model, self.problem
        for index, group in enumerate(problem.groups):
            times = [
                self.grains_of(alone_ns(option, problem.bandwidth) + self.grown.get((index, number), 0))
                for number, option in enumerate(group.options)
            ]
            paid = self._paid(index)
            # In a contended schedule, rounded times need not differ by the rounded-down duration, so none is fixed.
            variable = self.contended or paid is not None
            for frame in range(group.frames):
                release = self.grains_of(group.release_ns + frame * group.period_ns)
                start = model.new_int_var(release, self.horizon, "")
                end = model.new_int_var(release, self.horizon, "")
                alone = sum(t * x for t, x in zip(times, self.taken[index], strict=True))
                if variable:
                    duration = model.new_int_var(min(times), self.horizon, "")
                    extra = 0 if paid is None else paid[0] + paid[1]
                    model.add(duration >= alone + extra if self.contended else duration == alone + extra)
                    model.add(end == start + duration)
                else:
                    duration = alone
                    model.add(end == start + alone)
                begun, over = (start, end) if paid is None else (start + paid[0], end - paid[1])
                self.jobs[JobKey(frame, index)] = Job(start, end, duration, begun, over)
                for x, option, time in zip(self.taken[index], group.options, times, strict=True):
                    size = duration if variable else time
                    interval = model.new_optional_interval_var(start, size, end, x, "")
                    self.intervals[option.engine].append((interval, option.share))
                    self.loads[option.engine].append(time * option.share * x)
                for engine, share in dict.fromkeys((option.engine, option.share) for option in group.options):
                    self.loads[engine] += self._picked(index, engine, share)
                if frame:
                    model.add(start >= self.jobs[JobKey(frame - 1, index)].end)

    def _paid(self, index: int) -> tuple[Any, Any] | None:
        """Return the pick-ups of a group and the longest hand-over it pays for, None if there is neither."""
        taken = [
            self.grains_of(hop.pickup_ns) * y
            for number in self.problem.before[index]
            for y, hop in self.hops(number)
            if hop.pickup_ns >= self.grain
        ]
        handed = self._handed(index)
        handed = 0 if handed is None and taken else handed
        return (sum(taken), handed) if taken or handed is not None else None

    def _picked(self, index: int, engine: str, share: int) -> list[Any]:
        """Return the terms that pick-ups add to the load of an engine."""
        return [
            self.grains_of(hop.pickup_ns) * share * y
            for number in self.problem.before[index]
            for ys, hops in zip(self.flows[number], self.problem.edges[number].hops, strict=True)
            for y, hop, option in zip(ys, hops, self.problem.groups[index].options, strict=True)
            if hop and hop.pickup_ns >= self.grain and option.engine == engine and option.share == share
        ]

    def _handed(self, index: int) -> Any:
        paying = [
            [(y, self.grains_of(hop.handoff_ns)) for y, hop in self.hops(number) if hop.handoff_ns >= self.grain]
            for number in self.problem.after[index]
        ]
        paying = [terms for terms in paying if terms]
        if not paying:
            return None
        paid = self.model.new_int_var(0, max(value for terms in paying for _, value in terms), "")
        self.model.add_max_equality(paid, [sum(value * y for y, value in terms) for terms in paying])
        return paid

    def _edges(self) -> None:
        model, problem = self.model, self.problem
        for number, edge in enumerate(problem.edges):
            source, sink = problem.index[edge.source], problem.index[edge.sink]
            hops = self.hops(number)
            delay = sum(self.grains_of(hop.delay_ns) * y for y, hop in hops if hop.delay_ns)
            converting = [(y, hop.engine, self.grains_of(hop.time_ns)) for y, hop in hops if hop.engine]
            for frame in range(problem.groups[source].frames):
                before, after = self.jobs[JobKey(frame, source)], self.jobs[JobKey(frame, sink)]
                if not converting:
                    model.add(after.start >= before.end + delay)
                    continue
                start = model.new_int_var(0, self.horizon, "")
                end = model.new_int_var(0, self.horizon, "")
                alone, duration = sum(time * y for y, _, time in converting), model.new_int_var(0, self.horizon, "")
                model.add(duration >= alone if self.contended else duration == alone)
                model.add(end == start + duration)
                model.add(start >= before.end)
                model.add(after.start >= end + delay)
                key = JobKey(frame, number, True)
                self.jobs[key] = Job(start, end, duration)
                self.conversions[key] = [(y, engine) for y, engine, _ in converting]
                for y, engine, time in converting:
                    size = duration if self.contended else time
                    self.intervals[engine].append((model.new_optional_interval_var(start, size, end, y, ""), 1))
                    self.loads[engine].append(time * y)
