"""Soak a ROS 2 graph of sensor, detector (socsched_ros) and consumer, and kill each of them.

    python -m tools.verify.ros_graph [--minutes 10] [--domain 87]

needs rclpy (`pip install '.[ros2]'`).  Three processes talk on loopback: a sensor that publishes 10 scans a
second, the node with a small detector, a consumer that counts marker arrays.  The detector stays up for the whole time.
The sensor is killed at a third of it and the consumer at two thirds, both are started again after 3 s.  Then the
detector is killed and started again three times, at last with a plan whose deadline no frame can meet.  Shown are
accounts of frames, deadline misses by /diagnostics and by the consumer, times of recovery, and the detector's memory,
descriptors and threads.  Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
PERIOD_S = 0.1
DOWN_S = 3.0
ALLOWED_BYTES = 2**20
"""Growth of the detector's resident memory over the second half, on the least-squares line: it grows in single steps,
probably when more frames are in progress than before, which are rarer there."""
TIGHT_NS = 100_000
"""Deadline of the last plan, below the execution time of its stages."""
MARKERS = "/socsched/markers"
DETECTOR = """
import threading, time, tiny_pillars
from socsched_ros.node import main
from tools.verify.soak import heap_in_use
def watch():
    while not time.sleep(5):
        print(time.monotonic(), heap_in_use(), flush=True)
threading.Thread(target=watch, daemon=True).start()
main()
"""
"""The node, which prints the bytes of C's heap that are in use every 5 s."""
CHAIN, SENSOR = "socsched: chain lidar-detection", "socsched: sensor lidar"
WARN, ERROR, STALE = 1, 2, 3


def sensor() -> None:
    """Publish scans at the sensor's rate, with the time of publication in the header."""
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import PointCloud2, PointField

    rclpy.init()
    node = rclpy.create_node("sensor")
    publisher = node.create_publisher(PointCloud2, "/points", qos_profile_sensor_data)
    rng = np.random.default_rng(0)
    fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate(("x", "y", "z", "intensity"))]
    messages = []
    for _ in range(4):
        scan = rng.uniform((1, -12, -2, 0), (25, 12, 0.5, 1), (3000, 4)).astype("<f4")
        one = PointCloud2(height=1, width=3000, point_step=16, row_step=48000, is_dense=True, fields=fields)
        one.data = array.array("B", scan.tobytes())
        one.header.frame_id = "lidar"
        messages.append(one)
    due = time.monotonic()
    for number in range(1 << 40):
        message = messages[number % 4]
        message.header.stamp = node.get_clock().now().to_msg()
        publisher.publish(message)
        due += PERIOD_S
        time.sleep(max(0.0, due - time.monotonic()))


def consumer() -> None:
    """Print count and age of every marker array as it arrives: one line of JSON each."""
    import rclpy
    from visualization_msgs.msg import MarkerArray

    rclpy.init()
    node = rclpy.create_node("consumer")

    def take(message: Any) -> None:
        stamp = message.markers[0].header.stamp
        age_ns = node.get_clock().now().nanoseconds - stamp.sec * 10**9 - stamp.nanosec
        print(json.dumps([len(message.markers) - 1, age_ns]), flush=True)

    node.create_subscription(MarkerArray, MARKERS, take, 10)
    rclpy.spin(node)


