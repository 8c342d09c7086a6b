"""Same seed, same bytes: on any machine and Python version, compiled and interpreted, again and again.

`tests/golden/simulations.json` holds digests of what simulations leave; a run with SOCSCHED_UPDATE_GOLDEN=1 rewrites
it, which is right only after a change of meaning that the commit message explains.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
from rich_plan import DURATION, rich_faults, rich_plan

from socsched.api.folders import save
from socsched.errors import MachineError
from socsched.faults.model import Faults
from socsched.planning.plan import Plan
from socsched.sim.build import kernel
from socsched.sim.engine import run
from socsched.trace.metrics import result

GOLDEN = Path(__file__).parents[1] / "golden"
DIGESTS = GOLDEN / "simulations.json"
FILES = ("trace.json.gz", "trace.pftrace", "result.json")


def perception_stack() -> tuple[Plan, int, Faults]:
    from socsched.planning.io import load

    return load(GOLDEN / "perception_stack_orin.plan.json"), 500_000_000, Faults()


def everything() -> tuple[Plan, int, Faults]:
    return rich_plan(), DURATION, rich_faults()


CASES: dict[str, tuple[Callable[[], tuple[Plan, int, Faults]], int]] = {
    "perception-stack, Orin, 0.5 s, seed 0": (perception_stack, 0),
    "everything at once, seed 1": (everything, 1),
    "everything at once, seed 2": (everything, 2),
}


@lru_cache
def left(case: str, implementation: str, folder: Path) -> dict[str, bytes]:
    """Return the files a simulation leaves."""
    make, seed = CASES[case]
    made, duration, faults = make()
    trace = run(made, duration, seed, None, faults, implementation=implementation).trace
    assert trace is not None
    target = folder / hashlib.sha256(f"{case}{implementation}".encode()).hexdigest()[:8]
    save(target, made, trace, result(trace, made), page=False)
    return {name: (target / name).read_bytes() for name in FILES}


def digest(name: str, data: bytes) -> str:
    # what deflate makes of it is zlib's own affair
    return hashlib.sha256(gzip.decompress(data) if name.endswith(".gz") else data).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("case", CASES)
def test_files_are_those_of_the_record(case: str, folder: Path) -> None:
    found = {name: digest(name, data) for name, data in left(case, "python", folder).items()}
    if os.environ.get("SOCSCHED_UPDATE_GOLDEN"):
        known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
        DIGESTS.write_text(json.dumps({**known, case: found}, indent=2, sort_keys=True) + "\n")
    assert found == json.loads(DIGESTS.read_text())[case]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.needs("Python headers")
def test_compiled_and_interpreted_leave_the_same_bytes(case: str, folder: Path) -> None:
    try:
        kernel("compiled")
    except MachineError as error:
        pytest.skip(str(error))
    assert left(case, "compiled", folder) == left(case, "python", folder)


def test_a_repeat_leaves_the_same_bytes_and_another_seed_others(folder: Path, tmp_path: Path) -> None:
    first, other = (left(f"everything at once, seed {seed}", "python", folder) for seed in (1, 2))
    assert left("everything at once, seed 1", "python", tmp_path) == first
    assert all(first[name] != other[name] for name in FILES)


def test_everything_happens_in_the_record() -> None:
    """The digests are worth something only if what can differ occurs."""
    made, duration, faults = everything()
    trace = run(made, duration, 1, None, faults).trace
    assert trace is not None
    assert {job.status for job in trace.jobs} == {"done", "dropped", "aborted", "unfinished"}
    assert {note.kind for note in trace.instants} >= {"miss", "drop", "abort", "fault", "throttle"}
    assert {piece.name for piece in trace.slices} >= {"switch", "wait", "less.0", "dla"}
    assert any(job.migrations for job in trace.jobs) and any(job.preemptions for job in trace.jobs)
    assert len({value for _, value in trace.counters["power_mw"]}) > 20
