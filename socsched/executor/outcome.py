"""The results of the native executor: its journal as a trace, and executed.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.limits import Amount, Count, Ns, Text
from socsched.executor.settings import EXECUTED, JOURNAL
from socsched.runtime.journal import read_journal
from socsched.trace.trace import Trace

_HINT = "run the plan again"
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class FrameAccount:
    """Frames of one source by outcome."""

    released: Count
    completed: Count
    dropped: Count
    aborted: Count


@dataclass(frozen=True, slots=True)
class Executed:
    """The contents of executed.json: length and start (monotonic) of a run, its accounts, its failure (empty: none).

    `processor_ns`: time of processors that all of its threads used together, warm-up left out.
    """

    format: Literal["socsched-executed"]
    version: Literal[1]
    duration_ns: Ns
    origin_ns: Ns
    accounts: Mapping[Text, FrameAccount]
    interrupted: bool
    failure: Text
    failed_stage: Text
    failed_frame: Amount
    journal_error: Text
    notices: tuple[Text, ...]
    processor_ns: Ns = 0


def read_executed(folder: Path) -> Executed:
    """Return the outcome of a complete run without its trace; InputError or DescriptorError for a damaged file."""
    file = folder / EXECUTED
    source = JsonFile(read_bytes(file, "outcome of a run", _HINT, _MOST_BYTES), str(file), _HINT)
    executed: Executed = source.load(Executed)
    return executed


def read_outcome(folder: Path) -> tuple[Trace, Executed]:
    """Return the trace and the outcome of a complete run; InputError or DescriptorError for damaged files."""
    executed = read_executed(folder)
    trace = read_journal(folder / JOURNAL)
    trace.duration_ns = executed.duration_ns
    trace.instants.sort(key=lambda instant: instant.time_ns)
    trace.slices.sort(key=lambda piece: piece.start_ns)
    for job, intervals in Counter(piece.job for piece in trace.slices).items():
        trace.jobs[job].preemptions = intervals - 1
    return trace, executed
