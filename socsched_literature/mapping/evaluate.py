"""Exact evaluation of a schedule: jobs in order on the engines, stretched by the traffic of co-running jobs.

Uses the same fluid model and rounding as the simulator (`sim.simulate`): the remaining work of a segment is kept in
2**-64 ns at its present pace and rounded up when the pace changes, so plan and simulation agree to the nanosecond
except for the order in which equal demands are served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.cost.contention import demand, fair_shares, stretch
from socsched.cost.cost import Segment
from socsched.planning.mapping.problem import Hop, JobKey, Problem, Schedule

_ONE = 64


class Impossible(Exception):
    """A schedule with no valid execution: options without hand-over, or an order with a cyclic wait."""


@dataclass(frozen=True, slots=True)
class Span:
    """An executed job: engine, lanes, start and end (ns), and its duration without contention."""

    key: JobKey
    engine: str
    lanes: tuple[int, ...]
    start_ns: int
    end_ns: int
    alone_ns: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluated schedule: its jobs by start, the value of every objective, and the limits exceeded.

    `latencies` by requirement; `excess` lists (requirement or budget, value, limit) for each violated limit.
    """

    spans: tuple[Span, ...]
    makespan_ns: int
    latencies: Mapping[str, int]
    energy_uj: int
    interval_ns: int
    slack_ppm: int
    excess: tuple[tuple[str, int, int], ...]
    latency_ns: int = 0

    def value(self, objective: str) -> int:
        """Return the value of an objective of `problem.OBJECTIVES`."""
        values = {"makespan": self.makespan_ns, "latency": self.latency_ns, "energy": self.energy_uj}
        return {**values, "interval": self.interval_ns, "slack": self.slack_ppm}[objective]


@dataclass(slots=True)
class _Job:
    key: JobKey
    engine: str
    share: int
    segments: tuple[Segment, ...]
    release: int
    waits: int
    lanes: tuple[int, ...] = ()
    start: int = -1
    position: int = 0
    left: int = 0
    base: int = 0
    pace: int = 0
    since: int = 0
    draw: float = 0.0

    @property
    def alone(self) -> int:
        """Return the duration without contention."""
        return sum(segment.time_ns for segment in self.segments)


def evaluate(problem: Problem, schedule: Schedule) -> Evaluation:
    """Return the execution of a schedule; raises Impossible if there is none."""
    hops = chosen_hops(problem, schedule.choice)
    spans = _run(problem, schedule, hops)
    return evaluate_limits(problem, schedule.choice, hops, spans)


def chosen_hops(problem: Problem, choice: Sequence[int]) -> list[Hop]:
    """Return the hop of every edge; raises Impossible if the options have no hand-over."""
    for group, option in zip(problem.groups, choice, strict=True):
        if group.twin and choice[problem.index[group.twin]] != option:
            raise Impossible(f"{group.name} and {group.twin} differ")
    chosen = []
    for number, edge in enumerate(problem.edges):
        hop = problem.hop(number, choice)
        if hop is None:
            raise Impossible(f"{edge.source} -> {edge.sink}")
        chosen.append(hop)
    return chosen


def job_segments(problem: Problem, group: int, choice: Sequence[int], hops: Sequence[Hop]) -> tuple[Segment, ...]:
    """Return the segments a group runs: its pick-ups, its option, and the longest of the hand-overs it pays for."""
    segments = problem.groups[group].options[choice[group]].segments
    pickup = sum(hops[number].pickup_ns for number in problem.before[group])
    segments = (Segment("pick-up", pickup, pickup, 0), *segments) if pickup else segments
    paid = max((hops[number].handoff_ns for number in problem.after[group]), default=0)
    return (*segments, Segment("hand-over", paid, paid, 0)) if paid else segments


