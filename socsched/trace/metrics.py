"""Summary figures of a trace: the fields of ``result.json``, the same for a simulation and for a run.

All figures are computed from the trace: along a chain a frame is followed by its number if data triggers the next
stage, and by `Job.sampled` if a stage samples.  Times are integer ns; a percentile is the nearest rank (the smallest
value that at least p per cent of the values do not exceed); a statistic without values is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from socsched.descriptor.distribution import nearest_rank
from socsched.planning.plan import ChainResult, Plan
from socsched.trace.columns import ABORT_KILLED, ABORT_LATE, CLOCK, DONE, DROP_LATE, DROP_QUEUE, KILL_RESTART
from socsched.trace.io import Overhead, Overheads
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from socsched.trace.chains import Fates, Record
    from socsched.trace.columns import Columns, Floats, Ints
    from socsched.trace.io import (
        Ages,
        ChainDocument,
        EngineDocument,
        ExecutionTimes,
        Kind,
        ResponseTimes,
        ResultDocument,
        StageDocument,
    )


SCHEMA_VERSION: Final = "1"
PER_MILLE = {"p50": 500, "p99": 990, "p99_9": 999}
RESPONSE = ("mean", "p50", "p99", "p99_9", "max")
AGE = ("p50", "p99", "max")
EXEC = ("mean", "p50", "p99", "max")
"""Statistics of response time, data age and execution time."""


def result(trace: Trace, plan: Plan) -> ResultDocument:
    """Return the figures of `trace` under `plan` in the form of ``result.json``.

    `chains`: see `chain_figures`.  `stages` covers every task of the plan, conversions included: completed `jobs` and
    their `exec_ns` (time on the engine), the longest `blocking_ns` of one job, all `preemptions`.  `engines`: `busy_ns`
    is summed over lanes, `utilization` relates it to all lanes for the whole duration, `energy_mj` is idle plus dynamic
    energy at the engine's actual clocks, without DRAM.  `power_mw`, `energy_mj` (module, DRAM included) and
    `bandwidth_gbps` integrate the counters, and are null if the trace has no such counter.  For a simulation that kept
    no trace the same figures come from histograms (`summary.result`), marked by `resolution`, the maximum relative
    error by which percentiles may lie above the true ones.
    """
    record = record_of(trace, plan)
    columns = record.columns
    power = Steps(columns, "power_mw", trace.duration_ns)
    bandwidth = Steps(columns, "bandwidth_gbps", trace.duration_ns)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": cast("Kind", trace.kind),
        "duration_ns": trace.duration_ns,
        "chains": {chain.name: _chain_figures(record, chain) for chain in plan.chains},
        "stages": {name: _stage_figures(columns, record.rows(name)) for name in tasks_of(columns, plan)},
        "engines": engine_figures(plan, trace.duration_ns, busy_ns(columns, plan)),
        "power_mw": {"mean": power.mean(), "peak": power.peak()},
        "energy_mj": power.energy_mj(),
        "bandwidth_gbps": {"mean": bandwidth.mean(), "peak": bandwidth.peak()},
        "seed": trace.seed,
    }


def chain_figures(trace: Trace, plan: Plan, chain: ChainResult) -> ChainDocument:
    """Return the outcomes of the frames of a chain's source, and the data ages at completions of its last stage.

    If every stage of the path is triggered by its predecessor, the response of frame k is that of the last stage's job
    k.  If a stage samples instead, it is the reduced reaction time: from the release of frame k to the first completion
    of the last stage that acts on frame k or a newer one along this path (Feiertag et al., CRTS 2008).

    `dropped`: the frame was lost at the source or before the first stage that samples, and never reached the end.
    `completed` and `missed` exclude dropped frames; `missed` counts frames completed late and those whose deadline
    passed unfinished.  A frame unfinished at the end with its deadline still ahead is in neither.  `data_age_ns` is,
    for every job of the last stage, its completion minus the release of the source frame it acted on along this path;
    `stale` counts those above the chain's largest age.
    """
    return _chain_figures(record_of(trace, plan), chain)


def _chain_figures(record: Record, chain: ChainResult) -> ChainDocument:
    arrivals = record.arrivals(chain)
    fates = record.fates(chain, arrivals)
    response, ages = fates.response_ns, record.ages(chain, arrivals)
    record.forget()
    return {
        "released": len(fates.release_ns),
        "completed": len(response),
        "missed": int(fates.missed.sum()),
        "dropped": int(fates.dropped.sum()),
        "stale": stale(chain, ages),
        "response_time_ns": cast("ResponseTimes", _summary(response, RESPONSE)),
        "data_age_ns": cast("Ages", _summary(ages, AGE)),
    }


def stale(chain: ChainResult, ages: Ints) -> int:
    """Return the number of data ages (ns) above the largest that a chain may have."""
    return 0 if chain.max_age_ns is None else int((ages > chain.max_age_ns).sum())


def frame_fates(trace: Trace, plan: Plan, chain: ChainResult) -> Fates:
    """Return the fate of every released frame of a chain's source, by frame number; see `chain_figures`."""
    return record_of(trace, plan).fates(chain)


