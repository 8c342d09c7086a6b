"""A fleet: many vehicles with the same configuration, each with a load, environment and faults drawn from its seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.descriptor.study import Fleet, Study
from socsched.reporting import markup as html
from socsched.reporting.charts import Axes, plain_ticks
from socsched.reporting.markup import Markup, element, facts, picture, section, table, ticks
from socsched.study import bounds
from socsched.study.columns import Column
from socsched.study.design import Point
from socsched.study.engines import Engine
from socsched.study.inputs import Inputs
from socsched.study.store import Row, Store
from socsched.study.sweep import Progress, do_jobs
from socsched.study.work import Job, fleet_of, open_inputs, plan_key
from socsched.units import format_duration

CHUNK = 16
COLUMNS = (
    Column("config", "int", "number of the configuration in the study's design, from 0"),
    Column("vehicle", "int", "number of the vehicle, from 0"),
    Column("seed", "int", "its seed: --vehicle replays it"),
    Column("platform", "text", "platform"),
    Column("mode", "text", "power mode of the plan"),
    Column("pipeline", "text", "pipeline"),
    Column("plan", "text", "key of the plan (plans/KEY.json.gz)"),
    Column("load", "float", "factor on its execution times"),
    Column("ambient_c", "float", "ambient temperature of its module; null if not simulated"),
    Column("faults_per_minute", "float", "rate of its random faults"),
    Column("frames", "int", "frames released, summed over chains"),
    Column("missed", "int", "frames late, or unfinished at their deadline"),
    Column("dropped", "int", "frames aborted or lost"),
    Column("worst_chain", "text", "chain with the largest ratio of response time to deadline"),
    Column("worst_response_max_ns", "int", "its largest response time"),
    Column("worst_response_share", "float", "the same over its deadline"),
    Column("power_mw", "float", "mean power"),
)


@dataclass(frozen=True, slots=True)
class Group:
    """Results of one configuration's vehicles: misses per million with their interval and design effect.

    `low`, `high`: interval of misses per million frames, for clusters; `effect`: their design effect.  `hit`: vehicles
    with misses; `hit_high`: upper end of the interval of their share.
    """

    point: Point
    rows: tuple[Row, ...]
    frames: int
    misses: int
    low: float
    high: float
    effect: float
    hit: int
    hit_low: float
    hit_high: float
    worst: tuple[Row, ...]

    @property
    def per_million(self) -> float:
        """Return the misses per million frames."""
        return 1e6 * self.misses / self.frames if self.frames else 0.0


@dataclass(frozen=True, slots=True)
class Driven:
    """A simulated fleet; `busy_s`: processor time of this session's vehicles; `fresh`: their number."""

    study: Study
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    folder: Path
    fresh: int
    seconds: float
    busy_s: float


def drive(
    inputs: Inputs,
    found: Sequence[Point],
    folder: Path,
    store: Store,
    engine: Engine,
    note: Callable[[str], None] | None = None,
) -> Driven:
    """Simulate every vehicle of every configuration that is not in `store` yet."""
    study, fleet, started = inputs.study, fleet_of(inputs.study), time.monotonic()
    before = len(store.rows)
    open_inputs(inputs, folder / "inputs")
    digest, progress = inputs.digest(), Progress(fleet.vehicles * len(found), 0, note, "vehicles")
    groups: dict[str, list[Job]] = {}
    for point in found:
        missing = [n for n in range(fleet.vehicles) if (point.config, n) not in store.rows]
        progress.found(fleet.vehicles - len(missing))
        key = plan_key(digest, point)
        for first, count in _stretches(missing):
            groups.setdefault(key, []).append(Job(key, (point,), 1, vehicles=(first, count)))
    try:
        with engine:
            busy = do_jobs(groups.items(), folder, store, engine, progress)
    finally:
        progress.end()
        store.close()
    rows = tuple(store.rows[point.config, n] for point in found for n in range(fleet.vehicles))
    summed = tuple(summary(fleet, point, [row for row in rows if row["config"] == point.config]) for point in found)
    return Driven(study, summed, rows, folder, len(store.rows) - before, time.monotonic() - started, busy)


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of consecutive numbers as (first, count), each of at most `CHUNK` numbers."""
    stretches: list[tuple[int, int]] = []
    for number in numbers:
        if stretches and sum(stretches[-1]) == number and stretches[-1][1] < CHUNK:
            stretches[-1] = (stretches[-1][0], stretches[-1][1] + 1)
        else:
            stretches.append((number, 1))
    return stretches


def summary(fleet: Fleet, point: Point, rows: Sequence[Row]) -> Group:
    """Return the results of one configuration's vehicles."""
    lost = [(row["missed"] + row["dropped"], row["frames"]) for row in rows]
    low, high, effect = bounds.cluster_interval(lost, fleet.confidence)
    hit = sum(bool(count) for count, _ in lost)
    hit_low, hit_high = bounds.interval(hit, len(rows), fleet.confidence)
    worst = sorted(rows, key=lambda r: (-_share(r), -r["worst_response_share"], r["vehicle"]))[: fleet.worst]
    frames, misses = sum(n for _, n in lost), sum(k for k, _ in lost)
    return Group(
        point, tuple(rows), frames, misses, 1e6 * low, 1e6 * high, effect, hit, hit_low, hit_high, tuple(worst)
    )


