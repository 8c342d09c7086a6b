"""Cores of an NPU that a plan divides, as the option of the adapter that takes a mask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from socsched.executor.vendor_stages import core_mask
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
