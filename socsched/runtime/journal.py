"""The growing trace of a run, in a file that survives the end of the process.

A thread appends lines (one JSON object each) four times a second with the new records: a killed process loses at most
its last quarter of a second.  A truncated line is skipped on reading.  Lines are short, since the interpreter lock is
held while a line is serialised.

Written records are removed from the trace, so that memory holds only a quarter of a second however long the run;
`close` restores them, except of a journal to `os.devnull`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from socsched.bounded import open_file
from socsched.descriptor.limits import Amount, Count, Lane, Ns, Real, Status, Text
from socsched.descriptor.limits import SignedNs as Time
from socsched.errors import DescriptorError, InputError
from socsched.files import file_digest
from socsched.trace.trace import Instant, Job, Slice, Trace

FORMAT, PLAN = "socsched-journal", "plan.json"
INTERVAL_S = 0.25
_HINT = "give a folder that `socsched run -o` wrote to"
_LONGEST = 4 * 2**20
"""Maximum bytes per line: a generous bound for a quarter of a second of releases and counters."""
_ROWS = 32
"""Jobs or slices per line: well below 0.1 ms of work."""
_JOB = (
    "task", "frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns", "exec_ns", "blocking_ns", "status",
    "sampled",
)  # fmt: skip


_JobRow = tuple[Count, Text, Time, Time, Time, Time, Time, Time, Time, Status, Mapping[Text, Amount]]
"""A job's number, and the fields of `_JOB`."""
_SliceRow = tuple[Text, tuple[Lane, ...], Count, Text, Time, Time]


@dataclass(frozen=True, slots=True)
class _Head:
    format: Literal["socsched-journal"]
    kind: Text
    seed: Amount
    plan: Text = ""


@dataclass(frozen=True, slots=True)
class _Row:
    jobs: tuple[_JobRow, ...] = ()
    slices: tuple[_SliceRow, ...] = ()
    instants: tuple[tuple[Time, Text, Text, Amount, Text], ...] = ()
    releases: Mapping[Text, tuple[Ns, ...]] = field(default_factory=dict)
    counters: Mapping[Text, tuple[tuple[Ns, Real], ...]] = field(default_factory=dict)


class Journal:
    """Writes a trace that other threads append to; a context manager around the run.

    `gather` is called before every write and may add to the trace's counters.  If writing fails, the journal sets
    `error` and leaves the trace alone from then on.
    """

    def __init__(self, path: Path, trace: Trace) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.gather: Callable[[], None] = lambda: None
        self.error: OSError | None = None
        self._path = path
        self._file = path.open("w", encoding="utf-8")
        self._trace = trace
        self._open: dict[int, Job] = {}
        self._jobs = 0
        self._known: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        head = {"format": FORMAT, "kind": trace.kind, "seed": trace.seed, "duration_ns": trace.duration_ns}
        if (plan := path.with_name(PLAN)).is_file():
            head["plan"] = file_digest(plan)
        self._write(head)

    def __enter__(self) -> Journal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the rest, stop, and restore the complete trace."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(timeout=5)
            self._append(last=True)
            self._file.close()
            if self._path != Path(os.devnull):
                self._give_back()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._append()

    def _append(self, last: bool = False) -> None:
        """Write new records and remove them from the trace.

        Other threads only append to it, so a copied prefix is complete.
        """
        trace = self._trace
        try:
            self.gather()
            if self.error is not None:
                return
            fresh = trace.jobs[:]
            self._open.update(enumerate(fresh, self._jobs))
            self._jobs += len(fresh)
            del trace.jobs[: len(fresh)]
            # Releases before the jobs they began: a file that ends between the two has no job without its release.
            releases = {name: times[:] for name, times in list(trace.releases.items()) if times}
            counters = {name: steps[:] for name, steps in list(trace.counters.items()) if steps}
            new = {name: steps[self._known.get(name, 0) :] for name, steps in counters.items()}
            self._line(releases=releases, counters={name: steps for name, steps in new.items() if steps})
            for part in _parts([i for i, job in self._open.items() if last or job.status != "unfinished"]):
                self._line(jobs=[[i, *(getattr(self._open[i], name) for name in _JOB)] for i in part])
                for index in part:
                    del self._open[index]
            for pieces in _parts(trace.slices[:]):
                self._line(slices=[[s.engine, s.lanes, s.job, s.name, s.start_ns, s.end_ns] for s in pieces])
                del trace.slices[: len(pieces)]
            for notes in _parts(trace.instants[:]):
                self._line(instants=[[n.time_ns, n.kind, n.subject, n.frame, n.text] for n in notes])
                del trace.instants[: len(notes)]
            for name, times in releases.items():
                del trace.releases[name][: len(times)]
            for name, steps in counters.items():
                self._known[name] = 1  # keep the last step: the next one is compared with it before it is added
                del trace.counters[name][: len(steps) - 1]
        except OSError as error:
            self.error = error

    def _line(self, **rows: Any) -> None:
        if any(rows.values()):
            self._write(rows)

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":"), default=dict) + "\n")
        self._file.flush()  # the kernel has it now, even if this process dies

    def _give_back(self) -> None:
        trace = self._trace
        written, jobs = _read(self._path)
        jobs.update(self._open)
        jobs.update(enumerate(trace.jobs, self._jobs))
        _number(written, jobs)
        trace.jobs[:] = written.jobs
        trace.slices[:0], trace.instants[:0] = written.slices, written.instants
        for name, times in written.releases.items():
            trace.releases[name][:0] = times
        for name, steps in written.counters.items():
            trace.counters[name][: self._known.get(name, 0)] = steps


