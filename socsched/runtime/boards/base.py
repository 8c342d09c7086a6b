"""What a board is to the executor: where its lanes lie, what it can tell of itself, what it must be checked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from socsched.descriptor.platform import Platform
from socsched.planning.plan import Plan

Steps = dict[str, list[tuple[int, float]]]
"""Counter name -> (ns from the start, value) steps, as a trace has them."""


class Meter(Protocol):
    """Samples something off the critical path; a context manager around the run."""

    def __enter__(self) -> Any:
        """Begin to sample."""
        ...

    def __exit__(self, *_: object) -> None:
        """End it."""
        ...

    def counters(self, start_ns: int) -> Steps:
        """Return, once, what was sampled since the last call, of that since `start_ns` (monotonic)."""
        ...


class Board(Protocol):
    """A machine that runs plans in this process."""

    title: str

    def platform_for(self, plan: Plan) -> Platform:
        """Return the platform, UsageError when it cannot run the plan."""
        ...

    def cpus(self, engine: str, lanes: tuple[int, ...]) -> set[int]:
        """Return the processors that lanes of an engine stand for; empty for engines that are no processors."""
        ...

    def meters(self) -> Sequence[Meter]:
        """Return what can be sampled here."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """Return what is recorded with a run: mode, clocks, versions."""
        ...

    def prepared(self, plan: Plan) -> AbstractContextManager[None]:
        """Return a context in which the board is as the plan wants it; UsageError or MachineError when it is not."""
        ...


def read_text(path: Path) -> str | None:
    """Return a small file's text, None where it cannot be read (absent, forbidden, powered off)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
