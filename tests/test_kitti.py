"""Requirements of checks with KITTI's scans and a real accelerator's network, neither of which may be shipped."""

from __future__ import annotations

import pytest
from recorded import SHARED


@pytest.mark.needs("KITTI")
def test_kitti_and_a_real_accelerators_network_are_checked_too() -> None:
    """Tests over `recorded` and `accelerator` run on them as well where this one is not skipped."""
    assert SHARED is not None
    for file in ("kitti/000000.bin", "pointpillars/oracle.json", "npu_int8/golden_000001.npz"):
        assert (SHARED / file).is_file(), file
