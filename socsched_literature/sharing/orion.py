"""Orion: best-effort kernels co-run with a real-time one if they are of the opposite class and small enough.

Strati, Ma & Klimovic, "Orion: interference-aware, fine-grained GPU sharing for ML applications", EuroSys 2024, section
5 and its scheduler (github.com/eth-easl/orion, scheduler_eval.cpp).  A best-effort kernel starts if no real-time kernel
runs; or if its units plus those of the running best-effort kernels stay within `unit_share` of the accelerator, and one
of it and the real-time kernel is bound by arithmetic and the other by memory (an unknown class is compatible with any).
Once the kernels started add up to `time_share` of a real-time request (2.5 %), nothing more starts until all have
ended.  `unit_share` is 1 if the real-time client does inference, as there; for training it is searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched_literature.sharing.corun import Kernel, View


@dataclass(frozen=True, slots=True)
class Orion:
    """The policy and its two thresholds."""

    unit_share: float = 1.0
    time_share: float = 0.025
    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return the units and the fraction to start."""
        if view.running and view.since_drained_ns > self.time_share * view.request_ns:
            return 0, 0.0
        if view.urgent is None:
            return min(view.free, kernel.units), left
        used = sum(one.held for one in view.running)
        if used + kernel.units > self.unit_share * view.units or not opposite(kernel, view.urgent):
            return 0, 0.0
        return min(view.free, kernel.units), left


def opposite(one: Kernel, other: Kernel) -> bool:
    """Return whether two kernels are bound by different resources, as far as known."""
    return "unknown" in (one.kind, other.kind) or one.kind != other.kind


@dataclass(frozen=True, slots=True)
class Streams:
    """Stream priorities alone: best-effort kernels start wherever units are free."""

    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return the units and the fraction to start."""
        return min(view.free, kernel.units), left


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Time sharing: no best-effort kernel starts during a real-time request."""

    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return the units and the fraction to start."""
        return (0, 0.0) if view.urgent is not None else (min(view.free, kernel.units), left)


@dataclass(frozen=True, slots=True)
class Nobody:
    """The real-time client alone."""

    reset_ns: int | None = None

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return (0, 0.0): nothing starts."""
        return 0, 0.0
