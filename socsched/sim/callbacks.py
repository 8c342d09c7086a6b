"""Infrequent kernel callbacks: contention of a new combination, random numbers, faults, custom policies."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

from socsched.cost.contention import ContentionModel, Law, contention_model
from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.faults.model import SIMULATION, Faults, Slowdown, check_faults
from socsched.limits import STRETCHED_NS
from socsched.planning.plan import Plan
from socsched.sim.control import Board, ClockFollower
from socsched.sim.lower import FAR, Lowered
from socsched.sim.policies import ReadyJob
from socsched.trace.columns import FAULT_OVER, FAULT_SLOW, FAULT_STALL, THROTTLE, THROTTLE_OVER

# Longest durations of segments under everything that slows them down, bounded by `limits.STRETCHED_NS`.
#
# Execution times, overruns, clocks, slow slots, slowdowns and co-running jobs are known before a simulation
# starts, so their combined worst case is too.  The effect of the contention model is checked on each call
# (`Callbacks.resolve_contention`).


def find_worst_ratios(plan: Plan, tables: dict[str, Any], faults: Faults, segments: Sequence[Any]) -> list[float]:
    """Return, for every segment row, the largest factor by which its time alone is multiplied.

    Raises UsageError if the product exceeds what the simulator can count.
    """
    engines = {engine.id: index for index, engine in enumerate(plan.engines)}
    engine_ratios = [_engine_ratio(plan, index, faults.slowdowns) for index in range(len(plan.engines))]
    ratios = [1.0] * len(segments)
    overruns = {fault.stage: fault.factor for fault in faults.overruns}
    coruns = _corun_factors(tables)
    for number, task in enumerate(plan.tasks):
        own = float(overruns.get(task.name, 1))
        size, cost = tables["t_times"][number], tables["t_cost"][number]
        if size and cost:
            own *= max(tables["times"][tables["t_times0"][number] + size - 1] / cost, 1.0)
        rows = [range(tables[a][number], tables[a][number] + tables[b][number]) for a, b in _SPANS]
        for row in (row for span in rows for row in span):
            ratios[row] = own * engine_ratios[engines[segments[row][0]]] * coruns[tables["g_class"][row]]
            taken = tables["g_time"][row] * ratios[row]
            # times drawn for a task without work are used as they are
            if taken > STRETCHED_NS:
                raise report_too_long(
                    f"task {task.name!r}", taken, "its longest execution time, slow clocks and faults"
                )
    return ratios


_SPANS = (("t_first", "t_count"), ("t_degraded0", "t_degraded"))


def report_too_long(what: str, time_ns: float, cause: str) -> UsageError:
    """Return the error for a segment that takes too long."""
    return UsageError(
        f"{what} takes up to {time_ns / 1e9:.4g} s with {cause}; at most {STRETCHED_NS / 1e9:.0f} s can be simulated"
    )


def _engine_ratio(plan: Plan, index: int, slowdowns: Sequence[Slowdown]) -> float:
    engine = plan.engines[index]
    ratio = 1024 / min(engine.capacities, default=1024)
    if engine.levels:
        ratio *= max(level.clock_hz for level in engine.levels) / min(level.clock_hz for level in engine.levels)
    edges = sorted(
        (time, begins, fault.factor)
        for fault in slowdowns
        if fault.engine == engine.id
        for time, begins in ((fault.from_ns, 1), (fault.until_ns, 0))
    )
    now = most = Fraction(1)
    for _, begins, factor in edges:
        now = now * factor if begins else now / factor
        most = max(most, now)
    return ratio * float(most)


def _corun_factors(tables: dict[str, Any]) -> list[float]:
    """Return, by class of segments, the largest slowdown factor from co-running."""
    classes = tables["numbers"]["classes"]
    alone = [0] * classes
    for time, which in zip(tables["g_time"], tables["g_class"], strict=True):
        alone[which] = time
    found = [1.0] * classes
    for at, (host, corunner) in enumerate(zip(tables["host_times"], tables["corunner_times"], strict=True)):
        first, second = divmod(at, classes)
        for which, time in ((first, host), (second, corunner)):
            if time and alone[which]:
                found[which] = max(found[which], time / alone[which])
    return found


_DRAWS = 128
_KEPT = 1 << 16
"""Combinations of segments whose durations are kept."""
_LIMIT = 1 << 31


def make_contention_model(plan: Plan) -> ContentionModel:
    """Return the contention model of a plan; raise UsageError if it is unknown or its parameters are invalid."""
    return contention_model(plan.contention, plan.dram_bandwidth, {engine.id: engine.kind for engine in plan.engines})


Mark = tuple[int, int, int, int]
"""An instant: time, code, engine index, value."""


class Callbacks:
    """Answers the kernel's callbacks for one simulation; `marks` are the instants it adds to the trace.

    `foreign` lists (ns, engine, GB/s) steps of DRAM traffic from outside the plan.
    """

    def __init__(self, lowered: Lowered, faults: Faults, seed: int) -> None:
        self.lowered, self.tables, self.plan = lowered, lowered.tables, lowered.plan
        check_faults(faults, SIMULATION)
        self._ratios = find_worst_ratios(self.plan, self.tables, faults, lowered.segments)
        self.marks: list[Mark] = []
        self.model = make_contention_model(self.plan)
        self._engines = {engine.id: index for index, engine in enumerate(self.plan.engines)}
        self._paces: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._state_law()
        self._tasks = {task.name: index for index, task in enumerate(self.plan.tasks)}
        self._streams = list(lowered.streams)
        self._random: dict[int, Random] = {}
        self._slow = [Fraction(1)] * len(self.plan.engines)
        self._stalled = [[0, 0] for _ in self.plan.engines]
        self._delays: list[list[int]] = [[] for _ in lowered.sources]
        self._hogs: list[tuple[str, int]] = []
        self.foreign: list[tuple[int, str, float]] = []
        orders: list[Any] = [p.order if callable(p.order) else None for p in lowered.policies]
        self._key_functions = [orders[unit.engine] for unit in lowered.units]
        self._fault_changes = self._schedule(faults)
        self._set_overruns(faults, seed)
        self.tables["numbers"]["first_fault"] = self._fault_changes[0][0] if self._fault_changes else FAR
        rule = self.plan.throttle
        self.board = Board(self.plan, rule, self.tables) if rule else None
        self._next_sample = rule.period_ns if rule else FAR
        self.follower = ClockFollower(self.plan, self.tables)
        self.tables["numbers"]["first_control"] = self._next_control

    def _state_law(self) -> None:
        """Add what the kernel computes contention from to the tables."""
        law: Law | None = self.model.law() if hasattr(self.model, "law") else None
        located, curves = self.lowered.segments, law.curves if law else {}
        self.tables.update(
            g_engine=array("q", [self._engines[engine] for engine, _ in located]),
            g_fixed=array("q", [segment.fixed_ns for _, segment in located]),
            g_draw=array("d", [law.draw(*one) if law else 0.0 for one in located]),
            g_ratio=array("d", self._ratios),
            curves=array("d", [value for engine in self._engines if curves for value in curves[engine]]),
        )
        numbers = self.tables["numbers"]
        numbers |= {"law": law is not None, "limit": law.limit if law else 0.0, "longest": float(STRETCHED_NS)}

    # -- callbacks

    def resolve_contention(self, key: tuple[int, ...]) -> tuple[int, ...]:
        """Return the duration (ns) of each segment numbered in `key` while exactly these segments run.

        A negative number stands for the current foreign traffic; its entry in the result holds the bytes/s it attains.
        """
        found = self._paces.get(key)
        if found is None:
            if len(self._paces) >= _KEPT:
                self._paces.clear()
            found = self._paces[key] = self._resolve(key)
        return found

    def _resolve(self, key: tuple[int, ...]) -> tuple[int, ...]:
        hogs = [(engine, Segment("hog", 1_000_000_000, 0, rate)) for engine, rate in self._hogs]
        running = [self.lowered.segments[number] for number in key if number >= 0]
        paces = self.model.paces([*running, *hogs])
        for number, pace in zip(key, paces, strict=False):
            if number >= 0 and pace * self._ratios[number] > STRETCHED_NS:
                name = self.lowered.segments[number][1].name
                cause = "its share of the DRAM's bandwidth"
                raise report_too_long(f"segment {name!r}", pace * self._ratios[number], cause)
        attained = sum(
            hog.bytes * hog.time_ns // pace for (_, hog), pace in zip(hogs, paces[len(running) :], strict=True)
        )
        return (*paces[: len(running)], *([attained] if len(key) > len(running) else []))

    def draw_numbers(self, stream: int) -> list[int]:
        """Return the next random numbers of a stream, from 0 to 2**62 - 1."""
        rng = self._random.get(stream)
        if rng is None:
            rng = self._random[stream] = Random(self._streams[stream])
        draw = rng.getrandbits
        return [draw(62) for _ in range(_DRAWS)]

    def compute_keys(self, unit: int, task: int, *rest: Any) -> tuple[int, int]:
        """Return the ordering keys that a policy written in Python gives a job."""
        rule = self._key_functions[unit]
        frame, activation, release, deadline, start, done, left, running, now = rest
        # namedtuple built from a tuple, avoiding keyword arguments: construction is most of the cost of this callback
        job = ReadyJob._make(
            (self.plan.tasks[task], task, frame, activation, release, deadline, start, done, left, running == 1)
        )
        keys = rule(job, now)
        if type(keys) is tuple and len(keys) == 2 and type(keys[0]) is int and type(keys[1]) is int:
            first, second = keys
            if -FAR < first < FAR and -FAR < second < FAR:
                return first, second
        return self._check_keys(unit, keys)

    def _check_keys(self, unit: int, keys: Any) -> tuple[int, int]:
        if not 1 <= len(keys) <= 2 or not all(isinstance(key, int) and abs(key) < FAR for key in keys):
            policy = self.lowered.policies[self.lowered.units[unit].engine].name
            raise UsageError(f"policy {policy!r} must give one or two whole numbers below 2**62, got {keys!r}")
        return (int(keys[0]), int(keys[1]) if len(keys) > 1 else 0)

    # -- faults

    def apply_faults(self, now: int) -> tuple[int, Collection[int], int, float]:
        """Apply faults that begin or end; return the next change, the changed engines, and the foreign traffic."""
        changed: set[int] = set()
        while self._fault_changes and self._fault_changes[0][0] <= now:
            _, change, *arguments = self._fault_changes.pop(0)
            changed.update(getattr(self, f"_{change}")(now, *arguments))
        following = self._fault_changes[0][0] if self._fault_changes else FAR
        kind = 0
        if self._hogs:
            kind = 1 + self._hog_sets.setdefault(tuple(self._hogs), len(self._hog_sets))
        return following, sorted(changed), kind, sum(rate for _, rate in self._hogs) / 1e9

    def _schedule(self, faults: Faults) -> list[Any]:
        self._hog_sets: dict[tuple[tuple[str, int], ...], int] = {}
        edges: list[Any] = []
        order = 0

        def window(begin: int, end: int, change: str, *arguments: Any) -> None:
            nonlocal order
            edges.append((begin, order, change, True, *arguments))
            edges.append((end, order + 1, change, False, *arguments))
            order += 2

        for slow in faults.slowdowns:
            window(slow.from_ns, slow.until_ns, "slowdown", self._engines[slow.engine], slow.factor, slow.throttle)
        for drop in faults.dropouts:
            window(drop.from_ns, drop.until_ns, "dropout", self._source(drop.sensor))
        for stall in faults.stalls:
            window(stall.from_ns, stall.until_ns, "stall", self._engines[stall.engine], stall.lost)
        for delay in faults.delays:
            window(delay.from_ns, delay.until_ns, "delay", self._source(delay.sensor), delay.by_ns)
        for burst in faults.bursts:
            edges.append((burst.at_ns, order, "burst", True, self._source(burst.sensor), burst.frames))
            order += 1
        for hog in faults.hogs:
            window(hog.from_ns, hog.until_ns, "hog", hog.engine, hog.bandwidth)
        return [(time, change, *rest) for time, _, change, *rest in sorted(edges, key=lambda edge: edge[:2])]

    def _source(self, name: str) -> int:
        return self.lowered.sources.index(name)

    def _set_overruns(self, faults: Faults, seed: int) -> None:
        for fault in faults.overruns:
            task = self._tasks[fault.stage]
            self._streams.append(fault.stream(seed))
            factor = fault.factor.limit_denominator(1 << 20)
            self.tables["t_overrun_stream"][task] = len(self._streams) - 1
            self.tables["t_overrun_chance"][task] = fault.chance
            self.tables["t_overrun_up"][task], self.tables["t_overrun_down"][task] = (
                factor.numerator,
                factor.denominator,
            )
        self.tables["numbers"]["streams"] = len(self._streams)

    def _slowdown(self, now: int, begins: bool, engine: int, factor: Fraction, throttle: bool) -> tuple[int, ...]:
        self._slow[engine] = self._slow[engine] * factor if begins else self._slow[engine] / factor
        slow = self._slow[engine]
        if slow.numerator >= _LIMIT:
            slow = slow.limit_denominator(1 << 20)
        self.tables["n_slow"][engine], self.tables["n_fast"][engine] = slow.numerator, slow.denominator
        if throttle:
            self.marks.append((now, THROTTLE if begins else THROTTLE_OVER, engine, int(1_000_000 / factor)))
        else:
            self.marks.append((now, FAULT_SLOW if begins else FAULT_OVER, engine, int(factor * 1_000_000)))
        return (engine,)

    def _dropout(self, now: int, begins: bool, source: int) -> tuple[int, ...]:
        self.tables["s_lost"][source] += 1 if begins else -1
        return ()

    def _delay(self, now: int, begins: bool, source: int, by_ns: int) -> tuple[int, ...]:
        (self._delays[source].append if begins else self._delays[source].remove)(by_ns)
        self.tables["s_delay"][source] = max(self._delays[source], default=0)
        return ()

    def _burst(self, now: int, begins: bool, source: int, frames: int) -> tuple[int, ...]:
        self.tables["s_burst"][source] += frames
        return ()

    def _stall(self, now: int, begins: bool, engine: int, lost: bool) -> tuple[int, ...]:
        before = self.tables["n_stalled"][engine]
        self._stalled[engine][lost] += 1 if begins else -1
        stalls, deaths = self._stalled[engine]
        self.tables["n_stalled"][engine] = 2 if deaths else 1 if stalls else 0
        if before != self.tables["n_stalled"][engine]:
            self.marks.append((now, FAULT_STALL if begins else FAULT_OVER, engine, 0))
        return (engine,)

    def _hog(self, now: int, begins: bool, engine: str, rate: int) -> tuple[int, ...]:
        if begins:
            self._hogs.append((engine, rate))
        else:
            self._hogs.remove((engine, rate))
        self._hogs.sort()
        self.foreign.append((now, engine, sum(r for name, r in self._hogs if name == engine) / 1e9))
        return ()

    def run_controllers(
        self, now: int, counters: Mapping[str, Sequence[int]], traffic: float
    ) -> tuple[int, Collection[int]]:
        """Run the due controllers of clocks; return the next due instant and the changed engines."""
        changed: set[int] = set()
        if self.board is not None and self._next_sample <= now:
            self._next_sample, stepped = self.board.sample(now, counters["busy_time"], traffic)
            changed.update(stepped)
        if self.follower.next_ns <= now:
            changed |= self.follower.sample(now, counters["busy_time"])
        return self._next_control, sorted(changed)

    @property
    def _next_control(self) -> int:
        return min(self._next_sample, self.follower.next_ns)

    def list_marks(self) -> list[Mark]:
        """Return every instant that faults and the board add to the trace."""
        return sorted([*self.marks, *(self.board.marks if self.board else ())])
