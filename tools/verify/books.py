"""Walks through books: every switch within its bounds, every frame accounted for, once.

Usage: python -m tools.verify.books [BOOK] [--walks 100] [--changes 40] [--seconds 60] [--seed 0]

With BOOK: random walks through it; every other one has injected faults of all kinds, 6 a minute.

Without BOOK: `--walks` random small books (joins of two and three sources, joins of joins and of timers, several chains
over one join, joins sampled at other periods, offsets, jitter, sporadic sources, lost engines, heat, other periods
under a condition), each with one walk whose changes are requested where the accounts are most delicate: a nanosecond
before, at and after a release, the start or the end of a job of the simulation so far, and during the switch before, at
its end, and at the end of the simulation; the walk is simulated again with injected faults of all kinds, one a second.

Exit code 1 if a figure exceeds its bound, a frame has no fate, or a fate that only faults cause comes without them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

from socsched.api.books import book as make
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.faults.file import random_faults
from socsched.faults.model import Faults
from socsched.modebook.book import Book, Change, Drive, cell_of, first_cell, load_book, random_drive
from socsched.modebook.simulate import BookSimulation, first_frames, phased, simulate_book
from socsched.sim.simulate import simulate

SECOND = 10**9
PLATFORM = "jetson-agx-orin-64gb"
PERIODS = (20, 40, 50, 100)
"""Periods of sources (ms)."""
INJECTED = ("dropout", "aborted", "abandoned")
"""Fates that only injected faults cause."""


@dataclass
class Tally:
    """What the walks saw: fates of frames, the largest share of each bound without faults (1/1000), contradictions."""

    books: int = 0
    switches: int = 0
    outside: int = 0
    unaccounted: int = 0
    injected: int = 0
    late: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, done: BookSimulation, faults: Faults | None) -> None:
        """Add the simulation of a walk; `what` names it."""
        made = [one for one in done.switches if not one.why]
        fates = sum(done.frames.values(), Counter[str]())
        outside = sum(not one.within or bool(one.unpaired.keys() - one.unpaired_bound.keys()) for one in made)
        injected = sum(fates[fate] for fate in INJECTED) if faults is None else 0
        self.switches += len(made)
        self.outside += outside
        self.unaccounted += done.unaccounted
        self.injected += injected
        self.late += done.late.total() if faults is None else 0
        self.fates += fates
        if outside or done.unaccounted or injected:
            self.wrong.append(f"{what}: {outside} outside, {done.unaccounted} unaccounted, {injected} as by faults")
        for one in made if faults is None else ():
            if one.drain_bound_ns:
                self.used["drain"] = max(self.used["drain"], round(1000 * one.drain_ns / one.drain_bound_ns))
            for chain, first in one.first_ns.items():
                share = round(1000 * first / (one.first_bound_ns[chain] or 1))
                self.used["first output"] = max(self.used["first output"], share)
            for source, count in one.unpaired.items():
                self.used["unpaired"] = max(self.used["unpaired"], 1000 * count // (one.unpaired_bound[source] or 1))
            for source, count in one.held.items():
                self.used["held"] = max(self.used["held"], 1000 * count // (one.held_bound[source] or 1))

    def report(self) -> int:
        """Print the sums; return the exit code."""
        print(f"{self.switches} switches in {self.books} books, {self.outside} outside their bounds; ", end="")
        print(f"{self.fates.total()} frames, {self.unaccounted} unaccounted for, ", end="")
        print(f"{self.injected} with fates of faults without faults; {self.late} outputs late without faults")
        print(", ".join(f"{fate} {count}" for fate, count in self.fates.most_common()))
        print("largest share of a bound: " + ", ".join(f"{name} {part / 10:.1f} %" for name, part in self.used.items()))
        print(*self.wrong[:20], sep="\n")
        return int(bool(self.wrong))


def random_pipeline(seed: int) -> dict[str, Any]:
    """Return a random pipeline as the content of its file: one to three groups of sources, each joined."""
    draw = Random(f"{seed}:pipeline")
    sensors: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    chains: dict[str, Any] = {}
    ends: list[str] = []
    for group in range(draw.randint(1, 3)):
        period = draw.choice(PERIODS)
        fronts: list[tuple[list[str], str]] = []
        count = draw.randint(1, 4)
        for number in range(count):
            name = f"s{group}{number}"
            offset, jitter = draw.choice((0, 0, 1, period // 2, period - 1)), draw.choice((0, 0, 1, period // 3))
            if fronts and draw.random() < 0.2:  # a timer among the sources of a join
                stages[name] = _stage(draw, period, {"period": f"{period} ms", "offset": f"{offset} ms"})
                stages[name]["jitter"] = f"{jitter} ms"
                fronts.append(([name], name))
                continue
            sensors[name] = {"kind": "camera", "period": f"{period} ms", "offset": f"{offset} ms", "assumed": "drawn"}
            if draw.random() < 0.6:
                sensors[name]["jitter"] = f"{jitter} ms"
            if count == 1 and draw.random() < 0.4:  # sporadic frames are joined with no others
                sensors[name]["sporadic"] = f"{draw.randint(1, period)} ms"
            stages[f"a{name}"] = _stage(draw, period, {"after": [name]})
            fronts.append(([name, f"a{name}"], f"a{name}"))
            if draw.random() < 0.3:
                chains[f"own-{name}"] = _chain([name, f"a{name}"], period)
        while len(fronts) > 1:  # joins of two or three, of joins too
            taken = [fronts.pop(draw.randrange(len(fronts))) for _ in range(min(draw.choice((2, 2, 3)), len(fronts)))]
            join = f"j{group}{len(stages)}"
            stages[join] = _stage(draw, period, {"after": [end for _, end in taken]})
            path = [*draw.choice(taken)[0], join]
            fronts.append((path, join))
            for number, (before, _) in enumerate(taken):
                if draw.random() < 0.5:
                    chains[f"{join}-{number}"] = _chain([*before, join], period)
        path, end = fronts[0]
        if draw.random() < 0.4:
            stages[f"z{group}"] = _stage(draw, period, {"after": [end]})
            path = [*path, f"z{group}"]
        chains[f"c{group}"] = _chain(path, period)
        ends.append(path[-1])
    if draw.random() < 0.5:
        period = draw.choice(PERIODS)
        read = draw.sample(ends, draw.randint(1, len(ends)))
        stages["t"] = _stage(draw, period, {"period": f"{period} ms", "reads": read})
        stages["t"]["jitter"] = f"{draw.choice((0, period // 2, period - 1))} ms"
        stages["t"]["offset"] = f"{draw.choice((0, period // 2))} ms"
    return {
        "schema_version": "1", "name": "walk", "title": "drawn", "sensors": sensors, "stages": stages,
        "chains": chains, "conditions": _conditions(draw, sensors, stages),
    }  # fmt: skip


def _stage(draw: Random, period: int, trigger: dict[str, Any]) -> dict[str, Any]:
    time = draw.choice((1, 5, 10, 20, 40)) * period * 10  # us, up to a third of the period
    engines = [("cpu", 1)] + ([("gpu", 0)] if draw.random() < 0.4 else [])
    costs = [
        {
            "platform": PLATFORM, "mode": "MAXN", "engine": engine, "precision": "fp32", "units": units,
            "time": {"value": f"{time // (2 if engine == 'gpu' else 1)} us", "kind": "assumed", "note": "drawn"},
        }
        for engine, units in engines
    ]  # fmt: skip
    return {**trigger, "title": "drawn", "precisions": ["fp32"], "share": 1, "assumed": "drawn", "costs": costs}


def _chain(path: list[str], period: int) -> dict[str, Any]:
    return {"path": path, "deadline": f"{8 * period} ms", "assumed": "drawn"}


def _conditions(draw: Random, sensors: dict[str, Any], stages: dict[str, Any]) -> dict[str, Any]:
    """Return a condition under which all sources of one period have another one, half of the time."""
    periods = [sensor["period"] for sensor in sensors.values()]
    if not periods or draw.random() < 0.5:
        return {}
    slow = draw.choice(periods)
    joined = {name for stage in stages.values() for name in stage.get("after", ())}
    if any(stage.get("period") == slow and name in joined for name, stage in stages.items()):
        return {}
    longer = f"{2 * int(slow.split()[0])} ms"
    changed = {name: {"period": longer} for name, sensor in sensors.items() if sensor["period"] == slow}
    return {"other": {"title": "drawn", "assumed": "drawn", "sensors": changed}}


def random_book(seed: int) -> Book:
    """Return the book of a random pipeline, with thermal states and perhaps a lost GPU."""
    pipeline = pipeline_from_mapping(random_pipeline(seed), "walk.yaml")
    losses = ["gpu"] if Random(f"{seed}:loss").random() < 0.5 else []
    quick: dict[str, Any] = {"solver": "heft", "refine": False, "cuts": False, "explain": False}
    thermal = ["cool", "warm"] if losses or pipeline.conditions else []
    return make(pipeline, PLATFORM, modes=["MAXN"], thermal=thermal, losses=losses, evaluations=500, **quick)


def delicate_drive(book: Book, count: int, seed: int) -> tuple[Drive, int]:
    """Return a walk of `count` changes at delicate instants, and the duration (ns), delicate too."""
    draw = Random(f"{seed}:drive")
    cells = [cell_of(entry) for entry in book.document.cells]
    ways: dict[int, list[int]] = {}
    for switch in book.document.switches:
        if not switch.why:
            ways.setdefault(switch.source, []).append(switch.target)
    drive = Drive(first_cell(book))
    here = cells.index(drive.start)
    while len(drive.changes) < count and here in ways:
        at = _delicate(book, drive, seed, draw)
        here = draw.choice(ways[here])
        drive = Drive(drive.start, (*drive.changes, Change(at, cells[here])))
    return drive, _delicate(book, drive, seed, draw)


def _delicate(book: Book, drive: Drive, seed: int, draw: Random) -> int:
    """Return an instant after the drive's last change: as it is simulated, an event of its last plan, or nearly."""
    plan, start = book.plan(drive.start), 0
    if drive.changes:
        last = drive.changes[-1]
        switch = simulate_book(book, drive, last.at_ns + 2 * SECOND, seed).switches[-1]
        plan, start = book.plan(last.target), switch.requested_ns + switch.switch_ns
        if draw.random() < 0.2:
            return draw.choice((last.at_ns + 1, draw.randint(last.at_ns + 1, start), start - 1, start, start + 1))
    longest = max(task.period_ns for task in plan.tasks)
    length = 6 * longest
    trace = simulate(phased(plan, start, first_frames(plan, start)), length, seed + len(drive.changes))
    events = {at for releases in trace.releases.values() for at in releases}
    events |= {at for job in trace.jobs for at in (job.activation_ns, job.start_ns, job.finish_ns)}
    later = sorted(at for at in events if 0 < at < length)
    at = draw.choice(later) if later and draw.random() < 0.9 else draw.randint(1, length)
    return start + at + draw.choice((-1, 0, 0, 1))