def record_of(trace: Trace, plan: Plan) -> Record:
    """Return the columns of a trace, indexed."""
    # imported here, so that numpy is loaded only when figures are computed
    from socsched.trace.chains import Record

    return Record(trace.columns, plan, trace.duration_ns)


def tasks_of(columns: Columns, plan: Plan) -> list[str]:
    """Return the tasks of the plan, followed by other tasks with recorded jobs, in the order of their first job."""
    import numpy as np

    known = dict.fromkeys(task.name for task in plan.tasks)
    if set(columns.tasks) - known.keys():
        seen, first = np.unique(np.asarray(columns.jobs.task), return_index=True)
        known |= dict.fromkeys(columns.tasks[number] for number in seen[np.argsort(first)].tolist())
    return list(known)


def _stage_figures(columns: Columns, rows: Ints) -> StageDocument:
    jobs = columns.jobs
    done = jobs.exec_ns[rows[jobs.status[rows] == DONE]] if len(rows) else rows
    return {
        "jobs": len(done),
        "exec_ns": cast("ExecutionTimes", _summary(done, EXEC)),
        "blocking_ns": int(jobs.blocking_ns[rows].max(initial=0)),
        "preemptions": int(jobs.preemptions[rows].sum()),
    }


def busy_ns(columns: Columns, plan: Plan) -> dict[str, tuple[int, ...]]:
    """Return the busy time of each engine, summed over lanes, at each of its operating points."""
    import numpy as np

    from socsched.trace.blocks import spans
    from socsched.trace.convert import encode_values

    slices = columns.slices
    levels = {engine.id: [point.clock_hz for point in engine.levels] for engine in plan.engines}
    whole = dict.fromkeys(columns.engines, 0)
    slower = {name: [0] * len(levels.get(name, [])[:-1]) for name in columns.engines}
    for part in spans(len(slices)):
        codes, places = encode_values(slices.lanes[part])
        held = np.array([len(columns.lanes(code)) for code in codes.tolist()], np.int64)[places]
        begin, end, on = slices.start_ns[part], slices.end_ns[part], slices.engine[part]
        for number, name in enumerate(columns.engines):
            rows = on == number
            begins, ends, lanes = begin[rows], end[rows], held[rows]
            whole[name] += int(((ends - begins) * lanes).sum())
            for place, clock in enumerate(levels.get(name, [])[:-1]):
                before, after = _time_at(columns, name, clock, begins), _time_at(columns, name, clock, ends)
                slower[name][place] += int(((after - before) * lanes).sum())
    return {name: (*slower[name], whole[name] - sum(slower[name])) for name in columns.engines}


def _time_at(columns: Columns, engine: str, clock_hz: int, instants: Ints) -> Ints:
    """Return the total time (ns) an engine ran at a clock up to each instant."""
    import numpy as np

    if CLOCK + engine not in columns.counters:
        return np.zeros(len(instants), np.int64)
    times, clocks = columns.counters[CLOCK + engine]
    matches = clocks == clock_hz
    widths = np.diff(times, append=times[-1]) * matches
    before = np.cumsum(widths) - widths
    step = np.searchsorted(times, instants, side="right") - 1
    found: Ints = before[step] + (instants - times[step]) * matches[step]
    return found


def engine_figures(plan: Plan, duration_ns: int, busy_ns: Mapping[str, Sequence[int]]) -> dict[str, EngineDocument]:
    """Return utilisation, energy and busy time of every engine of `plan`, given its `busy_ns` at each clock."""
    figures: dict[str, EngineDocument] = {}
    for engine in plan.engines:
        powers = [point.dynamic_mw for point in engine.levels] or [engine.dynamic_mw]
        lanes, times = max(engine.lanes, 1), busy_ns.get(engine.id, (0,) * len(powers))
        busy = sum(times)
        dynamic = sum(time * power for time, power in zip(times, powers, strict=True))
        energy = engine.idle_mw * duration_ns + dynamic / lanes
        figures[engine.id] = {
            "utilization": round(busy / max(lanes * duration_ns, 1), 6),
            "energy_mj": round(energy / 1e9, 6),
            "busy_ns": busy,
        }
    return figures


