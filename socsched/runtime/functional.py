"""Functional execution of a plan for another board: its stages run here with each engine's precision and layout.

Time is not measured: it comes from the simulation, whose trace includes the results found here (a *simulated target*).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.compiler.toolchains.hand_over import vendor_compiler
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.planning.plan import Plan, Task
from socsched.runtime.backends.base import Call, Outputs, Setting
from socsched.runtime.executor import execute

VENDOR_SIM = "vendor-sim"
"""Kind of target of engines that a vendor's simulator stands for, and the name of their backend."""


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
    vendor: bool = False,
) -> dict[int, dict[str, Any]]:
    """Return the results of the stages of `plan` for each frame, in the form of `Trace.details`.

    `platform` is the plan's; parameters and errors are those of `executor.execute`.  With `vendor`, stages of
    accelerators run in their vendor's simulator, compiled by its compiler.
    """
    if vendor:
        check_vendors(plan, platform)
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
        platform=as_simulated(platform, vendor),
        backends={"synthetic": _Nothing(), "conversion": _Nothing()},
    )
    return trace.details


def as_simulated(platform: Platform, vendor: bool = False) -> Platform:
    """Return `platform` with every engine compiled for this machine, under the engine's own operator rules.

    With `vendor`, engines whose vendor's compiler exists for this machine run in that vendor's simulator.
    """
    engines = tuple(
        replace(engine, target={"kind": VENDOR_SIM if vendor and vendor_compiler(engine) else "simulated"})
        for engine in platform.engines
    )
    return replace(platform, engines=engines)


def check_vendors(plan: Plan, platform: Platform) -> None:
    """Raise UsageError unless every accelerator of a plan has a simulator, MachineError if one is not installed."""
    from socsched.compiler.toolchains.environments import environment

    used = {task.engine for task in plan.tasks if task.kind == "stage"}
    ruled = [engine for engine in platform.engines if engine.id in used and engine.operators.runtime]
    if not ruled:
        raise UsageError(
            f"no stage of this plan runs on an accelerator of {platform.name} with a vendor's toolchain",
            "omit --vendor-sim, or plan the stages there",
        )
    for engine in ruled:
        compiler = vendor_compiler(engine)
        if compiler is None:
            raise UsageError(
                f"{engine.id}: {engine.operators.runtime} has no compiler and simulator that run here",
                "omit --vendor-sim: its operator rules and layouts are simulated all the same",
            )
        compiler.target(engine)
        environment(compiler.environment).require()
