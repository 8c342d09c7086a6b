"""Stages of a GPU that become one graph, and those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from socsched.executor.gpu_stages import _has_rivals
from socsched.executor.settings import joined
from socsched.planning.plan import Transition
from tests.runtime.run_plans import MS, plan, task


def stage(*inputs: tuple[str, str], kind: str = "cuda", on_host: bool = False, **more: int) -> dict[str, Any]:
    """Return a stage that reads tensors of others, each in a data type."""
    read = [{"from": name, "port": 0, "dtype": dtype, "layout": "", "shape": [-1, 4]} for name, dtype in inputs]
    output = {"dtype": "fp16", "layout": "", "shape": [8, 4], "on_host": on_host}
    return {"kind": kind, "inputs": read, "outputs": [output], **more}


CHAIN = {"a": stage(("s", "fp32")), "b": stage(("a", "fp16")), "c": stage(("b", "fp16"), ("a", "fp16"), on_host=True)}


def following(stages: dict[str, Any], **changes: Any) -> dict[str, str]:
    """Return the stages of a chain of three that follow another one, and that one."""
    tasks = task("a", "s"), task("b", "a", **changes), task("c", "b")
    made = joined(plan(*tasks, sensors={"s": 10 * MS}), stages)
    return {name: how["follows"] for name, how in made.items() if "follows" in how}


def test_a_chain_is_started_by_its_first_stage() -> None:
    made = joined(plan(task("a", "s"), task("b", "a"), task("c", "b"), sensors={"s": 10 * MS}), CHAIN)
    assert [(one["task"], one["stage"]["part"]) for one in made["a"]["followers"]] == [("b", 1), ("c", 2)]
    assert [made[name]["inner"] for name in "abc"] == [True, True, False]
    assert [made[name]["shown"] for name in "abc"] == [False, False, True]
    assert made["b"]["follows"] == made["c"]["follows"] == "a" and "followers" not in made["b"]


def test_what_a_conversion_gives_is_kept_for_its_readers() -> None:
    # which name the stage before it: another frame may not write there while they read
    tasks = task("a", "s"), task("a>b", "a"), task("b", "a>b")
    move = Transition("a", "b", 0, "", "", "fp16", "fp16", "gpu", "a>b", 0)
    stages = {"a": stage(("s", "fp32")), "a>b": stage(("a", "fp16")), "b": stage(("a", "fp32"), kind="engine")}
    made = joined(replace(plan(*tasks, sensors={"s": 10 * MS}), transitions=(move,)), stages)
    assert made["a>b"]["follows"] == "a" and not made["a>b"]["inner"]


def test_the_end_of_a_stage_is_looked_for_where_something_waits_for_it() -> None:
    tasks = task("a", "s"), task("b", "a"), task("c", "b")
    waiting = plan(*tasks, task("d", "a"), sensors={"s": 10 * MS})
    assert [joined(waiting, CHAIN)[name]["shown"] for name in "abc"] == [True, False, True]
    watched = joined(plan(*tasks, sensors={"s": 10 * MS}), CHAIN, watched=True)
    assert all(watched[name]["shown"] for name in "abc")


@pytest.mark.parametrize(
    "changed",
    [
        {"b": stage(("a", "fp32"))},  # converts
        {"b": stage(("a", "fp16"), ("s", "fp16"))},  # reads a sensor too
        {"b": stage(("a", "fp16"), longest_ns=4)},  # gives way
        {"b": stage(("a", "fp16"), kind="network")},
    ],
)
def test_what_cannot_be_queued_with_others_starts_itself(changed: dict[str, Any]) -> None:
    assert following(CHAIN) == {"b": "a", "c": "a"}
    assert "b" not in following({**CHAIN, **changed})


def test_stages_of_another_rate_start_themselves() -> None:
    assert "b" not in following(CHAIN, period_ns=20 * MS)


def test_stages_on_groups_of_their_own_are_whole_graphs() -> None:
    """Neither can go before the other: a graph for each kernel would cost the host a launch each."""
    jobs = [task(name, sensor, lanes=lanes) for name, sensor, lanes in (("a", "s", (0, 1)), ("b", "t", (2,)))]
    apart = plan(*jobs, sensors={"s": 10 * MS, "t": 7 * MS}, lanes=3)
    together = plan(jobs[0], replace(jobs[1], lanes=(1, 2)), sensors={"s": 10 * MS, "t": 7 * MS}, lanes=3)
    assert [_has_rivals(one.tasks[0], one) for one in (apart, together)] == [False, True]
