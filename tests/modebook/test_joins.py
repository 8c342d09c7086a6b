"""Joins across switches: the partner of a frame that a switch holds back has a fate, its count a bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from socsched.api.books import book
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.executor.build import require_executor
from socsched.executor.settings import RunSettings
from socsched.faults.model import Delay, Faults
from socsched.modebook.book import Book, Change, Drive
from socsched.modebook.cells import Cell
from socsched.modebook.simulate import account, simulate_book
from socsched.sim.simulate import simulate
from tests.modebook.conftest import cost
from tools.verify.books import Tally, delicate_drive, random_book
from tools.verify.virtual_clock import run_native

MS = 10**6
PERIOD = 100 * MS
COOL, WARM, OTHER = (
    Cell("MAXN", "cool", "none", "base"),
    Cell("MAXN", "warm", "none", "base"),
    Cell("MAXN", "cool", "none", "slow"),
)
LOST = Cell("MAXN", "cool", "gpu", "base")


def _stage(engine: str = "cpu", **trigger: Any) -> dict[str, Any]:
    costs = [cost("cpu", "1 ms")] + ([cost("gpu", "500 us", 0)] if engine == "gpu" else [])
    return {"title": "t", "share": 1, "assumed": "a test", "costs": costs, **trigger}


def _sensor(offset: int, **more: str) -> dict[str, Any]:
    return {"kind": "camera", "period": "100 ms", "offset": f"{offset} ms", "assumed": "a test", **more}


@pytest.fixture(scope="module")
def joined() -> Book:
    """Three sensors 40 ms apart, two joined and then the third; a jittered timer; a sporadic sensor."""
    document = {
        "schema_version": "1", "name": "joined", "title": "t",
        "sensors": {"cam": _sensor(0), "lid": _sensor(40), "rad": _sensor(80, jitter="15 ms"),
                    "gps": _sensor(0, sporadic="70 ms")},
        "stages": {
            "a": _stage("gpu", after=["cam"]), "b": _stage(after=["lid"]), "ab": _stage(after=["a", "b"]),
            "abr": _stage(after=["ab", "rad"]), "fix": _stage(after=["gps"]),
            "t": _stage(period="100 ms", jitter="60 ms", reads=["ab"]),
        },
        "chains": {
            "early": {"path": ["cam", "a", "ab"], "deadline": "200 ms", "assumed": "a test"},
            "whole": {"path": ["cam", "a", "ab", "abr"], "deadline": "300 ms", "assumed": "a test"},
            "command": {"path": ["t"], "deadline": "200 ms", "assumed": "a test"},
        },
        "conditions": {
            "slow": {"title": "t", "assumed": "a test",
                     "sensors": {name: {"period": "150 ms"} for name in ("cam", "lid", "rad")}},
        },
    }  # fmt: skip
    pipeline = pipeline_from_mapping(document, "joined.yaml")
    return book(
        pipeline, "jetson-agx-orin-64gb", modes=["MAXN"], thermal=["cool", "warm"], losses=["gpu"], solver="heft",
        refine=False, evaluations=768,
    )  # fmt: skip


def test_a_join_whose_partner_is_held_leaves_an_unpaired_frame(joined: Book) -> None:
    at = 10 * PERIOD + 20 * MS  # cam's frame 10 has come, lid's and rad's have not
    done = simulate_book(joined, Drive(COOL, (Change(at, WARM),)), 3_000 * MS)
    assert {name: count["unpaired"] for name, count in done.frames.items()} == {
        "cam": 1, "lid": 0, "rad": 0, "gps": 0, "t": 0,
    }  # fmt: skip
    assert done.met and not any(count["dropout"] or count["unaccounted"] for count in done.frames.values())
    at = 10 * PERIOD + 60 * MS  # the first join is complete, the join of the join is not
    done = simulate_book(joined, Drive(COOL, (Change(at, WARM),)), 3_000 * MS)
    assert (done.frames["cam"]["unpaired"], done.frames["lid"]["unpaired"]) == (1, 1)
    assert done.completed["early"] == done.completed["whole"] + 1 and done.met
    assert joined.switch(COOL, WARM).unpaired == {"cam": 1, "lid": 1, "rad": 0}  # type: ignore[union-attr]


@pytest.mark.parametrize("target", [WARM, LOST, OTHER], ids=str)
def test_every_frame_has_one_fate_whenever_a_switch_is_requested(joined: Book, target: Cell) -> None:
    releases = [10 * PERIOD + offset * MS for offset in (0, 40, 80, 95, 100)]
    for at in (release + shift for release in releases for shift in (-1, 0, 1)):
        back = Change(at + joined.switch(COOL, target).switch_ns // 2, COOL)  # type: ignore[union-attr,operator]
        again = (Change(at, target), back, Change(at + 60 * MS, target))
        done = simulate_book(joined, Drive(COOL, again), at + 1_000 * MS + 1, seed=at)
        assert len(done.switches) == 3 and done.met, (at, done.document())
        for name, (least, most) in done.expected.items():
            assert least <= done.frames[name].total() <= most
        fates = {fate for count in done.frames.values() for fate, number in count.items() if number}
        assert fates <= {"completed", "held", "unpaired", "lost", "unfinished"}
        assert not any(number < 0 for count in done.frames.values() for number in count.values())


def test_frames_that_the_end_of_the_simulation_separates_are_unfinished(joined: Book) -> None:
    for end in (1_020, 1_060, 1_075):
        done = simulate_book(joined, Drive(COOL), end * MS)
        assert done.unaccounted == 0 and done.frames["cam"]["unfinished"] == 1, end


def test_a_frame_that_runs_although_it_is_held_is_unaccounted(joined: Book) -> None:
    plan = joined.plan(COOL)
    trace = simulate(plan, 1_000 * MS)  # sources go on after the request
    fates, _ = account(plan, trace, 520 * MS, frozenset(), False)
    assert fates["cam"]["unaccounted"] == 4 and fates["lid"]["unaccounted"] == 5


def test_failover_accounts_for_both_partners_of_a_join(joined: Book, tmp_path: Path) -> None:
    plan = joined.plan(COOL)
    stage = next(task for task in plan.tasks if task.name == "a")
    assert stage.engine == "gpu"
    usual = sum(segment.time_ns for segment in stage.segments) or stage.cost_ns
    times = {"a": [usual, usual, -1, *[usual] * 200]}  # the third job hangs, with its partners still to come
    settings = RunSettings(plan, 2_000 * MS, limp_home=tuple(joined.spares(plan)), times=times)
    trace, executed = run_native(require_executor(), settings, tmp_path)
    for name in ("cam", "lid", "rad"):
        account = executed.accounts[name]
        assert account.released == account.completed + account.dropped + account.aborted
        assert account.completed >= account.released - 3, (name, account)
    whole = [job.frame for job in trace.jobs if job.task == "abr" and job.status == "done"]
    assert len(whole) >= 15


def test_old_books_state_no_bound_of_unpaired_frames(joined: Book) -> None:
    switches = tuple(replace(one, unpaired={}) for one in joined.document.switches)
    old = Book(replace(joined.document, switches=switches), joined.plans)
    draw = Random(3)
    changes = [
        Change(PERIOD + number * 300 * MS + draw.randrange(PERIOD), (WARM, COOL)[number % 2]) for number in range(8)
    ]
    done = simulate_book(old, Drive(COOL, tuple(changes)), 3_000 * MS)
    assert done.met and sum(count["unpaired"] for count in done.frames.values())


def test_forty_switches_between_two_releases_leave_no_frame_without_a_fate(joined: Book) -> None:
    draw = Random(7)
    at, changes = 1_000 * MS, []
    for number in range(40):
        changes.append(Change(at, (WARM, COOL)[number % 2]))
        at += 600 * MS + draw.randrange(2 * PERIOD)
    done = simulate_book(joined, Drive(COOL, tuple(changes)), 40_000 * MS)
    assert len(done.switches) == 40 and done.met and done.unaccounted == 0
    assert not any(count["dropout"] for count in done.frames.values())
    assert done.frames["cam"]["unpaired"] >= 10 and done.frames["lid"]["unpaired"] >= 5


def test_a_frame_that_a_fault_delays_beyond_the_end_is_not_missed(joined: Book) -> None:
    faults = Faults(delays=(Delay("lid", 900 * MS, 1_100 * MS, 30 * MS),))
    done = simulate_book(joined, Drive(COOL), 1_060 * MS, faults=faults)  # lid's frame 10 comes at 1070 ms
    assert done.expected["lid"] == (10, 11) and done.frames["lid"].total() == 10 and done.unaccounted == 0


@pytest.mark.slow
def test_changes_at_delicate_instants_of_random_books_account_for_every_frame() -> None:
    for seed in range(3):
        drawn = random_book(seed)
        drive, length = delicate_drive(drawn, 12, seed)
        tally = Tally()
        tally.add(f"book {seed}", simulate_book(drawn, drive, length, seed), None)
        assert tally.switches >= 10 and not tally.wrong
