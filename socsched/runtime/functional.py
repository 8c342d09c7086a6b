"""Functional execution of a plan for another board: its stages run here with each engine's precision and layout.

Time is not measured: it comes from the simulation, whose trace includes the results found here (a *simulated target*).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform
from socsched.planning.plan import Plan, Task
from socsched.runtime.backends.base import Call, Outputs, Setting
from socsched.runtime.executor import execute


class _Nothing:
    """A no-op for stages with only a planned time, and for conversions, which happen where tensors are handed over."""

    title = "nothing to compute"
    real = False

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        def call(values: Mapping[str, Outputs]) -> Outputs:
            return {}

        return call


def compute(
    plan: Plan,
    pipeline: Pipeline,
    platform: Platform,
    *,
    frames: int | None = None,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    scales: Path | None = None,
    seed: int = 0,
    stats: bool = False,
) -> dict[int, dict[str, Any]]:
    """Return the results of the stages of `plan` for each frame, in the form of `Trace.details`.

    `platform` is the plan's; parameters and errors are those of `executor.execute`.
    """
    trace = execute(
        plan,
        pipeline,
        scans=scans,
        weights=weights,
        scales=scales,
        frames=frames,
        seed=seed,
        pace="asap",
        stats=stats,
        alone=True,
        platform=as_simulated(platform),
        backends={"synthetic": _Nothing(), "conversion": _Nothing()},
    )
    return trace.details


def as_simulated(platform: Platform) -> Platform:
    """Return `platform` with every engine compiled for this machine, under the engine's own operator rules."""
    engines = tuple(replace(engine, target={"kind": "simulated"}) for engine in platform.engines)
    return replace(platform, engines=engines)
