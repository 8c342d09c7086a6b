"""Worked examples of the parts of a response, one kind after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from random_traces import recorded

from socsched.cost.cost import Segment, Shared
from socsched.errors import UsageError
from socsched.faults.model import Dropout, Faults, Hog, Overrun, Slowdown, Stall
from socsched.planning.plan import ExecutionTimes, Level, Plan, Throttle
from socsched.planning.task import LOAD
from socsched.sim.simulate import run
from socsched.trace.metrics import frame_fates, result
from socsched.trace.trace import Instant, Job, Slice, Trace
from socsched.trace.why import KINDS, OCCUPIED, PLANNED, Explanation, Why
from tests.sim.builders import MS, chain, engine, plan, sensor, task
from tests.sim.random_plans import HORIZON, faults, plans

SHARED = (*PLANNED, "above", "bandwidth", "throttling", "fault", "lanes", "switch", "restart")


def check(found: Explanation, trace: Trace, plan: Plan) -> None:
    """Check one explanation against the trace, by records and not by the code that made it."""
    chain = next(chain for chain in plan.chains if chain.name == found.chain)
    fates = frame_fates(trace, plan, chain)
    finish = int(fates.finish_ns[found.frame])
    assert found.release_ns == int(fates.release_ns[found.frame])
    assert (found.outcome == "completed") == (finish >= 0)
    if finish >= 0:
        assert found.end_ns == finish
    assert sum(part.ns for part in found.parts) == found.response_ns
    assert sum(cause.ns for cause in found.causes()) == found.lateness_ns + found.deadline_ns
    at = found.release_ns
    for part in found.parts:
        assert part.kind in KINDS
        assert part.ns > 0 or part.kind == "above"
        assert found.release_ns <= part.from_ns <= part.until_ns <= found.end_ns
        if part.kind not in SHARED:
            assert part.ns == part.until_ns - part.from_ns
            assert part.from_ns >= at  # windows of waits do not overlap
            at = part.until_ns
        elif part.kind != "above":
            # planned time may exceed the window by what the job saved
            assert part.ns <= part.until_ns - part.from_ns or part.kind in PLANNED
        _really_ran(part.kind, part.engine, part.by, part.frame, part.from_ns, part.until_ns, trace)


def _really_ran(kind: str, engine: str, by: str, frame: int, begin: int, end: int, trace: Trace) -> None:
    if kind in OCCUPIED:
        own = [
            (piece.start_ns, piece.end_ns)
            for piece in trace.slices
            if piece.engine == engine and (trace.jobs[piece.job].task, trace.jobs[piece.job].frame) == (by, frame)
        ]
        assert any(a <= begin and end <= b for a, b in own), (kind, engine, by, frame, begin, end, own)
    elif kind == "bandwidth" and by and by != "foreign traffic":
        own = [
            piece
            for piece in trace.slices
            if (trace.jobs[piece.job].task, trace.jobs[piece.job].frame) == (by, frame)
            and piece.start_ns < end
            and piece.end_ns > begin
        ]
        assert own, (kind, by, frame, begin, end)


GB = 10**9


def simulated(made: Plan, end: int = 1_000, faults: Faults | None = None) -> Trace:
    trace = run(made, end, 0, None, faults, implementation="python").trace
    assert trace is not None
    return trace


def explain(made: Plan, name: str = "c", frame: int = 0, end: int = 1_000, faults: Faults | None = None) -> Explanation:
    trace = simulated(made, end, faults)
    found = Why(trace, made).explain(name, frame)
    check(found, trace, made)
    return found


def parts_of(found: Explanation) -> list[tuple[str, str, str, int, int]]:
    """Return task, kind, causing task, its frame, and duration of every part."""
    return [(part.task, part.kind, part.by, part.frame, part.ns) for part in found.parts]


def two(*, b: int = 30, at: int = 0, deadline: int = 50, engine_changes: object = None, **changes: object) -> Plan:
    """Return a timer `a` of 10 ns at 5 ns with a chain, and a timer `b` on the same lane."""
    host = engine(**{"preemption": "none", **(engine_changes or {})})  # type: ignore[dict-item]
    first = task("a", 10, offset_ns=5, period_ns=500, deadline_ns=deadline, **changes)
    other = task("b", b, offset_ns=at, period_ns=500, deadline_ns=100)
    return plan([first, other], [host], chains=[chain("c", ["a"], 20)])


def test_a_less_urgent_job_that_cannot_be_stopped_blocks() -> None:
    found = explain(two())
    assert parts_of(found) == [("a", "blocking", "b", 0, 25), ("a", "execution", "", -1, 10)]
    assert (found.response_ns, found.lateness_ns, found.planned_ns) == (35, 15, 10)


def test_a_more_urgent_job_is_waited_for() -> None:
    assert parts_of(explain(two(deadline=200)))[0] == ("a", "waiting", "b", 0, 25)


def test_orders_that_change_with_time_report_no_blocking() -> None:
    assert parts_of(explain(two(engine_changes={"policy": "rr"})))[0] == ("a", "waiting", "b", 0, 25)


def test_a_more_urgent_job_preempts_and_the_switch_back_is_paid() -> None:
    host = {"preemption": "full", "switch_ns": 3}
    assert parts_of(explain(two(at=8, deadline=300, engine_changes=host))) == [
        ("a", "preemption", "b", 0, 30),
        ("a", "switch", "", -1, 3),
        ("a", "execution", "", -1, 10),
    ]


def test_lost_work_is_charged_to_the_preempting_job() -> None:
    host = {"preemption": "restart"}
    found = explain(two(at=8, deadline=300, engine_changes=host))
    assert ("a", "restart", "b", 0, 3) in parts_of(found)
    assert found.response_ns == 3 + 30 + 10


def test_an_earlier_frame_of_the_same_stage_is_waited_for() -> None:
    made = plan([task("a", 10, period_ns=6)], chains=[chain("c", ["a"], 8)])
    assert parts_of(explain(made, frame=1, end=40)) == [("a", "waiting", "a", 0, 4), ("a", "execution", "", -1, 10)]


def test_traffic_of_others_is_shared_out_by_their_demand() -> None:
    # 100 bytes in 100 ns is 1 GB/s; three such and one of half the demand on 1 GB/s: a quarter of it each
    hosts = [engine(name) for name in ("x", "y", "z", "w")]
    tasks = [task(n, 100, bytes=50 if n == "w" else 100, engine=n, period_ns=900) for n in ("x", "y", "z", "w")]
    made = plan(tasks, hosts, chains=[chain("c", ["x"], 100)], dram_bandwidth=GB)
    # until 200 ns w is done (it runs at half its speed), the others have done half and share a third each then
    found = {(part.kind, part.by): part.ns for part in explain(made).parts}
    assert found["execution", ""] == 100
    assert [found["bandwidth", n] for n in ("y", "z", "w")] == pytest.approx([110, 110, 30], abs=1)


def test_foreign_traffic_is_named() -> None:
    made = plan([task("a", 100, bytes=100, period_ns=900)], chains=[chain("c", ["a"], 100)], dram_bandwidth=GB)
    found = explain(made, faults=Faults(hogs=(Hog("cpu", 0, 900, GB),)))
    assert parts_of(found) == [("a", "bandwidth", "foreign traffic", -1, 100), ("a", "execution", "", -1, 100)]


def test_a_segment_that_asks_for_more_than_there_is_slows_itself() -> None:
    made = plan([task("a", 100, bytes=200, period_ns=900)], chains=[chain("c", ["a"], 100)], dram_bandwidth=GB)
    assert parts_of(explain(made)) == [("a", "bandwidth", "", -1, 100), ("a", "execution", "", -1, 100)]


def test_a_slow_engine_is_a_fault_and_a_hot_one_throttles() -> None:
    made = plan([task("a", 100, period_ns=900)], chains=[chain("c", ["a"], 100)])
    slow = Faults(slowdowns=(Slowdown("cpu", 0, 900, Fraction(3, 2)),))
    assert parts_of(explain(made, faults=slow)) == [("a", "fault", "", -1, 50), ("a", "execution", "", -1, 100)]
    hot = Faults(slowdowns=(Slowdown("cpu", 0, 900, Fraction(3, 2), throttle=True),))
    assert parts_of(explain(made, faults=hot)) == [("a", "throttling", "", -1, 50), ("a", "execution", "", -1, 100)]


def test_a_board_above_its_cap_throttles_by_the_clock() -> None:
    levels = (Level(500, 10), Level(1000, 100))
    host = engine(levels=levels, dynamic_mw=100)
    made = plan([task("a", 100, period_ns=900)], [host], chains=[chain("c", ["a"], 100)])
    made = replace(made, throttle=Throttle(period_ns=40, cap_mw=50))
    # at 40 ns the clock is halved, at 80 ns (20 of 60 ns done) it recovers: 10 mW is below 90 % of the cap
    found = explain(made)
    assert parts_of(found) == [("a", "throttling", "", -1, found.response_ns - 100), ("a", "execution", "", -1, 100)]
    assert found.response_ns > 100


def test_slower_lanes_are_distinguished_from_the_estimate() -> None:
    host = engine(lanes=2, capacities=(1024, 512))
    made = plan([task("a", 100, lanes=(1,), period_ns=900)], [host], chains=[chain("c", ["a"], 100)])
    assert parts_of(explain(made)) == [("a", "lanes", "", -1, 100), ("a", "execution", "", -1, 100)]


def test_an_engine_that_stands_still_is_a_fault() -> None:
    made = plan([task("a", 100, period_ns=900)], chains=[chain("c", ["a"], 100)])
    found = explain(made, faults=Faults(stalls=(Stall("cpu", 30, 70, False),)))
    assert parts_of(found) == [("a", "fault", "", -1, 40), ("a", "execution", "", -1, 100)]


def test_jobs_take_more_or_less_than_the_estimate() -> None:
    made = plan([task("a", 100, period_ns=900)], chains=[chain("c", ["a"], 100)])
    over = Faults(overruns=(Overrun("a", Fraction(1), Fraction(2)),))
    assert parts_of(explain(made, faults=over)) == [("a", "execution", "", -1, 100), ("a", "above", "", -1, 100)]
    short = replace(made, tasks=(replace(made.tasks[0], times=ExecutionTimes((60,))),))
    found = explain(short)
    assert parts_of(found) == [("a", "execution", "", -1, 100), ("a", "above", "", -1, -40)]
    assert (found.response_ns, found.lateness_ns) == (60, -40)


def line(**changes: object) -> Plan:
    """Return a sensor, stage a of 10 ns, a conversion of 4 ns to engine y, and stage b of 20 ns there."""
    tasks = [
        task("a", 10, after=("s",), period_ns=100, **changes),
        task("a>b", 4, after=("a",), kind="conversion", engine="y", period_ns=100),
        task("b", 20, after=("a>b",), engine="y", period_ns=100),
    ]
    return plan(tasks, [engine(), engine("y")], sensors=[sensor("s", 100)], chains=[chain("c", ["s", "a", "b"], 30)])


def test_conversions_on_the_path_are_reported_as_such() -> None:
    found = explain(line())
    assert parts_of(found) == [
        ("a", "execution", "", -1, 10),
        ("a>b", "conversion", "", -1, 4),
        ("b", "execution", "", -1, 20),
    ]
    assert found.jobs == (("a", 0), ("a>b", 0), ("b", 0))


def sampling(a: int = 10, **changes: object) -> Plan:
    """Return a sensor at 0, a of `a` ns triggered by it, and b of 5 ns, a timer at 7, 27, ... that samples a."""
    tasks = [
        task("a", a, after=("s",), period_ns=100),
        task("b", 5, reads=("a",), engine="y", offset_ns=7, period_ns=20, **changes),
    ]
    chains = [chain("c", ["s", "a", "b"], 30)]
    return plan(tasks, [engine(), engine("y")], sensors=[sensor("s", 100)], chains=chains)


def test_a_stage_that_samples_lets_data_wait() -> None:
    found = explain(sampling())
    assert parts_of(found) == [
        ("a", "execution", "", -1, 10),
        ("b", "sampling", "", -1, 17),
        ("b", "execution", "", -1, 5),
    ]
    assert found.jobs == (("a", 0), ("b", 1))


def test_a_sampler_that_was_given_up_lets_it_wait_for_the_next() -> None:
    # of a sampler that takes 30 ns and starts every 20 every other job finds no room
    made = sampling(queue=0)
    slow = replace(made.tasks[1], segments=(Segment("b", 30, 0, 0),), cost_ns=30)
    found = explain(replace(made, tasks=(made.tasks[0], slow)))
    assert parts_of(found) == [
        ("a", "execution", "", -1, 10),
        ("b", "sampling", "", -1, 17),
        ("b", "lost", "b", 1, 20),
        ("b", "execution", "", -1, 30),
    ]
    assert "busy, and no frame may wait" in found.parts[2].note


@pytest.mark.parametrize("sampled", [False, True])
def test_a_frame_the_sensor_lost_is_dropped_though_a_newer_one_causes_an_output(sampled: bool) -> None:
    made = sampling() if sampled else line()
    found = explain(made, faults=Faults(dropouts=(Dropout("s", 0, 50),)))
    assert (found.outcome, found.response_ns, parts_of(found), found.met) == ("dropped", 0, [], False)


def test_a_join_waits_for_its_other_input() -> None:
    tasks = [
        task("a", 10, after=("s",), period_ns=100),
        task("b", 40, after=("s",), engine="y", period_ns=100),
        task("j", 5, after=("a", "b"), period_ns=100),
    ]
    chains = [chain("c", ["s", "a", "j"], 30)]
    made = plan(tasks, [engine(), engine("y")], sensors=[sensor("s", 100)], chains=chains)
    assert parts_of(explain(made)) == [
        ("a", "execution", "", -1, 10),
        ("j", "join", "b", 0, 30),
        ("j", "execution", "", -1, 5),
    ]


def test_a_frame_whose_queue_was_full_says_so() -> None:
    made = line(queue=0)
    slow = replace(made.tasks[0], segments=(Segment("a", 150, 0, 0),), cost_ns=150)
    found = explain(replace(made, tasks=(slow, *made.tasks[1:])), frame=1)
    assert (found.outcome, found.jobs, found.met) == ("dropped", (("a", 1),), False)


def test_a_frame_unfinished_at_the_end_is_explained_up_to_there() -> None:
    found = explain(line(), end=12)
    assert (found.outcome, found.response_ns) == ("unfinished", 12)
    assert parts_of(found) == [("a", "execution", "", -1, 10), ("a>b", "conversion", "", -1, 2)]


def test_a_process_that_lingers_keeps_an_idle_engine() -> None:
    host = engine(preemption="none", linger_ns=15, quantum_ns=1000)
    made = plan(
        [task("b", 10, period_ns=500), task("a", 10, offset_ns=5, period_ns=500)], [host], chains=[chain("c", ["a"], 9)]
    )
    assert [row[1:] for row in parts_of(explain(made))] == [
        ("waiting", "b", 0, 5),
        ("held", "", -1, 15),
        ("execution", "", -1, 10),
    ]


def test_a_gang_waits_for_the_last_to_leave_its_lanes() -> None:
    host = engine(lanes=2, preemption="none")
    tasks = [
        task("u", 20, lanes=(0,), period_ns=900, deadline_ns=100),
        task("v", 50, lanes=(1,), period_ns=900, deadline_ns=100),
        task("a", 10, lanes=(0, 1), offset_ns=1, period_ns=900, deadline_ns=800),
    ]
    made = plan(tasks, [host], chains=[chain("c", ["a"], 20)])
    assert parts_of(explain(made))[:2] == [("a", "waiting", "v", 0, 19), ("a", "waiting", "v", 0, 30)]
    any_lane = replace(made, tasks=(*made.tasks[:2], replace(made.tasks[2], width=1)))
    assert parts_of(explain(any_lane))[0] == ("a", "waiting", "u", 0, 19)


def test_a_measured_trace_needs_no_segments() -> None:
    jobs = [
        Job("b", 0, 0, 100, 0, 40, 40, status="done"),
        Job("a", 0, 10, 60, 43, 60, 17, status="done"),
    ]
    slices = [Slice("cpu", (0,), 0, "b", 0, 40), Slice("cpu", (0,), 1, "a on cpu", 43, 60)]
    trace = Trace("measured", 500, 0, jobs, slices, [], {"a": [10]})
    made = two(at=0)
    found = Why(trace, made).explain("c", 0)
    check(found, trace, made)
    assert parts_of(found) == [
        ("a", "blocking", "b", 0, 30),
        ("a", "held", "", -1, 3),
        ("a", "execution", "", -1, 10),
        ("a", "above", "", -1, 7),
    ]


def test_an_aborted_frame_is_explained_up_to_its_end() -> None:
    jobs = [Job("a", 0, 10, 60, 20, -1, 30, status="aborted")]
    trace = Trace(
        "measured", 500, 0, jobs, [Slice("cpu", (0,), 0, "a", 20, 50)],
        [Instant(50, "abort", "a", 0, "it failed")], {"a": [10]},
    )  # fmt: skip
    found = Why(trace, two()).explain("c", 0)
    assert (found.outcome, found.response_ns) == ("aborted", 40)
    assert parts_of(found) == [("a", "held", "", -1, 10), ("a", "execution", "", -1, 10), ("a", "above", "", -1, 20)]


def test_the_worst_frame_is_the_latest_for_its_deadline() -> None:
    made = replace(line(), chains=(chain("c", ["s", "a", "b"], 30), chain("d", ["s", "a"], 5)))
    trace = simulated(made)
    why = Why(trace, made)
    assert (why.worst().chain, why.worst().lateness_ns) == ("d", 5)
    assert why.worst("c").lateness_ns == 4
    dropped = simulated(line(), faults=Faults(dropouts=(Dropout("s", 150, 250),)))
    calm = replace(line(), chains=(chain("c", ["s", "a", "b"], 90),))
    assert (Why(dropped, calm).worst().frame, Why(dropped, calm).worst().outcome) == (2, "dropped")


@settings(max_examples=40, deadline=None)
@given(recorded())
def test_figures_name_the_chain_with_the_worst_frame(drawn: tuple[Plan, Trace]) -> None:
    made, trace = drawn
    why, found = Why(trace, made), []
    for figures in (None, result(trace, made)):
        why.explain = lambda chain, frame: (chain.name, frame)  # type: ignore[method-assign]
        try:
            found.append(why.worst(None, figures))
        except UsageError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_the_largest_cause_is_named() -> None:
    cause = explain(two()).main_cause()
    assert cause is not None
    assert (cause.task, cause.kind, cause.by, cause.frames, cause.ns) == ("a", "blocking", "b", (0,), 25)
    assert explain(line()).main_cause() is None


@pytest.mark.parametrize(
    ("chain_name", "frame", "message"),
    [("nope", 0, "no chain 'nope'"), ("c", 99, "frames 0 to 9"), ("c", -1, "no frame -1"), (None, 0, "several chains")],
)
def test_what_is_not_there_is_named(chain_name: str | None, frame: int, message: str) -> None:
    made = replace(line(), chains=(chain("c", ["s", "a", "b"], 30), chain("d", ["s", "a"], 5)))
    with pytest.raises(UsageError, match=message):
        Why(simulated(made), made).explain(chain_name, frame)


def test_missing_releases_and_unknown_chains_are_reported() -> None:
    made = replace(line(), sensors=(sensor("s", 100, offset_ns=5_000),))
    with pytest.raises(UsageError, match="no frame was released"):
        Why(simulated(made), made).worst()
    bare = replace(made, chains=())
    with pytest.raises(UsageError, match="no chains"):
        Why(simulated(bare), bare).worst()


def test_times_in_whole_milliseconds_stay_exact_over_long_traces() -> None:
    made = plan([task("a", 3 * MS)], chains=[chain("c", ["a"], MS)])
    found = explain(made, frame=99, end=1_000 * MS)
    assert (found.release_ns, found.lateness_ns) == (990 * MS, 2 * MS)


# Random frames of random plans: the parts of a response add up to it, and every job that is named exists.


LATE = 1_000


@st.composite
def divided(draw: st.DrawFn, made: Plan) -> Plan:
    """Return a plan whose tasks run on shares of an engine beside others, some of them loads of weights."""
    names = {task.name: draw(st.sampled_from(["", LOAD])) + task.name for task in made.tasks}
    parts = [(task, draw(st.lists(st.integers(0, task.cost_ns // 4), min_size=4, max_size=4))) for task in made.tasks]
    tasks = tuple(
        replace(
            task,
            name=names[task.name],
            after=tuple(names.get(name, name) for name in task.after),
            reads=tuple(names.get(name, name) for name in task.reads),
            closed_by=names.get(task.closed_by, task.closed_by),
            shared=Shared(*longer, by=names[made.tasks[0].name]),
        )
        for task, longer in parts
    )
    chains = tuple(replace(one, path=tuple(names.get(name, name) for name in one.path)) for one in made.chains)
    return replace(made, tasks=tasks, chains=chains)


@st.composite
def simulations(draw: st.DrawFn, rich: bool, certain: bool = False) -> tuple[Plan, Faults, Trace]:
    """Draw a plan with faults, and its simulation; if `certain`, every job takes its planned time."""
    made = draw(plans(rich=rich))
    if rich:
        made = draw(divided(made))
    harm: Faults = draw(faults(made, rich=rich))
    if certain:
        harm = replace(harm, overruns=())
        made = replace(made, tasks=tuple(replace(task, times=None) for task in made.tasks))
    found = run(made, HORIZON, draw(st.integers(0, 3)), None, harm, implementation="python")
    assert found.trace is not None
    return made, harm, found.trace


def explained(made: Plan, trace: Trace, most: int) -> list[tuple[Explanation, Plan]]:
    """Return explanations of up to `most` frames a chain, each chain's deadline such that every frame is late."""
    why, found = Why(trace, made), []
    for each in made.chains:
        tight = replace(each, deadline_ns=1)
        changed = replace(made, chains=tuple(tight if c.name == each.name else c for c in made.chains))
        count = len(why.record.released(each))
        for frame in Random(count).sample(range(count), min(most, count)):
            found.append((why.explain(tight, frame), changed))
    return found


