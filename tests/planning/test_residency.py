"""Networks that take turns in an engine's memory: never more than its limit in a simulation, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.api.deployment import compile as compile_bundle
from socsched.api.planning import plan
from socsched.api.simulation import simulate
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Anchor, Chain, Pipeline, Stage
from socsched.descriptor.platform import Figure, Platform, WeightsMemory
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning.deployment import activations_of, weights_of
from socsched.planning.plan import Plan
from socsched.planning.residency import Held, Residency, choices, chosen, waits_of
from socsched.planning.task import COPY, LOAD
from socsched.trace.trace import Trace
from socsched.trace.why import Why


def limited(limit: int, rate: float = 5e9) -> Platform:
    """Return a board whose GPU holds `limit` bytes and loads weights at a rate."""
    board = get_platform("jetson-agx-orin-64gb")
    room = WeightsMemory(Figure(limit, "assumed"), Figure(rate, "assumed"), True)
    engines = tuple(replace(one, weights=room) if one.id == "gpu" else one for one in board.engines)
    return replace(board, engines=engines)


def cameras(count: int, deadline_ns: int = 33_000_000) -> Pipeline:
    """Return a pipeline with several detectors of one camera's frames, all of the GPU, each with its chain."""
    pipe = get_pipeline("perception-stack")
    stages = {stage.name: stage for stage in pipe.stages}
    first = replace(stages["camera-preprocess"], engines=("gpu",))
    detector = replace(stages["camera-detect"], engines=("gpu",), precisions=("fp16",), queue=1)
    several = tuple(replace(detector, name=f"detect{number}") for number in range(count))
    chains = tuple(
        Chain(f"chain{number}", ("camera", first.name, f"detect{number}"), deadline_ns) for number in range(count)
    )
    sensors = tuple(sensor for sensor in pipe.sensors if sensor.name == "camera")
    return replace(pipe, name="cameras", sensors=sensors, stages=(first, *several), chains=chains, conditions=())


def planned(count: int, limit: int, rate: float = 5e9) -> Plan:
    return plan(cameras(count), limited(limit, rate), "MAXN", explain=False, cuts=False)


def sizes(count: int) -> tuple[int, int]:
    """Return the bytes of weights and of activations of one detector on a GPU without a limit that matters."""
    work = stage_work(cameras(count).stages[1], "fp16")
    return weights_of(work), activations_of(work)


WEIGHTS, ROOM = sizes(1)


def resident(made: Plan, trace: Trace) -> int:
    """Return the most bytes at once, replayed from the jobs: a loaded network from its load's start to its own end."""
    loaded = {task.name.removeprefix(LOAD) for task in made.tasks if task.name.startswith(LOAD)}
    networks = {task.name for task in made.tasks if task.name.startswith("detect")}
    times: dict[tuple[str, int], list[int]] = {}
    for job in trace.jobs:
        name = job.task.removeprefix(LOAD)
        if name in loaded and job.start_ns is not None:
            window = times.setdefault((name, job.frame), [job.start_ns, job.start_ns])
            window[0], window[1] = min(window[0], job.start_ns), max(window[1], job.finish_ns or job.start_ns)
    changes = [(end, -WEIGHTS) for _, end in times.values()] + [(start, WEIGHTS) for start, _ in times.values()]
    total = most = WEIGHTS * len(networks - loaded)
    for _, change in sorted(changes):
        total += change
        most = max(most, total)
    return most


@pytest.mark.parametrize("count, room", [(4, 3), (4, 2), (5, 4), (3, 2), (3, 1)])
def test_no_more_is_resident_than_the_limit(count: int, room: int) -> None:
    """Room for some of the networks: the plan is feasible with its loads, and a simulation keeps bounds and limit."""
    made = planned(count, room * WEIGHTS + ROOM)
    assert made.verdict == "feasible"
    loads = [task for task in made.tasks if task.name.startswith(LOAD)]
    assert loads and all(task.engine == f"gpu-{COPY}" for task in loads)
    outcome = simulate(made, "1s")
    assert outcome.trace is not None and WEIGHTS <= resident(made, outcome.trace) <= room * WEIGHTS
    for chain in made.chains:
        assert outcome.figures["chains"][chain.name]["response_time_ns"]["max"] <= (chain.bound_ns or 0)
    said = made.solver.notes or {}
    assert sum("is loaded for every frame" in said.get(f"detect{n}", "") for n in range(count)) == len(loads)


def test_what_comes_from_the_host_waits_for_a_load_that_is_under_way() -> None:
    """The camera's frame does, whichever load comes first; networks whose input lies on the GPU do not."""
    free = {
        task.name: task for task in plan(cameras(4), limited(10 * WEIGHTS), "MAXN", explain=False, cuts=False).tasks
    }
    made = {task.name: task for task in planned(4, 3 * WEIGHTS + ROOM).tasks}
    longest = max(task.cost_ns for name, task in made.items() if name.startswith(LOAD))
    wait = made["camera-preprocess"].cost_ns - free["camera-preprocess"].cost_ns
    assert wait >= made["camera-preprocess"].segments[0].time_ns == longest
    first = {name: task.segments[0].name for name, task in made.items()}
    assert [name for name, said in first.items() if said == "input behind a load"] == ["camera-preprocess"]


