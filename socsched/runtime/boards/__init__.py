"""The executor's interface to a board: lane-to-core mapping, meters, recorded facts, checks before a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from socsched.descriptor.platform import Platform
from socsched.planning.plan import Plan

Steps = dict[str, list[tuple[int, float]]]
"""Counter name -> (ns from the start, value) steps, as in a trace."""


class Meter(Protocol):
    """Samples counters off the critical path; a context manager around the run."""

    def __enter__(self) -> Any:
        """Begin sampling."""
        ...

    def __exit__(self, *_: object) -> None:
        """End sampling."""
        ...

    def counters(self, start_ns: int) -> Steps:
        """Return the samples since the last call and since `start_ns` (monotonic); each is returned once."""
        ...


class Board(Protocol):
    """A machine that runs plans in this process."""

    title: str

    def platform_for(self, plan: Plan) -> Platform:
        """Return the platform; raise UsageError if it cannot run the plan."""
        ...

    def cpus(self, engine: str, lanes: tuple[int, ...]) -> set[int]:
        """Return the cores of an engine's lanes; empty for engines that are not CPUs."""
        ...

    def meters(self) -> Sequence[Meter]:
        """Return the meters available on this board."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """Return the facts recorded with a run: mode, clocks, versions."""
        ...

    def prepared(self, plan: Plan) -> AbstractContextManager[None]:
        """Return a context in which the board is in the plan's state; raise UsageError or MachineError if it is not."""
        ...


def read_text(path: Path) -> str | None:
    """Return a small file's text, None if it cannot be read (absent, forbidden, powered off)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
