"""The trace of a run as it grows, in a file that survives the end of the process.

A thread appends lines (a JSON object each) four times a second with all that was added since: a process that is killed
leaves everything but its last quarter of a second.  A line that was cut off in writing is left out when it is read.
Lines are short, since the interpreter is not handed over while one is made.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.trace.trace import Instant, Job, Slice, Trace

FORMAT = "socsched-journal"
INTERVAL_S = 0.25
_ROWS = 32
"""Jobs or slices in a line: well below a tenth of a millisecond of work."""
_JOB = (
    "task", "frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns", "exec_ns", "blocking_ns", "status",
    "sampled",
)  # fmt: skip


@dataclass(slots=True)
class _Mark:
    """How much of a trace is written: rows by list, and jobs whose end is still to come."""

    slices: int = 0
    instants: int = 0
    jobs: int = 0
    open: list[int] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)
    releases: dict[str, int] = field(default_factory=dict)


class Journal:
    """Writes a trace that other threads append to; a context manager around the run."""

    def __init__(self, path: Path, trace: Trace) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._trace, self._mark = trace, _Mark()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        head = {"format": FORMAT, "kind": trace.kind, "seed": trace.seed, "duration_ns": trace.duration_ns}
        self._write(head)

    def __enter__(self) -> Journal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the rest and end."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(timeout=5)
            self._append(last=True)
            self._file.close()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._append()

    def _append(self, last: bool = False) -> None:
        """Write what is new; lists only grow, so that their length is a place to go on from."""
        trace, mark = self._trace, self._mark
        count = len(trace.jobs)
        open_jobs = mark.open + list(range(mark.jobs, count))
        ended = [i for i in open_jobs if last or trace.jobs[i].status != "unfinished"]
        mark.open = [i for i in open_jobs if not last and trace.jobs[i].status == "unfinished"]
        slices, instants = trace.slices[mark.slices :], trace.instants[mark.instants :]
        mark.jobs, mark.slices, mark.instants = count, mark.slices + len(slices), mark.instants + len(instants)
        for part in _parts(ended):
            self._line(jobs=[[i, *(getattr(trace.jobs[i], name) for name in _JOB)] for i in part])
        for pieces in _parts(slices):
            self._line(slices=[[s.engine, s.lanes, s.job, s.name, s.start_ns, s.end_ns] for s in pieces])
        self._line(
            instants=[[n.time_ns, n.kind, n.subject, n.frame, n.text] for n in instants],
            releases=_new(trace.releases, mark.releases),
            counters=_new(trace.counters, mark.steps),
        )

    def _line(self, **rows: Any) -> None:
        if any(rows.values()):
            self._write(rows)

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":"), default=dict) + "\n")
        self._file.flush()  # the system has it now, whatever becomes of this process


def recover(path: str | Path) -> Trace:
    """Return the trace a journal tells of; InputError when it is none.

    Jobs whose end is not in it are left out; the trace lasts until the last thing it tells.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}", "give a folder that `socsched run -o` wrote to") from error
    rows = [row for row in map(_parsed, lines) if row is not None]
    if not rows or rows[0].get("format") != FORMAT:
        raise InputError(f"{path}: is no journal", "give a folder that `socsched run -o` wrote to")
    trace = Trace(rows[0]["kind"], 0, rows[0]["seed"])
    places: dict[int, int] = {}
    for row in rows[1:]:
        for index, *values in row.get("jobs", ()):
            places[index] = len(trace.jobs)
            trace.jobs.append(_job(values))
        trace.slices += [Slice(e, tuple(lanes), job, name, a, b) for e, lanes, job, name, a, b in row.get("slices", ())]
        trace.instants += [Instant(*values) for values in row.get("instants", ())]
        for name, times in row.get("releases", {}).items():
            trace.releases.setdefault(name, []).extend(times)
        for name, steps in row.get("counters", {}).items():
            trace.counters.setdefault(name, []).extend((time, value) for time, value in steps)
    trace.slices = [piece for piece in trace.slices if piece.job in places]
    for piece in trace.slices:
        piece.job = places[piece.job]
    last = [piece.end_ns for piece in trace.slices] + [t for times in trace.releases.values() for t in times[-1:]]
    trace.duration_ns = max(last, default=0)
    trace.instants.append(Instant(trace.duration_ns, "fault", "run", -1, "recovered from the journal of a killed run"))
    return trace


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


def _new(lists: dict[str, Any], seen: dict[str, int]) -> dict[str, list[Any]]:
    found = {}
    for name, values in list(lists.items()):
        if fresh := values[seen.get(name, 0) :]:
            found[name] = fresh
            seen[name] = seen.get(name, 0) + len(fresh)
    return found


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _job(values: list[Any]) -> Job:
    known: dict[str, Any] = dict(zip(_JOB, values, strict=True))
    if "origin" in Job.__slots__:
        known["origin"] = {}
    return Job(**known)
