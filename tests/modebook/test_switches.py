"""Switches between plans: bounds hold in simulation, every frame is accounted for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from socsched.errors import DescriptorError, UsageError
from socsched.executor.build import require_executor
from socsched.executor.settings import RunSettings
from socsched.faults.model import Dropout, Faults
from socsched.modebook.book import Book, Change, Drive, cell_of, random_drive, read_drive
from socsched.modebook.cells import Cell
from socsched.modebook.simulate import UNACCOUNTED, account, simulate_book
from socsched.modebook.transitions import RESPONSES, WORK, drain
from socsched.sim.simulate import simulate
from tools.verify.virtual_clock import run_native

SECOND = 10**9
START = Cell("MAXN", "cool", "none", "base")


@pytest.mark.parametrize("seed", range(6))
def test_random_walks_stay_within_bounds_and_account_for_every_frame(small: Book, seed: int) -> None:
    drive = random_drive(small, 25, 8 * SECOND, seed)
    done = simulate_book(small, drive, 8 * SECOND, seed)
    made = [one for one in done.switches if not one.why]
    assert len(made) == len(drive.changes) > 10
    assert done.unaccounted == 0 and done.late.total() == 0 and done.met
    assert done.expected["control"] == (400, 400) and done.frames["control"].total() == 400
    assert sum(one.held.total() for one in made) == sum(count["held"] for count in done.frames.values())


def test_switches_at_every_phase_are_within_bounds(small: Book) -> None:
    draw = Random(5)
    for target in (replace(START, thermal="warm"), replace(START, loss="gpu"), replace(START, mode="MODE_50W")):
        for _ in range(12):
            at = SECOND + draw.randrange(40_000_000)
            done = simulate_book(small, Drive(START, (Change(at, target),)), 2 * SECOND)
            assert done.met and len(done.switches) == 1 and len(done.stretches) == 2
            assert done.switches[0].first_ns.keys() == {"image-to-command"}


def test_a_bound_that_is_too_small_is_seen(small: Book) -> None:
    cells = [cell_of(entry) for entry in small.document.cells]
    numbers = cells.index(START), cells.index(replace(START, mode="MODE_50W"))
    tight = tuple(
        replace(one, drain_ns=1_000_000, switch_ns=11_000_000) if (one.source, one.target) == numbers else one
        for one in small.document.switches
    )
    wrong = Book(replace(small.document, switches=tight), small.plans)
    change = Change(SECOND + 4_000_000, replace(START, mode="MODE_50W"))  # a frame has just begun
    done = simulate_book(wrong, Drive(START, (change,)), 2 * SECOND)
    assert not done.met
    assert done.unaccounted or not done.switches[0].within


def test_a_frame_whose_job_is_missing_is_unaccounted(small: Book) -> None:
    plan = small.plan(START)
    trace = simulate(plan, SECOND)
    trace.jobs = [job for job in trace.jobs if (job.task, job.frame) != ("track", 7)]
    fates, _ = account(plan, trace, SECOND, frozenset(), True)
    assert fates["camera"][UNACCOUNTED] == 1 and fates["control"][UNACCOUNTED] == 0


def test_faults_next_to_switches_are_accounted_for(small: Book) -> None:
    faults = Faults(dropouts=(Dropout("camera", SECOND // 2, SECOND + SECOND // 4),))
    done = simulate_book(small, random_drive(small, 8, 3 * SECOND, 4), 3 * SECOND, faults=faults)
    assert done.unaccounted == 0
    assert done.frames["camera"]["dropout"] + done.frames["camera"]["held"] >= 9


def test_frames_in_progress_on_a_lost_engine_are_lost(small: Book) -> None:
    assert {task.engine for task in small.plan(START).tasks if task.name == "detect"} == {"gpu"}
    change = Change(3_000_000 + 25 * 40_000_000 + 2_000_000, replace(START, loss="gpu"))
    done = simulate_book(small, Drive(START, (change,)), 2 * SECOND)
    assert done.frames["camera"]["lost"] == 1 and done.unaccounted == 0 and done.met


def test_jobs_behind_a_lost_engine_drain_too(small: Book) -> None:
    plan = small.plan(START)
    track = next(task for task in plan.tasks if task.name == "track")
    lost = drain(plan, lost="gpu")
    assert lost is not None and lost.ns >= track.wcet_ns
    longer = tuple(replace(t, wcet_ns=t.wcet_ns + 9_000_000) if t.name == "track" else t for t in plan.tasks)
    more = drain(replace(plan, tasks=longer), lost="gpu")
    assert more is not None and more.ns >= lost.ns + 9_000_000


def test_a_gated_gpu_needs_a_restart(small: Book) -> None:
    switch = small.switch(START, replace(START, mode="MODE_30W"))
    assert switch is not None and switch.why == "needs a restart of the board, which sets the units of gpu once"
    done = simulate_book(small, Drive(START, (Change(SECOND, replace(START, mode="MODE_30W")),)), 2 * SECOND)
    assert [one.why for one in done.switches] == [switch.why]
    assert done.stretches == [(START, 0, 2 * SECOND)] and done.met


def test_no_switch_leads_to_a_cell_without_a_plan(small: Book) -> None:
    switch = small.switch(START, replace(START, loss="cpu0"))
    assert switch is not None and switch.why == "no feasible plan: infeasible"


def test_a_change_during_a_switch_waits_for_its_end(small: Book) -> None:
    warm, lost = replace(START, thermal="warm"), replace(START, thermal="warm", loss="gpu")
    at = SECOND + 4_000_000
    done = simulate_book(small, Drive(START, (Change(at, warm), Change(at + 1, lost))), 2 * SECOND)
    first, second = done.switches
    assert second.requested_ns == at + first.switch_ns and done.met


def test_heat_stretches_the_drain_and_a_loss_shortens_it(small: Book) -> None:
    plan = small.plan(START)
    usual, hot, lost = drain(plan), drain(plan, Fraction(2)), drain(plan, lost="gpu")
    assert usual is not None and hot is not None and lost is not None
    assert lost.ns < usual.ns < hot.ns <= 4 * usual.ns
    assert {usual.by, hot.by} <= {RESPONSES, WORK}


def test_a_drive_file_is_read_and_its_faults_have_positions(small: Book, tmp_path: Path) -> None:
    file = tmp_path / "drive.yaml"
    file.write_text("start: {mode: MODE_50W}\nevents:\n- {at: 1 s, thermal: warm}\n- {at: 2 s, loss: gpu}\n")
    drive = read_drive(file, small)
    assert drive.start == replace(START, mode="MODE_50W")
    assert drive.changes[1] == Change(2 * SECOND, Cell("MODE_50W", "warm", "gpu", "base"))
    file.write_text(
        "events:\n- {at: 2 s, thermal: warn}\n- {at: 1 s, loss: gpu, mode: MAXN}\n- {at: 3, condition: town}\n"
    )
    with pytest.raises(DescriptorError) as caught:
        read_drive(file, small)
    text = str(caught.value)
    assert "2:22" in text and "did you mean 'warm'" in text
    assert "expected one change" in text and "in order of time" in text


def test_a_drive_starts_in_a_cell_with_a_plan(small: Book) -> None:
    with pytest.raises(UsageError, match="has no feasible plan"):
        simulate_book(small, Drive(replace(START, loss="cpu0")), SECOND)


def test_the_executor_fails_over_to_the_plan_without_the_lost_engine(small: Book, tmp_path: Path) -> None:
    plan = small.plan(START)
    detect = next(task for task in plan.tasks if task.name == "detect")
    usual = sum(segment.time_ns for segment in detect.segments) or detect.cost_ns
    times = {"detect": [usual, usual, -1, *[usual] * 200]}  # the third job hangs
    settings = RunSettings(plan, 2 * SECOND, limp_home=tuple(small.spares(plan)), times=times)
    trace, executed = run_native(require_executor(), settings, tmp_path)
    engines = [piece.engine for piece in trace.slices if piece.name.startswith("detect")]
    assert detect.engine == "gpu" and engines[0] == "gpu" and "gpu" not in engines[4:] and len(engines) > 40
    camera = executed.accounts["camera"]
    assert camera.released == 50 == camera.completed + camera.dropped + camera.aborted, camera
