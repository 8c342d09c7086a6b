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

QUICK_SHARE = 4
"""`make test` draws one of so many examples of each property, the same in every run; `make slow` draws all, anew."""

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from recorded import accelerator, detector, recorded  # noqa: E402, F401  # imports numpy, which must see the variables above

CHECKOUT = Path(__file__).parents[1]

# Shared between test workers and kept between runs: entries are found by content, so a stale one is never read.
os.environ["SOCSCHED_CACHE"] = str(CHECKOUT / ".cache" / "tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw fewer examples where the slow tests are left out."""
    if config.option.markexpr != "not slow":
        return
    for test in {getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)}:
        drawn = getattr(test, "_hypothesis_internal_use_settings", None)
        if drawn is not None:
            few = min(drawn.max_examples, max(5, drawn.max_examples // QUICK_SHARE))
            test._hypothesis_internal_use_settings = hypothesis.settings(drawn, max_examples=few, derandomize=True)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Return the root of the checkout."""
    return CHECKOUT


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder used during one test."""
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
