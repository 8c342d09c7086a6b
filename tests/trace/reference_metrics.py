"""The figures of a trace computed record by record: slow and simple, as the reference for the fast code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from socsched.planning.plan import ChainResult, Plan
from socsched.trace.trace import Job, Trace

SCHEMA_VERSION = "1"
_PER_MILLE = {"p50": 500, "p99": 990, "p99_9": 999}


def result(trace: Trace, plan: Plan) -> dict[str, Any]:
    """Return the figures of `trace` under `plan` as ``result.json`` holds them.

    `chains`: see `chain_figures`.  `stages` covers every task of the plan, conversions too: `jobs` that were done and
    their `exec_ns` (time on the engine), the longest `blocking_ns` of one job, all `preemptions`.  `engines`: `busy_ns`
    is summed over lanes, `utilization` relates it to all lanes for the whole duration, `energy_mj` is idle plus dynamic
    energy without DRAM.  `power_mw`, `energy_mj` (module, DRAM included) and `bandwidth_gbps` integrate the counters,
    and are null where the trace has no such counter.
    """
    by_task: dict[str, list[Job]] = {task.name: [] for task in plan.tasks}
    for job in trace.jobs:
        by_task.setdefault(job.task, []).append(job)
    power = _Steps(trace.counters.get("power_mw", []), trace.duration_ns)
    bandwidth = _Steps(trace.counters.get("bandwidth_gbps", []), trace.duration_ns)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": trace.kind,
        "duration_ns": trace.duration_ns,
        "chains": {chain.name: chain_figures(trace, plan, chain) for chain in plan.chains},
        "stages": {name: _stage_figures(jobs) for name, jobs in by_task.items()},
        "engines": _engine_figures(trace, plan),
        "power_mw": {"mean": power.mean(), "peak": power.peak()},
        "energy_mj": power.energy_mj(),
        "bandwidth_gbps": {"mean": bandwidth.mean(), "peak": bandwidth.peak()},
        "seed": trace.seed,
    }


def chain_figures(trace: Trace, plan: Plan, chain: ChainResult) -> dict[str, Any]:
    """Return the outcome of every frame of a chain's source, and the age of the data at the end of its last stage.

    Where every stage of the path is triggered by the one before, the response of frame k is that of the last stage's
    job k.  Where a stage samples instead, it is the reaction time: from the release of frame k to the first completion
    of the last stage that acts on frame k or a newer one along this path (Feiertag et al., CRTS 2008).

    `dropped`: the frame was lost at the source or before the first stage that samples, and never reached the end.
    `completed` and `missed` leave dropped frames out; `missed` counts those completed late and those whose deadline
    passed unfinished.  A frame unfinished at the end with its deadline still ahead is in neither.  `data_age_ns` is,
    for every job of the last stage, its completion minus the release of the source frame it acted on along this path;
    `stale` counts those above the chain's largest age.
    """
    fates = frame_fates(trace, plan, chain)
    response = [fate.finish_ns - fate.release_ns for fate in fates if fate.finish_ns >= 0 and not fate.dropped]
    releases = trace.releases.get(chain.path[0], [])
    ages = [finish - releases[frame] for finish, frame in _arrivals(trace, plan, chain) if frame < len(releases)]
    return {
        "released": len(fates),
        "completed": len(response),
        "missed": sum(fate.missed for fate in fates),
        "dropped": sum(fate.dropped for fate in fates),
        "stale": sum(chain.max_age_ns is not None and age > chain.max_age_ns for age in ages),
        "response_time_ns": _summary(response, ("mean", "p50", "p99", "p99_9", "max")),
        "data_age_ns": _summary(ages, ("p50", "p99", "max")),
    }


class Fate:
    """What became of one frame of a chain: times in ns, `finish_ns` -1 when its reaction never came."""

    __slots__ = ("dropped", "finish_ns", "missed", "release_ns")

    def __init__(self, release_ns: int, finish_ns: int, dropped: bool, deadline_ns: int, end_ns: int) -> None:
        self.release_ns, self.finish_ns, self.dropped = release_ns, -1 if dropped else finish_ns, dropped
        late = finish_ns > deadline_ns if finish_ns >= 0 else deadline_ns <= end_ns
        self.missed = late and not dropped


def frame_fates(trace: Trace, plan: Plan, chain: ChainResult) -> list[Fate]:
    """Return the fate of every released frame of a chain's source, by frame number; see `chain_figures`."""
    releases = trace.releases.get(chain.path[0], [])
    links = list(zip(chain.path, chain.path[1:], strict=False))
    sampling = next((i for i, (a, b) in enumerate(links) if not _triggers(plan, a, b)), len(links))
    arrivals = _arrivals(trace, plan, chain)
    exact = {frame: finish for finish, frame in reversed(arrivals)}
    finishes = exact if sampling == len(links) else _reactions(arrivals, len(releases))
    # behind the first link that samples, a lost job is made good by the next sample
    lost = _lost(trace, chain.path[: sampling + 1]) - exact.keys()
    return [
        Fate(release, finishes.get(frame, -1), frame in lost, release + chain.deadline_ns, trace.duration_ns)
        for frame, release in enumerate(releases)
    ]


