"""Lower a plan to the flat tables the kernel runs on.

Names and numbers of the plan are checked here, and the tables as a whole in `sim.invariants`, not in the loop.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.planning.checks import Where, out_of_range
from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.sim.policies import Policy, Term, get_policy
from socsched.sim.policies.terms import DRAINS, PreemptionMechanism

# Mechanisms that policies declare in addition to an order (`sim.policies.terms`), as kernel table columns.

_MOST_WEIGHT = 1 << 20
_MOST_CLASSES = 2048
"""Most distinct co-running segments: the durations of pairs are stored as a table."""
_NEVER = 1 << 62
_BY_THRESHOLD = {Term.CRITICAL, Term.CANDIDATE}
"""Terms that also change for waiting jobs.

As a first term, the kernel computes when they change; all other terms except functions change only for running jobs.
"""


def apply_preemption(engine: PlannedEngine, rule: Policy) -> tuple[PlannedEngine, PreemptionMechanism]:
    """Return an engine as preempted under a policy, and the mechanism in use, which may be its own."""
    mechanism = next((m for m in rule.preemption if m.applies_to(engine.kind, engine.preemption)), None)
    if mechanism is None or not rule.preemptive:
        return engine, PreemptionMechanism("full")
    flight = mechanism.in_flight or engine.in_flight
    reset = mechanism.reset_ns if mechanism.mode == "restart" else engine.reset_ns
    return replace(engine, preemption=mechanism.mode, in_flight=flight, reset_ns=reset), mechanism


def classify_keys(rule: Policy) -> int:
    """Return 0 for constant keys, 1 if they change for running jobs or by a threshold, 2 if for any job."""
    if not rule.dynamic:
        return 0
    if callable(rule.order) or rule.corun or rule.order[1] in _BY_THRESHOLD:
        return 2
    return 1


def make_unit_row(rule: Policy, mechanism: PreemptionMechanism, kind: str) -> dict[str, int]:
    """Return the columns of a unit under a policy, on an engine of the given kind."""
    corun = rule.corun if rule.corun and kind in (rule.corun.kinds or (kind,)) else None
    row = {
        "save": mechanism.save_ns,
        "restore": mechanism.restore_ns,
        "restart_job": mechanism.lost_work == "job",
        "drain": DRAINS.index(mechanism.drain),
        "tokens": len(list_thresholds(rule)),
        "fair": not callable(rule.order) and Term.SERVICE in rule.order,
        "margin": rule.margin_ns,
        "corun": corun is not None,
        "corun_once": corun is not None and corun.once_per_segment,
    }
    return {name: int(value) for name, value in row.items()}


def list_thresholds(rule: Policy) -> tuple[int, ...]:
    """Return the token thresholds for candidates, in increasing order."""
    if rule.tokens is None:
        return ()
    levels = (rule.tokens.fixed,) if rule.tokens.fixed else rule.tokens.levels
    if not levels or min(levels) <= 0 or list(levels) != sorted(set(levels)):
        raise UsageError(f"policy {rule.name!r}: expected levels of tokens above 0 in rising order, got {levels}")
    return levels


def weight_of(task: Task, rule: Policy) -> int:
    """Return a task's weight under a policy."""
    weight = rule.weight(task) if rule.weight else 1
    if not 0 < weight < _MOST_WEIGHT:
        raise UsageError(
            f"policy {rule.name!r}: task {task.name!r}: expected a weight from 1 to 2**20 - 1, got {weight}"
        )
    return weight