def test_networks_that_take_turns_wait_for_loads_of_other_slots_only() -> None:
    """One slot alone has no load beside its own networks; a network that stays has every load beside it."""
    pipe = cameras(3)
    direct = replace(pipe, stages=tuple(replace(one, after=("camera",)) for one in pipe.stages))
    made = planned(3, 2 * WEIGHTS + ROOM)
    slots = [[name for name in chain.path if name.startswith("detect")] for chain in made.chains if ":" in chain.name]
    held = {name: Held(name, WEIGHTS, 0, 33, "camera") for name in ("detect0", "detect1", "detect2")}
    stay = tuple(one for name, one in held.items() if not any(name in slot for slot in slots))
    found = Residency("gpu", 0, stay, tuple(tuple(held[name] for name in slot) for slot in slots), 0)
    moved = [name for slot in slots for name in slot]
    times = [Anchor("p", "m", "gpu-copy", "fp32", Figure(7 + number, "derived")) for number in range(len(moved))]
    loads = tuple(
        Stage(LOAD + name, "load", None, ("camera",), costs=(time,)) for name, time in zip(moved, times, strict=True)
    )
    waits = waits_of(replace(direct, stages=(*loads, *direct.stages)), made, found)
    longest = 6 + len(loads)
    assert all(waits[one.stage] == longest for one in stay) and waits["camera-preprocess"] == longest
    assert len(slots) > 1 or all(waits[name] == 0 for name in slots[0])


def test_the_replay_finds_a_slot_with_two_owners() -> None:
    """A planted fault: loads that wait for nobody put two networks where there is room for one."""
    made = planned(3, WEIGHTS + ROOM)
    wrong = replace(
        made,
        tasks=tuple(
            replace(task, after=tuple(n for n in task.after if not n.startswith("detect")))
            if task.name.startswith(LOAD) else task
            for task in made.tasks
        ),
    )  # fmt: skip
    outcome = simulate(wrong, "1s")
    assert outcome.trace is not None and resident(wrong, outcome.trace) > WEIGHTS


def test_what_fits_is_planned_as_without_a_limit() -> None:
    free = plan(cameras(3), get_platform("jetson-agx-orin-64gb"), "MAXN", explain=False, cuts=False)
    made = planned(3, 3 * WEIGHTS + ROOM)
    assert made.tasks == free.tasks and made.verdict == free.verdict == "feasible"
    assert not any(task.name.startswith(LOAD) for task in planned(3, 3 * WEIGHTS + ROOM).tasks)


def test_a_network_larger_than_the_memory_is_not_planned() -> None:
    made = planned(2, WEIGHTS + ROOM - 1)
    (unmet,) = made.violations
    assert made.verdict == "undecided" and unmet.requirement == "memory of gpu" and unmet.gap == 1
    assert sum(size for _, size in unmet.terms) == unmet.demand


def test_a_limit_is_an_option() -> None:
    """Loads come at the rate of the engine's memory where it has no link and states none."""
    board = get_platform("jetson-agx-orin-64gb")
    made = plan(cameras(3), board, "MAXN", explain=False, cuts=False, memory=f"gpu={2 * WEIGHTS + ROOM} B")
    loads = [task for task in made.tasks if task.name.startswith(LOAD)]
    rate = board.engine("gpu").bandwidth.value
    assert loads and all(task.cost_ns >= WEIGHTS / rate * 1e9 for task in loads)
    assert f"--memory 'gpu={2 * WEIGHTS + ROOM} B'" in made.tool["options"]
    for text, said in (("gpu=much", "expected a size"), ("npu=1GB", "no engine 'npu'")):
        with pytest.raises(UsageError, match=said):
            plan(cameras(1), board, "MAXN", memory=text)


def test_a_plan_with_loads_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="loaded for every frame, which a bundle does not do"):
        compile_bundle(planned(3, 2 * WEIGHTS + ROOM), tmp_path, pipeline=cameras(3))


def test_loads_that_take_too_long_leave_no_plan() -> None:
    """At 100 MB/s a load alone takes longer than a frame."""
    assert planned(3, WEIGHTS + ROOM, 1e8).verdict != "feasible"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.sampled_from("ab")), min_size=1, max_size=7),
       st.integers(0, 40))  # fmt: skip
def test_the_choice_fits_and_loads_no_more_than_any_other(rows: Sequence[tuple[int, int, str]], limit: int) -> None:
    held = [Held(f"n{i}", weights, live, 10, source) for i, (weights, live, source) in enumerate(rows)]
    ways = list(choices("gpu", limit, held))
    best = chosen(ways)
    assert (best is None) == all(one.bytes > limit for one in ways)
    if best is None:
        return
    assert best.bytes <= limit and all(best.rate <= one.rate for one in ways if one.bytes <= limit)
    names: Mapping[str, int] = {one.stage: one.weights for one in held}
    here = [one.stage for one in best.stay] + [one.stage for slot in best.slots for one in slot]
    assert sorted(here) == sorted(names) and all(len({one.source for one in slot}) == 1 for slot in best.slots)


def test_why_names_loads() -> None:
    """The last of three networks in one slot waits for its weights."""
    made = planned(3, WEIGHTS + ROOM)
    trace = simulate(made, "1s").trace
    assert trace is not None
    found = Why(trace, made).explain("chain2", 2)
    (part,) = [part for part in found.parts if part.task == "detect2" and part.kind == "copy"]
    assert part.by == f"{LOAD}detect2" and part.ns > 0 and sum(one.ns for one in found.parts) == found.response_ns
