"""The available schedulability tests, built in and installed."""

from __future__ import annotations

from collections.abc import Iterator

from socsched import plugins
from socsched.schedulability.published.model import SchedulabilityTest

GROUP = "socsched.schedulability"


def tests() -> Iterator[SchedulabilityTest]:
    """Yield every test, built in or installed, by rank."""
    loaded: list[SchedulabilityTest] = [plugins.load(GROUP, name) for name in plugins.names(GROUP)]
    yield from sorted(loaded, key=lambda test: test.rank)