def _arrivals(trace: Trace, plan: Plan, chain: ChainResult) -> list[tuple[int, int]]:
    """Return (completion, frame of the source) for every done job of the last stage, followed back along the path."""
    after = {task.name: task.after for task in plan.tasks}
    conversions = {task.name for task in plan.tasks if task.kind == "conversion"}
    jobs = {(job.task, job.frame): job for job in trace.jobs if job.status == "done"}
    arrivals = []
    for job in trace.jobs:
        if job.task != chain.path[-1] or job.status != "done":
            continue
        name, frame = job.task, job.frame
        for producer in chain.path[-2::-1]:
            frame = _taken(producer, name, frame, jobs, after, conversions)
            name = producer
            if frame < 0:
                break
        if frame >= 0:
            arrivals.append((job.finish_ns, frame))
    return sorted(arrivals)


def _taken(
    producer: str,
    name: str,
    frame: int,
    jobs: Mapping[tuple[str, int], Job],
    after: Mapping[str, tuple[str, ...]],
    conversions: Set[str],
) -> int:
    """Return the frame of `producer` that job `frame` of `name` took, perhaps through conversions; -1 for none."""
    waiting = [(name, frame)]
    while waiting:
        name, frame = waiting.pop()
        job = jobs.get((name, frame))
        taken = {**dict.fromkeys(after.get(name, ()), frame), **(job.sampled if job else {})}
        if producer in taken:
            return taken[producer]
        waiting += [(other, at) for other, at in taken.items() if other in conversions]
    return -1


def _reactions(arrivals: Sequence[tuple[int, int]], frames: int) -> dict[int, int]:
    """Map each frame to the first completion with data of that frame or newer."""
    found: dict[int, int] = {}
    following = 0
    for finish, frame in arrivals:
        for covered in range(following, min(frame + 1, frames)):
            found[covered] = finish
        following = max(following, frame + 1)
    return found


def _lost(trace: Trace, path: Sequence[str]) -> set[int]:
    """Return the frames lost at the source or at a stage that frames reach under their own number."""
    lost = {note.frame for note in trace.instants if note.kind == "drop" and note.subject == path[0]}
    return lost | {job.frame for job in trace.jobs if job.status == "dropped" and job.task in path[1:]}


def _triggers(plan: Plan, producer: str, consumer: str) -> bool:
    """Whether frame k of `producer` activates job k of `consumer`, directly or through conversions."""
    after = {task.name: task.after for task in plan.tasks}
    conversions = {task.name for task in plan.tasks if task.kind == "conversion"}
    waiting = list(after.get(consumer, ()))
    while waiting:
        name = waiting.pop()
        if name == producer:
            return True
        if name in conversions:
            waiting.extend(after[name])
    return False


def _stage_figures(jobs: Sequence[Job]) -> dict[str, Any]:
    done = [job.exec_ns for job in jobs if job.status == "done"]
    return {
        "jobs": len(done),
        "exec_ns": _summary(done, ("mean", "p50", "p99", "max")),
        "blocking_ns": max((job.blocking_ns for job in jobs), default=0),
        "preemptions": sum(job.preemptions for job in jobs),
    }


def _engine_figures(trace: Trace, plan: Plan) -> dict[str, Any]:
    busy = {engine.id: 0 for engine in plan.engines}
    for piece in trace.slices:
        if piece.engine in busy:
            busy[piece.engine] += (piece.end_ns - piece.start_ns) * len(piece.lanes)
    figures = {}
    for engine in plan.engines:
        lanes = max(engine.lanes, 1)
        energy = engine.idle_mw * trace.duration_ns + engine.dynamic_mw * busy[engine.id] / lanes
        figures[engine.id] = {
            "utilization": round(busy[engine.id] / max(lanes * trace.duration_ns, 1), 6),
            "energy_mj": round(energy / 1e9, 6),
            "busy_ns": busy[engine.id],
        }
    return figures


class _Steps:
    """A step function given as (time, value) steps up to `end`; before its first step it is taken as that one."""

    def __init__(self, steps: Sequence[tuple[int, float]], end: int) -> None:
        times = [0, *(min(time, end) for time, _ in steps[1:]), end]
        self.held = [(value, b - a) for (_, value), a, b in zip(steps, times, times[1:], strict=False) if b > a]
        self.duration = end
        self.integral = 0.0
        for value, width in self.held:
            self.integral += value * width

    def mean(self) -> float | None:
        return round(self.integral / self.duration, 6) if self.held else None

    def peak(self) -> float | None:
        return round(max(value for value, _ in self.held), 6) if self.held else None

    def energy_mj(self) -> float | None:
        return round(self.integral / 1e9, 6) if self.held else None


def _summary(values: Iterable[int], wanted: Sequence[str]) -> dict[str, int | None]:
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(wanted)
    found = {name: ordered[-(-len(ordered) * share // 1000) - 1] for name, share in _PER_MILLE.items()}
    found["mean"] = (2 * sum(ordered) + len(ordered)) // (2 * len(ordered))
    found["max"] = ordered[-1]
    return {name: found[name] for name in wanted}