def _jobs(problem: Problem, schedule: Schedule, hops: Sequence[Hop]) -> dict[JobKey, _Job]:
    jobs: dict[JobKey, _Job] = {}
    for index, group in enumerate(problem.groups):
        option = group.options[schedule.choice[index]]
        segments = job_segments(problem, index, schedule.choice, hops)
        for frame in range(group.frames):
            release = group.release_ns + frame * group.period_ns
            waits = len(problem.before[index]) + (frame > 0)
            jobs[JobKey(frame, index)] = _Job(
                JobKey(frame, index), option.engine, option.share, segments, release, waits
            )
    for number, hop in enumerate(hops):
        if hop.engine:
            for frame in range(problem.groups[problem.index[problem.edges[number].source]].frames):
                key = JobKey(frame, number, True)
                jobs[key] = _Job(key, hop.engine, 1, hop.segments, 0, 1)
    return jobs


def _run(problem: Problem, schedule: Schedule, hops: Sequence[Hop]) -> list[Span]:
    jobs = _jobs(problem, schedule, hops)
    if set(schedule.order) != set(jobs) or len(schedule.order) != len(jobs):
        raise Impossible("the order does not contain every job exactly once")
    for key, instant in schedule.earliest:
        jobs[key].release = max(jobs[key].release, instant)
    held: dict[JobKey, list[JobKey]] = {}
    for waiting, other in schedule.holds:
        if waiting not in jobs or other not in jobs:
            raise Impossible("a job is held by a job that does not exist")
        jobs[waiting].waits += 1
        held.setdefault(other, []).append(waiting)
    queues: dict[str, list[_Job]] = {engine.id: [] for engine in problem.engines}
    for key in reversed(schedule.order):
        queues[jobs[key].engine].append(jobs[key])
    free = {engine.id: list(range(engine.count)) for engine in problem.engines}
    running: list[_Job] = []
    spans: list[Span] = []
    wakes = sorted({job.release for job in jobs.values()} | {0})
    now, changed = wakes.pop(0), False
    paces_of: dict[tuple[tuple[int, bool, int], ...], list[int]] = {}
    while True:
        for name, queue in queues.items():
            while queue and queue[-1].waits == 0 and queue[-1].release <= now and len(free[name]) >= queue[-1].share:
                job = queue.pop()
                job.lanes, free[name] = tuple(free[name][: job.share]), free[name][job.share :]
                job.start = now
                running.append(job)
                _load(job, 0, now)
                changed = True
        if changed:
            _repace(problem, running, now, paces_of)
            changed = False
        upcoming = [job.since - (-_left(job) >> _ONE) for job in running]
        wakes = [wake for wake in wakes if wake > now]
        if not running and not wakes:
            break
        now = min([*upcoming, *wakes[:1]])
        for job in [job for job, end in zip(running, upcoming, strict=True) if end == now]:
            changed = True
            if job.position + 1 < len(job.segments):
                _load(job, job.position + 1, now)
                continue
            running.remove(job)
            spans.append(Span(job.key, job.engine, job.lanes, job.start, now, job.alone))
            free[job.engine] = sorted([*free[job.engine], *job.lanes])
            wakes = sorted({*wakes, *_release(problem, hops, jobs, held, job, now)})
    if any(queues.values()):
        raise Impossible("the order is cyclic: a job waits for itself")
    return sorted(spans, key=lambda span: (span.start_ns, span.key))


def _release(
    problem: Problem,
    hops: Sequence[Hop],
    jobs: dict[JobKey, _Job],
    held: Mapping[JobKey, Sequence[JobKey]],
    job: _Job,
    now: int,
) -> list[int]:
    """Release the jobs that waited for a completed job; return the instants at which they may start."""
    key, woken = job.key, [(name, 0) for name in held.get(job.key, ())]
    if key.conversion:
        woken.append((JobKey(key.frame, problem.index[problem.edges[key.index].sink]), hops[key.index].delay_ns))
    else:
        for number in problem.after[key.index]:
            sink = JobKey(key.frame, problem.index[problem.edges[number].sink])
            if hops[number].engine:
                woken.append((JobKey(key.frame, number, True), 0))
            else:
                woken.append((sink, hops[number].delay_ns))
        following = JobKey(key.frame + 1, key.index)
        if following in jobs:
            woken.append((following, 0))
    for name, delay in woken:
        jobs[name].waits -= 1
        jobs[name].release = max(jobs[name].release, now + delay)
    return [jobs[name].release for name, _ in woken if jobs[name].waits == 0 and jobs[name].release > now]