class Graph:
    """The three processes, and what /diagnostics said last and at worst."""

    def __init__(self, folder: Path, domain: int) -> None:
        import rclpy
        from diagnostic_msgs.msg import DiagnosticArray

        from socsched.api.planning import plan
        from socsched.planning import io
        from tests import tiny_pillars

        path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
        self.environment = {**os.environ, "ROS_DOMAIN_ID": str(domain), "PYTHONPATH": path}
        sys.path.insert(0, str(ROOT / "tests"))
        self.folder = folder
        made = plan(tiny_pillars.PIPELINE, "host")
        io.save(made, folder / "plan.json")
        (chain,) = made.chains
        io.save(replace(made, chains=(replace(chain, deadline_ns=TIGHT_NS),)), folder / "tight.json")
        weights = tiny_pillars.write_weights(folder / "w.npz")
        given = [f"plan:={folder / 'plan.json'}", f"pipeline:={tiny_pillars.PIPELINE}", f"weights:={weights}"]
        options = [part for one in (*given, "topics:=[lidar=/points]") for part in ("-p", one)]
        itself = [sys.executable, "-m", "tools.verify.ros_graph", "--part"]
        self.commands = {
            "sensor": [*itself, "sensor"],
            "detector": [sys.executable, "-c", DETECTOR, "--ros-args", *options],
            "consumer": [*itself, "consumer"],
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        rclpy.init(domain_id=domain)
        self.node = rclpy.create_node("monitor")
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._take, 10)
        self.status: dict[str, Any] = {}
        self.away = 0.0
        self.worst: dict[str, int] = {}

    def start(self, name: str) -> None:
        """Start a process; the lines of the consumer are added to its file."""
        with (self.folder / f"{name}.out").open("ab") as out, (self.folder / f"{name}.err").open("ab") as err:
            self.processes[name] = subprocess.Popen(self.commands[name], env=self.environment, stdout=out, stderr=err)

    def kill(self, name: str) -> None:
        """Kill a process without a word to it."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait(timeout=30)

    def spin(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Take diagnostics until a condition holds; return the seconds it took, infinity if it never held."""
        import rclpy

        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            rclpy.spin_once(self.node, timeout_sec=0.05)
            if until():
                return time.monotonic() - begin
        return float("inf")

    def received(self) -> list[list[int]]:
        """Return number of boxes and age (ns) of every array that the consumers received."""
        lines = (self.folder / "consumer.out").read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("]")]

    def recovery(self, count: int = 3) -> float:
        """Return the seconds until `count` more arrays have arrived."""
        before = len(self.received())
        return self.spin(120, lambda: len(self.received()) >= before + count)

    def value(self, part: str, key: str) -> float:
        """Return a value of the last status of a part of the node, 0 before there is one."""
        status = self.status.get(part)
        return float(next((pair.value for pair in status.values if pair.key == key), 0)) if status else 0.0

    def usage(self) -> tuple[int, int, int]:
        """Return resident bytes, descriptors and threads of the detector."""
        place = Path("/proc") / str(self.processes["detector"].pid)
        pages = int((place / "statm").read_text().split()[1])
        return pages * 4096, len(list((place / "fd").iterdir())), len(list((place / "task").iterdir()))

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=30)

    def _take(self, message: Any) -> None:
        for status in message.status:
            self.status[status.name] = status
            self.worst[status.name] = max(self.worst.get(status.name, 0), status.level[0])


