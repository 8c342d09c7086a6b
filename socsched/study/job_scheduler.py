"""Dispatch of jobs to an engine and of their rows to the store: each plan is made once for all jobs that need it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from socsched.study.engines import Engine
from socsched.study.progress import Progress
from socsched.study.store import Row, Store, replace_file
from socsched.study.work import Job

_WAIT_S = 0.5


def do_jobs(
    groups: Iterable[tuple[str, list[Job]]], folder: Path, store: Store, engine: Engine, progress: Progress
) -> float:
    """Execute jobs, store their rows, and return the processor time of the simulations (s).

    The jobs of a group share the plan of its key, below `folder`; the first job makes it if it is missing.
    """
    busy = 0.0
    ready: deque[tuple[Job, Any]] = deque()
    behind: dict[str, list[Job]] = {}
    for key, jobs in groups:
        file = plan_file(folder, key)
        if file.is_file():
            handle = engine.share(file.read_bytes()) if len(jobs) > 1 else file
            ready.extend((job, handle) for job in jobs)
        else:
            ready.append((jobs[0], None))
            behind[key] = jobs[1:]
    waiting = 0
    while ready or waiting:
        while ready and engine.room:
            job, handle = ready.popleft()
            engine.submit(job, engine.share(handle.read_bytes()) if isinstance(handle, Path) else handle)
            waiting += 1
        rows: list[Row] = []
        for job, done in engine.finished(_WAIT_S):
            waiting -= 1
            rows += done.rows
            busy += done.seconds
            followers = behind.pop(job.key, [])
            if done.plan is not None:
                replace_file(plan_file(folder, job.key), done.plan)
            if followers:
                handle = engine.share(done.plan) if done.plan is not None else None
                # jobs whose plan exists go first: fewer plans are in memory at a time
                ready.extendleft((follower, handle) for follower in reversed(followers))
        store.add(rows)
        progress.add(len(rows))
    return busy


def plan_file(folder: Path, key: str) -> Path:
    return folder / "plans" / f"{key}.json.gz"
