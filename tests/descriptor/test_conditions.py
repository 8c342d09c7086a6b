"""Operating conditions of pipelines and thermal states of platforms."""

from __future__ import annotations

from typing import Any

import pytest

import socsched as ss
from socsched.descriptor.pipeline import under_condition
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.platform import mode_in_state
from socsched.errors import DescriptorError, UsageError

COST = {
    "platform": "board", "mode": "fast", "engine": "cpu", "precision": "fp32",
    "time": {"value": "3 ms", "kind": "assumed", "note": "a test"},
}  # fmt: skip


def document(**conditions: Any) -> dict[str, Any]:
    return {
        "schema_version": "1", "name": "p", "title": "t",
        "sensors": {"left": {"kind": "camera", "period": "40 ms"}, "right": {"kind": "camera", "period": "40 ms"}},
        "stages": {
            "join": {"title": "t", "after": ["left", "right"], "costs": [COST]},
            "net": {"title": "t", "after": ["left"], "model": "camera.detector"},
        },
        "chains": {"c": {"path": ["left", "join"], "deadline": "40 ms"}},
        "conditions": {name: {"title": "t", **one} for name, one in conditions.items()},
    }  # fmt: skip


def test_a_condition_replaces_what_it_states() -> None:
    both = {"left": {"period": "80 ms"}, "right": {"period": "80 ms"}}
    changed = {"sensors": both, "stages": {"join": {"load": 2}}, "chains": {"c": {"deadline": "70 ms"}}}
    pipeline = pipeline_from_mapping(document(night=changed), "p.yaml")
    night = under_condition(pipeline, "night")
    assert [sensor.period_ns for sensor in night.sensors] == [80_000_000] * 2
    assert night.stage("join").costs[0].scale == 2 * pipeline.stage("join").costs[0].scale
    assert night.chains[0].deadline_ns == 70_000_000
    assert under_condition(pipeline, "base") is pipeline
    with pytest.raises(UsageError, match="no operating condition 'fog'"):
        under_condition(pipeline, "fog")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"stages": {"jion": {"load": 2}}}, "did you mean 'join'?"),
        ({"sensors": {"radar": {"period": "1 s"}}}, "unknown sensor 'radar'"),
        ({"stages": {"net": {"load": 2}}}, "expected params instead"),
        ({"stages": {"join": {"params": {"points": 3}}}}, "expected load instead"),
        ({"stages": {"join": {"period": "1 s"}}}, "the stage has no timer"),
        ({"stages": {"join": {"load": 0}}}, "expected a number above 0"),
        ({"sensors": {"left": {"period": "80 ms"}}}, "expected equal periods of 'left' and 'right'"),
        ({"chains": {"d": {"deadline": "1 s"}}}, "unknown chain 'd'"),
    ],
)
def test_faults_are_found(condition: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        pipeline_from_mapping(document(night=condition), "p.yaml")
    assert message in str(caught.value)


def test_base_is_not_a_name_for_a_condition() -> None:
    with pytest.raises(DescriptorError, match="base is the file without changes"):
        pipeline_from_mapping(document(base={}), "p.yaml")


def test_a_thermal_state_lowers_clocks_to_operating_points() -> None:
    board = ss.load_platform("jetson-agx-orin-64gb")
    mode = board.mode("MAXN")
    hot = mode_in_state(board, mode, "hot")
    assert hot.name == "MAXN@hot"
    for engine in board.engines:
        before, after = mode.engines[engine.id], hot.engines[engine.id]
        assert after.units == before.units
        assert 0 < after.clock_hz <= before.clock_hz / 2
        assert after.dynamic_mw.value <= before.dynamic_mw.value * after.clock_hz / before.clock_hz + 1
        if engine.points:
            assert after.clock_hz in {point.clock_hz for point in engine.points.points}
    assert mode_in_state(board, mode, "cool") is mode
    with pytest.raises(UsageError, match="no thermal state 'boiling'"):
        mode_in_state(board, mode, "boiling")
    other = ss.load_platform("rk3588")
    assert mode_in_state(other, other.mode(None), "nominal") is other.mode(None)
