"""The mapping diagram: every stage once in its engine's lane, data to the right, conversions and cuts visible."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

from socsched.graph.operators import TensorType
from socsched.models.parts import PART, PartOf
from socsched.planning.plan import Plan
from socsched.reporting.diagram import depths, mapping


def boxes(plan: Plan) -> dict[str, tuple[float, float, str]]:
    """Return left edge, upper edge and class of every box, by its tooltip."""
    figure = ElementTree.fromstring(mapping(plan).partition(">")[2].removesuffix("</div>"))
    svg = "{http://www.w3.org/2000/svg}"
    found = {}
    for group in figure.iter(svg + "g"):
        rect = group.find(svg + "rect")
        if rect is not None and "node" in group.get("class", ""):
            title = group.findtext(svg + "title") or ""
            name = re.split(r" on |, a sensor", title)[0]
            found[name] = (float(rect.get("x", "0")), float(rect.get("y", "0")), group.get("class", ""))
    return found


def test_every_task_and_sensor_has_one_box_and_data_flows_right(plan: Plan) -> None:
    found = boxes(plan)
    assert set(found) == {task.name for task in plan.tasks} | {"lidar"}
    for task in plan.tasks:
        for source in (*task.after, *task.reads):
            assert found[source][0] < found[task.name][0]


def test_boxes_of_an_engine_share_its_lane_and_colour(plan: Plan) -> None:
    found = boxes(plan)
    places: dict[str, set[str]] = {}
    for task in plan.tasks:
        places.setdefault(task.engine, set()).add(found[task.name][2].split()[-1])
    assert all(len(colours) == 1 for colours in places.values())
    assert len(set.union(*places.values())) == len(places)
    assert "conversion" in found["scatter>backbone"][2] and "sensor" in found["lidar"][2]


def test_boxes_do_not_overlap(plan: Plan) -> None:
    corners = [(x, y) for x, y, _ in boxes(plan).values()]
    assert len(set(corners)) == len(corners)


def test_timers_and_loops_end(plan: Plan) -> None:
    looped = tuple(replace(t, reads=("planning",)) if t.name == "voxelise" else t for t in plan.tasks)
    assert depths(replace(plan, tasks=looped))["planning"] > 0
    assert "planning" in mapping(replace(plan, tasks=looped))


def test_a_cut_is_named_by_its_layer(plan: Plan) -> None:
    part = PartOf("net", "block2:", 2, 2, (1,), {"block2": TensorType((1, 8, 4, 4), "fp32", "NCHW")})
    tasks = tuple(replace(t, params={PART: part.param()}) if t.name == "backbone" else t for t in plan.tasks)
    drawn = mapping(replace(plan, tasks=tasks))
    assert "net is cut after block2" in drawn and "✂ block2" in drawn
    assert "is cut after" not in mapping(plan)
