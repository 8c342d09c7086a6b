"""Progress reports and warnings from long computations; the command line shows both.

Any module may call `tell` or `notice`: neither affects the results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of a computation: `done` of `total` (0: unknown) `unit`s ("ns" is time), with an optional detail."""

    what: str
    done: float
    total: float
    unit: str = ""
    detail: str = ""


Listener = Callable[[Step], None]
_listeners: list[Listener] = []


def listening() -> bool:
    """Return whether a listener is installed; without one, values needed only for display need not be computed."""
    return bool(_listeners)


def tell(what: str, done: float, total: float, unit: str = "", detail: str = "") -> None:
    """Report progress to the listener."""
    if _listeners:
        _listeners[-1](Step(what, done, total, unit, detail))


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Send progress reported inside the block to a listener."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _print(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


_said: set[str] = set()
_speakers: list[Callable[[str], None]] = [_print]


def notice(subject: str, text: str) -> None:
    """Print a warning, at most once per subject and process."""
    if subject not in _said:
        _said.add(subject)
        _speakers[-1](text)


@contextmanager
def speaking(speaker: Callable[[str], None]) -> Iterator[None]:
    """Send warnings raised inside the block to `speaker`; earlier warnings may be repeated."""
    _said.clear()
    _speakers.append(speaker)
    try:
        yield
    finally:
        _speakers.remove(speaker)
