"""The journal of a run, which the executor appends to while it runs: the trace of one that ended, or was killed.

A killed process loses at most its last quarter of a second.  A truncated line is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
_HINT = "give a folder that `socsched run -o` wrote to"
_LONGEST = 4 * 2**20
"""Maximum bytes per line: a generous bound for a quarter of a second of releases and counters."""
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


def _job(values: Sequence[Any]) -> Job:
    return Job(**dict(zip(_JOB, values, strict=True)))
