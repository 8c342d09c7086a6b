"""The node in a ROS 2 graph on loopback: states, detections, diagnostics, killed and restarted nodes."""

from __future__ import annotations

import array
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_pillars

from socsched.api.planning import plan
from socsched.planning import io

pytestmark = [pytest.mark.needs("ROS 2"), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
PROGRAM = "import tiny_pillars; from socsched_ros.node import main; main()"
FAILING = """
import numpy, pathlib, tiny_pillars
from socsched_ros import node
good = node.decode
def decode(*given):
    broken = pathlib.Path("FLAG")
    return numpy.zeros((5, 3), numpy.float32) if broken.exists() and not broken.unlink() else good(*given)
node.decode = decode
node.main()
"""
"""The node, with one unusable frame that its first stage fails on once the file FLAG exists."""
DOMAIN = str(100 + os.getpid() % 100)
STALE = 3


class Graph:
    """A sensor and a consumer in one process, and the node in another."""

    def __init__(self, folder: Path) -> None:
        import rclpy
        from diagnostic_msgs.msg import DiagnosticArray
        from lifecycle_msgs.srv import ChangeState, GetState
        from rclpy.qos import qos_profile_sensor_data
        from sensor_msgs.msg import PointCloud2
        from visualization_msgs.msg import MarkerArray

        self.folder = folder
        self.plan = folder / "plan.json"
        io.save(plan(tiny_pillars.PIPELINE, "host"), self.plan)
        self.weights = tiny_pillars.write_weights(folder / "w.npz")
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=int(DOMAIN))
        self.node = rclpy.create_node("test", context=self.context)
        self.executor = rclpy.executors.SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.points = self.node.create_publisher(PointCloud2, "/points", qos_profile_sensor_data)
        self.node.create_subscription(MarkerArray, "/socsched/markers", self._markers, 10)
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._diagnostics, 10)
        self.change = self.node.create_client(ChangeState, "/socsched/change_state")
        self.state = self.node.create_client(GetState, "/socsched/get_state")
        self.sending, self.sent, self.due = False, 0, 0.0
        self.markers: list[Any] = []
        self.status: dict[str, Any] = {}
        self.process: subprocess.Popen[str] | None = None
        rng = np.random.default_rng(0)
        self.scans = [rng.uniform((1, -12, -2, 0), (25, 12, 0.5, 1), (3000, 4)).astype("<f4") for _ in range(4)]

    def start(self, *parameters: str, program: str = PROGRAM) -> None:
        given = [f"plan:={self.plan}", f"pipeline:={tiny_pillars.PIPELINE}", f"weights:={self.weights}"]
        options = [part for one in (*given, "topics:=[lidar=/points]", *parameters) for part in ("-p", one)]
        environment = {**os.environ, "ROS_DOMAIN_ID": DOMAIN, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        command = [sys.executable, "-c", program, "--ros-args", *options]
        log = (self.folder / "node.log").open("a")
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=30)

    def send(self, data: bytes | None = None) -> None:
        from sensor_msgs.msg import PointCloud2, PointField

        scan = self.scans[self.sent % 4]
        message = PointCloud2(height=1, width=len(scan), point_step=16, row_step=16 * len(scan), is_dense=True)
        message.header.frame_id = f"lidar {self.sent}"
        names = enumerate(("x", "y", "z", "intensity"))
        message.fields = [PointField(name=name, offset=4 * i, datatype=7, count=1) for i, name in names]
        message.data = array.array("B", scan.tobytes() if data is None else data)
        self.points.publish(message)
        self.sent += 1

    def spin(self, until: Callable[[], Any], seconds: float = 60) -> bool:
        """Spin, sending a scan every 100 ms if the sensor is on, until a condition holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.sending and time.monotonic() >= self.due:
                self.due = time.monotonic() + 0.1
                self.send()
            self.executor.spin_once(timeout_sec=0.02)
            if until():
                return True
        return False

    def call(self, client: Any, request: Any) -> Any:
        assert self.spin(client.service_is_ready)
        future = client.call_async(request)
        assert self.spin(future.done, 120)
        return future.result()

    def transition(self, number: int) -> bool:
        from lifecycle_msgs.srv import ChangeState

        request = ChangeState.Request()
        request.transition.id = number
        return bool(self.call(self.change, request).success)

    def label(self) -> str:
        from lifecycle_msgs.srv import GetState

        return str(self.call(self.state, GetState.Request()).current_state.label)

    def value(self, part: str, key: str) -> float:
        status = self.status.get(f"socsched: {part}")
        return float(next((pair.value for pair in status.values if pair.key == key), -1)) if status else -1

    def level(self, part: str) -> int:
        status = self.status.get(f"socsched: {part}")
        return -1 if status is None else status.level[0]

    def _markers(self, message: Any) -> None:
        self.markers.append(message)

    def _diagnostics(self, message: Any) -> None:
        self.status.update({status.name: status for status in message.status})


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    made = Graph(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
    made.executor.shutdown()
    made.node.destroy_node()
    made.context.try_shutdown()
    print((tmp_path / "node.log").read_text())


CHAIN, SENSOR = "chain lidar-detection", "sensor lidar"


def test_states_messages_and_diagnostics(graph: Graph) -> None:
    graph.start("autostart:=false")
    assert graph.label() == "unconfigured"
    assert graph.transition(1)  # configure
    assert graph.label() == "inactive"
    graph.sending = True
    assert not graph.spin(lambda: graph.markers, 2)
    assert graph.transition(3)  # activate
    assert graph.spin(lambda: len(graph.markers) >= 10)
    for message in graph.markers[:10]:
        clear, *boxes = message.markers
        assert clear.action == 3 and clear.header.frame_id.startswith("lidar ")
        assert boxes and all(box.header == clear.header and box.scale.x > 0 for box in boxes)
    assert graph.spin(lambda: graph.value(CHAIN, "total frames") >= 10)
    assert graph.level(SENSOR) == 0
    assert graph.value(CHAIN, "deadline ms") == 100
    assert graph.value("executor", "processor load") > 0

    graph.sending = False  # the sensor is gone, and comes back
    assert graph.spin(lambda: graph.level(SENSOR) == STALE)
    graph.sending = True
    assert graph.spin(lambda: graph.level(SENSOR) == 0)

    before = graph.value(SENSOR, "not usable")
    graph.send(b"short")
    assert graph.spin(lambda: graph.value(SENSOR, "not usable") == before + 1)
    assert graph.spin(lambda: graph.value(CHAIN, "total lost") >= 1)

    assert graph.transition(4)  # deactivate
    graph.spin(lambda: False, 1)
    seen = len(graph.markers)
    assert not graph.spin(lambda: len(graph.markers) > seen, 1)
    assert graph.transition(2)  # clean up
    assert graph.label() == "unconfigured"
    assert graph.transition(1) and graph.transition(3)
    assert graph.spin(lambda: len(graph.markers) > seen)
    assert graph.stop() == 0


def test_a_killed_node_is_started_again(graph: Graph) -> None:
    graph.start()
    graph.sending = True
    assert graph.spin(lambda: len(graph.markers) >= 3, 120)
    assert graph.stop(signal.SIGKILL) == -signal.SIGKILL
    graph.spin(lambda: False, 1)
    graph.markers.clear()
    assert not graph.spin(lambda: graph.markers, 1)
    graph.start()
    assert graph.spin(lambda: len(graph.markers) >= 3, 120)
    graph.executor.spin_once(timeout_sec=0)
    assert graph.stop(signal.SIGTERM) in (0, -signal.SIGTERM)


def test_wrong_parameters_are_reported(graph: Graph) -> None:
    graph.start("autostart:=false", "plan:=/nowhere.json")
    assert not graph.transition(1)
    assert graph.label() == "unconfigured"
    assert graph.spin(lambda: graph.level("executor") == 2)
    assert "/nowhere.json" in graph.status["socsched: executor"].message


def test_a_failed_stage_is_reported_and_the_run_started_again(graph: Graph) -> None:
    flag = graph.folder / "flag"
    graph.start(program=FAILING.replace("FLAG", str(flag)))
    graph.sending = True
    assert graph.spin(lambda: len(graph.markers) >= 3, 120)
    flag.touch()
    assert graph.spin(lambda: graph.level("executor") == 2)
    assert "voxelise" in graph.status["socsched: executor"].message
    graph.markers.clear()
    assert graph.spin(lambda: len(graph.markers) >= 3, 120)
    assert graph.spin(lambda: graph.level("executor") == 0)
    assert graph.stop() == 0