def read_journal(path: str | Path) -> Trace:
    """Return the trace of the journal of a complete run, without its duration; raise InputError as `recover`."""
    _require_plan(Path(path))
    trace, jobs = _read(path)
    _number(trace, jobs)
    return trace


def recover(path: str | Path) -> Trace:
    """Return the trace of a journal; raise InputError if it is not one, or its plan differs from plan.json there.

    Jobs whose end is not in the journal are left out; the trace lasts until the last slice or release in it.
    """
    trace = read_journal(path)
    last = [piece.end_ns for piece in trace.slices] + [t for times in trace.releases.values() for t in times[-1:]]
    trace.duration_ns = max(last, default=0)
    trace.instants.append(Instant(trace.duration_ns, "fault", "run", -1, "recovered from the journal of a killed run"))
    return trace


def _require_plan(path: Path) -> None:
    """Raise InputError if the plan in the journal's folder is not the one the run began with."""
    head = next(_rows(path), None)
    if not isinstance(head, _Head) or not head.plan:
        return
    try:
        same = head.plan == file_digest(path.with_name(PLAN))
    except OSError:
        return  # reported when the plan is read
    if not same:
        raise InputError(
            f"{path}: not the journal of the run that wrote {PLAN}: a later run was interrupted early",
            "run again with -o into this folder",
        )


def _read(path: str | Path) -> tuple[Trace, dict[int, Job]]:
    """Return a journal's trace without its jobs, and the jobs by number."""
    jobs: dict[int, Job] = {}
    trace: Trace | None = None
    for row in _rows(path):
        if isinstance(row, _Head):
            trace = Trace(row.kind, 0, row.seed)
            continue
        assert trace is not None
        jobs.update((index, _job(values)) for index, *values in row.jobs)
        trace.slices += [Slice(e, tuple(on), job, name, a, b) for e, on, job, name, a, b in row.slices]
        trace.instants += [Instant(*values) for values in row.instants]
        for name, times in row.releases.items():
            trace.releases.setdefault(name, []).extend(times)
        for name, steps in row.counters.items():
            trace.counters.setdefault(name, []).extend(steps)
    if trace is None:
        raise InputError(f"{path}: not a journal", _HINT)
    return trace, jobs


def _rows(path: str | Path) -> Iterator[_Head | _Row]:
    """Yield the lines of a journal, the head first; a truncated last line is skipped.

    Raises InputError for a file that cannot be read or an invalid line.
    """
    from socsched.descriptor.json_file import JsonFile

    kind: type = _Head
    try:
        with open_file(path, "journal", _HINT) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                if not line.endswith(b"\n"):
                    if len(line) == _LONGEST:
                        raise InputError(f"{path}:{number}: a line longer than {_LONGEST} bytes", _HINT)
                    return
                try:
                    yield JsonFile(line, f"{path}:{number}").load(kind)
                except DescriptorError as error:
                    problem = "not a journal" if number == 1 else "not a line of a journal"
                    raise InputError(f"{path}:{number}: {problem}: {error.findings[0].expected}", _HINT) from None
                kind = _Row
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}", _HINT) from error


def _number(trace: Trace, jobs: dict[int, Job]) -> None:
    """Put `jobs` into a trace in the order of their numbers, and renumber its slices accordingly."""
    places = {index: place for place, index in enumerate(sorted(jobs))}
    trace.jobs = [jobs[index] for index in places]
    trace.slices = [piece for piece in trace.slices if piece.job in places]
    for piece in trace.slices:
        piece.job = places[piece.job]


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


def _job(values: Sequence[Any]) -> Job:
    return Job(**dict(zip(_JOB, values, strict=True)))
