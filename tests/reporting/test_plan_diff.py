"""Diffs of plans: requirements, figures, moves, regressions."""

from __future__ import annotations

import copy
import io
from dataclasses import fields, replace
from typing import Any

import pytest
import report_samples
from hypothesis import given
from hypothesis import strategies as st
from report_samples import refuted
from rich.console import Console

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.planning.plan import ChainResult, Plan, Power, Requirement, requirements_of
from socsched.reporting.compare import compare, markdown, view
from socsched.reporting.plan_diff import Move, diff, requirement_changes, shares

MS = 1_000_000


def changed(plan: Plan, name: str, **changes: Any) -> Plan:
    """Return the plan with a task changed."""
    return replace(plan, tasks=tuple(replace(t, **changes) if t.name == name else t for t in plan.tasks))


def bound(plan: Plan, terms: dict[str, int]) -> Plan:
    """Return the plan with the first chain's bound made of these terms (ms)."""
    items = tuple((name, ms * MS) for name, ms in terms.items())
    total = sum(terms.values()) * MS
    return replace(plan, chains=(replace(plan.chains[0], bound_ns=total, terms=items), *plan.chains[1:]))


def moved(plan: Plan) -> tuple[Plan, Plan]:
    """Return a plan, and one whose backbone went to the gpu, where it also delays pfn."""
    a = bound(plan, {"pfn: wcet": 2, "scatter>backbone: wcet": 1, "backbone: wcet": 20})
    b = changed(plan, "backbone", engine="gpu", precision="fp16", cost_ns=41 * MS)
    terms = {"pfn: wcet": 3, "pfn: interference by backbone": 4, "scatter>backbone: wcet": 2, "backbone: wcet": 41}
    return a, bound(b, terms)


def test_equal_plans_differ_in_nothing(plan: Plan) -> None:
    found = diff(plan, plan, 0.0)
    assert (found.moves, found.changes, found.regressions) == ((), (), ())
    assert "the plans are identical" in text(found)


def test_a_regression_names_the_move_that_is_responsible(plan: Plan) -> None:
    a, b = moved(plan)
    found = diff(a, b, 0.05)
    assert [(m.stage, m.before, m.after) for m in found.moves] == [("backbone", "dla0 int8", "gpu fp16")]
    (reported,) = found.regressions
    # 21 ms of its own, 4 of interference by it, 1 of the conversion into it
    assert reported == (
        "lidar-detection bound 23 ms → 50 ms: backbone moved from dla0 int8 to gpu fp16, 17.5 ms → 41 ms "
        "(+26 ms, all others +1 ms)"
    )
    assert diff(b, a, 0.05).regressions == ()


def test_a_change_that_cost_more_than_the_bound_grew_names_the_compensating_change(plan: Plan) -> None:
    a = bound(plan, {"pfn: interference by head": 18, "backbone: wcet": 20})
    b = bound(changed(plan, "backbone", engine="gpu", cost_ns=59 * MS), {"backbone: wcet": 59})
    (reported,) = diff(a, b, 0.05).regressions
    assert "38 ms → 59 ms" in reported
    assert reported.endswith("(+39 ms, all others −18 ms)")


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"precision": "fp16"}, "backbone runs in fp16 instead of int8 on dla0"),
        ({"engine": "gpu"}, "backbone moved from dla0 int8 to gpu int8"),
        ({"cost_ns": 9 * MS}, "backbone on dla0 int8 costs 17.5 ms → 9 ms"),
    ],
    ids=["precision", "engine", "cost"],
)
def test_kinds_of_change_are_named(plan: Plan, changes: dict[str, Any], reported: str) -> None:
    (move,) = diff(plan, changed(plan, "backbone", **changes), 0.05).moves
    assert move.told().startswith(reported)


