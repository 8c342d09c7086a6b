"""Results from profiles with times of day: the recorded jobs as a plan and a trace, for `why`, `report` and `compare`.

Every stage has a lane of its engine to itself, since streams and sessions may overlap.  A job is ready when its range
was opened, or its predecessor ended.  The longest response recorded serves as the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.cost.cost import Segment
from socsched.cost.profile import MeasuredCost
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.interchange.costs import Imported
from socsched.interchange.recorded_plan import RECORDED
from socsched.interchange.recording import Section
from socsched.planning.plan import ChainResult, Plan, PlannedEngine
from socsched.planning.task import ExecutionTimes, Task
from socsched.trace.trace import Job, Slice, Trace


@dataclass(frozen=True, slots=True)
class _Row:
    """A stage of a recording: its cost, section and lane, and the stages of its job in order."""

    cost: MeasuredCost
    section: Section
    lane: int
    group: tuple[str, ...]
    period_ns: int
    longest_ns: int
    median_ns: int


def recorded(imported: Imported, platform: Platform) -> tuple[Plan, Trace]:
    """Return the plan and the trace of a recording; UsageError unless exactly one profile states when jobs ran."""
    timed = [one for one in imported.recordings if one.sections and all(section.spans_ns for section in one.sections)]
    if len(timed) != 1:
        raise UsageError(
            f"a result needs one profile that states when jobs ran, got {len(timed)}",
            "give one of Nsight Systems, ONNX Runtime or PyTorch; trtexec's profiles hold means only",
        )
    costs = {(cost.stage): cost for cost in imported.profile.costs}
    names = [name for name in imported.layers if name in costs]
    first = sum(len(one.sections) for one in imported.recordings[: imported.recordings.index(timed[0])])
    sections = timed[0].sections
    rows = _rows([costs[name] for name in names[first : first + len(sections)]], sections)
    zero = min(ready for row in rows for ready, _, _ in row.section.spans_ns)
    return _plan(rows, platform, imported, zero), _trace(rows, zero)


def _rows(costs: Sequence[MeasuredCost], sections: Sequence[Section]) -> list[_Row]:
    rows, lanes = list[_Row](), dict[str, int]()
    for cost, section in zip(costs, sections, strict=True):
        together = [(c, s) for c, s in zip(costs, sections, strict=True) if s.number and section.number]
        group = tuple(c.stage for c, _ in together) or (cost.stage,)
        begun = together[0][1] if together else section
        ended = together[-1][1] if together else section
        responses = sorted(e[2] - b[0] for b, e in zip(begun.spans_ns, ended.spans_ns, strict=True))
        starts = [ready for ready, _, _ in begun.spans_ns]
        period = max(1, (starts[-1] - starts[0]) // max(1, len(starts) - 1)) if len(starts) > 1 else 10**9
        lane = lanes[cost.engine] = lanes.get(cost.engine, -1) + 1
        rows.append(_Row(cost, section, lane, group, period, max(1, responses[-1]), responses[len(responses) // 2]))
    return rows


def _trace(rows: Sequence[_Row], zero: int) -> Trace:
    jobs, slices, releases = list[Job](), list[Slice](), dict[str, list[int]]()
    begun = {row.cost.stage: row.section.spans_ns for row in rows}
    listed = [(span, frame, row) for row in rows for frame, span in enumerate(row.section.spans_ns)]
    for (ready, start, end), frame, row in sorted(listed, key=lambda entry: (entry[0], entry[2].cost.stage)):
        deadline = begun[row.group[0]][frame][0] - zero + row.longest_ns
        name = row.cost.stage
        slices.append(Slice(row.cost.engine, (row.lane,), len(jobs), name, start - zero, end - zero))
        jobs.append(Job(name, frame, ready - zero, deadline, start - zero, end - zero, end - start, status="done"))
        if name == row.group[0]:
            releases.setdefault(name, []).append(ready - zero)
    slices.sort(key=lambda found: found.start_ns)
    return Trace("measured", max(found.end_ns for found in slices), 0, jobs, slices, [], releases, {})


def _plan(rows: Sequence[_Row], platform: Platform, imported: Imported, zero: int) -> Plan:
    used: dict[str, int] = {}
    for row in rows:
        used[row.cost.engine] = row.lane + 1
    engines = tuple(
        PlannedEngine(e.id, e.kind, used[e.id], "none", 0, "fifo", 0, 0, 0) for e in platform.engines if e.id in used
    )
    groups = {row.group: row for row in rows}
    chains = tuple(
        ChainResult(group[0], group, row.longest_ns, row.median_ns, None, None, ()) for group, row in groups.items()
    )
    return Plan(
        platform=platform.name,
        mode=rows[0].cost.mode,
        pipeline="recorded",
        engines=engines,
        sensors=(),
        tasks=tuple(_task(row, zero) for row in rows),
        chains=chains,
        **RECORDED,
        tool={"profile": imported.profile.tool},
    )


def _task(row: _Row, zero: int) -> Task:
    cost, place = row.cost, row.group.index(row.cost.stage)
    lengths = sorted(max(1, end - start) for _, start, end in row.section.spans_ns)
    median = lengths[len(lengths) // 2]
    return Task(
        name=cost.stage,
        kind="stage",
        after=(row.group[place - 1],) if place else (),
        reads=(),
        timer=not place,
        period_ns=row.period_ns,
        offset_ns=0 if place else row.section.spans_ns[0][0] - zero,
        queue=1,
        jitter_ns=0,
        engine=cost.engine,
        lanes=(row.lane,),
        precision=cost.precision,
        cost_ns=median,
        wcet_ns=lengths[-1],
        bytes=0,
        energy_uj=0,
        segments=(Segment(cost.stage, median, 0, 0),),
        provenance="measured",
        source=cost.source,
        error=cost.error,
        times=ExecutionTimes(cost.times_ns) if cost.times_ns else None,
        priority=0,
        deadline_ns=row.longest_ns,
        criticality="firm",
        why="as recorded",
    )
