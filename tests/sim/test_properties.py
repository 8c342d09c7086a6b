"""Properties of every plan, tested on random small ones."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

from builders import plan, task
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import CAPACITY, HORIZON, plans

from socsched.cost.contention import stretch
from socsched.faults.model import Faults, Overrun, Slowdown
from socsched.planning.plan import Plan, Task
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result
from socsched.trace.trace import Trace


@given(plans())
def test_no_lane_runs_two_jobs_and_no_task_two_frames(made: Plan) -> None:
    trace = simulate(made, HORIZON)
    busy: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for piece in trace.slices:
        assert 0 <= piece.start_ns <= piece.end_ns <= HORIZON
        for place in (*((piece.engine, lane) for lane in piece.lanes), trace.jobs[piece.job].task):
            busy[place].append((piece.start_ns, piece.end_ns))
    for spans in busy.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


@given(plans())
def test_frames_of_a_task_keep_their_order_and_data_precedes_its_use(made: Plan) -> None:
    trace = simulate(made, HORIZON)
    finish = {(job.task, job.frame): job.finish_ns for job in trace.jobs if job.status == "done"}
    finish.update({("s", frame): release for frame, release in enumerate(trace.releases["s"])})
    tasks = {t.name: t for t in made.tasks}
    started: dict[str, int] = {}
    for job in trace.jobs:
        for name in tasks[job.task].after:
            assert finish[name, job.frame] <= job.activation_ns
        if job.start_ns >= 0:
            assert started.get(job.task, 0) <= job.activation_ns or started[job.task] <= job.start_ns
            started[job.task] = job.start_ns
            assert job.activation_ns <= job.start_ns
        for name, frame in job.sampled.items():
            assert frame < 0 or finish[name, frame] <= job.start_ns


@given(plans())
def test_lanes_are_never_left_idle_while_a_job_could_take_them(made: Plan) -> None:
    trace = simulate(made, HORIZON)
    tasks = {t.name: t for t in made.tasks}
    edges = sorted({t for piece in trace.slices for t in (piece.start_ns, piece.end_ns)} | {0, HORIZON})
    for begin, end in pairwise(edges):
        running = {piece.job for piece in trace.slices if piece.start_ns <= begin and end <= piece.end_ns}
        taken = {(trace.slices[i].engine, lane) for i, lane in _lanes(trace, begin, end)}
        head: set[str] = set()
        for number, job in enumerate(trace.jobs):
            over = job.finish_ns if job.finish_ns >= 0 else HORIZON
            if job.status == "dropped" or job.task in head or not job.activation_ns <= begin < over:
                continue
            head.add(job.task)
            owner = tasks[job.task]
            assert number in running or taken & {(owner.engine, lane) for lane in owner.lanes}, (begin, job)


def _lanes(trace: Trace, begin: int, end: int) -> list[tuple[int, int]]:
    spans = enumerate(trace.slices)
    return [(i, lane) for i, s in spans if s.start_ns <= begin and end <= s.end_ns for lane in s.lanes]


@given(plans())
def test_done_jobs_got_what_they_need_and_no_more_than_the_worst_share(made: Plan) -> None:
    trace = simulate(made, HORIZON)
    tasks = {t.name: t for t in made.tasks}
    ran: dict[int, int] = defaultdict(int)
    for piece in trace.slices:
        ran[piece.job] += piece.end_ns - piece.start_ns
    drawing = [t for t in made.tasks if any(s.bytes for s in t.segments)]
    for number, job in enumerate(trace.jobs):
        assert ran[number] == job.exec_ns
        if job.status == "done":
            owner = tasks[job.task]
            host = next(e for e in made.engines if e.id == owner.engine)
            least = sum(s.time_ns for s in owner.segments)
            # With at most one job of each task at a time, an even split is the least a fair share can be.
            most = sum(stretch(s, CAPACITY / max(len(drawing), 1)) for s in owner.segments)
            assert least <= job.exec_ns <= most + job.preemptions * host.switch_ns


@given(plans())
def test_bandwidth_stays_under_the_cap_and_adds_up(made: Plan) -> None:
    trace = simulate(made, HORIZON)
    steps = trace.counters["bandwidth_gbps"]
    assert all(value <= CAPACITY / 1e9 * (1 + 1e-12) for _, value in steps)
    moved = sum((b[0] - a[0]) * a[1] for a, b in pairwise([*steps, (HORIZON, 0.0)]))
    tasks = {t.name: t for t in made.tasks}
    size = {name: sum(s.bytes for s in t.segments if s.time_ns) for name, t in tasks.items()}
    done = sum(size[job.task] for job in trace.jobs if job.status == "done")
    begun = sum(size[job.task] for job in trace.jobs if job.start_ns >= 0)
    # A segment may end up to a nanosecond late for rounding, in which it still counts as drawing.
    slack = len(trace.slices) * CAPACITY / 1e9
    rounding = HORIZON * 5e-6  # rates are recorded in 10 kB/s
    assert done - 1e-6 - rounding <= moved <= begun + slack + rounding


@given(plans(), st.integers(0, 3))
def test_repeats_are_identical(made: Plan, seed: int) -> None:
    faults = Faults(
        slowdowns=(Slowdown("x", 500, 900, Fraction(3, 2)), Slowdown("x", 700, 1200, Fraction(2))),
        overruns=(Overrun("t0", Fraction(1, 2), Fraction(5, 4)),),
    )
    first, again = (simulate(made, HORIZON, seed=seed, faults=faults) for _ in range(2))
    assert first == again
    assert repr(result(first, made)) == repr(result(again, made))


@given(plans(), st.integers(1, HORIZON))
def test_the_past_does_not_depend_on_the_horizon(made: Plan, cut: int) -> None:
    long, short = simulate(made, HORIZON), simulate(made, cut)
    before, whole = ([job for job in trace.jobs if 0 <= job.finish_ns < cut] for trace in (long, short))
    assert before == whole


@given(
    st.lists(
        st.tuples(st.sampled_from([40, 60, 80, 100, 120, 240]), st.integers(1, 60), st.integers(0, 100)),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=60)
def test_edf_meets_every_deadline_up_to_full_utilisation(rows: list[tuple[int, int, int]]) -> None:
    """EDF is optimal on one processor: with U <= 1 and deadlines equal to periods nothing is missed (Liu & Layland)."""
    chosen: list[Task] = []
    left = Fraction(1)
    for i, (period, cost, offset) in enumerate(rows):
        cost = min(cost, int(left * period))
        if cost:
            left -= Fraction(cost, period)
            chosen.append(task(f"t{i}", cost, period_ns=period, deadline_ns=period, offset_ns=offset))
    trace = simulate(plan(chosen), 2 * 1200 + 100)
    assert not trace.instants


@given(plans())
def test_dropped_frames_never_run_and_done_jobs_are_complete(made: Plan) -> None:
    trace = simulate(made, HORIZON)
    for job in trace.jobs:
        if job.status == "dropped":
            assert (job.start_ns, job.finish_ns, job.exec_ns) == (-1, -1, 0)
        assert (job.status == "done") == (job.finish_ns >= 0)
        assert job.blocking_ns >= 0
    drops = sum(job.status == "dropped" for job in trace.jobs)
    assert drops == sum(note.kind == "drop" for note in trace.instants)
