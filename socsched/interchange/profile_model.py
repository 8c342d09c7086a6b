"""The common form of other tools' profiles: sections of a job, each on one kind of engine, with their times.

Rows are booked by what ran, not by where a tool shows it: rows that wait for the DLA are the DLA's time.  A GPU job is
the span of its kernels, since the engine is held in the gaps.  Rejected: the sum of kernel times (too short), the row
of a DLA block as its cost (0.2 % of it).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.trace.trace import Trace

MOST_BYTES = 2**28
"""Size of a profile in text form."""
MOST_VALUES = 2**24
MOST_RANGES = 10**6
MISSING = 0.03
"""Relative difference between a table's rows and its total from which on rows are missing."""
HINT = (
    "known: trtexec (JSON files, console text), Nsight Systems (sqlite, tables of nsys stats), ONNX Runtime, "
    "the PyTorch profiler, QNN (CSV), RKNN's tables, scheduler events of ftrace or perf, logs of tegrastats and jtop"
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Figures of the times of `samples` jobs (ns): mean, median, and the percentile `share` (%)."""

    mean_ns: float
    median_ns: float
    high_ns: float
    share: int
    samples: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row of TensorRT's profile of layers: its name, mean and median (ns, 0: not stated)."""

    name: str
    mean_ns: float
    median_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a job between two changes of engine.

    `stage`: name given by the source, empty: the file's.  `number`: position among the sections of the same stage, 0:
    the only one.  `kind`: engine kind or the source's own name of it.  `layers`: what it ran, in order.  `times_ns`:
    one per job, empty if the source has only the mean.  `hidden_ns`: time that the source books on other rows.
    `spans_ns`: (ready, start, end) of every job on the source's clock, empty if the source has none.  `cycles`: a
    vendor's estimate in cycles of the engine, where the source states no time.  `spread`: figures of the jobs' times in
    the absence of the times.  `core`: number of the engine among those of its kind, where the source states it.
    """

    stage: str
    number: int
    kind: str
    layers: tuple[str, ...]
    mean_ns: float
    times_ns: tuple[int, ...] = ()
    median_ns: int = 0
    hidden_ns: float = 0.0
    note: str = ""
    spans_ns: tuple[tuple[int, int, int], ...] = ()
    cycles: int = 0
    spread: Spread | None = None
    core: int | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """What a source states of the board: names of power modes, the highest clocks by kind of engine, the device's name.

    `busy_hz`: the highest clocks at which engines computed.  `units`: multiprocessors of the GPU, `cores`: CPUs online
    and in all; 0: not stated.
    """

    modes: tuple[str, ...] = ()
    clocks_hz: Mapping[str, int] = field(default_factory=dict)
    busy_hz: Mapping[str, int] = field(default_factory=dict)
    device: str = ""
    units: int = 0
    cores: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Recording:
    """One profile: its sections, and the hand-overs between engines (`handover_ns`: mean of all of them in a job).

    `trace`: the jobs with every preemption, of sources that record them; its sections are threads, not parts of a job.
    `precisions`: the data types that the source states, the one it computes most in first.  `whole`: figures of whole
    inferences where their times (`whole_ns`) are not stated.  `rows`: those that `trtexec.sectioned` makes
    sections of once all files are known; `core`: of the DLA among them.  `kind`: engine of whole inferences, where
    stated.  `notes`: what a reader has to know of the costs.
    `lost`, `discarded`: events that the tracer lost, and jobs left out for that.
    """

    file: str
    tool: str
    sections: tuple[Section, ...] = ()
    samples: int = 0
    handover_ns: float = 0.0
    precisions: tuple[str, ...] = ()
    whole_ns: tuple[int, ...] = ()
    whole: Spread | None = None
    accelerated: frozenset[str] = field(default_factory=frozenset)
    state: str = ""
    trace: Trace | None = None
    board: Board = Board()
    notes: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    core: int | None = None
    kind: str = ""
    lost: int = 0
    discarded: int = 0

    @property
    def total_ns(self) -> float:
        """Return the mean time of a job: all sections and hand-overs."""
        return sum(section.mean_ns for section in self.sections) + self.handover_ns


def number(entry: Mapping[str, Any], key: str) -> float | None:
    """Return a non-negative number of a JSON object, None if it is missing or of another type."""
    value = entry.get(key)
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15 else None
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A named time span on a thread or device (ns); `key` joins launches and kernels."""

    name: str
    thread: int
    start_ns: int
    end_ns: int
    key: int = 0


def device_times(
    ranges: Iterable[Interval], launches: Iterable[Interval], kernels: Iterable[Interval]
) -> dict[str, list[tuple[int, int, int, int, int]]]:
    """Return range name -> jobs as (ready, start, end, busy time, kernels), one per outermost range with kernels.

    A kernel belongs to the range open on the thread of its launch.  The span lasts from the first kernel's start to the
    last one's end, so gaps between kernels count.
    """
    outer: dict[int, list[Interval]] = {}
    for found in sorted(ranges, key=lambda r: (r.thread, r.start_ns, -r.end_ns)):
        on_thread = outer.setdefault(found.thread, [])
        if not on_thread or found.start_ns >= on_thread[-1].end_ns:
            on_thread.append(found)
    starts = {thread: [r.start_ns for r in found] for thread, found in outer.items()}
    home: dict[int, tuple[int, int]] = {}
    for launch in launches:
        at = bisect_right(starts.get(launch.thread, []), launch.start_ns) - 1
        if at >= 0 and launch.start_ns < outer[launch.thread][at].end_ns:
            home[launch.key] = (launch.thread, at)
    spans: dict[tuple[int, int], list[Interval]] = {}
    for kernel in kernels:
        if kernel.key in home:
            spans.setdefault(home[kernel.key], []).append(kernel)
    times: dict[str, list[tuple[int, int, int, int, int]]] = {}
    for (thread, at), ran in sorted(spans.items(), key=lambda item: outer[item[0][0]][item[0][1]].start_ns):
        start, end = min(k.start_ns for k in ran), max(k.end_ns for k in ran)
        begun = min(outer[thread][at].start_ns, start)
        times.setdefault(outer[thread][at].name, []).append((begun, start, end, busy_ns(ran), len(ran)))
    return times


def busy_ns(intervals: Iterable[Interval]) -> int:
    """Return the length of the union of intervals."""
    total = end = 0
    for found in sorted(intervals, key=lambda i: i.start_ns):
        total += max(0, found.end_ns - max(found.start_ns, end))
        end = max(end, found.end_ns)
    return total


def range_sections(times: Mapping[str, list[tuple[int, int, int, int, int]]], kind: str) -> tuple[Section, ...]:
    """Return one section per range name, with the spans as job times."""
    sections = []
    for name, jobs in times.items():
        lengths = tuple(end - start for _, start, end, _, _ in jobs)
        kernels, busy = sum(job[4] for job in jobs) / len(jobs), sum(job[3] for job in jobs) / max(sum(lengths), 1)
        note = f"{kernels:g} kernels per job, busy {busy:.0%} of the span"
        spans = tuple(job[:3] for job in jobs)
        sections.append(Section(name, 0, kind, (), sum(lengths) / len(lengths), lengths, note=note, spans_ns=spans))
    return tuple(sections)