def add_waits(task: Task, rule: Policy, waits: array[int]) -> int:
    """Append the waiting times at which a task reaches a policy's token levels to `waits`; return their start.

    Tokens start at the weight and grow by the weight for every own execution time waited.
    """
    weight = weight_of(task, rule)
    first, strict = len(waits), rule.tokens is not None and rule.tokens.strict
    cost = sum(segment.time_ns for segment in task.segments) or task.cost_ns
    levels = list_thresholds(rule)
    reached = [min(max(-(-(level - weight) * cost // weight), 0), _NEVER) for level in levels]
    # with `strict`, more than the level is required: 1 ns past the instant at which it is reached, rounded down
    more = [min(max((level - weight) * cost // weight + 1, 0), _NEVER) for level in levels]
    waits.extend(reached)
    waits.extend(more if strict else reached)
    return first


def make_pair_tables(
    tasks: Sequence[Task], rows: Sequence[tuple[Task, Segment]], rules: Mapping[str, Policy]
) -> tuple[array[int], dict[str, Any]]:
    """Return a class for every segment of `rows`, and the co-running durations of pairs of classes (host's first).

    Tasks with segments away from their own slots never co-run: those segments wait, or admit co-runners, on other
    slots.
    """
    whole = {t.name for t in tasks if not any(s.engine for s in (*t.segments, *t.degraded)) and rules[t.engine].corun}
    classes: dict[tuple[str, str, int], tuple[int, Task, Segment]] = {}
    numbers = array("q")
    for task, segment in rows:
        key = (task.name, segment.name, segment.time_ns) if task.name in whole and segment.time_ns else ("", "", 0)
        numbers.append(classes.setdefault(key, (len(classes), task, segment))[0])
    count = max(len(classes), 1)
    if count > _MOST_CLASSES:
        raise UsageError(f"at most {_MOST_CLASSES} segments can co-run, got {count}")
    host, corunner = array("q", bytes(8 * count * count)), array("q", bytes(8 * count * count))
    known = [(key, *found) for key, found in classes.items() if key[0]]
    for _, first, task, segment in known:
        rule = rules[task.engine].corun
        assert rule is not None
        for _, second, other, its in known:
            if other.name == task.name or other.engine != task.engine:
                continue
            if found := rule.times(task, segment, other, its):
                at = first * count + second
                host[at], corunner[at] = max(found[0], segment.time_ns), max(found[1], its.time_ns)
    return numbers, {"host_times": host, "corunner_times": corunner, "classes": count}


# Checks that a plan can be simulated: ranges of its numbers, unique names, runnable tasks.


LATE = {"continue": 0, "skip": 1, "abort": 2, "degrade": 3}
CRITICALITY = {"hard": 0, "firm": 1, "soft": 2}


def check_plan(plan: Plan) -> None:
    """Raise UsageError unless every number is in range, every name is unique, and every chain has tasks."""
    wrong = next(out_of_range(plan), None)
    if wrong is not None:
        path, expected = wrong
        raise UsageError(f"plan: {_describe_path(plan, path)}: {expected}", hint="docs/simulator.md has the limits")
    for what, names in (
        ("engine", [engine.id for engine in plan.engines]),
        ("task or sensor", [*(task.name for task in plan.tasks), *(sensor.name for sensor in plan.sensors)]),
    ):
        if len(set(names)) < len(names):
            twice = next(name for index, name in enumerate(names) if name in names[:index])
            raise UsageError(f"plan: {what} {twice!r} appears twice")
    for chain in plan.chains:
        if not chain.path:
            raise UsageError(f"plan: chain {chain.name!r}: expected a path of at least one task")


def _describe_path(plan: Plan, path: Where) -> str:
    """Return the path of a field in words: ``tasks[3].queue (task 'fuse')``."""
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
    if len(path) < 2 or not isinstance(path[1], int):
        return words
    member = getattr(plan, str(path[0]))[path[1]]
    return f"{words} ({str(path[0])[:-1]} {getattr(member, 'name', None) or member.id!r})"


def check_task(task: Task, plan: Plan, engines: Mapping[str, int]) -> None:
    """Raise UsageError unless a task's engines, lanes, trigger and reservation are valid."""
    where = f"plan: task {task.name!r}"
    claims = [(task.engine, task.lanes)]
    for segment in (*task.segments, *task.degraded):
        if segment.engine:
            claims.append((segment.engine, segment.lanes))
    for name, lanes in claims:
        if name not in engines:
            raise UsageError(f"{where}: engine {name!r} is not in the plan", hint=f"engines: {', '.join(engines)}")
        count = plan.engines[engines[name]].lanes
        if not lanes or min(lanes) < 0 or max(lanes) >= count:
            raise UsageError(f"{where}: lanes {list(lanes)} are not among the {count} of engine {name!r}")
    if task.timer == bool(task.after):
        raise UsageError(f"{where}: exactly one of a timer and `after` must trigger it")
    if task.timer and task.period_ns <= 0:
        raise UsageError(f"{where}: a timer needs a period above 0, got {task.period_ns} ns")
    if not 0 <= task.width <= len(set(task.lanes)):
        raise UsageError(
            f"{where}: expected a width from 0 to {len(set(task.lanes))}, the number of lanes, got {task.width}"
        )
    for value, known, field in ((task.on_late, LATE, "on_late"), (task.criticality, CRITICALITY, "criticality")):
        if value not in known:
            raise UsageError(f"{where}: unknown {field} {value!r}", hint=f"known: {', '.join(known)}")
    if task.budget_ns and not 0 < task.budget_ns <= task.server_ns:
        raise UsageError(
            f"{where}: expected a budget within its server period of {task.server_ns} ns, got {task.budget_ns} ns"
        )


# Units: the slots of an engine that tasks compete for, and the unit of every task and segment.


@dataclass(frozen=True, slots=True)
class Unit:
    """Slots of one engine that compete with each other; tasks outside the unit share no slot with tasks inside."""

    engine: int
    mask: int


class UnitMap:
    """Where tasks and their segments run: the `units` of the plan, and the unit of each slot of an engine.

    `masks` receives the slots of every segment row, bit k for slot k.
    """

    def __init__(self, plan: Plan, engines: Mapping[str, int]) -> None:
        self._engines = engines
        self._known: dict[tuple[str, tuple[int, ...]], tuple[int, int]] = {}
        self.masks: list[int] = []
        wanted = dict.fromkeys(claim for task in plan.tasks for claim in _wanted(task))
        apart: dict[int, list[int]] = {index: [] for index in range(len(plan.engines))}
        for name, lanes in wanted:
            mask, others = _mask(lanes), []
            for other in apart[engines[name]]:
                if other & mask:
                    mask |= other
                else:
                    others.append(other)
            apart[engines[name]] = [*others, mask]
        self.units = tuple(Unit(engine, mask) for engine, masks in apart.items() for mask in sorted(masks))
        first = {(unit.engine, (unit.mask & -unit.mask).bit_length() - 1): i for i, unit in enumerate(self.units)}
        unit_of: dict[tuple[int, int], int] = {}
        for (engine, _), number in first.items():
            rest = self.units[number].mask
            while rest:
                slot = (rest & -rest).bit_length() - 1
                unit_of[engine, slot] = number
                rest &= rest - 1
        for name, lanes in wanted:
            self._known[name, lanes] = _mask(lanes), unit_of[engines[name], lanes[0]]

    def find(self, engine: str, lanes: tuple[int, ...]) -> tuple[int, int]:
        """Return slots as a mask, and the number of their unit."""
        return self._known[engine, lanes]


def _mask(lanes: Iterable[int]) -> int:
    mask = 0
    for slot in lanes:
        mask |= 1 << slot
    return mask


def _wanted(task: Task) -> Iterable[tuple[str, tuple[int, ...]]]:
    yield task.engine, task.lanes
    for segment in (*task.segments, *task.degraded):
        if segment.engine:
            yield segment.engine, segment.lanes


# Tables by which the kernel follows frames of a chain's source through the chain's stages for its running figures.
#
# The semantics are those of `trace.metrics.chain_figures`; the tests compare the two.


OWN, SAME, SAMPLED = 0, 1, 2
NO_LIMIT = 1 << 62
"""Largest age of data where none is required (ns)."""


def make_chain_tables(plan: Plan, sources: Sequence[str]) -> dict[str, array[int]]:
    """Return the tables `kernel.stores.Chains` reads; the columns are documented there."""
    names = [task.name for task in plan.tasks]
    number = {name: index for index, name in enumerate(names)}
    reads = {task.name: set(task.reads) for task in plan.tasks}
    origin = {name: len(names) + index for index, name in enumerate(sources)}
    source_of = {name: index for index, name in enumerate(sources)}
    after = {task.name: set(task.after) for task in plan.tasks}
    conversions = {task.name for task in plan.tasks if task.kind == "conversion"}
    entries: dict[int, list[dict[str, int]]] = {index: [] for index in range(len(names))}
    starts: dict[int, list[int]] = {index: [] for index in range(len(sources))}
    deadlines, ages, exact = array("q"), array("q"), array("q")
    rows = 0
    for chain, result in enumerate(plan.chains):
        deadlines.append(result.deadline_ns)
        ages.append(NO_LIMIT if result.max_age_ns is None else result.max_age_ns)
        path = result.path
        if path[0] in source_of:
            starts[source_of[path[0]]].append(chain)
        previous, plain = -1, True
        for position, name in enumerate(path):
            if name not in number:
                continue
            entry = {"chain": chain, "mode": OWN, "row": 0, "previous": previous, "producer": -1}
            if position:
                sampled = _find_sampled(path[position - 1], name, reads, after, conversions)
                if sampled is not None:
                    entry["mode"], plain = SAMPLED, False
                    entry["producer"] = number.get(sampled, origin.get(sampled, -1))
                elif not plain:
                    entry["mode"] = SAME
                if entry["mode"] != OWN:
                    entry["row"], previous, rows = rows, rows, rows + 1
            # from the first sampling stage on, the next sample makes up for a lost job
            entry["loses"] = int(plain)
            entry["last"] = int(position == len(path) - 1)
            entries[number[name]].append(entry)
        exact.append(int(plain))
    tables: dict[str, array[int]] = {"c_deadline": deadlines, "c_max_age": ages, "c_exact": exact}
    columns = ("chain", "mode", "row", "previous", "producer", "last", "loses")
    tables.update({f"o_{column}": array("q") for column in (*columns, "first", "count")})
    for index in range(len(names)):
        tables["o_first"].append(len(tables["o_chain"]))
        tables["o_count"].append(len(entries[index]))
        for entry in entries[index]:
            for column in columns:
                tables[f"o_{column}"].append(entry[column])
    tables.update({f"x_{column}": array("q") for column in ("first", "count", "chain")})
    for index in range(len(sources)):
        tables["x_first"].append(len(tables["x_chain"]))
        tables["x_count"].append(len(starts[index]))
        tables["x_chain"].extend(starts[index])
    return tables


def _find_sampled(
    producer: str, consumer: str, reads: dict[str, set[str]], after: dict[str, set[str]], conversions: set[str]
) -> str | None:
    """Return the sampled task: `producer` or a conversion of its output; None if `consumer` is data-triggered."""
    if _reaches(producer, after[consumer], after, conversions):
        return None
    for name in reads[consumer]:
        if name == producer or (name in conversions and _reaches(producer, after[name], after, conversions)):
            return name
    return None


def _reaches(producer: str, triggers: set[str], after: dict[str, set[str]], conversions: set[str]) -> bool:
    """Return whether data of `producer` triggers directly or through conversions."""
    waiting, reached = list(triggers), set(triggers)
    while waiting:
        name = waiting.pop()
        if name == producer:
            return True
        if name in conversions:
            waiting += after[name] - reached
            reached |= after[name]
    return False


FAR = 1 << 62
KINDS = {"full": 0, "segment": 1, "none": 2, "restart": 3}
NARROW_SLOTS, WIDE_WORDS = 62, 16
"""Slots that fit one mask word, as traces write it; words for the slots of larger engines (64 each)."""
MOST_APART = 1024
"""Most frames by which one input of a join may be ahead of another."""
_FINEST = 1 << 20
"""Power of a slot is stored in fractions of a mW, at most this many per mW."""
_PREFIX = ("switch", "wait")


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan in the form the kernel reads.

    `tables`: arrays of int64 by name, and `numbers`.  `segments[g]`: engine id and segment of row g, as passed to the
    contention model.  `streams`: seeds of the random number streams.  `names`: segment names.
    """

    plan: Plan
    tables: dict[str, Any]
    segments: tuple[tuple[str, Segment], ...]
    streams: tuple[str, ...]
    names: tuple[str, ...]
    sources: tuple[str, ...]
    units: tuple[Unit, ...]
    policies: tuple[Policy, ...]


class _Columns(dict[str, "array[int]"]):
    """Arrays of int64 that grow by rows of named numbers."""

    def row(self, prefix: str, **values: int) -> None:
        for name, value in values.items():
            self.setdefault(f"{prefix}_{name}", array("q")).append(int(value))


def lower(plan: Plan, seed: int, override: str | None = None) -> Lowered:
    """Return the tables of `plan`; raise UsageError for an unknown name or policy.

    `override`: policy for every engine instead of its own.
    """
    check_plan(plan)
    engines = {engine.id: index for index, engine in enumerate(plan.engines)}
    for task in plan.tasks:
        check_task(task, plan, engines)
    if not plan.tasks:
        raise UsageError("the plan has no tasks, so there is nothing to simulate")
    policies = tuple(get_policy(override or engine.policy) for engine in plan.engines)
    unit_map = UnitMap(plan, engines)
    units = unit_map.units
    rows, streams = _Columns(), _Streams(seed)
    rows["waits"] = array("q")
    segments = _segments(rows, plan, engines, unit_map, policies)
    processes: dict[tuple[bool, str], int] = {}
    for task in plan.tasks:
        _task(rows, task, streams)
        process = (True, task.process) if task.process else (False, task.name)
        rows.row("t", process=processes.setdefault(process, len(processes)))
        rows.row("t", weight=weight_of(task, policies[engines[task.engine]]))
    rules = {engine.id: rule for engine, rule in zip(plan.engines, policies, strict=True)}
    rows["g_class"], corun = make_pair_tables(plan.tasks, [(task, segment) for task, _, segment in segments], rules)
    scale = min(lcm(*(engine.lanes for engine in plan.engines)), _FINEST) if plan.engines else 1
    levels = max((len(engine.levels) for engine in plan.engines), default=1) or 1
    homes = [rows["g_unit"][row] for row in rows["t_first"][: len(plan.tasks)]]
    own: list[list[int]] = [[] for _ in units]
    for number, home in enumerate(homes):
        own[home].append(number)
    for unit, tasks in zip(units, own, strict=True):
        _unit(rows, unit, plan.engines[unit.engine], policies[unit.engine])
        first = [rows["t_first"][number] for number in tasks]
        rows.row("u", **{"global": all(rows["g_width"][r] == 1 and unit_map.masks[r] == unit.mask for r in first)})
    join_size = _join_size(rows, plan)
    order_size = _order_size(rows, [task for task, _, _ in segments], len(units))
    for engine in plan.engines:
        _engine(rows, engine, scale, levels)
    sources = _sources(rows, plan, streams)
    _connect(rows, plan, sources)
    _close_loops(rows, plan, sources)
    rows.update(make_chain_tables(plan, sources))
    rows.update(corun)
    numbers = {
        "levels": levels,
        "uneven": int(any(value != 1024 for value in rows.get("slot_speed", ()))),
        "scale": float(scale),
        "energy_per_byte": plan.dram_picojoule_per_byte,
        "static_power": float(plan.base_mw + sum(engine.idle_mw for engine in plan.engines)),
        "dram_limited": int(plan.dram_bandwidth > 0 or bool(plan.contention)),
        "streams": len(streams.names),
        "classes": corun.pop("classes"),
        "words": 1 if all(engine.lanes <= NARROW_SLOTS for engine in plan.engines) else WIDE_WORDS,
        "order_size": order_size,
        "join_size": join_size,
        "first_fault": FAR,
        "first_control": FAR,
    }
    for name in _EMPTY:
        rows.setdefault(name, array("q"))
    named = tuple(dict.fromkeys([*_PREFIX, *(segment.name for _, _, segment in segments)]))
    index = {name: number for number, name in enumerate(named)}
    # a segment named like a prefix keeps its own slice name; both read the same
    rows["g_name"] = array("q", [index[segment.name] for _, _, segment in segments])
    masks = {"g_mask": tuple(unit_map.masks), "u_mask": tuple(unit.mask for unit in units)}
    tables = {**rows, **masks, "numbers": numbers}
    # imported here because it is the first module to need NumPy, which takes longer to import than everything else
    from socsched.sim.invariants import check_tables

    check_tables(tables, plan)
    located = tuple((engine, segment) for _, engine, segment in segments)
    return Lowered(plan, tables, located, tuple(streams.names), named, sources, units, policies)


_EMPTY = (
    "reads", "successors", "times", "t_inputs", "s_period", "n_slots", "u_engine", "u_order0", "slot_speed", "g_time",
)  # fmt: skip


class _Streams:
    """Names of the random number streams, numbered in order of request."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names: list[str] = []

    def new(self, what: str) -> int:
        self.names.append(f"{self.seed}:{what}")
        return len(self.names) - 1


def _order_size(rows: _Columns, owners: Sequence[Task], units: int) -> int:
    """Write the start of every unit's order, with two claims for every task that runs there.  Return the total size."""
    visitors: list[set[str]] = [set() for _ in range(units)]
    for unit, task in zip(rows["g_unit"] if owners else (), owners, strict=True):
        visitors[unit].add(task.name)
    room = 0
    for tasks in visitors:
        rows.row("u", order0=room)
        room += 2 * len(tasks)
    return room


def _join_size(rows: _Columns, plan: Plan) -> int:
    """Write where the incomplete frames of every join wait, and the room for them.  Return the total size.

    One input may be ahead of another by as many frames as wait in all queues, up to a limit.
    """
    joins = sum(len(task.after) > 1 for task in plan.tasks)
    waiting = sum(min(task.queue, MOST_APART) + 2 for task in plan.tasks)
    each = max(min(waiting, MOST_APART, (1 << 22) // max(joins, 1)), 64)
    room = 0
    for task in plan.tasks:
        own = each if len(task.after) > 1 else 0
        rows.row("t", join0=room, join=own)
        room += own
    return room


def _segments(
    rows: _Columns, plan: Plan, engines: Mapping[str, int], unit_map: UnitMap, policies: Sequence[Policy]
) -> list[tuple[Task, str, Segment]]:
    """Write one row per segment, and the index of each task's first segment."""
    found: list[tuple[Task, str, Segment]] = []
    levels: dict[tuple[str, str], int] = {}

    def add(task: Task, segments: Sequence[Segment]) -> int:
        first = len(found)
        rest = sum(segment.time_ns for segment in segments)
        for segment in segments:
            rest -= segment.time_ns
            name, lanes = (segment.engine, segment.lanes) if segment.engine else (task.engine, task.lanes)
            mask, unit = unit_map.find(name, lanes)
            if (task.name, name) not in levels:
                levels[task.name, name] = add_waits(task, policies[engines[name]], rows["waits"])
            width = 0 if segment.engine else task.width
            drawn = segment.bytes if segment.time_ns else 0
            rows.row("g", time=segment.time_ns, bytes=drawn, unit=unit, width=width)
            rows.row("g", hold=bool(segment.hold and segment.engine), rest=rest)
            rows.row("g", waits0=levels[task.name, name])
            unit_map.masks.append(mask)
            found.append((task, name, segment))
        return first

    mixed = any(task.high_ns for task in plan.tasks)
    for task in plan.tasks:
        own = task.segments or (Segment(task.name, task.cost_ns, 0, task.bytes),)
        if own[0].hold:
            raise UsageError(
                f"plan: task {task.name!r}: its first segment on its own engine cannot hold an earlier one"
            )
        rows.row("t", first=add(task, own), count=len(own), cost=sum(segment.time_ns for segment in own))
        # the excess of a job over its time at the low level, as long as that time before it is scaled
        over = (Segment(task.name, sum(segment.time_ns for segment in own), 0, 0),) if task.high_ns else ()
        rows.row("t", over0=add(task, over), over=len(over), low=mixed and task.criticality != "hard")
        rows.row("t", degraded0=add(task, task.degraded), degraded=len(task.degraded))
    return found


def _task(rows: _Columns, task: Task, streams: _Streams) -> None:
    times = task.times.values_ns if task.times else ()
    rows.setdefault("times", array("q"))
    rows.row(
        "t", inputs=len(task.after), queue=task.queue, overflow=task.overflow == "oldest", deadline=task.deadline_ns
    )
    rows.row("t", priority=task.priority, period=task.period_ns, criticality=CRITICALITY[task.criticality])
    rows.row(
        "t",
        on_late=LATE[task.on_late],
        budget=task.budget_ns,
        server_period=task.server_ns,
        weight_bytes=task.weights_bytes,
    )
    rows.row("t", times0=len(rows["times"]), times=len(times), stream=streams.new(f"time:{task.name}") if times else -1)
    rows.row("t", interpolate=bool(task.times and task.times.interpolate and len(times) > 1))
    rows.row("t", overrun_stream=-1, overrun_chance=0, overrun_up=1, overrun_down=1, loop_source=-1, closes_loop=0)
    rows["times"].extend(times)


def _unit(rows: _Columns, unit: Unit, engine: PlannedEngine, rule: Policy) -> None:
    if engine.preemption not in KINDS:
        problem = f"engine {engine.id!r}: preemption {engine.preemption!r} is unknown"
        raise UsageError(problem, hint=f"known: {', '.join(KINDS)}")
    engine, mechanism = apply_preemption(engine, rule)
    kind = KINDS[engine.preemption] if rule.preemptive else KINDS["none"]
    custom = callable(rule.order)
    first, second = (Term.CUSTOM, Term.NOTHING) if custom else rule.order  # type: ignore[misc]
    rows.row("u", engine=unit.engine, preemption=kind, in_flight=max(engine.in_flight, 1), reset=engine.reset_ns)
    rows.row("u", term0=first, term1=second, dynamic=classify_keys(rule), tick=rule.tick_ns, across=rule.across)
    rows.row("u", quantum=(engine.quantum_ns or 1_000_000) if rule.sliced else 0, reservations=rule.serves)
    rows.row("u", **make_unit_row(rule, mechanism, engine.kind))


def _engine(rows: _Columns, engine: PlannedEngine, scale: int, levels: int) -> None:
    rows.setdefault("slot_speed", array("q"))
    rows.row("n", switch=engine.switch_ns, migrate=engine.migration_ns, reshape=engine.reshape_ns, slow=1, fast=1)
    rows.row("n", slot0=len(rows["slot_speed"]), slots=engine.lanes, stalled=0, memory=engine.memory_bytes)
    rows.row("n", linger=engine.linger_ns, quantum=max(engine.quantum_ns, 1))
    rows.row("n", swap_rate=engine.swap_bandwidth or engine.bandwidth or 1, governor=engine.governor == "ccedf")
    rows["slot_speed"].extend(engine.capacities or (1024,) * engine.lanes)
    # engines with fewer operating points than the largest repeat their slowest one
    points = [(point.clock_hz, point.dynamic_mw) for point in engine.levels] or [(1, engine.dynamic_mw)]
    points = [points[0]] * (levels - len(points)) + points
    for clock, power in points:
        rows.row("n", clock=clock, power=power * scale // engine.lanes)
    rows.row("n", level=levels - 1, top=levels - 1)


def _sources(rows: _Columns, plan: Plan, streams: _Streams) -> tuple[str, ...]:
    names = []
    for sensor in plan.sensors:
        times = (sensor.period_ns, sensor.offset_ns, sensor.jitter_ns, sensor.gap_ns)
        _source(rows, sensor.name, times, False, streams)
        names.append(sensor.name)
    for task in plan.tasks:
        if task.timer:
            times = (task.period_ns, task.offset_ns, task.release_jitter_ns, task.gap_ns)
            _source(rows, task.name, times, True, streams)
            names.append(task.name)
    return tuple(names)


def _source(rows: _Columns, name: str, times: tuple[int, int, int, int], jitter_after: bool, streams: _Streams) -> None:
    """Write a source; `jitter_after`: its jitter applies after the instant from which deadlines count."""
    period, offset, jitter, gap = times
    stream = streams.new(f"release:{name}") if jitter or gap else -1
    rows.row("s", period=period, offset=offset, jitter=jitter, gap=gap, stream=stream, lost=0, delay=0, burst=0)
    rows.row("s", jitter_after=jitter_after, loop=0)


def _connect(rows: _Columns, plan: Plan, sources: Sequence[str]) -> None:
    """Write the tasks that every source and task triggers, and the inputs that every task samples."""
    count, sensors = len(plan.tasks), len(plan.sensors)
    producers = {name: count + index for index, name in enumerate(sources[:sensors])}
    producers.update({task.name: index for index, task in enumerate(plan.tasks)})
    successors: list[list[int]] = [[] for _ in range(count + len(sources))]
    rows["reads"], rows["successors"] = array("q"), array("q")
    for index, task in enumerate(plan.tasks):
        for name in (*task.after, *task.reads):
            if name not in producers:
                problem = f"plan: task {task.name!r}: {name!r} is no task or sensor"
                raise UsageError(problem, hint=f"known: {', '.join(producers)}")
        for name in task.after:
            successors[producers[name]].append(index)
        rows.row("t", reads0=len(rows["reads"]), reads=len(task.reads))
        rows["reads"].extend(producers[name] for name in task.reads)
    timers = [index for index, task in enumerate(plan.tasks) if task.timer]
    for number, index in enumerate(timers):
        successors[count + sensors + number].append(index)
    for producer, listed in enumerate(successors):
        rows.row("t" if producer < count else "s", successors0=len(rows["successors"]), successors=len(listed))
        rows["successors"].extend(listed)


def _close_loops(rows: _Columns, plan: Plan, sources: Sequence[str]) -> None:
    """Mark the tasks whose end continues a closed loop: the last one, and any that loses a frame on the path to it."""
    number = {task.name: index for index, task in enumerate(plan.tasks)}
    source_of = {name: index for index, name in enumerate(sources)}
    after = {task.name: task.after for task in plan.tasks if task.after}
    for timer in plan.tasks:
        if not timer.closed_by:
            continue
        path = _path(after, timer.name, timer.closed_by) if timer.timer and timer.closed_by in number else []
        if not path:
            raise UsageError(
                f"plan: task {timer.name!r}: closed by {timer.closed_by!r}, which no path from it alone leads to"
            )
        rows["s_loop"][source_of[timer.name]] = 1
        for name in path:
            rows["t_loop_source"][number[name]] = source_of[timer.name]
        rows["t_closes_loop"][number[timer.closed_by]] = 1


def _path(after: Mapping[str, Sequence[str]], first: str, last: str) -> list[str]:
    """Return the tasks from `first` to `last`, each triggered only by its predecessor; empty if no such path exists."""
    path, name = {last: None}, last
    while name != first:
        if len(after.get(name, ())) != 1 or after[name][0] in path:
            return []
        name = after[name][0]
        path[name] = None
    return list(path)


def with_policy(plan: Plan, name: str) -> Plan:
    """Return the plan with every engine under one policy."""
    return replace(plan, engines=tuple(replace(engine, policy=name) for engine in plan.engines))
