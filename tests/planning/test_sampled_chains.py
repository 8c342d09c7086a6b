"""Chains that sample sensors, start late, or begin at one source of a join: bounds by hand, none below a simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate_plan
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.planning.plan import Plan
from socsched.schedulability.plan_analysis import chain_bounds, respond, unmet, without_contradictions
from socsched.schedulability.tasks import rt_tasks
from tests.sim.builders import MS, chain, engine, plan, sensor, task

BOARD, MODE = "jetson-agx-orin-64gb", "MAXN"
LANES = 8


def own_lanes(*tasks: Any, **changes: Any) -> Plan:
    """Return a plan in which no task delays another."""
    apart = tuple(replace(each, lanes=(lane,), priority=lane) for lane, each in enumerate(tasks))
    return plan(apart, (engine(lanes=LANES, policy="fp"),), policy="fp", **changes)


def bounds(made: Plan, seconds: int = 4) -> dict[str, tuple[float, float]]:
    """Return reaction time and data age of every chain (ms), none below its simulation."""
    found = chain_bounds(made, respond(made.policy, rt_tasks(made)).tight)
    seen = simulate_plan(made, seconds * 1000 * MS, seed=3).figures["chains"]
    result = {}
    for name, (reaction, age) in found.items():
        assert reaction is not None and age is not None
        assert (seen[name]["response_time_ns"]["max"] or 0) <= reaction
        assert (seen[name]["data_age_ns"]["max"] or 0) <= age
        result[name] = reaction / MS, age / MS
    return result


def timer(name: str, cost: float, period: int, *reads: str, **changes: Any) -> Any:
    return task(name, round(cost * MS), period_ns=period * MS, reads=reads, queue=1, **changes)


def after(name: str, cost: float, period: int, *names: str, **changes: Any) -> Any:
    return task(name, round(cost * MS), period_ns=period * MS, after=names, **{"queue": 1, **changes})


def test_a_timer_that_reads_a_sensor_waits_a_period_for_it() -> None:
    """A frame waits 30 ms at most; what is read is 50 ms old at most, 57 where frames come up to 7 ms late."""
    for jitter in (0, 7):
        cam = sensor("cam", 50 * MS, jitter_ns=jitter * MS)
        made = own_lanes(timer("ctl", 2, 30, "cam"), sensors=(cam,), chains=(chain("c", ["cam", "ctl"], 100 * MS),))
        assert bounds(made)["c"] == (32, 52 + jitter)


def test_each_of_several_inputs_is_sampled_and_so_are_those_of_a_triggered_task() -> None:
    tasks = (timer("ctl", 2, 30, "cam", "lid"), after("out", 1, 30, "ctl", reads=("lid",)))
    paths = {"a": ["cam", "ctl", "out"], "b": ["lid", "out"], "c": ["lid", "ctl"]}
    made = own_lanes(
        *tasks,
        sensors=(sensor("cam", 50 * MS), sensor("lid", 20 * MS, gap_ns=5 * MS)),
        chains=tuple(chain(name, path, 200 * MS) for name, path in paths.items()),
    )
    assert bounds(made) == {"a": (33, 53), "b": (33, 28), "c": (32, 27)}


def test_a_chain_that_begins_at_a_timer_counts_from_its_nominal_release() -> None:
    tasks = (timer("ctl", 2, 30, "cam", release_jitter_ns=4 * MS), after("out", 1, 30, "ctl"))
    made = own_lanes(*tasks, sensors=(sensor("cam", 50 * MS),), chains=(chain("c", ["ctl", "out"], 200 * MS),))
    assert bounds(made)["c"] == (7, 7)


@pytest.mark.parametrize(
    ("camera", "control", "reaction"),
    [(0, 95, 97), (0, 15, 24), (95, 0, 24), (95, 95, 24), (40, 95, 57), (10, 250, 242)],
)
def test_first_frames_wait_for_a_timer_that_begins_late(camera: int, control: int, reaction: int) -> None:
    """The first frame comes at `camera`, the first output 2 ms after `control`; later ones take 2 + 20 + 2 at most."""
    tasks = (after("a", 2, 20, "cam"), timer("ctl", 2, 20, "a", offset_ns=control * MS))
    made = own_lanes(
        *tasks,
        sensors=(sensor("cam", 20 * MS, offset_ns=camera * MS),),
        chains=(chain("c", ["cam", "a", "ctl"], 300 * MS),),
    )
    assert bounds(made)["c"] == (reaction, 24)


def test_a_late_timer_in_the_middle_holds_what_later_ones_wait_for() -> None:
    tasks = (
        after("a", 2, 20, "cam"),
        timer("b", 2, 20, "a", offset_ns=70 * MS),
        timer("c", 2, 20, "b", offset_ns=200 * MS),
        timer("d", 2, 20, "c"),
    )
    made = own_lanes(
        *tasks,
        sensors=(sensor("cam", 20 * MS),),
        chains=(chain("b", ["cam", "a", "b"], 300 * MS), chain("d", ["cam", "a", "b", "c", "d"], 300 * MS)),
    )
    assert bounds(made) == {"b": (72, 24), "d": (224, 68)}


def test_a_chain_counts_from_its_own_source_of_a_join() -> None:
    """`lid` comes 10 ms after `cam`, so `f` ends 1 + 4 after it and 15 after `cam`; `slow` outlasts both."""
    sensors = (sensor("cam", 20 * MS), sensor("lid", 20 * MS, offset_ns=10 * MS))
    paths = {"cam": ["cam", "a", "f"], "lid": ["lid", "b", "f"]}
    chains = tuple(chain(name, path, 100 * MS) for name, path in paths.items())
    tasks = (after("a", 4, 20, "cam"), after("b", 4, 20, "lid"), after("f", 1, 20, "a", "b"))
    made = own_lanes(*tasks, sensors=sensors, chains=chains)
    assert bounds(made) == {"cam": (15, 15), "lid": (5, 5)}
    slow = own_lanes(after("a", 17, 20, "cam"), *tasks[1:], sensors=sensors, chains=chains)
    assert bounds(slow) == {"cam": (18, 18), "lid": (8, 8)}


def test_a_response_counts_from_the_arrival_of_a_late_frame() -> None:
    """Frames come up to 10 ms late; a chain over one of two such sensors waits for the other."""
    cam, lid = sensor("cam", 40 * MS, jitter_ns=10 * MS), sensor("lid", 40 * MS, offset_ns=5 * MS, jitter_ns=2 * MS)
    tasks = (after("a", 5, 40, "cam"), after("b", 1, 40, "lid"), after("f", 1, 40, "a", "b"))
    paths = {"a": ["cam", "a"], "cam": ["cam", "a", "f"], "lid": ["lid", "b", "f"]}
    made = own_lanes(*tasks, sensors=(cam, lid), chains=tuple(chain(n, p, 100 * MS) for n, p in paths.items()))
    # from `cam`: 7 + 1 + 1 if it is early and `lid` late; from `lid` at 5: 10 + 5 + 1 - 5
    assert bounds(made) == {"a": (5, 5), "cam": (9, 9), "lid": (11, 11)}


def test_frames_that_catch_up_delay_each_other_although_each_counts_from_its_arrival() -> None:
    made = plan(
        (after("a", 6, 10, "cam", queue=2),),
        (engine(policy="fp"),),
        policy="fp",
        sensors=(sensor("cam", 10 * MS, jitter_ns=10 * MS),),
        chains=(chain("c", ["cam", "a"], 100 * MS),),
    )
    assert bounds(made, 60)["c"] == (12, 12)


def _planned(sensors: dict[str, Any], stages: dict[str, Any], chains: dict[str, Any]) -> Plan:
    for name, stage in stages.items():
        time = {"value": stage.pop("time"), "kind": "assumed", "note": "a test", "error": 0.1}
        cost = {"platform": BOARD, "mode": MODE, "engine": "cpu", "precision": "fp32", "units": 1, "time": time}
        stages[name] = {
            "title": name,
            "precisions": ["fp32"],
            "share": 1,
            "output_bytes": "1 kB",
            "costs": [cost],
        } | stage
    for each in sensors.values():
        each |= {"kind": "camera", "bytes_per_frame": "1 kB", "assumed": "a test"}
    for each in chains.values():
        each["assumed"] = "a test"
    content = {"schema_version": "1", "name": "t", "title": "t", "sensors": sensors, "stages": stages, "chains": chains}
    return plan_with(pipeline_from_mapping(content, "t.yaml"), BOARD, MODE, PlanOptions(explain=False))


@pytest.mark.parametrize(
    ("deadline", "age", "verdict"), [("33 ms", "53 ms", True), ("31 ms", "53 ms", False), ("33 ms", "51 ms", False)]
)
def test_a_plan_that_reads_a_sensor_is_feasible_with_time_for_it_only(deadline: str, age: str, verdict: bool) -> None:
    made = _planned(
        {"cam": {"period": "50 ms"}},
        {"ctl": {"time": "2 ms", "period": "30 ms", "reads": ["cam"]}},
        {"c": {"path": ["cam", "ctl"], "deadline": deadline, "max_age": age}},
    )
    assert (made.verdict == "feasible") == verdict
    assert all(each.expected_ns <= (each.bound_ns or 0) for each in made.chains)


def test_plans_are_feasible_where_frames_count_from_their_arrival_and_co_runners_never_overlap() -> None:
    jittered = _planned(
        {"cam": {"period": "20 ms", "jitter": "10 ms"}},
        {"a": {"time": "5 ms", "after": ["cam"]}},
        {"c": {"path": ["cam", "a"], "deadline": "12 ms"}},
    )
    assert (jittered.verdict, jittered.chains[0].bound_ns) == ("feasible", 5 * MS)
    apart = _planned(
        {"cam": {"period": "20 ms"}, "lid": {"period": "20 ms", "offset": "10 ms"}},
        {
            "a": {"time": "4 ms", "after": ["cam"]},
            "b": {"time": "4 ms", "after": ["lid"]},
            "f": {"time": "1 ms", "after": ["a", "b"]},
        },
        {"a": {"path": ["cam", "a"], "deadline": "4.2 ms"}, "f": {"path": ["lid", "b", "f"], "deadline": "15 ms"}},
    )
    assert (apart.verdict, [each.bound_ns for each in apart.chains]) == ("feasible", [4 * MS, 5 * MS])


def test_a_bound_below_the_expected_latency_is_withdrawn() -> None:
    wrong = replace(chain("c", ["cam", "a"], 100 * MS), bound_ns=4 * MS, expected_ns=5 * MS, test="a test")
    right = replace(wrong, name="d", bound_ns=5 * MS)
    made = own_lanes(
        after("a", 5, 20, "cam"), sensors=(sensor("cam", 20 * MS),), chains=(wrong, right), verdict="feasible"
    )
    found = without_contradictions(made)
    assert found.verdict == "undecided"
    assert [(each.bound_ns, each.test) for each in found.chains] == [(None, ""), (5 * MS, "a test")]
    assert [each.gap for each in found.violations] == [1 * MS]
    assert without_contradictions(replace(made, chains=(right,))).verdict == "feasible"


def test_frames_of_a_join_wait_for_its_later_source_outside_its_queue() -> None:
    """`lid` comes 70 ms after `cam`, three periods and a half: no frame is dropped although one may wait."""
    sensors = (sensor("cam", 20 * MS), sensor("lid", 20 * MS, offset_ns=70 * MS))
    tasks = (after("a", 4, 20, "cam"), after("b", 4, 20, "lid"), after("f", 1, 20, "a", "b"))
    chains = (chain("cam", ["cam", "a", "f"], 75 * MS), chain("lid", ["lid", "b", "f"], 5 * MS))
    made = own_lanes(*tasks, sensors=sensors, chains=chains)
    assert bounds(made) == {"cam": (75, 75), "lid": (5, 5)}
    assert unmet(made, respond(made.policy, rt_tasks(made)).tight) == []
    assert all(entry["dropped"] == 0 for entry in simulate_plan(made, 2000 * MS).figures["chains"].values())
