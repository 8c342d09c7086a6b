"""List scheduling of a mapping problem: an immediate answer by upward rank and insertion-based earliest finish.

Topcuoglu, Hariri, Wu, IEEE TPDS 13(3) 2002, extended beyond the paper: options with different shares
and precisions, conversions that occupy an engine, several frames with one option, budgets.  Contention counts in the
evaluation of the result, not in its construction.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from socsched.planning.mapping.problem import Hop, JobKey, Option, Problem, Schedule

_NEVER = 1 << 62
Spans = list[tuple[int, int]]
Start = tuple[int, int, JobKey]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A trial of an option: overdrawn budgets, latest response, its placements (engine, lanes, start, end, job)."""

    over: int
    finish: int
    option: int
    placed: tuple[tuple[str, tuple[int, ...], int, int, JobKey], ...]
    ends: tuple[int, ...]


@dataclass(slots=True)
class _Table:
    problem: Problem
    choice: list[int]
    busy: dict[tuple[str, int], Spans] = field(default_factory=dict)
    ends: dict[int, tuple[int, ...]] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    lanes: dict[str, int] = field(default_factory=dict)


def list_schedule(problem: Problem, choice: Sequence[int] | None = None) -> Schedule:
    """Return a schedule by HEFT; if `choice` is given, only the order is decided."""
    table = _Table(problem, [-1] * len(problem.groups), lanes={e.id: e.count for e in problem.engines})
    rank = _ranks(problem)
    twins, decided = _twins(problem), dict[int, int]()
    place = {group: position for position, group in enumerate(problem.order)}
    ready = sorted((-rank[g], place[g], g) for g in problem.order if not problem.before[g])
    waits = {g: len(problem.before[g]) for g in problem.order}
    while ready:
        group = ready.pop(0)[2]
        options: Sequence[int] = range(len(problem.groups[group].options)) if choice is None else (choice[group],)
        if group in decided and choice is None:
            options = (decided[group],)
        best = min((_try(table, group, option) for option in options), key=lambda t: (t.over, t.finish, t.option))
        _take(table, group, best)
        decided.update(dict.fromkeys(twins.get(group, ()), best.option))
        for number in problem.after[group]:
            sink = problem.index[problem.edges[number].sink]
            waits[sink] -= 1
            if not waits[sink]:
                insort(ready, (-rank[sink], place[sink], sink))
    return Schedule(tuple(table.choice), tuple(key for _, _, key in sorted(table.starts)))


def _twins(problem: Problem) -> dict[int, set[int]]:
    """Return, for each group with twins, the set of groups that must take the same option."""
    found: dict[int, set[int]] = {}
    for index, group in enumerate(problem.groups):
        if group.twin:
            other = problem.index[group.twin]
            joined = {index, other} | found.get(index, set()) | found.get(other, set())
            found.update(dict.fromkeys(joined, joined))
    return found


def _ranks(problem: Problem) -> list[float]:
    ranks = [0.0] * len(problem.groups)
    for group in reversed(problem.order):
        options = problem.groups[group].options
        tail = 0.0
        for number in problem.after[group]:
            edge = problem.edges[number]
            # Most pairs of options share a few hops.
            hops = Counter(id(hop) for row in edge.hops for hop in row if hop)
            kinds = {id(hop): hop for row in edge.hops for hop in row if hop}
            mean = sum(kinds[i].way_ns * n for i, n in hops.items()) / max(sum(hops.values()), 1)
            tail = max(tail, mean + ranks[problem.index[edge.sink]])
        ranks[group] = sum(option.time_ns for option in options) / len(options) + tail
    return ranks


