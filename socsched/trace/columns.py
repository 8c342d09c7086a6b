"""A trace as flat columns: filled by a compiled simulation, and the basis of figures and files.

One array per field, int64 unless stated otherwise, one entry per record; names are stored once and referred to by
index.  Nothing is copied or checked here: the creator of columns must ensure arrays of equal length and valid indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from socsched.units import format_duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from socsched.trace.stored import Stored

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


# Records of a trace: jobs, the intervals they ran in, and point events; times are ns from the start.


@dataclass(slots=True)
class Job:
    """One activation of a task for frame `frame`.

    `sampled` maps each producer of `reads` to its latest frame at the job's start; with the frame number along data
    triggers it identifies the origin of the job's data.
    `status`: done | dropped | aborted | unfinished; a done job may still be late (finish > deadline), an aborted one
    started and was given up.  `blocking_ns`: time the job was ready but a lower-priority occupant could not be
    preempted.  `migrations`: how often the job resumed on other lanes.  `start_ns` and `finish_ns` are -1 until they
    happen.
    """

    task: str
    frame: int
    activation_ns: int
    deadline_ns: int
    start_ns: int = -1
    finish_ns: int = -1
    exec_ns: int = 0
    blocking_ns: int = 0
    preemptions: int = 0
    status: str = "unfinished"
    sampled: Mapping[str, int] = field(default_factory=dict)
    migrations: int = 0


@dataclass(slots=True)
class Slice:
    """An interval in which a job (index into `Trace.jobs`) occupied lanes of an engine."""

    engine: str
    lanes: tuple[int, ...]
    job: int
    name: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Instant:
    """A point event: the task, sensor or engine concerned, and a description in words.

    `kind`: miss | drop | abort | input | fault | throttle.  `frame` is -1 if no frame is concerned.
    """

    time_ns: int
    kind: str
    subject: str
    frame: int
    text: str


MAGIC = b"SOCTRC3\n"
"""First bytes of a file of columns, and its last."""
CLOCK = "clock_hz."
"""Prefix, before an engine's name, of counters of its clock if that changes."""
FOREIGN = "foreign_gbps."
"""Prefix, before an engine's name, of counters of DRAM traffic that no task of the plan causes."""
STATUS = ("unfinished", "done", "dropped", "aborted")
UNFINISHED, DONE, DROPPED, ABORTED = range(4)
"""Codes of a job's status."""


def _times(value: int) -> str:
    return f"{value / 1e6:g} times"


MARKS: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("miss", lambda late_ns: f"{format_duration(late_ns)} late"),
    ("miss", lambda _: "unfinished at its deadline"),
    ("drop", lambda queue: f"{queue} frames wait already" if queue else "busy, and no frame may wait"),
    ("drop", lambda _: "frame lost: sensor dropout injected"),
    ("abort", lambda _: "aborted at its deadline"),
    ("abort", lambda done_ns: f"killed, {format_duration(done_ns)} of work lost"),
    ("fault", lambda millionths: f"everything takes {_times(millionths)} as long"),
    ("fault", lambda _: "back to normal speed"),
    ("fault", lambda millionths: f"takes {_times(millionths)} its planned work"),
    ("fault", lambda _: "stands still"),
    ("throttle", lambda millionths: f"slowed to {millionths / 1e4:g} % of its speed"),
    ("throttle", lambda _: "back to full speed"),
    ("drop", lambda _: "could not have met its deadline, not started"),
    ("fault", lambda _: "killed, starts its segment again"),
    ("drop", lambda _: "dropped at the high level of criticality"),
    ("overload", lambda _: "over its time: the high level of criticality begins"),
)
"""Meaning of an instant's code: its kind, and a function from its value to its text."""

(
    MISS_LATE,
    MISS_OPEN,
    DROP_QUEUE,
    DROP_SENSOR,
    ABORT_LATE,
    ABORT_KILLED,
    FAULT_SLOW,
    FAULT_OVER,
    FAULT_OVERRUN,
    FAULT_STALL,
    THROTTLE,
    THROTTLE_OVER,
    DROP_LATE,
    KILL_RESTART,
    DROP_LEVEL,
    LEVEL_RAISED,
) = range(len(MARKS))
"""Codes of an instant; values are ns late, the queue's depth, ns of work, or millionths, as `MARKS` reads them."""


@dataclass(frozen=True, slots=True, eq=False)
class JobColumns:
    """Jobs in order of activation; fields as in `trace.Job`, times in ns.

    `task` indexes `Columns.tasks`, `status` is a code of `STATUS`.  `sampled` is the start index in `frames` of the
    frames the job sampled, one for each of its task's `Columns.reads` (-1: none yet), or -1 if it sampled none.
    """

    task: Ints
    frame: Ints
    activation_ns: Ints
    deadline_ns: Ints
    start_ns: Ints
    finish_ns: Ints
    exec_ns: Ints
    blocking_ns: Ints
    preemptions: Ints
    migrations: Ints
    status: Ints
    sampled: Ints
    frames: Ints

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True, slots=True, eq=False)
class SliceColumns:
    """Intervals in which a job held lanes; fields as in `trace.Slice`.

    `engine` indexes `Columns.engines`, `name` `Columns.names`, `job` the jobs.  `lanes` is a mask, bit k for lane k
    (0-62); a lane set without a mask is -1 - k for entry k of `Columns.lane_sets`.
    """

    engine: Ints
    lanes: Ints
    job: Ints
    name: Ints
    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.engine)


