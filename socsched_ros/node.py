"""The lifecycle node `socsched`: messages in, detections and diagnostics out.

configure: load, compile, warm up.  activate: take messages.  deactivate: ignore them.  cleanup: end the run.  If a
stage fails, the node reports it and returns to unconfigured; with `autostart` it then starts anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import rclpy
import std_msgs.msg
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.executors import ExternalShutdownException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import qos_profile_sensor_data
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image, PointCloud2
from visualization_msgs.msg import MarkerArray

from socsched.api.loading import load_plan, pipeline_of
from socsched.errors import SocschedError
from socsched.runtime.frames import Frame
from socsched.runtime.ros_messages import CLOUD, COMPRESSED, IMAGE, decode, header_of
from socsched_ros import messages
from socsched_ros.runner import IMAGE as PIXELS
from socsched_ros.runner import POINT_CLOUD, Joined, Runner, Topic, inputs_of, tensor_of

_DONE, _FAILED = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
_MOST_MESSAGE = 1 << 28
"""Bytes of a message that is decoded."""
_TEXTS = {"plan": "", "pipeline": "", "weights": "", "scales": "", "diagnostics_topic": "/diagnostics"}
_FORMS = {POINT_CLOUD: (PointCloud2, CLOUD), PIXELS: (Image, IMAGE)}
_PERIOD_S = 1.0
_SILENT = 3
"""Periods of a sensor without a message after which it counts as silent."""


class SocschedNode(LifecycleNode):  # type: ignore[misc]
    """See the module; parameters in docs/ros2.md."""

    def __init__(self, **how: Any) -> None:
        super().__init__("socsched", **how)
        for name, default in _TEXTS.items():
            self.declare_parameter(name, default)
        self.declare_parameter("topics", [""])
        self.declare_parameter("autostart", True)
        self.declare_parameter("startup_timeout", 300.0)
        self._runner: Runner | None = None
        self._subscriptions_: list[Any] = []
        self._active = False
        self._heard: dict[str, float] = {}
        self._faulty: dict[str, int] = {}
        self._busy = time.process_time(), time.monotonic()
        self._failure = ""
        self._diagnostics = self.create_publisher(DiagnosticArray, self._text("diagnostics_topic"), 10)
        self._markers = self.create_publisher(MarkerArray, "~/markers", 10)
        kind = messages.DETECTIONS
        self._detections = self.create_publisher(kind, "~/detections", 10) if kind else None
        self.create_timer(_PERIOD_S, self._report)
        if self.get_parameter("autostart").value:
            self._starter = self.create_timer(0.01, self._start)

    # -- transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the plan, compile what is not cached, and warm up."""
        self._failure = ""
        try:
            plan = load_plan(self._text("plan"))
            pipeline = pipeline_of(plan, self._text("pipeline") or None, self.get_logger().warning)
            inputs = inputs_of(pipeline)
            topics = self._topics({topic.name for read in inputs.values() for topic in read})
            self._lifetime = 2 * max((sensor.period_ns for sensor in plan.sensors), default=10**9)
            runner = Runner(plan, pipeline, self._publish, self._path("weights"), self._path("scales"))
        except SocschedError as error:
            return self._refuse(f"{error}" + (f" ({error.hint})" if error.hint else ""))
        if not runner.start(self.get_parameter("startup_timeout").value):
            runner.close()
            return self._refuse(runner.failure)
        self._runner = runner
        self._heard, self._faulty = {}, dict.fromkeys(inputs, 0)
        for sensor, read in inputs.items():
            joined = Joined(read)
            for topic in read:
                self._subscribe(sensor, topic, topics[topic.name], joined)
        return _DONE

    def _subscribe(self, sensor: str, topic: Topic, name: str, joined: Joined) -> None:
        form, what = _FORMS.get(topic.kind) or (getattr(std_msgs.msg, topic.kind), "")
        if form is Image and name.endswith("/compressed"):
            form, what = CompressedImage, COMPRESSED

        def read(data: bytes) -> tuple[Any, tuple[int, int, str]]:
            if what:
                return decode(what, "cdr", data), header_of(data)
            seconds, rest = divmod(self.get_clock().now().nanoseconds, 10**9)  # an array has no header
            return tensor_of(deserialize_message(data, form).data, topic), (seconds, rest, "")

        take = partial(self._take, sensor, topic.port, read, joined)
        self._subscriptions_.append(self.create_subscription(form, name, take, qos_profile_sensor_data, raw=True))
        self.get_logger().info(f"sensor {sensor}: {form.__name__} on {name}")

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take messages."""
        self._active = True
        self._heard = dict.fromkeys(self._faulty, time.monotonic())
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Ignore messages; the run stays ready."""
        self._active = False
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End the run."""
        self._end()
        return _DONE

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End the run."""
        self._end()
        return _DONE

    # -- work

    def _start(self) -> None:
        self._starter.cancel()
        if self.trigger_configure() is not _DONE:
            return
        self.trigger_activate()

    def _take(self, sensor: str, port: str, read: Callable[[bytes], Any], joined: Joined, data: bytes) -> None:
        if not self._active or self._runner is None:
            return
        self._heard[sensor] = time.monotonic()
        try:
            if len(data) > _MOST_MESSAGE:
                raise ValueError(f"{len(data)} bytes, expected at most {_MOST_MESSAGE}")
            array, header = read(data)
            if (frame := joined.add(port, array)) is not None:
                self._runner.offer(sensor, frame, header)
        except ValueError as error:
            self._faulty[sensor] += 1
            self.get_logger().warning(f"{sensor}: message not used: {error}", throttle_duration_sec=5.0)
            self._runner.offer(sensor, Frame({}, sensor, str(error)), (0, 0, ""))

    def _publish(self, key: str, found: list[Mapping[str, Any]], stamp: Any) -> None:
        if key != "detections" or stamp is None or not self._active:
            return
        top = messages.header(stamp)
        self._markers.publish(messages.markers(found, top, self._lifetime))
        if self._detections is not None:
            self._detections.publish(messages.detections(found, top))

    def _report(self) -> None:
        """Publish diagnostics, and recover from a failed run."""
        name = self.get_name()
        used, now = time.process_time(), time.monotonic()
        load = (used - self._busy[0]) / max(now - self._busy[1], 1e-6) / (os.cpu_count() or 1)
        window_s, self._busy = now - self._busy[1], (used, now)
        level, text = DiagnosticStatus.OK, "active" if self._active else "not active"
        runner = self._runner
        if runner is not None and not runner.alive:
            self._failure = runner.failure or "results cannot be published"
        if self._failure:
            level, text = DiagnosticStatus.ERROR, self._failure
        values: dict[str, float] = {"processor load": load}
        rows = []
        if runner is not None:
            rows = [messages.chain_status(name, chain, c, window_s) for chain, c in runner.take_counts().items()]
            periods = {sensor.name: sensor.period_ns / 1e9 for sensor in runner.plan.sensors}
            for sensor, faulty in self._faulty.items():
                rows.append(self._sensor(sensor, periods[sensor], runner.received.get(sensor, 0), faulty, now))
        found = DiagnosticArray(status=[messages.status(f"{name}: executor", level, text, values), *rows])
        found.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(found)
        if self._failure and runner is not None:
            self.get_logger().error(f"the run ended: {self._failure}")
            if self._active:
                self.trigger_deactivate()
            self.trigger_cleanup()
            if self.get_parameter("autostart").value:
                self._starter.reset()

    def _sensor(self, sensor: str, period_s: float, received: int, faulty: int, now: float) -> Any:
        silent = now - self._heard.get(sensor, now)
        level, text = DiagnosticStatus.OK, "messages arrive"
        if not self._active:
            text = "not active"
        elif silent > max(_SILENT * period_s, _PERIOD_S):
            level, text = DiagnosticStatus.STALE, f"no message for {silent:.1f} s"
        values = {"received": received, "not usable": faulty, "silent s": silent if self._active else 0.0}
        return messages.status(f"{self.get_name()}: sensor {sensor}", level, text, values)

    def _topics(self, sensors: set[str]) -> dict[str, str]:
        """Return the topics by name: /NAME, or what parameter `topics` states as NAME=TOPIC."""
        found = {sensor: f"/{sensor}" for sensor in sensors}
        for entry in self.get_parameter("topics").value:
            sensor, equals, topic = entry.partition("=")
            if entry and (not equals or sensor not in sensors or not topic):
                expected = f"expected SENSOR=TOPIC with a sensor of {', '.join(sorted(sensors))}"
                raise SocschedError(f"parameter topics: {entry!r}", expected)
            if entry:
                found[sensor] = topic
        return found

    def _refuse(self, problem: str) -> TransitionCallbackReturn:
        self._failure = problem
        self.get_logger().error(f"not configured: {problem}")
        return _FAILED

    def _end(self) -> None:
        self._active = False
        for subscription in self._subscriptions_:
            self.destroy_subscription(subscription)
        self._subscriptions_.clear()
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _text(self, name: str) -> str:
        return str(self.get_parameter(name).value)

    def _path(self, name: str) -> Path | None:
        return Path(self._text(name)) if self._text(name) else None


def main() -> None:
    """Run the node until it is interrupted."""
    rclpy.init()
    node = SocschedNode()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node._end()
        node.destroy_node()
        rclpy.try_shutdown()