def drawn(
    rich: bool, certain: bool, number: int, examples: int, most: int
) -> list[tuple[Explanation, Plan, Faults, Trace]]:
    """Return explanations of frames of `examples` random simulations."""
    found: list[tuple[Explanation, Plan, Faults, Trace]] = []

    @seed(number)
    @settings(max_examples=examples, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(simulations(rich, certain))
    def collect(simulated: tuple[Plan, Faults, Trace]) -> None:
        made, harm, trace = simulated
        found.extend((one, changed, harm, trace) for one, changed in explained(made, trace, most))

    collect()
    return found


def add_up(wanted: int, kinds: set[str]) -> None:
    """Check random frames until so many late ones, and all kinds of parts, have been seen."""
    seen: Counter[str] = Counter()
    for number in range(8, 28):
        for rich in (False, True):
            for one, changed, _, trace in drawn(rich, False, number, 20, 8):
                check(one, trace, changed)
                seen.update({part.kind for part in one.parts})
                seen[one.outcome] += 1
                seen["late"] += one.outcome == "completed" and one.lateness_ns > 0
        if seen["late"] >= wanted and kinds <= seen.keys():
            return
    raise AssertionError(f"only {seen}, without {kinds - seen.keys()}")


def test_the_parts_of_random_late_frames_add_up_to_the_nanosecond() -> None:
    add_up(LATE // 5, {"execution", "above", "waiting", "bandwidth", "sampling"})


@pytest.mark.slow
def test_and_those_of_a_thousand_which_have_parts_of_every_kind() -> None:
    add_up(LATE, KINDS.keys() - {"conversion"})


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.slow
def test_where_jobs_take_what_is_planned_nothing_is_left_unexplained(rich: bool) -> None:
    counted = 0
    for one, _, _, _ in drawn(rich, True, 3, 25, 6):
        for part in one.parts:
            # what is left of a segment is rounded up to a whole ns when its pace changes
            assert part.kind != "above" or 0 <= part.ns <= 1, part
            counted += part.kind == "execution"
    assert counted > 10


@pytest.mark.slow
def test_blocking_is_what_the_dispatcher_booked_as_such() -> None:
    compared = blocked = 0
    for number in range(5, 25):
        for one, made, harm, trace in drawn(False, False, number, 20, 6) + drawn(True, False, number, 5, 6):
            engines, tasks = {e.id: e for e in made.engines}, {t.name: t for t in made.tasks}
            arrived = one.release_ns
            for name, frame in one.jobs if one.outcome == "completed" and not harm.stalls and not harm.delays else ():
                job = [job for job in trace.jobs if (job.task, job.frame, job.status) == (name, frame, "done")][-1]
                static = engines[tasks[name].engine].policy.removeprefix("np-") in ("edf", "fp", "fifo", "rm", "dm")
                # of a job that was ready before its data came only the rest of the wait is the frame's
                if static and job.activation_ns >= arrived and not any(s.engine for s in tasks[name].segments):
                    own = sum(part.ns for part in one.parts if part.task == name and part.kind == "blocking")
                    assert own == job.blocking_ns, (one, name)
                    compared, blocked = compared + 1, blocked + (own > 0)
                arrived = job.finish_ns
        if compared > 50 and blocked > 5:
            return
    raise AssertionError(f"{compared} compared, {blocked} blocked")
