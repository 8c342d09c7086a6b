"""Random traces by hypothesis: as irregular as the format allows, more so than those of a simulator."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from socsched.planning.plan import Plan
from socsched.trace.trace import Instant, Job, Slice, Trace
from tests.sim.builders import chain, engine, plan, sensor, task

NAMES = ("lidar", "camera", "a", "b", "c", "d", "a->b", "b->c")
TASKS = NAMES[2:]
ENGINES = ("cpu", "gpu")
TIME = st.integers(0, 400)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan whose tasks follow, sample and convert what any earlier task or sensor delivers."""
    tasks = []
    for index, name in enumerate(TASKS):
        earlier = st.sampled_from(NAMES[: index + 2])
        after = tuple(draw(st.lists(earlier, max_size=2, unique=True)))
        reads = tuple(draw(st.lists(earlier, max_size=3, unique=True)))
        changes: dict[str, Any] = {"after": after, "reads": reads, "engine": draw(st.sampled_from(ENGINES))}
        changes["kind"] = draw(st.sampled_from(("stage", "conversion"))) if "->" in name else "stage"
        changes["lanes"] = draw(st.sampled_from(((0,), (1,), (0, 1))))
        tasks.append(task(name, 3, period_ns=draw(st.integers(1, 90)), **changes))
    by_name = {made.name: made for made in tasks}
    chains = []
    for number in range(draw(st.integers(0, 4))):
        path = [draw(st.sampled_from(TASKS))]
        while path[0] in by_name and len(path) < 6:
            before = (*by_name[path[0]].after, *by_name[path[0]].reads)
            if not before or draw(st.integers(0, 9)) == 0:
                break
            path.insert(0, draw(st.sampled_from(before)))
        # a chain names stages, and seldom what data never flows along
        stages = [name for name in path if "->" not in name or draw(st.booleans())]
        if draw(st.integers(0, 9)) == 0:
            stages.insert(0, draw(st.sampled_from(NAMES)))
        if stages and len(set(stages)) == len(stages):
            chains.append(chain(f"x{number}", stages, draw(st.integers(1, 200))))
    engines = [engine(name, lanes=2, idle_mw=7, dynamic_mw=31) for name in ENGINES]
    return plan(tasks, engines, sensors=[sensor("lidar", 50), sensor("camera", 30)], chains=chains)


@st.composite
def traces(draw: st.DrawFn, made: Plan) -> Trace:
    """Draw a trace of `made`: frames lost, doubled and out of order, jobs in every state, slices that overlap."""
    frames = st.integers(0, 3)
    reads = {t.name: t.reads for t in made.tasks}
    jobs = []
    for name in draw(st.lists(st.sampled_from((*TASKS, *TASKS, "stranger")), min_size=5, max_size=40)):
        start = draw(st.integers(-1, 300))
        status = draw(st.sampled_from(("done", "done", "done", "done", "done", "dropped", "aborted", "unfinished")))
        finish = max(start, 0) + draw(st.integers(0, 90)) if status == "done" else -1
        sampled = {read: draw(frames) for read in reads.get(name, ()) if draw(st.booleans())}
        counts = [draw(st.integers(0, 3)) for _ in range(2)]
        job = Job(name, draw(frames), draw(TIME), draw(TIME), start_ns=start, finish_ns=finish, status=status)
        job.exec_ns, job.blocking_ns, job.sampled = draw(TIME), draw(st.integers(0, 9)), sampled
        job.preemptions, job.migrations = counts
        jobs.append(job)
    lanes = st.sampled_from(((0,), (1,), (0, 1), (1, 0), (70,)))
    slices = []
    for _ in range(draw(st.integers(0, 30)) if jobs else 0):
        start, width = draw(TIME), draw(st.integers(0, 40))
        name = draw(st.sampled_from((*TASKS, "k0", "switch")))
        slices.append(Slice(draw(st.sampled_from(ENGINES)), draw(lanes), 0, name, start, start + width))
        slices[-1].job = draw(st.integers(0, len(jobs) - 1))
        if draw(st.booleans()):
            follow = slices[-1]
            ends = follow.end_ns + draw(st.integers(0, 9))
            slices.append(Slice(follow.engine, follow.lanes, follow.job, "k1", follow.end_ns, ends))
    kinds = st.sampled_from(("miss", "drop", "abort", "input", "fault", "throttle"))
    about = st.sampled_from((*NAMES, *ENGINES, "run"))
    note = st.builds(Instant, TIME, kinds, about, st.integers(-1, 5), st.sampled_from(("late", "lost", "")))
    values = st.floats(0, 1e6).map(lambda value: round(value, 3))
    steps = st.lists(st.tuples(TIME, values), max_size=6).map(lambda found: sorted(found, key=lambda step: step[0]))
    names = st.sampled_from(("power_mw", "bandwidth_gbps", "queue.a"))
    counters = draw(st.dictionaries(names, steps))
    # all that was taken was released: more frames of every source
    release = st.lists(TIME, min_size=6, max_size=9).map(sorted)
    releases = {name: draw(release) for name in ("lidar", "camera", *TASKS) if draw(st.integers(0, 49))}
    notes = draw(st.lists(note, max_size=8))
    trace = Trace(draw(st.sampled_from(("simulated", "measured"))), 350, 3, jobs, slices, notes, releases)
    trace.counters = counters
    return trace


@st.composite
def recorded(draw: st.DrawFn) -> tuple[Plan, Trace]:
    """Draw a plan and a trace of it."""
    made = draw(plans())
    return made, draw(traces(made))
