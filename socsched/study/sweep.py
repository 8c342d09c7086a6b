"""A sweep: every configuration of a study is planned and simulated once, and rows are stored as they arrive.

Rows are pure functions of study and seed: plans are searched within a budget of mappings, not of seconds, and tables
are equal byte for byte whichever engine computed them.  A plan is keyed by what it depends on, made by the first job of
a group and passed to the rest.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.descriptor.catalog import HOST, get_platform
from socsched.descriptor.study import Study, resolve_path
from socsched.errors import UsageError
from socsched.planning.pareto import undominated
from socsched.resources import is_path
from socsched.study.design import Point, points
from socsched.study.engines import Engine
from socsched.study.inputs import Inputs, Opened
from socsched.study.store import Row, Store, replace_file
from socsched.study.work import Job, Planned, open_inputs, plan_key, unpack

_EVERY_S = 5.0
_ON_A_TERMINAL_S = 0.2


class Progress:
    """Reports finished rows to `note`: updated in place on a terminal, otherwise one line every five seconds."""

    def __init__(self, total: int, done: int, note: Callable[[str], None] | None, unit: str = "configurations") -> None:
        self.total, self.done, self._first = total, done, done
        self._note, self._unit = note, unit
        self._started = self._told = time.monotonic()
        self._terminal = note is not None and sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Count finished rows, and report periodically."""
        if not count:
            return
        self.done += count
        now = time.monotonic()
        if self._note and now - self._told >= (_ON_A_TERMINAL_S if self._terminal else _EVERY_S):
            self._told = now
            if self._terminal:
                sys.stderr.write(f"\r\033[K{self.text()}")
                sys.stderr.flush()
            else:
                self._note(self.text())

    def found(self, count: int) -> None:
        """Count rows of an earlier session, which do not enter the rate of this one."""
        self.done += count
        self._first += count

    def end(self) -> None:
        """End the progress line on a terminal."""
        if self._terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def rate(self) -> float:
        """Return the finished rows per second, excluding earlier sessions."""
        return (self.done - self._first) / max(time.monotonic() - self._started, 1e-9)

    def text(self) -> str:
        """Return the line: rows, rate, remaining time."""
        rate = self.rate()
        left = f", {_span((self.total - self.done) / rate)} left" if rate > 0 and self.done < self.total else ""
        return f"{self.done}/{self.total} {self._unit}, {rate:.3g}/s{left}"


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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


FRONTS = (
    ("latency_ns", "planned_power_mw"),
    ("latency_ns", "tdp_mw"),
    ("latency_ns", "energy_mj_per_round"),
)
"""Pairs of columns whose fronts are drawn; with prices, also latency against price."""


@dataclass(frozen=True, slots=True)
class Answers:
    """`best`: rows by the measure they are best at, among those that hold; `nearest`: the best of all if none holds.

    `fronts`: Pareto-optimal configurations by pair of columns, among those that hold (or all if none does).
    """

    best: Mapping[str, Row]
    nearest: Row | None
    fronts: Mapping[tuple[str, str], frozenset[int]]
    holding: int
    open: int
    failed: int


def answers(study: Study, rows: Sequence[Row]) -> Answers:
    """Return the answers from the rows of a study."""
    holding = [row for row in rows if row["holds"]]
    ordered = sorted(rows, key=lambda row: rank(study, row))
    shown = holding or [row for row in rows if row["verdict"] != "error"]
    pairs = [*FRONTS, ("latency_ns", "price")] if study.prices else list(FRONTS)
    return Answers(
        best=_best(study, holding),
        nearest=None if holding or not ordered else ordered[0],
        fronts={pair: frozenset(front(shown, pair)) for pair in pairs},
        holding=len(holding),
        open=sum(row["holds"] is None for row in rows),
        failed=sum(row["verdict"] == "error" for row in rows),
    )


def front(rows: Sequence[Row], axes: tuple[str, str]) -> set[int]:
    """Return the configurations not dominated in two columns (smaller is better), the first of equal ones."""
    first: dict[tuple[float, float], int] = {}
    for row in rows:
        if row[axes[0]] is not None and row[axes[1]] is not None:
            first.setdefault((row[axes[0]], row[axes[1]]), row["config"])
    places = list(first)
    return {first[places[index]] for index in undominated(places)}


def _best(study: Study, holding: Sequence[Row]) -> dict[str, Row]:
    if not holding:
        return {}
    best = {"smallest": min(holding, key=lambda row: rank(study, row))}
    for name, column, sign in (
        ("fastest", "latency_ns", 1),
        ("most frugal", "planned_power_mw", 1),
        ("most slack", "slack", -1),
    ):
        known = [row for row in holding if row[column] is not None]
        if known:
            best[name] = min(known, key=lambda row: (sign * row[column], rank(study, row)))
    return best
