"""Messages that the node publishes: markers, 3D detections if vision_msgs is installed, and diagnostics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from builtin_interfaces.msg import Duration
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from std_msgs.msg import Header
from visualization_msgs.msg import Marker, MarkerArray

from socsched.reporting.foxglove import heading
from socsched_ros.runner import ChainCounts

try:
    from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesisWithPose

    DETECTIONS: Any = Detection3DArray
except ImportError:
    DETECTIONS = None
"""The type of `detections`, None if vision_msgs is not installed."""

_COLOURS = ((0.94, 0.89, 0.26), (0.88, 0.51, 0.75), (0.9, 0.55, 0.0), (0.34, 0.71, 0.91), (0.0, 0.62, 0.45))


def header(stamp: tuple[int, int, str]) -> Any:
    """Return a `std_msgs/Header` with seconds, nanoseconds and coordinate frame."""
    found = Header()
    found.stamp.sec, found.stamp.nanosec, found.frame_id = stamp
    return found


def markers(found: Sequence[Mapping[str, Any]], top: Any, lifetime_ns: int) -> Any:
    """Return boxes (x, y, z_bottom, w, l, h, ry; m, rad) as a MarkerArray that replaces the one before."""
    clear = Marker(header=top, action=Marker.DELETEALL)
    lifetime = Duration(sec=lifetime_ns // 10**9, nanosec=lifetime_ns % 10**9)
    rows = [clear]
    for number, one in enumerate(found):
        box = Marker(header=top, ns="detections", id=number, type=Marker.CUBE, action=Marker.ADD, lifetime=lifetime)
        _place(box.pose, one)
        box.scale.y, box.scale.x, box.scale.z = one["box"][3:6]
        box.color.r, box.color.g, box.color.b = _COLOURS[one["label"] % len(_COLOURS)]
        box.color.a = 0.5
        box.text = f"{one['class']} {one['score']:.2f}"
        rows.append(box)
    return MarkerArray(markers=rows)


def detections(found: Sequence[Mapping[str, Any]], top: Any) -> Any:
    """Return boxes as a `vision_msgs/Detection3DArray`."""
    rows = []
    for one in found:
        detection = Detection3D(header=top)
        _place(detection.bbox.center, one)
        detection.bbox.size.y, detection.bbox.size.x, detection.bbox.size.z = one["box"][3:6]
        result = ObjectHypothesisWithPose()
        result.hypothesis.class_id, result.hypothesis.score = str(one["class"]), float(one["score"])
        result.pose.pose = detection.bbox.center
        detection.results = [result]
        rows.append(detection)
    return Detection3DArray(header=top, detections=rows)


def chain_status(node: str, chain: str, counts: ChainCounts, window_s: float) -> Any:
    """Return the status of a chain: a warning if frames were late or lost in the window."""
    late_ns = [max(0, time_ns - counts.deadline_ns) for time_ns in counts.responses]
    responses = sorted(counts.responses)
    level, text = DiagnosticStatus.OK, f"{counts.completed} frames in time"
    if counts.late or counts.lost:
        level, text = DiagnosticStatus.WARN, f"{counts.late} frames late, {counts.lost} lost"
    values = {
        "deadline ms": counts.deadline_ns / 1e6,
        "frames": counts.completed,
        "frames per second": counts.completed / window_s,
        "deadline misses": counts.late,
        "lost": counts.lost,
        "response p50 ms": responses[len(responses) // 2] / 1e6 if responses else 0.0,
        "response max ms": responses[-1] / 1e6 if responses else 0.0,
        "lateness max ms": max(late_ns, default=0) / 1e6,
        "total frames": counts.total_completed,
        "total deadline misses": counts.total_late,
        "total lost": counts.total_lost,
    }
    return status(f"{node}: chain {chain}", level, text, values)


def status(name: str, level: Any, text: str, values: Mapping[str, float]) -> Any:
    """Return a DiagnosticStatus with values rounded for reading."""
    shown = {key: f"{value:.3f}".rstrip("0").rstrip(".") for key, value in values.items()}
    pairs = [KeyValue(key=key, value=value) for key, value in shown.items()]
    return DiagnosticStatus(level=level, name=name, message=text, hardware_id="", values=pairs)


def _place(pose: Any, one: Mapping[str, Any]) -> None:
    x, y, bottom, _, _, height, ry = one["box"]
    pose.position.x, pose.position.y, pose.position.z = x, y, bottom + height / 2
    half = heading(ry) / 2
    pose.orientation.z, pose.orientation.w = math.sin(half), math.cos(half)
