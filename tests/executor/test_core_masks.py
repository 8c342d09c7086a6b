"""Cores of an NPU that a plan divides, as the option of the adapter that takes a mask."""

from __future__ import annotations

from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from socsched.executor.vendor_stages import _qnn, core_mask
from tests.runtime.run_plans import plan, task


@pytest.mark.parametrize(
    "lanes, cores, toolchain, mask",
    [((0,), 3, "RKNN", "1"), ((1, 2), 3, "RKNN", "6"), ((0, 1, 2), 3, "RKNN", "7"), ((0,), 1, "RKNN", None),
     ((1, 2), 3, "TensorRT", None)],
)  # fmt: skip
def test_a_share_of_cores_is_a_mask(lanes: tuple[int, ...], cores: int, toolchain: str, mask: str | None) -> None:
    """An engine of one lane keeps the core that its name states; other toolchains take no mask."""
    job = task("net", lanes=lanes)
    setting: Any = SimpleNamespace(plan=plan(job, lanes=cores))
    assert core_mask(job, setting, toolchain) == ({} if mask is None else {"core_mask": mask})


@pytest.mark.parametrize("engine, number", [("npu0", "0"), ("npu1", "1"), ("npu", None)])
def test_each_of_several_htps_is_a_device_of_the_provider(engine: str, number: str | None) -> None:
    compiled = {"target": {"soc_model": 52, "htp_arch": 73}, "files": ["build/net_ctx.onnx"]}
    document = {"engine": engine, "precision": "int8", "compiled": compiled}
    options = _qnn(document, PurePosixPath("net"), PurePosixPath("adapters"))["options"]
    assert options.get("device_id") == number and options["htp_arch"] == "73"
