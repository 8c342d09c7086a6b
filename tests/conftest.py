"""Few threads for TVM before anything imports it, so that test workers share the cores; the folder of test data."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import optional
import pytest
from datafiles import DATA

# An example may be the first to compile something, on a machine that has other things to do.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

QUICK_SHARE = 8
"""`make test` draws 1 / QUICK_SHARE of the examples of a property, always the same; `make slow` draws all at random."""

os.environ["SOCSCHED_VENDORS"] = "/nonexistent"  # results must not depend on vendors' compilers; see optional.VENDORS
os.environ["SOCSCHED_HOST"] = "quick"  # nor on how fast this machine is at the moment
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # nor on its GPUs
os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from recorded import accelerator, detector, recorded  # noqa: E402, F401  # imports numpy, which must see the variables above

# Collection makes a million objects that all stay: searching them for garbage, then and in every test, took a tenth.
gc.disable()

BEGAN = pytest.StashKey[float]()
CHECKOUT = Path(__file__).parents[1]

# Shared between test workers and kept between runs: entries are found by content, so a stale one is never read.
os.environ["SOCSCHED_CACHE"] = str(CHECKOUT / ".cache" / "tests")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark what is slow or optional before `-m` chooses, leave out what cannot run here after it."""
    optional.mark(items)
    _sample(config, items)
    yield
    items[:], left_out = optional.leave_one(items)
    config.hook.pytest_deselected(items=left_out)


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark most cases of sampled tests as slow; draw fewer examples where the slow tests are left out."""
    seen: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[test] += 1
    if config.option.markexpr != "not slow":
        return
    for test in {getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)}:
        drawn = getattr(test, "_hypothesis_internal_use_settings", None)
        if drawn is not None:
            few = min(drawn.max_examples, max(5, drawn.max_examples // QUICK_SHARE))
            test._hypothesis_internal_use_settings = hypothesis.settings(drawn, max_examples=few, derandomize=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--start-within", type=float, metavar="SECONDS", help="skip what is not started by then")


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BEGAN] = time.monotonic()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    limit = item.config.getoption("--start-within")
    if limit is not None and time.monotonic() - item.config.stash[BEGAN] > limit:
        pytest.skip(f"not started within {limit:.0f} s: make slow")


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
