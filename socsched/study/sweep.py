"""A sweep: every configuration of a study is planned and simulated once, and rows are stored as they arrive.

A plan is made once for all configurations that need the same one: the first job of such a group makes it, and the
others reuse it.  Rounds of successive halving (Jamieson & Talwalkar, AISTATS 2016) run in sequence; within a round the
order in which workers finish does not affect the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.descriptor.catalog import HOST, get_platform
from socsched.descriptor.study import Study
from socsched.descriptor.study_file import resolve_path
from socsched.errors import UsageError
from socsched.resources import is_path
from socsched.study.design import Point, points
from socsched.study.engines import Engine
from socsched.study.inputs import Inputs, Opened
from socsched.study.job_scheduler import do_jobs, plan_file
from socsched.study.progress import Progress
from socsched.study.store import Row, Store
from socsched.study.work import Job, Planned, open_inputs, plan_key, unpack

CHUNK = 16
"""Configurations per job: enough to amortise the cost of dispatch, few enough to lose little work."""

_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Sweep:
    """A finished sweep: its rows by configuration (from the last round of each), and the folder of plans and parts.

    `found`: rows of this session, computed in `seconds`; `restarts`: workers that died.
    """

    study: Study
    inputs: Inputs
    folder: Path
    rows: tuple[Row, ...]
    found: int
    seconds: float
    restarts: int

    def planned(self, key: str) -> Planned:
        """Return a plan by its key."""
        return unpack(
            read_bytes(plan_file(self.folder, key), "plan of a sweep", "run the sweep again", _MOST_BYTES),
            self.folder / "inputs",
        )

    def opened(self) -> Opened:
        """Return the inputs for reading."""
        return open_inputs(self.inputs, self.folder / "inputs")


def configurations(study: Study) -> list[Point]:
    """Return the configurations of a study, with policies checked; UsageError for unknown names."""
    policies, platforms = study.parameter("policy"), study.parameter("platform")
    for name in policies.values if policies else ():
        if name not in ("edf", "fp"):
            from socsched.sim.policies import get_policy

            get_policy(name)
    modes: dict[str, tuple[str, ...]] = {}
    for name in platforms.values if platforms else ():
        folder = Path(study.file).parent
        file = str(resolve_path(folder, name)) if name != HOST and is_path(name) else name
        board = get_platform(file)
        wanted = study.parameter("mode")
        named = {} if wanted is None else {mode: board for mode in wanted.values if mode != "all"}
        own = tuple(mode.name for mode in board.modes)
        modes[name] = own + tuple(mode for mode in named if mode not in own and _has(board, mode))
        if wanted is not None and wanted.values == ("all",):
            modes[name] = own
    return points(study, modes)


def _has(platform: Any, mode: str) -> bool:
    try:
        platform.mode(mode)
    except KeyError:
        return False
    return True


def sweep(
    inputs: Inputs,
    found: Sequence[Point],
    folder: Path,
    store: Store,
    engine: Engine,
    note: Callable[[str], None] | None = None,
) -> Sweep:
    """Compute all configurations that are not in `store`, and return the table.

    If it ends early (Ctrl-C, a full disk), finished rows are on disk.
    """
    study, started, before = inputs.study, time.monotonic(), len(store.rows)
    open_inputs(inputs, folder / "inputs")
    digest = inputs.digest()
    keys = {point.config: plan_key(digest, point) for point in found}
    rounds = rungs(study, len(found))
    progress = Progress(sum(count for count, _ in rounds), 0, note)
    alive: Sequence[Point] = found
    try:
        with engine:
            for rung, (count, runs) in enumerate(rounds):
                if rung:
                    alive = _kept(study, alive, [store.rows[point.config, rung - 1] for point in alive], count)
                todo = [point for point in alive if (point.config, rung) not in store.rows]
                progress.found(len(alive) - len(todo))
                do_jobs(_jobs(todo, keys, runs, rung), folder, store, engine, progress)
    finally:
        progress.end()
        store.close()
    last: dict[int, Row] = {}
    for (config, rung), row in sorted(store.rows.items()):
        if rung < len(rounds):
            last[config] = row
    rows = tuple(last[point.config] for point in found)
    return Sweep(study, inputs, folder, rows, len(store.rows) - before, time.monotonic() - started, engine.restarts)


def _jobs(todo: Sequence[Point], keys: Mapping[int, str], runs: int, rung: int) -> list[tuple[str, list[Job]]]:
    """Return jobs by plan, in the order of their first configuration."""
    groups: dict[str, list[Point]] = {}
    for point in todo:
        groups.setdefault(keys[point.config], []).append(point)
    return [
        (key, [Job(key, tuple(group[i : i + CHUNK]), runs, rung) for i in range(0, len(group), CHUNK)])
        for key, group in groups.items()
    ]


def rungs(study: Study, count: int) -> list[tuple[int, int]]:
    """Return (configurations, runs of each) by round: one round, or those of successive halving."""
    runs, design = study.simulate.runs, study.design
    if design.kind != "halving":
        return [(count, runs)]
    if design.first > runs:
        raise UsageError(f"{study.file}: halving starts with {design.first} runs, but at most {runs} are allowed")
    rounds, count_now = [(count, design.first)], design.first
    while count_now < runs and rounds[-1][0] > 1:
        count_now = min(runs, max(count_now + 1, round(count_now / design.keep)))
        rounds.append((max(1, round(rounds[-1][0] * design.keep)), count_now))
    return rounds


def _kept(study: Study, alive: Sequence[Point], rows: Sequence[Row], count: int) -> list[Point]:
    best = sorted(rows, key=lambda row: rank(study, row))[:count]
    chosen = {row["config"] for row in best}
    return [point for point in alive if point.config in chosen]


def rank(study: Study, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a row, best first: rows that hold, fewest misses, smallest, most slack."""
    share = row["misses_per_million"]
    sizes = tuple(float("inf") if row[name] is None else row[name] for name in study.smallest)
    order = {True: 0, None: 1, False: 2}[row["holds"]]
    slack = -9.0 if row["slack"] is None else row["slack"]
    misses = 1e6 if share is None else share
    if order == 0:
        return (order, row["verdict"] != "feasible", *sizes, misses, -slack, row["config"])
    return (order, row["verdict"] != "feasible", misses, *sizes, -slack, row["config"])
