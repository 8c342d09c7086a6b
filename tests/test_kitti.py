"""What checks with KITTI's scans and a real accelerator's network need: neither may be shipped."""

from __future__ import annotations

import pytest
from recorded import SHARED


def test_kitti_and_a_real_accelerators_network_are_checked_too() -> None:
    """Tests over `recorded` and `accelerator` run on them as well where this one is not skipped."""
    if SHARED is None:
        pytest.skip("no KITTI scans and no real int8 network: SOCSCHED_SHARED=DIR make test (DIR/data holds them)")
    for file in ("kitti/000000.bin", "pointpillars/oracle.json", "npu_int8/golden_000001.npz"):
        assert (SHARED / file).is_file(), file
