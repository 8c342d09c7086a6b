"""Messages of the node: boxes as markers and as 3D detections."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from socsched_ros.runner import ChainCounts

pytestmark = pytest.mark.needs("ROS 2")
FOUND = [{"class": "Car", "label": 2, "score": 0.875, "box": [12.5, -3.25, -1.5, 1.6, 3.9, 1.5, -1.5707963267948966]}]


def detection(header: Any) -> Any:
    """Return the fields of vision_msgs/Detection3D that are set, since no wheel has the package."""
    from geometry_msgs.msg import Pose, Vector3

    return SimpleNamespace(header=header, bbox=SimpleNamespace(center=Pose(), size=Vector3()), results=[])


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Any:
    from geometry_msgs.msg import PoseWithCovariance

    made = ModuleType("vision_msgs.msg")
    made.Detection3D = detection  # type: ignore[attr-defined]
    made.Detection3DArray = SimpleNamespace  # type: ignore[attr-defined]
    made.ObjectHypothesisWithPose = lambda: SimpleNamespace(  # type: ignore[attr-defined]
        hypothesis=SimpleNamespace(class_id="", score=0.0), pose=PoseWithCovariance()
    )
    monkeypatch.setitem(sys.modules, "vision_msgs", ModuleType("vision_msgs"))
    monkeypatch.setitem(sys.modules, "vision_msgs.msg", made)
    monkeypatch.delitem(sys.modules, "socsched_ros.messages", raising=False)
    import socsched_ros.messages as found

    yield found
    sys.modules.pop("socsched_ros.messages", None)


def test_boxes_have_the_place_and_size_that_was_found(messages: Any) -> None:
    top = messages.header((3, 5, "lidar"))
    clear, box = messages.markers(FOUND, top, 250_000_000).markers
    assert (clear.action, box.header.stamp.sec, box.header.frame_id) == (3, 3, "lidar")
    assert box.lifetime.nanosec == 250_000_000
    (other,) = messages.detections(FOUND, top).detections
    for pose, size in ((box.pose, box.scale), (other.bbox.center, other.bbox.size)):
        assert (pose.position.x, pose.position.y, pose.position.z) == (12.5, -3.25, -0.75)
        assert (size.x, size.y, size.z) == (3.9, 1.6, 1.5)
        assert (pose.orientation.z, pose.orientation.w) == (0, 1)  # it looks along x
    (result,) = other.results
    assert (result.hypothesis.class_id, result.hypothesis.score) == ("Car", 0.875)
    assert result.pose.pose.position.x == 12.5


def test_statuses_of_chains(messages: Any) -> None:
    good = ChainCounts(100_000_000, 9, 10, 0, 0, 10, 0, 0, [50_000_000] * 10)
    assert messages.chain_status("n", "c", good, 1.0).level == b"\0"
    bad = ChainCounts(100_000_000, 9, 10, 1, 2, 10, 1, 2, [50_000_000] * 9 + [130_500_000])
    status = messages.chain_status("n", "c", bad, 2.0)
    values = {pair.key: pair.value for pair in status.values}
    assert (status.level, status.message) == (b"\1", "1 frames late, 2 lost")
    assert (values["deadline misses"], values["lateness max ms"], values["frames per second"]) == ("1", "30.5", "5")