def soak(graph: Graph, minutes: float) -> list[tuple[str, bool]]:
    """Run for some minutes, kill sensor and consumer meanwhile, and return bars with whether they are held."""
    graph.start("consumer")
    graph.start("detector")
    active = graph.spin(300, lambda: SENSOR in graph.status and graph.node.count_subscribers(MARKERS) > 0)
    print(f"the detector is active after {active:.1f} s", end=", ")
    graph.spin(2.0)  # publishers and subscribers find each other
    graph.start("sensor")
    print(f"first detections after {graph.recovery():.1f} s")
    samples: list[tuple[float, int, int, int]] = []
    rows: list[tuple[str, bool]] = []
    begin, kills = time.monotonic(), ["consumer", "sensor"]
    while (now := time.monotonic() - begin) < 60 * minutes:
        graph.spin(1.0)
        samples.append((now, *graph.usage()))
        if kills and now > 60 * minutes * (3 - len(kills)) / 3:
            rows += away(graph, kills.pop())
    graph.kill("sensor")
    graph.spin(2.5)
    rows += accounts(graph)
    later = [row for row in samples if row[0] >= 30 * minutes]
    seconds, resident = (np.array(column, dtype=float) for column in list(zip(*later, strict=True))[:2])
    grown = float(np.polyfit(seconds, resident, 1)[0]) * (seconds[-1] - seconds[0])
    first, last = later[0], later[-1]
    words = [line.split() for line in (graph.folder / "detector.out").read_text().splitlines()]
    used = [(float(at) - begin, int(size)) for at, size in words]
    used = [row for row in used if row[0] >= 30 * minutes]
    held = used[-1][1] - used[0][1]
    rows.append((f"in use: {held / 2**20:+.2f} MiB of C's heap in the second half (bar 1 MiB)", held < ALLOWED_BYTES))
    steps = ", ".join(f"{row[1] / 2**20:.1f}" for row in samples[:: max(1, len(samples) // 18)])
    print(f"detector: resident MiB over time {steps}")
    print(
        f"detector: resident {first[1] / 2**20:.1f} MiB at {first[0]:.0f} s, {last[1] / 2**20:.1f} at {last[0]:.0f} s"
    )
    rows.append((f"memory grew by {grown / 2**20:.2f} MiB in the second half (bar 1 MiB)", grown < ALLOWED_BYTES))
    more = last[2] - first[2], last[3] - first[3]
    rows.append((f"descriptors {more[0]:+d}, threads {more[1]:+d}", max(more) <= 0))
    return rows


def away(graph: Graph, name: str) -> list[tuple[str, bool]]:
    """Kill sensor or consumer for some seconds."""
    rows, begin = [], time.monotonic()
    graph.kill(name)
    if name == "sensor":
        stale = graph.spin(10, lambda: graph.status[SENSOR].level[0] == STALE)
    graph.spin(DOWN_S + begin - time.monotonic())
    graph.start(name)
    again = graph.recovery()
    if name == "consumer":
        graph.away = time.monotonic() - begin
    else:
        graph.spin(2.5)
        back = graph.status[SENSOR].level[0] == 0
        rows.append((f"its silence was reported after {stale:.1f} s, its return too", stale < 10 and back))
    return [(f"{name} killed; detections again {again:.1f} s after its start", again < 30), *rows]


def accounts(graph: Graph) -> list[tuple[str, bool]]:
    """Compare the messages taken with frames, and these with what consumers received."""
    taken = graph.value(SENSOR, "received")
    ended, lost, missed = (graph.value(CHAIN, f"total {key}") for key in ("frames", "lost", "deadline misses"))
    ages = sorted(age for _, age in graph.received())
    deadline = graph.value(CHAIN, "deadline ms") * 1e6
    late = sum(age > deadline for age in ages)
    print(f"{taken:.0f} messages, {ended:.0f} frames completed, {lost:.0f} lost, {missed:.0f} late; at the consumers:")
    print(f"{len(ages)} arrays, {late} older than {deadline / 1e6:.0f} ms,", end=" ")
    print(f"age {ages[len(ages) // 2] / 1e6:.1f} ms (median), {ages[len(ages) * 99 // 100] / 1e6:.1f} ms (p99)")
    unheard = graph.away / PERIOD_S + 2  # while there was no consumer
    return [
        ("every message is a frame that ended or was lost", taken == ended + lost),
        (f"{ended - len(ages):.0f} results unheard, {unheard:.0f} without a consumer", ended - len(ages) <= unheard),
        # a late frame is late at the consumer too; an array can be late on its way
        (f"{missed:.0f} deadline misses reported, {late} seen by consumers", missed <= late + unheard),
        ("no part reported an error", all(level != ERROR for level in graph.worst.values())),
    ]


def restarts(graph: Graph) -> list[tuple[str, bool]]:
    """Kill the detector three times; its last plan has a deadline that no frame meets."""
    rows = []
    graph.start("sensor")
    for number in range(3):
        graph.kill("detector")
        graph.spin(1.0)
        if number == 2:
            graph.commands["detector"] = [
                word.replace("plan.json", "tight.json") for word in graph.commands["detector"]
            ]
            graph.status.clear()
        graph.start("detector")
        again = graph.recovery()
        rows.append((f"detector killed, time {number + 1}: detections again after {again:.1f} s", again < 60))
    graph.spin(60, lambda: graph.value(CHAIN, "total frames") >= 50)
    frames, missed = (graph.value(CHAIN, f"total {key}") for key in ("frames", "deadline misses"))
    level = graph.status[CHAIN].level[0]
    text = f"deadline of {TIGHT_NS / 1e6:g} ms: {missed:.0f} of {frames:.0f} frames reported late, level {level}"
    return [*rows, (text, missed == frames >= 50 and level == WARN)]


def main() -> int:
    """Soak, kill the detector three times, print what was held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--domain", type=int, default=87, help="ROS_DOMAIN_ID that nothing else uses")
    parser.add_argument("--part", choices=("sensor", "consumer"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        {"sensor": sensor, "consumer": consumer}[args.part]()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        graph = Graph(Path(folder), args.domain)
        try:
            rows = soak(graph, args.minutes)
            rows += restarts(graph)
        finally:
            graph.close()
            print((Path(folder) / "detector.err").read_text()[-4000:], file=sys.stderr)
    for text, held in rows:
        print(("ok      " if held else "MISSED  ") + text)
    return 0 if all(held for _, held in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
