"""Same seed, same bytes: on any machine and Python version, compiled and interpreted, in every repetition.

`tests/golden/simulation_*.txt` hold what simulations leave, in words: figures, totals over the whole trace and how it
begins.  A run with SOCSCHED_UPDATE_GOLDEN=1 rewrites them, which is right only after a change of meaning that the
commit message explains.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from rich_plan import DURATION, rich_faults, rich_plan

from socsched.api.folders import save
from socsched.errors import MachineError
from socsched.faults.model import Faults
from socsched.planning.io import load
from socsched.planning.plan import Plan
from socsched.sim.build import load_kernel
from socsched.sim.simulate import run
from socsched.trace.io import load as load_trace
from socsched.trace.metrics import result
from socsched.trace.perfetto import write_perfetto
from socsched.trace.trace import Trace

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = ("trace.bin", "trace.pftrace", "result.json")
BEGINNING = 40
"""So many of the first jobs, slices and instants are listed one by one."""


def perception_stack() -> tuple[Plan, int, Faults]:
    return load(GOLDEN / "perception_stack_orin.plan.json"), 500_000_000, Faults()


def everything() -> tuple[Plan, int, Faults]:
    return rich_plan(), DURATION, rich_faults()


CASES: dict[str, tuple[Callable[[], tuple[Plan, int, Faults]], int, str]] = {
    "perception-stack, Orin, 0.5 s, seed 0": (perception_stack, 0, "perception_stack"),
    "everything at once, seed 1": (everything, 1, "everything_1"),
    "everything at once, seed 2": (everything, 2, "everything_2"),
}


@lru_cache
def left(case: str, implementation: str, folder: Path) -> dict[str, bytes]:
    """Return the files a simulation leaves."""
    make, seed, name = CASES[case]
    made, duration, faults = make()
    trace = run(made, duration, seed, None, faults, implementation=implementation).trace
    assert trace is not None
    target = folder / f"{name}_{implementation}"
    save(target, made, trace, result(trace, made), page=False)
    write_perfetto(trace, made, target / "trace.pftrace")
    return {name: (target / name).read_bytes() for name in FILES}


def words(folder: Path) -> Iterator[str]:
    """Yield lines that say what is in a simulation's result.json and trace.bin."""
    for section, content in json.loads((folder / "result.json").read_text()).items():
        parts = {f"{section} {key}": value for key, value in content.items()} if isinstance(content, dict) else {}
        yield from (f"{name}: {json.dumps(value)}" for name, value in (parts or {section: content}).items())
    trace = load_trace(folder / "trace.bin")
    yield from totals(trace)
    yield "job, status: activation, start, finish, executed, blocked, preempted, migrated, frames read"
    for job in trace.jobs[:BEGINNING]:
        spent = (job.activation_ns, job.start_ns, job.finish_ns, job.exec_ns, job.blocking_ns)
        read = dict(job.sampled)
        yield f"{job.task}#{job.frame}, {job.status}: {row((*spent, job.preemptions, job.migrations))}, {read}"
    yield "start, end, engine, lanes, job, part"
    for piece in trace.slices[:BEGINNING]:
        job = trace.jobs[piece.job]
        lanes = "-".join(map(str, piece.lanes))
        yield f"{piece.start_ns}, {piece.end_ns}, {piece.engine}, {lanes}, {job.task}#{job.frame}, {piece.name}"
    yield "time, event, subject, frame, text"
    for note in trace.instants[:BEGINNING]:
        yield f"{note.time_ns}, {note.kind}, {note.subject}, {note.frame}, {note.text}"


def totals(trace: Trace) -> Iterator[str]:
    """Yield sums over all jobs, slices, instants, releases and steps of counters, by what they belong to."""
    jobs, slices, notes = (defaultdict[str, list[Iterable[int]]](list) for _ in range(3))
    for job in trace.jobs:
        response = job.finish_ns - job.activation_ns if job.finish_ns >= 0 else 0
        spent = (1, response, job.exec_ns, job.blocking_ns, job.preemptions, job.migrations)
        jobs[f"{job.task}, {job.status}"].append(spent)
    for piece in trace.slices:
        slices[f"{piece.engine}, {piece.name}"].append((1, (piece.end_ns - piece.start_ns) * len(piece.lanes)))
    for note in trace.instants:
        notes[f"{note.kind}, {note.subject}"].append((1, note.time_ns))
    releases = {name: [(1, time) for time in times] for name, times in trace.releases.items()}
    for title, groups in (
        ("task, status: jobs, response, executed, blocked, preemptions, migrations", jobs),
        ("engine, part: slices, time of lanes", slices),
        ("event, subject: how many, times", notes),
        ("released: frames, times", releases),
    ):
        yield title
        yield from (f"{name}: {row(map(sum, zip(*rows, strict=True)))}" for name, rows in sorted(groups.items()))
    yield "counter: steps, times, values"
    for name, steps in sorted(trace.counters.items()):
        yield f"{name}: {len(steps)}, {sum(time for time, _ in steps)}, {sum(value for _, value in steps):.6f}"


def row(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("case", CASES)
def test_files_are_those_of_the_record(case: str, folder: Path) -> None:
    left(case, "python", folder)
    name = CASES[case][2]
    found = [*words(folder / f"{name}_python")]
    golden = GOLDEN / f"simulation_{name}.txt"
    if os.environ.get("SOCSCHED_UPDATE_GOLDEN"):
        golden.write_text("\n".join(found) + "\n")
    assert found == golden.read_text().splitlines()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.needs("Python headers")
def test_compiled_and_interpreted_leave_the_same_bytes(case: str, folder: Path) -> None:
    try:
        load_kernel("compiled")
    except MachineError as error:
        pytest.skip(str(error))
    assert left(case, "compiled", folder) == left(case, "python", folder)


def test_a_repeat_leaves_the_same_bytes_and_another_seed_others(folder: Path, tmp_path: Path) -> None:
    first, other = (left(f"everything at once, seed {seed}", "python", folder) for seed in (1, 2))
    assert left("everything at once, seed 1", "python", tmp_path) == first
    assert all(first[name] != other[name] for name in FILES)


def test_everything_happens_in_the_record() -> None:
    """The record is worth something only if what can differ occurs."""
    made, duration, faults = everything()
    trace = run(made, duration, 1, None, faults).trace
    assert trace is not None
    assert {job.status for job in trace.jobs} == {"done", "dropped", "aborted", "unfinished"}
    assert {note.kind for note in trace.instants} >= {"miss", "drop", "abort", "fault", "throttle"}
    assert {piece.name for piece in trace.slices} >= {"switch", "wait", "less.0", "dla"}
    assert any(job.migrations for job in trace.jobs) and any(job.preemptions for job in trace.jobs)
    assert len({value for _, value in trace.counters["power_mw"]}) > 20
