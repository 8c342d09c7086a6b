"""Engines behind a link: what crosses it is charged to it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from socsched.cost.conversion import Hop, conversion_cost, conversion_pace
from socsched.cost.model import CostModel
from socsched.cost.roofline import crossing_bytes, estimate
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.platform import Engine, Figure, Link, WeightsMemory
from socsched.errors import DescriptorError
from socsched.graph.operators import StageWork, TensorType, tensor_bytes
from socsched.models.work import stage_work
from socsched.planning.deployment import least_weights

BOARD = get_platform("rk3588")
LINK = Link(Figure(0.8e9, "assumed"), Figure(50_000, "assumed"))


def work() -> StageWork:
    return stage_work(get_pipeline("camera-detection").stage("detect"), "int8")


def behind(**changes: object) -> Engine:
    engine = replace(BOARD.engine("npu0"), bandwidth=Figure(200e9, "assumed"), sram=None, weights=None, link=LINK)
    return replace(engine, **changes)  # type: ignore[arg-type]


def cost(engine: Engine) -> tuple[int, int, int]:
    """Return the time, the fixed part of it (ns) and the traffic (bytes) of a job."""
    found = estimate(work(), engine, BOARD.modes[0].engines["npu0"], 1, 17e9)
    return found.time_ns, sum(part.fixed_ns for part in found.segments), sum(part.bytes for part in found.segments)


def test_a_job_moves_its_inputs_and_outputs_alone() -> None:
    stage = work()
    border = sum(map(tensor_bytes, (*stage.inputs, *stage.outputs)))
    alone, linked = cost(behind(link=None, bandwidth=Figure(16e9, "assumed"))), cost(behind())
    assert linked[2] == border < alone[2] / 10
    inner = estimate(stage, behind(link=None), BOARD.modes[0].engines["npu0"], 1, 200e9).time_ns
    tensors = len(stage.inputs) + len(stage.outputs)
    assert linked[0] == pytest.approx(inner + border / 0.8 + 50_000 * tensors, abs=10)
    assert linked[0] - linked[1] == pytest.approx(border / 0.8, abs=10), "co-runners slow the transfers down alone"


def test_what_does_not_fit_crosses_the_link_for_every_job() -> None:
    stage, border = work(), cost(behind())[2]
    weights = sum(op.weight_bytes for op in stage.operators)
    room = WeightsMemory(Figure(weights - 1_000_000, "assumed"), Figure(0.8e9, "assumed"))
    assert crossing_bytes(stage, behind(weights=room)) == border + 1_000_000
    largest = max(op.read_bytes + op.write_bytes for op in stage.operators)
    assert crossing_bytes(stage, behind(sram=Figure(largest, "assumed"))) == border
    assert crossing_bytes(stage, behind(sram=Figure(largest - 1, "assumed"))) == border + largest
    whole = crossing_bytes(stage, behind(sram=Figure(0, "assumed")))
    assert whole == border + sum(op.read_bytes + op.write_bytes for op in stage.operators)


def test_a_plan_needs_no_main_memory_for_weights_behind_a_link(tmp_path: Path, checkout: Path) -> None:
    stage = get_pipeline("camera-detection").stage("detect")
    engines = tuple(behind() if engine.id == "npu0" else engine for engine in BOARD.engines)
    for platform, least in ((BOARD, 1), (replace(BOARD, engines=engines), 0)):
        model = CostModel(platform, platform.modes[0], stage_work)
        assert (least_weights(model, stage) > 0) == bool(least)


def test_the_memorys_peak_limits_the_link_and_not_what_lies_behind_it(tmp_path: Path, checkout: Path) -> None:
    text = (checkout / "socsched" / "descriptor" / "skeleton.yaml").read_text(encoding="utf-8")
    text = text.replace("@NAME@", "board")
    before = next(f"{line}\n" for line in text.splitlines() if line.startswith("    bandwidth: {value: 20 GB/s"))

    def load(rate: str) -> Engine:
        link = f"    link:\n      bandwidth: {{value: {rate}, kind: assumed, note: n}}\n"
        link += "      latency: {value: 50 us, kind: assumed, note: n}\n"
        (tmp_path / "board.yaml").write_text(text.replace(before, before.replace("20 GB/s", "200 GB/s") + link))
        return get_platform(str(tmp_path / "board.yaml")).engines[0]

    assert load("1 GB/s").host_bandwidth(1e12) == 1e9
    with pytest.raises(DescriptorError, match=r"link\.bandwidth\.value: expected at most the memory's peak"):
        load("100 GB/s")


@pytest.mark.parametrize("producer", ["gpu", "cpu0"])
def test_a_conversion_behind_a_link_takes_the_other_engine_s_side_over_it(producer: str) -> None:
    board = get_platform("jetson-agx-orin-64gb")
    near = board.engine("gpu")
    far = replace(near, link=Link(Figure(1e9, "measured"), Figure(10_000, "assumed")))
    hop = Hop(TensorType((1, 8, 100, 100), "fp32", "NCHW"), TensorType((1, 8, 100, 100), "fp16", "NCHW8c"))
    there, here = (
        conversion_cost(
            "a>b", [hop], producer, engine, board, board.mode(), conversion_pace(engine, board, board.mode())
        )
        for engine in (far, near)
    )
    crossing = (
        160_000 if producer == "gpu" else 320_000
    )  # its own result, or what the CPU wrote: bytes, and ns at 1 GB/s
    assert there.time_ns - here.time_ns == crossing + 10_000
