"""plan.json preserves plans completely: one with every field set, and random ones with every feature."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.cost.cost import Shared
from socsched.descriptor.platform import ContentionChoice
from socsched.planning.io import from_document, load, save, to_document
from socsched.planning.plan import (
    Bandwidth,
    ChainResult,
    Condition,
    Conflict,
    Measurement,
    Memory,
    ModeResult,
    Necessity,
    OpenRequirement,
    Plan,
    Power,
    Proof,
    Provenance,
    Requirement,
    SearchReport,
    Throttle,
    Tie,
    Transition,
    Uncertainty,
    Violation,
)
from socsched.planning.task import FILE_ORDER, Task
from socsched.sim.simulate import run
from tests.sim.random_plans import HORIZON, plans
from tests.sim.rich_plan import rich_plan

VIOLATED = Violation("drive", 9, 8, 1, "ns", (("decode", 9),), ("a faster board",))
NECESSITY = Necessity("path", "drive", 9, 8, "ns", (("decode", 9),))
REPORT = SearchReport(
    name="heft", status="done", objective=("energy", "latency"), value=3, bound=2.5, gap=0.5, overrun=1.0, evaluated=7,
    modes={"any": ModeResult("feasible", 1)}, notes={"a": "cut"}, proposed=8, conflict=("deadline",), scope="all",
    whole_stages="open", proof=Proof("bounds", "x", (NECESSITY,)), source="a paper",
    options={"on": True, "share": 0.5, "n": 1, "s": ""}, facts={"steps": [1, {"b": None}]}, rounds=2,
    fixed_point=False, compared_latency_ns={"heft": 9}, portfolio=("list search under edf",),
    found_by="CP-SAT under fp", open=(OpenRequirement("drive", 9, 7, 8, "ns"),), decide=("more time",),
    chosen={"drive": {"queue": 2}}, cut_off=True,
)  # fmt: skip


def everything() -> Plan:
    """Return a plan no field of which, at any depth, is left at its default."""
    made = rich_plan()
    engines = tuple(
        replace(
            e, migration_ns=5, reshape_ns=6, reset_ns=7, in_flight=3, quantum_ns=8, capacities=(1000,) * e.lanes,
            memory_bytes=9, swap_bandwidth=10, levels=made.engines[1].levels, governor="ccedf", linger_ns=11,
            look_ns=12, busy_ppm=13,
        )
        for e in made.engines
    )  # fmt: skip
    tasks = tuple(
        replace(
            t, model="m.onnx", params={"a": [1, {"b": 2.5}], "c": None, "d": True}, why="cheapest", width=1,
            overflow="oldest", on_late="degrade", degraded=t.segments, times=made.tasks[0].times, release_jitter_ns=1,
            gap_ns=2, weights_bytes=3, budget_ns=4, server_ns=5, high_ns=6, closed_by=t.name, process="p",
            shared=Shared(4, 5, 6, 7, "camera"),
            runtime="tvm",
        )
        for t in made.tasks
    )  # fmt: skip
    return replace(
        made,
        engines=engines,
        tasks=tasks,
        sensors=tuple(replace(s, gap_ns=4) for s in made.sensors),
        transitions=(Transition("a", "b", 1, "NCHW", "NHWC", "fp32", "int8", "cpu", "a>b", 2),),
        chains=(
            ChainResult("drive", ("lidar", "decode"), 3, 4, 5, 6, (("decode", 7), ("wait", 8)), "EDF response times"),
        ),
        violations=(VIOLATED,),
        conflicts=(Conflict((VIOLATED,), True, True, 5),),
        uncertainty=Uncertainty(
            "latency",
            (Tie("a", "gpu", 1.0, 2),),
            Measurement("a", "cpu", "fp32", 1, 2.5, 3, 4, 5.0, "may be better"),
            (Condition("drive", "decode", 1.5, 2.0),),
            "feasible",
            ("verdict",),
        ),
        power=Power(1.5, 2, (("cpu", 1), ("gpu", 0.5))),
        bandwidth=Bandwidth(1.5, 2, (("a", 1),)),
        memory=Memory(3, 4, (("weights of a", 3),)),
        solver=REPORT,
        inputs={"pipeline": "sha256:1"},
        contention=ContentionChoice("linear", {"a": 0.25, "b": {"c": 1}}, {"cpu": "cpu"}),
        provenance=Provenance({"measured": 1.0}, 0.5),
        tool={"version": "0"},
        throttle=Throttle(1, 2, 0.5, 3, 4, 5, 6, 7),
        requirements=(Requirement("chain drive", "deadline", 8, ("a",)),),
    )


def unset(value: Any, where: str = "plan") -> list[str]:
    """Return the fields of a plan that are at their defaults."""
    if isinstance(value, (list, tuple)):
        return [name for i, item in enumerate(value) for name in unset(item, f"{where}[{i}]")]
    if not is_dataclass(value):
        return []
    found = []
    for field in fields(value):
        own = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        inner = f"{where}.{field.name}"
        found += [inner] if own == default else unset(own, inner)
    return found


def test_nothing_is_lost_of_a_plan_with_everything_set(tmp_path: Path) -> None:
    made = everything()
    # a segment says where it runs only if that is elsewhere
    assert {name for name in unset(made) if "segments" not in name and "degraded" not in name} == set()
    save(made, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == made


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_plans_survive_a_round_trip_and_run_alike(data: st.DataObject) -> None:
    made = data.draw(plans(rich=True))
    again = from_document(json.loads(json.dumps(to_document(made))), "plan.json")
    assert again == made
    one, other = (run(p, HORIZON, 1, implementation="python").trace for p in (made, again))
    assert one == other


def test_parts_without_content_are_empty_in_the_file() -> None:
    document = to_document(replace(rich_plan(), solver=SearchReport("heft", objective=("energy", "latency"))))
    assert document["power"] == document["contention"] == document["uncertainty"] == {}
    assert document["solver"] == {
        "name": "heft", "status": None, "objective": "energy,latency", "value": None, "bound": None, "gap": None,
        "modes": {},
    }  # fmt: skip


def test_tasks_keep_the_order_of_their_fields_in_the_file() -> None:
    (first, *_) = to_document(everything())["tasks"]
    assert tuple(first) == FILE_ORDER and set(FILE_ORDER) == {field.name for field in fields(Task)}
