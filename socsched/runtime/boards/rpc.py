"""The board `rpc`: network stages of a plan measured on a machine that serves TVM's RPC.

The pipeline itself runs here once, so that every stage has realistic inputs; the stages are compiled for their engines,
uploaded, and timed remotely.  The result is a profile, which plans for that board prefer to estimates.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from socsched.compiler.builder import compile_stage
from socsched.compiler.loading.rpc import LOOPBACK, Remote
from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.distribution import nearest_rank
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.models.registry import bindings, get_model
from socsched.planning.plan import Plan
from socsched.runtime.backends.base import Setting, gather
from socsched.runtime.backends.tvm_cpu import scales_of, weights_of
from socsched.runtime.corun import record
from socsched.runtime.errors import warn
from socsched.runtime.profile import LEAST_ERROR, quantiles


def measure_remotely(  # noqa: PLR0913 - named by callers
    plan: Plan,
    pipeline: Pipeline,
    platform: Platform,
    port: int,
    host: str = LOOPBACK,
    *,
    here: tuple[Plan, Platform] | None = None,
    repeat: int = 10,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    note: Callable[[str], None] = warn,
) -> Profile:
    """Return measured costs of the network stages that `plan` places on CPUs of `platform`, each alone.

    `here` is a plan of the same pipeline for this machine, with its platform, used to produce inputs; by default `plan`
    itself, if it is for this machine.  Raises MachineError if the remote machine does not answer or cannot load a
    stage.
    """
    mine, machine = here or (plan, platform)
    recorded = record(mine, pipeline, machine, scans, weights)
    remote = Remote(port, host)
    setting = Setting(plan, pipeline, platform, bindings(pipeline), weights)
    costs = []
    for task in plan.tasks:
        stage = next((s for s in pipeline.stages if s.name == task.name), None)
        if stage is None or not stage.model or get_model(stage.model, stage.params).network is None:
            continue
        engine = platform.engine(task.engine)
        if engine.target.get("kind") != "llvm":
            note(f"{task.name}: not measured, {engine.id} is not a CPU")
            continue
        share = len(task.lanes)
        scales = scales_of(setting, stage)
        artifact = compile_stage(stage, engine, task.precision, weights_of(setting), share, scales=scales)
        bound = setting.bound[task.name]
        ports = {name: bound[name] for name in artifact.input_names}
        times = sorted(remote.load(artifact).times(gather(ports, recorded.given[task.name], artifact.inputs), repeat))
        p99, median = nearest_rank(times, 99), round(statistics.median(times))
        error = round(max((p99 - median) / p99, LEAST_ERROR), 3)
        note(f"{task.name} on {share} of {task.engine}: median {median / 1e6:.3f} ms, p99 {p99 / 1e6:.3f} ms")
        costs.append(
            MeasuredCost(
                task.name, task.engine, plan.mode, task.precision, share, p99, error, len(times), median,
                quantiles([round(value) for value in times]),
            )
        )  # fmt: skip
    return Profile(plan.platform, tuple(costs), f"TVM RPC, {host}:{port}, each stage alone", time.strftime("%Y-%m-%d"))