def _try(table: _Table, group: int, option: int) -> _Trial:
    problem, chosen = table.problem, table.problem.groups[group].options[option]
    hops: list[tuple[int, Hop]] = []
    over = _overdrawn(table, chosen) if chosen.draws else 0
    for number in problem.before[group]:
        edge = problem.edges[number]
        hop = edge.hops[table.choice[problem.index[edge.source]]][option]
        if hop is None:
            return _Trial(_NEVER, _NEVER, option, (), ())
        hops.append((number, hop))
        over += _overdrawn(table, hop) if hop.draws else 0
    duration = chosen.time_ns
    for _, hop in hops:
        duration += hop.pickup_ns
    placed, ends, last, worst = [], [], 0, 0
    extra: dict[tuple[str, int], Spans] = {}
    work = problem.groups[group]
    for frame in range(work.frames):
        release = work.release_ns + frame * work.period_ns
        ready = max(release, last)
        for number, hop in hops:
            # The producer pays the hand-over before its result becomes available.
            at = table.ends[problem.index[problem.edges[number].source]][frame] + hop.handoff_ns
            if hop.engine:
                lanes, start = _slot(table, extra, hop.engine, 1, at, hop.time_ns)
                placed.append((hop.engine, lanes, start, start + hop.time_ns, JobKey(frame, number, True)))
                _occupy(extra, hop.engine, lanes, start, hop.time_ns)
                at = start + hop.time_ns
            ready = max(ready, at + hop.delay_ns)
        lanes, start = _slot(table, extra, chosen.engine, chosen.share, ready, duration)
        last = start + duration
        placed.append((chosen.engine, lanes, start, last, JobKey(frame, group)))
        if frame + 1 < work.frames:
            _occupy(extra, chosen.engine, lanes, start, duration)
        ends.append(last)
        worst = max(worst, last - release)
    return _Trial(over, worst, option, tuple(placed), tuple(ends))


def _overdrawn(table: _Table, drawing: Option | Hop) -> int:
    limits = {budget.name: budget.limit for budget in table.problem.budgets} if drawing.draws else {}
    return sum(name in limits and table.drawn.get(name, 0) + value > limits[name] for name, value in drawing.draws)


def _take(table: _Table, group: int, trial: _Trial) -> None:
    table.choice[group], table.ends[group] = trial.option, trial.ends
    for engine, lanes, start, end, key in trial.placed:
        table.starts.append((start, len(table.starts), key))
        for lane in lanes:
            insort(table.busy.setdefault((engine, lane), []), (start, end))
    problem = table.problem
    drawing: list[Option | Hop] = [problem.groups[group].options[trial.option]]
    for number in problem.before[group]:
        hop = problem.hop(number, table.choice)
        drawing += [hop] if hop else []
    for source in drawing:
        for name, value in source.draws:
            table.drawn[name] = table.drawn.get(name, 0) + value


def _occupy(extra: dict[tuple[str, int], Spans], engine: str, lanes: Sequence[int], start: int, duration: int) -> None:
    for lane in lanes:
        insort(extra.setdefault((engine, lane), []), (start, start + duration))


def _slot(
    table: _Table, extra: dict[tuple[str, int], Spans], engine: str, share: int, ready: int, duration: int
) -> tuple[tuple[int, ...], int]:
    """Return the lanes and the earliest start at which `share` lanes of an engine are free for `duration`."""
    count = table.lanes[engine]
    if count == 1 and not extra:
        return (0,), _gap(table.busy.get((engine, 0), []), ready, duration)
    rows = [
        sorted([*table.busy.get((engine, lane), []), *extra[engine, lane]])
        if (engine, lane) in extra
        else table.busy.get((engine, lane), [])
        for lane in range(count)
    ]
    if share == 1:
        starts = [_gap(row, ready, duration) for row in rows]
        lane = min(range(count), key=lambda i: (starts[i], i))
        return (lane,), starts[lane]
    start = ready
    while True:
        found = sorted((_gap(row, start, duration), lane) for lane, row in enumerate(rows))
        if found[share - 1][0] == start:
            return tuple(sorted(lane for _, lane in found[:share])), start
        start = found[share - 1][0]


def _gap(row: Spans, ready: int, duration: int) -> int:
    position, start = bisect_left(row, (ready, 0)), ready
    if position and row[position - 1][1] > start:
        start = row[position - 1][1]
    for place in range(position, len(row)):
        begin, end = row[place]
        if start + duration <= begin:
            break
        start = max(start, end)
    return start