def _load(job: _Job, position: int, now: int) -> None:
    segment = job.segments[position]
    job.position, job.since = position, now
    job.pace = job.base = segment.time_ns
    job.left = segment.time_ns << _ONE
    job.draw = demand(segment) if segment.bytes and segment.time_ns else 0.0


def _repace(
    problem: Problem, running: list[_Job], now: int, known: dict[tuple[tuple[int, bool, int], ...], list[int]]
) -> None:
    active = [job for job in running if job.draw]
    active.sort(key=lambda job: (job.key.conversion, job.key.index, job.key.frame))
    key = tuple((job.key.index, job.key.conversion, job.position) for job in active)
    paces = known.get(key)
    if paces is None:
        segments = [job.segments[job.position] for job in active]
        if problem.bandwidth:
            shares = fair_shares([job.draw for job in active], problem.bandwidth)
            paces = [stretch(segment, share) for segment, share in zip(segments, shares, strict=True)]
        else:
            paces = [segment.time_ns for segment in segments]
        known[key] = paces
    for job, pace in zip(active, paces, strict=True):
        if pace != job.pace:
            elapsed, job.since = now - job.since, now
            if elapsed:
                job.left, job.base = _left(job), job.pace
                job.left -= elapsed << _ONE
            job.pace = pace


def _left(job: _Job) -> int:
    """Return the remaining time of the running segment at its present pace."""
    return job.left if job.pace == job.base else -(-job.left * job.pace // job.base)


def evaluate_limits(problem: Problem, choice: Sequence[int], hops: Sequence[Hop], spans: Sequence[Span]) -> Evaluation:
    """Return the objectives of an execution and the limits it exceeds."""
    worst: dict[int, int] = {}
    busy: dict[tuple[str, int], int] = {}
    frames = max((group.frames for group in problem.groups), default=1)
    for span in spans:
        for lane in span.lanes:
            busy[span.engine, lane] = busy.get((span.engine, lane), 0) + span.end_ns - span.start_ns
        if not span.key.conversion:
            group = problem.groups[span.key.index]
            response = span.end_ns - group.release_ns - span.key.frame * group.period_ns
            worst[span.key.index] = max(worst.get(span.key.index, 0), response)
    latencies = {
        need.name: need.sampling_ns + sum(worst[problem.index[name]] for name in need.ends)
        for need in problem.requirements
    }
    drawn = draws(problem, choice, hops)
    excess = [
        (need.name, latencies[need.name], need.limit_ns)
        for need in problem.requirements
        if need.limit_ns is not None and latencies[need.name] > need.limit_ns
    ]
    excess += [(b.name, drawn[b.name], b.limit) for b in problem.budgets if drawn.get(b.name, 0) > b.limit]
    used = [
        -(-latencies[need.name] * 10**6 // need.limit_ns) for need in problem.requirements if need.limit_ns is not None
    ]
    return Evaluation(
        tuple(spans),
        max((span.end_ns for span in spans), default=0),
        latencies,
        energy(problem, choice, hops),
        -(-max(busy.values(), default=0) // frames),
        max(used, default=0),
        tuple(excess),
        sum(need.weight * latencies[need.name] for need in problem.requirements),
    )


def energy(problem: Problem, choice: Sequence[int], hops: Sequence[Hop]) -> int:
    """Return the dynamic energy (µJ) of all frames."""
    total = sum(g.options[o].energy_uj * g.frames for g, o in zip(problem.groups, choice, strict=True))
    return total + sum(
        hop.energy_uj * problem.groups[problem.index[edge.source]].frames
        for hop, edge in zip(hops, problem.edges, strict=True)
    )


def draws(problem: Problem, choice: Sequence[int], hops: Sequence[Hop]) -> dict[str, int]:
    """Return the total a choice draws from every budget."""
    totals: dict[str, int] = {}
    options = [group.options[option].draws for group, option in zip(problem.groups, choice, strict=True)]
    for amounts in (*options, *(hop.draws for hop in hops)):
        for name, amount in amounts:
            totals[name] = totals.get(name, 0) + amount
    return totals