def main() -> int:
    """Simulate the walks and print what they saw; return the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("book", nargs="?")
    arguments.add_argument("--walks", type=int, default=100)
    arguments.add_argument("--changes", type=int, default=40)
    arguments.add_argument("--seconds", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=0)
    asked = arguments.parse_args()
    tally = Tally()
    if asked.book:
        stored, length = load_book(asked.book), asked.seconds * SECOND
        tally.books = 1
        for seed in range(asked.seed, asked.seed + asked.walks):
            drive = random_drive(stored, asked.changes, length, seed)
            faults = random_faults(stored.plan(drive.start), seed, Fraction(6), length) if seed % 2 else None
            tally.add(f"walk {seed}", simulate_book(stored, drive, length, seed, faults), faults)
        return tally.report()
    for seed in range(asked.seed, asked.seed + asked.walks):
        drawn = random_book(seed)
        if all(entry.verdict != "feasible" for entry in drawn.document.cells):
            continue
        tally.books += 1
        drive, length = delicate_drive(drawn, asked.changes, seed)
        tally.add(f"book {seed}", simulate_book(drawn, drive, length, seed), None)
        faults = random_faults(drawn.plan(drive.start), seed, Fraction(60), length)
        tally.add(f"book {seed} with faults", simulate_book(drawn, drive, length, seed, faults), faults)
    return tally.report()


if __name__ == "__main__":
    sys.exit(main())