class Steps:
    """A counter as a step function up to `end`; before its first step it has that step's value."""

    def __init__(self, columns: Columns, name: str, end: int) -> None:
        import numpy as np

        self.duration, self.integral, self.most = end, 0.0, -math.inf
        begin, last = 0, math.nan
        for times, values in columns.steps(name):
            if not len(times):
                continue
            # the last value of the part before is held until this part begins; at first, from 0 on
            first = math.isnan(last)
            held = values if first else np.concatenate(([last], values))
            edges = np.concatenate(([begin], np.minimum(times[first:], end)))
            self._add(held[:-1], np.diff(edges))
            begin, last = int(edges[-1]), float(held[-1])
        if not math.isnan(last):
            self._add(np.array([last]), np.array([end - begin]))

    def _add(self, values: Floats, widths: Ints) -> None:
        import numpy as np

        lasting = widths > 0
        if lasting.any():
            values = values[lasting]
            # cumsum adds sequentially on every machine, so the figure is the same everywhere
            terms = np.concatenate(([self.integral], values * widths[lasting]))
            self.integral = float(np.cumsum(terms)[-1])
            self.most = max(self.most, float(values.max()))

    def mean(self) -> float | None:
        """Return the mean over the whole time, None without a counter."""
        return round(self.integral / self.duration, 6) if self.most > -math.inf else None

    def peak(self) -> float | None:
        """Return the largest value held for a nonzero time, None without a counter."""
        return round(self.most, 6) if self.most > -math.inf else None

    def level(self) -> tuple[float, float] | None:
        """Return mean and peak, None without a counter."""
        mean, peak = self.mean(), self.peak()
        return None if mean is None or peak is None else (mean, peak)

    def energy_mj(self) -> float | None:
        """Return the integral of a counter in mW, None without a counter."""
        return round(self.integral / 1e9, 6) if self.most > -math.inf else None


def _summary(values: ArrayLike, wanted: Sequence[str]) -> dict[str, int | None]:
    import numpy as np

    ordered = np.sort(np.asarray(values, np.int64))
    count = len(ordered)
    if not count:
        return dict.fromkeys(wanted)
    found = {name: int(ordered[-(-count * share // 1000) - 1]) for name, share in PER_MILLE.items()}
    largest = max(abs(int(ordered[0])), abs(int(ordered[-1])))
    total = int(ordered.sum()) if largest * count < 1 << 62 else sum(ordered.tolist())
    found["mean"] = (2 * total + count) // (2 * count)
    found["max"] = int(ordered[-1])
    return {name: found[name] for name in wanted}


# Frames abandoned by stages, counted by stage and reason from a trace.


REASONS = {
    "skipped": DROP_LATE,
    "aborted": ABORT_LATE,
    "killed": ABORT_KILLED,
    "restarted": KILL_RESTART,
    "queue_full": DROP_QUEUE,
}
"""Reason -> code of the instants that record it (`columns.MARKS`)."""


def count_abandoned(trace: Trace) -> dict[str, dict[str, int]]:
    """Return the counts of `REASONS` for each stage that skipped, aborted, lost, restarted or had no room for a job."""
    import numpy as np

    columns, found = trace.columns, dict[str, dict[str, int]]()
    for reason, code in REASONS.items():
        concerned = columns.instants.subject[columns.instants.kind == code]
        subjects, counts = np.unique(concerned, return_counts=True)
        for subject, count in zip(subjects.tolist(), counts.tolist(), strict=True):
            found.setdefault(columns.subjects[subject], dict.fromkeys(REASONS, 0))[reason] += count
    return {name: found[name] for name in columns.tasks if name in found}


# Overheads of the executor, from a trace: release jitter, and the dispatch latency of ready jobs.
#
# A job is ready once it is activated and all previous holders of its lanes have ended; from then to its start it
# waits
# only for the executor.

RELEASE = "release_late_ns."
"""Prefix of the counters in which a run records the lateness of each release."""


def overheads(trace: Trace) -> Overheads:
    """Return `dispatch_ns` by stage and overall, and `release_jitter_ns` by source: p50, p99, max and count."""
    waits = dispatch_waits(trace)
    late = {n.removeprefix(RELEASE): [int(v) for _, v in s] for n, s in trace.counters.items() if n.startswith(RELEASE)}
    return {
        "dispatch_ns": summary([wait for found in waits.values() for wait in found]),
        "dispatch_ns_by_stage": {name: summary(found) for name, found in sorted(waits.items())},
        "release_jitter_ns": {name: summary(found) for name, found in sorted(late.items())},
    }


def dispatch_waits(trace: Trace) -> dict[str, list[int]]:
    """Return, for every task, the time from when each job could have started to when it did, in ns."""
    freed: dict[tuple[str, int], int] = {}
    waits: dict[str, list[int]] = {}
    for piece in sorted(trace.slices, key=lambda piece: piece.start_ns):
        job = trace.jobs[piece.job]
        lanes = [(piece.engine, lane) for lane in piece.lanes]
        ready = max([job.activation_ns, *(freed.get(lane, 0) for lane in lanes)])
        if job.start_ns == piece.start_ns:
            waits.setdefault(job.task, []).append(max(piece.start_ns - ready, 0))
        freed.update(dict.fromkeys(lanes, piece.end_ns))
    return waits


def summary(values: Sequence[int]) -> Overhead | None:
    """Return p50, p99, max and count (nearest rank); None without values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p99 = (nearest_rank(ordered, share) for share in (50, 99))
    return {"p50": p50, "p99": p99, "max": ordered[-1], "count": len(ordered)}
