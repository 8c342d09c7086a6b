"""Orion: kernels at best effort beside one in real time where they are of the opposite class and small enough.

Strati, Ma & Klimovic, "Orion: interference-aware, fine-grained GPU sharing for ML applications", EuroSys 2024,
section 5 and its scheduler (github.com/eth-easl/orion, scheduler_eval.cpp).  A kernel at best effort starts when
nothing in real time runs; or when the units of those beside it and its own stay within `unit_share` of the
accelerator and one of the two is bound by arithmetic and the other by memory (a class that is unknown goes with any).
Once those started add up to `time_share` of a request in real time (2.5 %), nothing more starts until all have ended.
`unit_share` is 1 where the client in real time does inference, as there; for training it is searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched.literature.sharing.corun import Kernel, View


@dataclass(frozen=True, slots=True)
class Orion:
    """The policy and its two thresholds."""

    unit_share: float = 1.0
    time_share: float = 0.025
    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return units and part to start."""
        if view.running and view.since_drained_ns > self.time_share * view.request_ns:
            return 0, 0.0
        if view.urgent is None:
            return min(view.free, kernel.units), left
        used = sum(one.held for one in view.running)
        if used + kernel.units > self.unit_share * view.units or not opposite(kernel, view.urgent):
            return 0, 0.0
        return min(view.free, kernel.units), left


def opposite(one: Kernel, other: Kernel) -> bool:
    """Return whether two kernels are bound by different things, as far as known."""
    return "unknown" in (one.kind, other.kind) or one.kind != other.kind


@dataclass(frozen=True, slots=True)
class Streams:
    """Stream priorities alone: kernels at best effort start wherever units are free."""

    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return units and part to start."""
        return min(view.free, kernel.units), left


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Time sharing: nothing at best effort while a request in real time is there."""

    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return units and part to start."""
        return (0, 0.0) if view.urgent is not None else (min(view.free, kernel.units), left)


@dataclass(frozen=True, slots=True)
class Nobody:
    """The client in real time alone."""

    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return that nothing starts."""
        return 0, 0.0
