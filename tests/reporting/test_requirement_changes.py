"""Requirements compared: every kind, in both directions, and the names that allow a weaker one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import report_samples
from hypothesis import given
from hypothesis import strategies as st

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.planning.plan import Plan, Requirement, requirements_of
from socsched.reporting.plan_diff import diff, requirement_changes

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


def changed(name: str, field: str, value: Any) -> Pipeline:
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
    a, b = asked(PIPELINE), asked(changed(name, field, value))
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
            "execution", "degraded", "slice_ns", "high", "offset_ns", "overflow", "losses",
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