def _share(row: Mapping[str, Any]) -> float:
    lost: int = row["missed"] + row["dropped"]
    return lost / row["frames"] if row["frames"] else 0.0


def extrapolation(done: Driven) -> list[tuple[str, str]]:
    """Return the cost of more vehicle-hours: (label, figure), from the processor time of this session."""
    fleet = fleet_of(done.study)
    if not done.fresh or done.busy_s <= 0:
        return []
    hours = done.fresh * fleet.duration_ns / 3600e9
    frames = sum(row["frames"] for row in done.rows) / len(done.rows) * done.fresh
    core_hours = done.busy_s / 3600
    whole = core_hours / hours * fleet.vehicle_hours
    return [
        ("simulated here", f"{hours:.3g} vehicle-hours, {frames:.4g} frames in {core_hours:.3g} core-hours"),
        ("frames per core-hour", f"{frames / core_hours:.4g}"),
        ("vehicle-hours per core-hour", f"{hours / core_hours:.4g}"),
        (f"{fleet.vehicle_hours:,} vehicle-hours", f"{whole:.4g} core-hours"),
        *((f"cores for that within {name}", f"{max(whole / span, 1):.0f}") for name, span in _SPANS),
    ]


_SPANS = (("an hour", 1), ("a day", 24), ("a week", 168))


_WORST = ("seed", "load", "ambient C", "faults/min", "missed", "dropped", "frames", "worst response", "of", "replay")


def page(done: Driven, study_argument: str, made_by: Mapping[str, str]) -> str:
    """Return the page of a fleet: misses with intervals, the worst vehicles with replay commands, the cost of more."""
    title = done.study.title or done.study.name
    costs = extrapolation(done)
    return html.page(
        title,
        element("h1", f"{title}: {fleet_of(done.study).vehicles:,} vehicles"),
        (_group(group, done, study_argument) for group in done.groups),
        section("What more would cost", table(["what", "here"], costs)) if costs else None,
        section("How this was made", facts(made_by)),
    )


def _group(group: Group, done: Driven, study_argument: str) -> Markup:
    rows = [[*cells(row), element("code", replay(done, row, study_argument))] for row in group.worst]
    return section(
        configuration_name(group),
        element("p", misses(group, done)),
        _scatter(group.rows, "load", "load"),
        _scatter(group.rows, "ambient_c", "ambient temperature [C]"),
        element("h3", "Worst vehicles"),
        table(_WORST, rows, range(8)),
    )


def configuration_name(group: Group) -> str:
    """Return the name of the configuration that a group of vehicles runs."""
    row = group.rows[0]
    return f"{row['pipeline']} on {row['platform']} in {row['mode']}"


def misses(group: Group, done: Driven) -> str:
    """Return the misses of a group in a sentence."""
    fleet = fleet_of(done.study)
    share = f"{fleet.confidence:.0%}"
    return (
        f"{group.misses:,} of {group.frames:,} frames missed: {group.per_million:.4g} per million, "
        f"{share} interval {group.low:.4g} to {group.high:.4g} (design effect {group.effect:.3g}); "
        f"{group.hit:,} of {len(group.rows):,} vehicles missed any, {group.hit_low:.3%} to {group.hit_high:.3%}"
    )


def cells(row: Row) -> list[str]:
    """Return a vehicle as cells of a table."""
    return [
        str(row["seed"]),
        f"{row['load']:.3f}",
        "–" if row["ambient_c"] is None else f"{row['ambient_c']:.1f}",
        f"{row['faults_per_minute']:.3g}",
        str(row["missed"]),
        str(row["dropped"]),
        str(row["frames"]),
        f"{format_duration(row['worst_response_max_ns'])} ({row['worst_response_share']:.0%})",
        row["worst_chain"],
    ]


def replay(done: Driven, row: Row, study_argument: str) -> str:
    """Return the command that simulates one vehicle again, with trace and report."""
    config = f" --config {row['config']}" if len(done.groups) > 1 else ""
    return f"socsched fleet {study_argument} --vehicle {row['seed']}{config} -o vehicle-{row['seed']}"


def _scatter(rows: Sequence[Row], name: str, label: str) -> Markup | None:
    """Return every vehicle's worst response against one of its conditions; vehicles that missed frames are red."""
    known = [row for row in rows if row[name] is not None]
    low, high = (end((row[name] for row in known), default=0) for end in (min, max))
    if low == high:
        return None
    width, height = 640, 240
    top = max(row["worst_response_share"] for row in known) * 1.06 or 1
    axes = Axes((low, high), (0, top), width, height, (56, 20, 24, 40))
    shares = [(tick, f"{tick:.0%}") for tick in ticks(0, top, 5)]
    legend = "largest response over deadline; red: frames missed"
    parts = [axes.grid(plain_ticks((low, high), 8), shares, label, legend)]
    step = max(len(known) // 3000, 1)
    for number, row in enumerate(known):
        lost = row["missed"] + row["dropped"]
        if lost or number % step == 0:
            x, y = axes.x(row[name]), axes.y(row["worst_response_share"])
            fill = "var(--bad)" if lost else "var(--c1)"
            parts.append(element("circle", cx=x, cy=y, r=2.4, fill=fill, fill_opacity=0.6))
    return picture(parts, width, height, f"worst response against {label}", "chart")
