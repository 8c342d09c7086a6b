"""The native executor, built once for all tests of a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.executor.build import find_executor


@pytest.fixture(scope="session")
def executor() -> Path:
    """Return the executor, built for this machine."""
    found = find_executor()
    if found is None:
        pytest.skip("no C++ compiler")
    return found