@dataclass(frozen=True, slots=True, eq=False)
class InstantColumns:
    """Point events, in order of time; texts are formatted on demand.

    `kind` is a code of `MARKS` with `value` as its argument, or -1 - k for kind k of `Columns.kinds`, with `value` an
    index of `Columns.texts`.  `subject` indexes `Columns.subjects`; `frame` is -1 if no frame is concerned.
    """

    time_ns: Ints
    kind: Ints
    subject: Ints
    frame: Ints
    value: Ints

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The full record except for `Trace.details`; the columns of a long one are in a file (`stored`), read in parts.

    `reads[i]` lists the producers that jobs of `tasks[i]` sample.  `counters` maps a name to the times (int64) and
    values (float64) of its steps, `releases` a sensor or timer to the release times of its frames.
    """

    tasks: tuple[str, ...]
    reads: tuple[tuple[str, ...], ...]
    engines: tuple[str, ...]
    names: tuple[str, ...]
    subjects: tuple[str, ...]
    jobs: JobColumns
    slices: SliceColumns
    instants: InstantColumns
    counters: Mapping[str, tuple[Ints, Floats]]
    releases: Mapping[str, Ints]
    lane_sets: tuple[tuple[int, ...], ...] = ()
    kinds: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    stored: Stored | None = None
    known: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What was derived from the columns and is needed again, by its function."""
    _lanes: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def lanes(self, code: int) -> tuple[int, ...]:
        """Return the lanes of an entry of `SliceColumns.lanes`."""
        lanes_of_code = self._lanes.get(code)
        if lanes_of_code is None:
            bits = range(code.bit_length() if code > 0 else 0)
            lanes_of_code = self.lane_sets[-1 - code] if code < 0 else tuple(lane for lane in bits if code >> lane & 1)
            self._lanes[code] = lanes_of_code
        return lanes_of_code

    def forget(self) -> None:
        """Drop what is kept of a file and was derived from it: it is read and made again."""
        self.known.clear()
        if self.stored is not None:
            self.stored.file.forget()

    def steps(self, counter: str) -> Iterator[tuple[Ints, Floats]]:
        """Yield the times and values of a counter, a long one in parts; nothing for an unknown one."""
        if self.stored is not None:
            yield from self.stored.steps(counter)
        elif counter in self.counters:
            yield self.counters[counter]

    def steps_of(self, counters: Sequence[str]) -> dict[str, Iterable[tuple[Ints, Floats]]]:
        """Return what `steps` yields of each of some counters, read at once."""
        if self.stored is not None:
            return self.stored.steps_of(counters)
        return {name: self.steps(name) for name in counters}

    def varies(self, counter: str) -> bool:
        """Return whether a counter ever changes its value."""
        if self.stored is not None:
            return self.stored.counters[counter].least != self.stored.counters[counter].most
        values = self.counters[counter][1]
        return len(values) > 0 and bool((values != values[0]).any())

    def slices_between(self, begin: int, end: int) -> Ints:
        """Return the slices that overlap a window or touch it, as rows."""
        import numpy as np

        slices, rows = self.slices, [slice(0, len(self.slices))]
        if self.stored is not None:
            rows = self.stored.blocks_between("slices", begin, end)
        parts = [np.zeros(0, np.int64)]
        for part in rows:
            inside = (slices.start_ns[part] <= end) & (slices.end_ns[part] >= begin)
            parts.append(np.flatnonzero(inside) + part.start)
        return np.concatenate(parts)

    def instants_of(self, subject: str, last: bool = False) -> Ints:
        """Return the instants of a subject, as rows; of the last one with this name, or of the first."""
        import numpy as np

        if "instants by subject" not in self.known:
            order = np.argsort(np.asarray(self.instants.subject), kind="stable")
            ends = np.searchsorted(self.instants.subject[order], np.arange(len(self.subjects) + 1))
            self.known["instants by subject"] = order, ends
        order, ends = self.known["instants by subject"]
        if subject not in self.subjects:
            return np.zeros(0, np.int64)
        number = len(self.subjects) - 1 - self.subjects[::-1].index(subject) if last else self.subjects.index(subject)
        found: Ints = order[ends[number] : ends[number + 1]]
        return found

    def slices_of(self, job: int) -> Ints:
        """Return the slices of a job in order of time, as rows."""
        import numpy as np

        slices, jobs = self.slices, self.jobs
        if self.stored is not None:
            end = int(jobs.finish_ns[job])
            rows = self.slices_between(int(jobs.activation_ns[job]), end if end >= 0 else 1 << 62)
            own: Ints = rows[slices.job[rows] == job]
            return own
        if "slices_of" not in self.known:
            order = np.lexsort((slices.start_ns, slices.job))
            self.known["slices_of"] = order, np.searchsorted(slices.job[order], np.arange(len(jobs) + 1))
        order, bounds = self.known["slices_of"]
        found: Ints = order[bounds[job] : bounds[job + 1]]
        return found

    def kind(self, code: int) -> str:
        """Return the kind of an entry of `InstantColumns.kind`."""
        return self.kinds[-1 - code] if code < 0 else MARKS[code][0]

    def text(self, code: int, value: int) -> str:
        """Return the text of an instant."""
        return self.texts[value] if code < 0 else MARKS[code][1](value)


def unit(counter: str) -> str:
    """Return the unit of a counter's values, "" if it has none."""
    if counter.startswith("queue."):
        return "frames"
    if counter.startswith(("celsius.", "temperature_c")):
        return "°C"
    if counter.startswith(CLOCK) or counter.endswith("_hz"):
        return "Hz"
    if counter.startswith("release_late_ns."):
        return "ns"
    if counter == "bandwidth_gbps":
        return "GB/s"
    return "mW" if "_mw." in counter or counter.endswith("_mw") else ""
