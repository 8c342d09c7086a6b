from __future__ import annotations

import numpy as np
import pytest

from socsched.compiler.loading.stages import small_as_zero
from socsched.compiler.native.compilers import SOURCES, build_shared_object


def test_numbers_below_the_least_normal_one_count_as_0_for_networks_alone() -> None:
    if build_shared_object(*SOURCES) is None:
        pytest.skip("no C compiler")
    small = np.full(64, 1e-39, np.float32)
    with small_as_zero():
        flushed = small * np.float32(2.0)
    assert not flushed.any()
    assert (small * np.float32(2.0)).all()