def test_changed_requirements_are_named_and_a_worse_verdict_is_reported_once(plan: Plan) -> None:
    chain, sensor = plan.chains[0], plan.sensors[0]
    b = replace(
        refuted(plan),
        chains=(replace(chain, deadline_ns=50 * MS, max_age_ns=7 * MS), *plan.chains[1:]),
        sensors=(replace(sensor, period_ns=sensor.period_ns // 2), *plan.sensors[1:]),
    )
    found = diff(plan, b, 0.05)
    told = [change.told() for change in found.requirements]
    assert f"deadline of chain {chain.name}: 100 ms → 50 ms" in told
    assert any(line.startswith(f"max age of chain {chain.name}: ") for line in told)
    assert any(line.startswith(f"period of sensor {sensor.name}: ") for line in told)
    assert {change.sense for change in found.requirements} == {"stronger"} and not found.weaker
    assert text(found, 200).count("feasible → infeasible") == 1
    assert markdown(found, "a", "b", 0.05).count("feasible → infeasible") == 1
    better = diff(b, plan, 0.05, [chain.name, sensor.name])
    assert "verdict: infeasible → feasible" in better.changes


names = st.sampled_from(["a: wcet", "a: blocking by b", "b: wcet", "b: interference by c", "a>b: wcet", "c: wcet"])


@given(st.lists(st.tuples(names, st.integers(-99, 99))), st.lists(st.tuples(names, st.integers(-99, 99))))
def test_the_shares_add_up_to_the_change_of_the_bound(a: list[tuple[str, int]], b: list[tuple[str, int]]) -> None:
    chains = [ChainResult("c", (), 0, 0, sum(ns for _, ns in terms), None, tuple(terms)) for terms in (a, b)]
    assert sum(shares(*chains).values()) == sum(ns for _, ns in b) - sum(ns for _, ns in a)


@given(factor=st.floats(0.5, 2.0), allowed=st.floats(0.0, 0.9))
def test_a_bound_regresses_exactly_above_the_allowance(factor: float, allowed: float) -> None:
    import report_samples

    a = bound(report_samples.make_plan(), {"pfn: wcet": 100})
    b = replace(a, chains=(replace(a.chains[0], bound_ns=round(100 * MS * factor)), *a.chains[1:]))
    assert bool(diff(a, b, allowed).regressions) == (round(100 * MS * factor) > 100 * MS * (1 + allowed))


def test_what_cannot_be_weighed_is_a_regression(plan: Plan) -> None:
    lost = replace(plan, verdict="undecided", chains=(replace(plan.chains[0], bound_ns=None),))
    reported = " ".join(diff(plan, lost, 9.0).regressions)
    assert "verdict feasible → undecided" in reported
    assert "chain planning is removed" in reported
    assert "→ none" in reported
    assert diff(lost, plan, 9.0).regressions == ()


def test_power_and_traffic_count_and_name_their_largest_term(plan: Plan) -> None:
    a = replace(plan, power=Power(1000, terms=(("gpu dynamic", 400), ("base", 600))))
    b = replace(plan, power=Power(2000, terms=(("gpu dynamic", 1400), ("base", 600))))
    assert diff(a, b, 0.05).regressions == ("power expected 1 W → 2 W: mostly gpu dynamic",)


def test_changed_inputs_modes_and_added_or_removed_stages_are_reported(plan: Plan) -> None:
    other = replace(plan, mode="15W", tasks=plan.tasks[1:], inputs={**plan.inputs, "pipelines/new.yaml": "0"})
    found = diff(plan, other, 0.05)
    assert {"mode: MAXN → 15W", "input pipelines/new.yaml is new"} <= set(found.changes)
    assert found.moves[0].told().startswith("voxelise is removed from cpu")
    assert diff(other, plan, 0.05).moves[0].told().startswith("voxelise is new, on cpu")


def text(found: Any, width: int = 80) -> str:
    """Render to plain text."""
    screen = Console(file=io.StringIO(), width=width)
    screen.print(view(found, "a", "b", 0.05))
    return screen.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [60, 80])
def test_the_view_fits_and_says_all(plan: Plan, width: int) -> None:
    shown = text(diff(*moved(plan), 0.05), width)
    assert max(map(len, shown.splitlines())) <= width
    for part in ("dla0 int8", "gpu fp16", "23 ms", "50 ms", "1 regression"):
        assert part in shown


def test_markdown_says_the_same(plan: Plan) -> None:
    reported = markdown(diff(*moved(plan), 0.05), "main|x", "new", 0.05)
    assert reported.startswith("## ❌ 1 regression\n")
    assert "| backbone | dla0 int8 | gpu fp16 | 17.5 ms | 41 ms |" in reported
    assert "main\\|x" in reported
    assert "## ✅ no regression" in markdown(diff(plan, plan, 0.05), "a", "b", 0.05)


def test_results_name_the_move_too(plan: Plan, result: dict[str, Any]) -> None:
    slower = copy.deepcopy(result)
    stage, name = "backbone", "lidar-detection"
    slower["stages"][stage]["exec_ns"]["p50"] += 20 * MS
    slower["chains"][name]["response_time_ns"]["p99"] *= 2
    slower["chains"][name]["missed"] = slower["chains"][name]["released"]
    b = changed(plan, stage, engine="gpu")
    found = compare(result, slower, 0.05, (plan, b))
    reported = {row.name: row.because for row in found.rows if row.regressed}
    assert reported[stage].startswith("backbone moved from dla0 int8 to gpu int8")
    assert reported[name].startswith("backbone moved from dla0") and reported[name].endswith("(its median +20 ms)")
    assert any("frames late (" in line and "backbone moved" in line for line in found.regressions)
    unmoved = compare(result, slower, 0.05, (plan, plan))
    assert {row.name: row.because for row in unmoved.rows if row.regressed}[name] == (
        "backbone takes longer (its median +20 ms)"
    )
    assert "backbone moved" in text(found)


@pytest.mark.parametrize(
    ("before", "after", "cost", "reported"),
    [
        ("cpu fp32 lanes #1 of 4", "cpu fp32 lanes #0 of 4", 4, "a on cpu fp32 costs 2 ms → 4 ms"),
        ("cpu fp32 lanes #0-1 of 4", "cpu fp32 lanes #1, 3 of 4", 4, "a on cpu fp32 costs 2 ms → 4 ms"),
        ("cpu fp32 lanes #0-1 of 4", "cpu fp32 lanes #1 of 4", 4, "a has lanes #1 of 4 of cpu instead of lanes #0-1"),
        ("cpu fp32 lanes #1 of 4", "cpu fp32 lanes #0 of 4", 2, "a has lanes #0 of 4 of cpu instead of lanes #1 of 4"),
    ],
)
def test_a_cost_that_grew_on_as_many_lanes_is_not_blamed_on_their_numbers(
    before: str, after: str, cost: int, reported: str
) -> None:
    assert Move("a", before, after, 2 * MS, cost * MS).told().startswith(reported)


MS = 1_000_000
CAMERA = Sensor("camera", "camera", 100 * MS, jitter_ns=MS, bytes_per_frame=1000, gap_ns=MS)
STAGES = (
    Stage(
        "a", "a", None, ("camera",), precisions=("fp32", "fp16"), engines=("gpu",), queue=2, on_late="degrade",
        criticality="firm", jitter_ns=MS,
    ),
    Stage("b", "b", None, ("a",), precisions=("fp32",)),
    Stage("timer", "timer", None, (), 50 * MS, precisions=("fp32",), open_queue=True),
)  # fmt: skip
CHAIN = Chain("drive", ("camera", "a", "b"), 80 * MS, 90 * MS)
PIPELINE = Pipeline("p", "p", (CAMERA,), STAGES, (CHAIN,), accuracy_budget=500)

WEAKER: list[tuple[str, str, Any]] = [
    ("camera.period", "period_ns", 101 * MS),
    ("camera.jitter", "jitter_ns", 0),
    ("camera.sporadic", "gap_ns", 2 * MS),
    ("camera.frame size", "bytes_per_frame", 999),
    ("a.precisions", "precisions", ("fp32", "fp16", "int8")),
    ("a.precisions", "precisions", ("int8",)),
    ("a.engines", "engines", ()),
    ("a.engines", "engines", ("gpu", "cpu")),
    ("a.queue", "queue", 3),
    ("a.queue", "open_queue", True),
    ("a.on late", "on_late", "abort"),
    ("a.criticality", "criticality", "soft"),
    ("a.jitter", "jitter_ns", 0),
    ("timer.period", "period_ns", 51 * MS),
    ("drive.path", "path", ("camera", "a")),
    ("drive.path", "path", ("a", "b")),
    ("drive.path", "path", ("camera", "b", "a")),
    ("drive.deadline", "deadline_ns", 81 * MS),
    ("drive.max age", "max_age_ns", None),
    ("drive.max age", "max_age_ns", 91 * MS),
    ("drive.criticality", "criticality", "soft"),
    ("accuracy-budget", "accuracy_budget", 501),
    ("accuracy-budget", "accuracy_budget", None),
]


def requirement_changed(name: str, field: str, value: Any) -> Pipeline:
    """Return the pipeline with a field of the chain, stage or sensor of a name changed."""
    owner = name.partition(".")[0]
    if owner == "accuracy-budget":
        return replace(PIPELINE, **{field: value})

    def swapped(members: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(one, **{field: value}) if one.name == owner else one for one in members)

    groups = {group: swapped(getattr(PIPELINE, group)) for group in ("sensors", "stages", "chains")}
    return replace(PIPELINE, **groups)


def asked(pipeline: Pipeline, *others: Requirement) -> Plan:
    """Return a plan of which a pipeline's requirements were asked."""
    return replace(report_samples.make_plan(), requirements=(*requirements_of(pipeline), *others))


@pytest.mark.parametrize(("name", "field", "value"), WEAKER)
def test_a_weaker_requirement_fails_unless_it_is_named_and_the_way_back_is_stronger(
    name: str, field: str, value: Any
) -> None:
    a, b = asked(PIPELINE), asked(requirement_changed(name, field, value))
    (change,) = diff(a, b, 0.05).weaker
    assert diff(a, b, 0.05).regressions == (f"weaker requirement: {change.told()}",)
    for allowed in (name, name.partition(".")[0], name.replace(" ", "-")):
        assert diff(a, b, 0.05, [allowed]).regressions == ()
    assert diff(a, b, 0.05, ["another", f"{name}s"]).weaker == (change,)
    (back,) = requirement_changes(b, a)
    disjoint = value in (("int8",), ("camera", "b", "a"))
    assert back.sense == ("weaker" if disjoint else "stronger")
    assert diff(a, a, 0.0).requirements == ()


def test_chains_stages_and_sensors_that_are_gone_are_weaker_and_new_ones_stronger() -> None:
    fewer = replace(PIPELINE, stages=STAGES[:2], chains=())
    found = diff(asked(PIPELINE), asked(fewer), 0.05)
    assert {change.told() for change in found.weaker} == {"chain drive is removed", "stage timer is removed"}
    assert {change.sense for change in requirement_changes(asked(fewer), asked(PIPELINE))} == {"stronger"}


def test_another_name_for_the_same_is_neither_weaker_nor_stronger() -> None:
    stages = tuple(replace(s, name="c") if s.name == "b" else s for s in STAGES)
    chain = replace(CHAIN, path=("front", "a", "c"))
    other = replace(PIPELINE, sensors=(replace(CAMERA, name="front"),), stages=stages, chains=(chain,))
    found = requirement_changes(asked(PIPELINE), asked(other))
    assert [(change.subject, change.before, change.after) for change in found] == [
        ("sensor front", "camera", "front"),
        ("stage c", "b", "c"),
    ]
    assert {change.sense for change in found} == {"changed"}


def test_caps_count_where_the_mode_was_asked_for() -> None:
    def around(mode: str, cap: int | None) -> Plan:
        rows = [Requirement("platform", "mode", names=(mode,))]
        rows += [] if cap is None else [Requirement("platform", "power cap", cap)]
        return replace(asked(PIPELINE, *rows), mode="MAXN" if cap is None else f"{cap}W")

    (change,) = diff(around("30W", 30_000), around("90W", 90_000), 0.05).weaker
    assert change.told() == "power cap of platform: 30 W → 90 W" and change.named(["power-cap"])
    assert diff(around("auto", 30_000), around("auto", None), 0.05).weaker == ()
    other_board = replace(around("90W", 90_000), platform="another")
    assert diff(around("30W", 30_000), other_board, 0.05).weaker == ()


def test_what_a_plan_without_a_list_tells_is_compared_with_one_that_has_it() -> None:
    """A baseline made before requirements were listed, and a plan of the same pipeline with a cut network."""
    pipeline = get_pipeline("pointpillars")
    chain = pipeline.chains[0]
    plan = report_samples.make_plan()
    old = replace(plan, chains=(replace(plan.chains[0], name=chain.name, path=chain.path),), sensors=())
    path = tuple(part for name in chain.path for part in ((name,) if name != "backbone" else ("backbone", "head")))
    new = replace(old, requirements=requirements_of(replace(pipeline, sensors=())))
    assert [c for c in requirement_changes(old, new) if c.kind == "path"] == []
    shorter = replace(pipeline, chains=(replace(chain, path=path[:3]),), sensors=())
    assert diff(old, replace(new, requirements=requirements_of(shorter)), 0.05).weaker[0].kind == "path"


def test_every_field_of_a_pipeline_that_asks_for_something_is_listed() -> None:
    """A field that is not listed is a fact, or it is named by the digest of the file alone, on purpose."""
    facts = {
        Chain: {"name", "source", "assumed"},
        Sensor: {"name", "kind", "source", "assumed", "columns", "column_type", "offset_ns"},
        Stage: {
            "name", "title", "model", "after", "reads", "params", "costs", "share", "output_bytes", "source", "assumed",
            "execution", "degraded", "slice_ns", "high", "offset_ns", "overflow", "losses", "portions",
            "stated",  # the reason of `precisions`, which are listed
        },
    }  # fmt: skip
    listed = {
        Chain: {"path", "deadline_ns", "max_age_ns", "criticality"},
        Sensor: {"period_ns", "jitter_ns", "bytes_per_frame", "gap_ns"},
        Stage: {
            "period_ns", "precisions", "queue", "open_queue", "criticality", "on_late", "jitter_ns", "engines",
        },
    }  # fmt: skip
    for sort, names in facts.items():
        assert {field.name for field in fields(sort)} == names | listed[sort]
        assert listed[sort] <= {field for _, field, _ in WEAKER}


numbers = st.one_of(st.none(), st.integers(-(2**62), 2**62))
texts = st.lists(st.sampled_from(["a", "b", "camera", "hard", "soft", "fp16"]), max_size=3).map(tuple)
kinds = ["path", "deadline", "criticality", "precisions", "engines", "queue", "jitter", "memory", "mode", "x", ""]
rows = st.lists(
    st.builds(
        Requirement,
        st.sampled_from(["chain a", "stage a", "sensor b", "platform", "pipeline", "a", " "]),
        st.sampled_from(kinds),
        numbers,
        texts,
    ),
    max_size=6,
).map(tuple)


@given(rows, rows)
def test_requirements_of_any_file_are_compared_without_a_traceback(
    a: tuple[Requirement, ...], b: tuple[Requirement, ...]
) -> None:
    plan = report_samples.make_plan()
    for change in requirement_changes(replace(plan, requirements=a), replace(plan, requirements=b)):
        assert change.told() and change.sense in ("weaker", "stronger", "changed")
