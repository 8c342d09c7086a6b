"""Few threads for TVM before anything imports it, so that test workers share the cores; where test data lies."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# An example may be the first to compile something, on a machine that has other things to do.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from recorded import accelerator, detector, recorded  # noqa: E402, F401  # imports numpy, which must see the variables above

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Return the root of the checkout."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of test data that lies beside the checkout; skips where it is not."""
    folder = Path(os.environ.get("SOCSCHED_SHARED", CHECKOUT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder}; set SOCSCHED_SHARED to the folder that holds data/")
    return folder
