"""The pool of processes: dead, hung and complaining workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pool_jobs import squares

from socsched.errors import MachineError
from socsched.pool import ATTEMPTS, Pool


def collect(pool: Pool, jobs: list[tuple[str, int]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    with pool:
        for job in jobs:
            pool.submit(job)
        while len(found) < len(jobs):
            found |= dict(pool.finished(1.0))
    return found


@pytest.mark.slow
def test_jobs_of_dead_workers_are_done_by_others(tmp_path: Path) -> None:
    jobs = [("square", n) for n in range(8)] + [("die once", 8)]
    pool = Pool(squares, (str(tmp_path),), 2)
    assert collect(pool, jobs) == {job: job[1] ** 2 for job in jobs}
    assert pool.restarts == 1


@pytest.mark.slow
def test_what_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    pool = Pool(squares, (str(tmp_path),), 1)
    with pytest.raises(MachineError, match=f"failed {ATTEMPTS} times: its worker died"):
        collect(pool, [("die", 1), ("square", 2)])
    assert pool.restarts == ATTEMPTS


def test_what_a_worker_raises_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no 3"):
        collect(Pool(squares, (str(tmp_path),), 1), [("raise", 3)])


def test_no_more_is_handed_out_than_keeps_workers_busy(tmp_path: Path) -> None:
    pool = Pool(squares, (str(tmp_path),), 2)
    assert pool.room == 4
