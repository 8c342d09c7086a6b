"""The executor fed by messages, without ROS 2: frames by arrival, detections, counts, failures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_pillars

from socsched.api.planning import plan
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline, onnx_pipeline
from socsched.errors import UsageError
from socsched.executor.run_native import execute
from socsched.planning.plan import Plan
from socsched.runtime.frames import Arrivals, Frame, FrameReport
from socsched.runtime.options import Inputs, Options
from socsched_ros.runner import ChainCounts, Joined, Published, Runner, inputs_of, tensor_of

MS = 10**6
Found = tuple[str, list[Mapping[str, Any]], Any]


@pytest.fixture(scope="module")
def planned() -> tuple[Plan, Pipeline]:
    pipeline = load_pipeline(tiny_pillars.PIPELINE)
    return plan(pipeline, "host"), pipeline


def scan(number: int) -> Any:
    rng = np.random.default_rng(number)
    return rng.uniform((1, -12, -2, 0), (25, 12, 0.5, 1), (3000 + number, 4)).astype(np.float32)


def until(condition: Any, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    return bool(condition())


def test_messages_become_detections_with_their_headers(planned: tuple[Plan, Pipeline], tmp_path: Path) -> None:
    weights = tiny_pillars.write_weights(tmp_path / "w.npz")
    found: list[Found] = []
    runner = Runner(*planned, lambda *given: found.append(given), weights)
    assert runner.start(120), runner.failure
    for number in range(4):
        problem = "damaged" if number == 2 else ""
        frame = Frame({} if problem else {"points": scan(number)}, str(number), problem)
        runner.offer("lidar", frame, ("header", number))
        assert until(lambda expected=number: len(found) >= expected + (expected < 2)), runner.failure
    assert until(lambda: len(found) == 3)
    assert until(lambda: sum(c.completed for c in runner.counts.values()) == 3)
    (counts,) = runner.take_counts().values()
    runner.close()
    assert not runner.failure
    assert [header for _, _, header in found] == [("header", 0), ("header", 1), ("header", 3)]
    assert (counts.completed, counts.lost, counts.last_frame) == (3, 1, 3)
    assert len(counts.responses) == 3 and min(counts.responses) > 0
    files = [tmp_path / f"{number}.bin" for number in (0, 1, 3)]
    for file in files:
        scan(int(file.stem)).tofile(file)
    trace = execute(*planned, Inputs(files, weights), Options(pace="asap"))
    assert [boxes for _, boxes, _ in found] == [trace.details[frame]["detections"] for frame in range(3)]
    assert all(boxes for _, boxes, _ in found)


def test_deadlines_count_from_the_arrival(planned: tuple[Plan, Pipeline], tmp_path: Path) -> None:
    arrivals = Arrivals()
    reports: list[FrameReport] = []
    arrivals.offer("lidar", time.monotonic_ns(), Frame({"points": scan(0)}))  # waits while stages warm up

    def ended(report: FrameReport) -> None:
        reports.append(report)
        arrivals.close()

    accounts: dict[str, dict[str, int]] = {}
    execute(*planned, Inputs(frames=1), Options(arrivals=arrivals), on_frame=ended, accounts=accounts)
    (report,) = reports
    assert report.release_ns < 0  # it came before the run began
    assert report.response_ns > report.finish_ns
    assert accounts["lidar"] == {"released": 1, "completed": 1, "dropped": 0, "aborted": 0}


def test_a_failing_publisher_ends_the_service(planned: tuple[Plan, Pipeline]) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no more")

    published = Published(fail)
    with published:
        published.add(0, {"detections": iter(())})
        assert until(lambda: published.error is not None)
        published.add(1, {"detections": iter(())})


def test_counts_of_a_chain() -> None:
    counts = ChainCounts(10 * MS)
    for frame, response in ((0, 5), (1, 12), (4, 9)):
        counts.add(FrameReport("c", frame, 0, response * MS, 10 * MS))
    taken = counts.take()
    assert (taken.completed, taken.late, taken.lost, taken.total_lost) == (3, 1, 2, 2)
    assert taken.responses == [5 * MS, 12 * MS, 9 * MS]
    counts.add(FrameReport("c", 5, 0, MS, 10 * MS))
    taken = counts.take()
    assert (taken.completed, taken.late, taken.lost, taken.total_completed, taken.total_late) == (1, 0, 0, 4, 1)


def test_sensors_and_their_messages(checkout: Path, planned: tuple[Plan, Pipeline]) -> None:
    stack = load_pipeline(checkout / "pipelines" / "perception-stack.yaml")
    topics = {sensor: [(one.port, one.kind, one.name) for one in read] for sensor, read in inputs_of(stack).items()}
    assert topics == {"lidar": [("points", "points", "lidar")], "camera": [("image", "image", "camera")]}
    with pytest.raises(UsageError, match="stages with a timer"):
        Runner(plan(stack, "host"), stack, lambda *_: None)


def test_tensors_of_a_network_come_on_a_topic_each(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, save

    inputs = [("first image", TensorProto.FLOAT, [1, 3, 4, 4]), ("state", TensorProto.INT64, [1, 6])]
    nodes = [helper.make_node("Relu", ["first image"], ["y"]), helper.make_node("Abs", ["state"], ["z"])]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("y", 1), ("z", 7))]
    graph = helper.make_graph(nodes, "two", [helper.make_tensor_value_info(*one) for one in inputs], results)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "two.onnx")
    (read,) = inputs_of(onnx_pipeline(tmp_path / "two.onnx")).values()
    assert [(one.port, one.kind, one.name) for one in read] == [
        ("first image", "Float32MultiArray", "frames/first_image"),
        ("state", "Int64MultiArray", "frames/state"),
    ]
    joined, image = Joined(read), tensor_of(range(48), read[0])
    assert joined.add("state", tensor_of(range(6), read[1])) is None
    frame = joined.add("first image", image)
    assert frame is not None and frame.outputs["first image"].shape == (1, 3, 4, 4)
    assert frame.outputs["state"].dtype == np.int64 and joined.add("first image", image) is None
    with pytest.raises(ValueError, match=r"5 numbers, expected those of \[1, 6\]"):
        tensor_of(range(5), read[1])
