"""Few threads for TVM before anything imports it, so that test workers share the cores; where test data lies."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
from datafiles import DATA

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
def data() -> Path:
    """Return the folder tests/data; `datafiles.read` reads its documents."""
    return DATA


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of test data that cannot be shipped; skips where SOCSCHED_SHARED does not name it."""
    named = os.environ.get("SOCSCHED_SHARED")
    if not named:
        pytest.skip("needs data that cannot be shipped: SOCSCHED_SHARED=DIR make test, where DIR holds data/")
    folder = Path(named) / "data"
    if not folder.is_dir():
        pytest.fail(f"SOCSCHED_SHARED={named}: no folder {folder}; name the folder that holds data/")
    return folder
