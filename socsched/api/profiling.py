"""Measurement of stages on this machine, and times that vendors' compilers expect, for plans that start from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.api.execution import list_inputs
from socsched.api.loading import load_pipeline, load_platform
from socsched.api.options import PlanOptions, ProfileOptions
from socsched.api.planning import plan_with
from socsched.compiler.builder import network_of, shipped_scales
from socsched.compiler.toolchains.environments import environment
from socsched.compiler.toolchains.hand_over import built_here, prepare, vendor_compiler
from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import CompileError, UsageError
from socsched.executor.run_native import alone
from socsched.graph.rules import check_operators
from socsched.models.registry import bindings, get_model
from socsched.models.sizes import sized
from socsched.models.weights import load_weights
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.runtime.backends import Setting
from socsched.runtime.options import Inputs

ERROR = 0.7
"""Relative error of RKNN's cycles: MobileNetV2 in int8 takes 1.30 ms by the table and 2.22 ms (450.7 frames/s) as
published in Rockchip's model zoo, calls of the runtime included."""


def expected_costs(
    pipeline: Pipeline, platform: Platform, weights: Mapping[str, Any] | None, note: Callable[[str], None]
) -> Profile:
    """Return the expected time of every network on every engine whose compiler states cycles, in each precision.

    The costs are of kind "vendor model": the sum of the cycles in the compiler's table of layers over the engine's
    clock in the first mode.  Raises UsageError where no engine has such a compiler, MachineError where it is not
    installed.
    """
    mode, costs, tools = platform.modes[0], [], set()
    compilers = [(engine, compiler) for engine in platform.engines if (compiler := vendor_compiler(engine))]
    stating = [(engine, compiler) for engine, compiler in compilers if compiler.cycles]
    if not stating:
        raise UsageError(
            f"no engine of {platform.name} has a compiler that states cycles",
            "RKNN states them (rk3588); QNN's emulation does not count a device's cycles",
        )
    for engine, compiler in stating:
        environment(compiler.environment).require()
        for stage in filter(_is_network, pipeline.stages):
            for precision in (p for p in ("fp16", "int8") if p in stage.precisions and p in engine.precisions):
                found = _cycles(stage, engine, precision, weights, note)
                if found is None:
                    continue
                cycles, versions = found
                tools.add(versions)
                time = max(1, round(cycles * 1e9 / mode.engines[engine.id].clock_hz))
                costs.append(
                    MeasuredCost(stage.name, engine.id, mode.name, precision, 0, time, ERROR, kind="vendor model")
                )
    return Profile(platform.name, tuple(costs), ", ".join(sorted(tools)))


def _is_network(stage: Stage) -> bool:
    return stage.model is not None and get_model(stage.model, stage.params).network is not None


def _cycles(
    stage: Stage, engine: Engine, precision: str, weights: Mapping[str, Any] | None, note: Callable[[str], None]
) -> tuple[int, str] | None:
    """Return a stage's cycles and the compiler's version, None (with a note) if it cannot be compiled."""
    against = check_operators(stage_work(stage, precision), engine)
    scales = shipped_scales(network_of(stage)[0]) if weights is None and precision == "int8" else None
    if against or (precision == "int8" and scales is None):
        reason = "; ".join(against) or "it has no int8 scales"
        note(f"{stage.name} on {engine.id} in {precision}: not asked, {reason}")
        return None
    try:
        built = built_here(prepare(stage, engine, precision, weights, None, scales))
    except CompileError as error:
        note(str(error))
        return None
    if built is None or any(row["unit"] != "NPU" for row in built.layers):
        note(f"{stage.name} on {engine.id} in {precision}: some operators run on the CPU, whose cycles are not stated")
        return None
    versions = ", ".join(f"{name} {version}" for name, version in built.versions.items())
    return sum(row["cycles"]["total"] for row in built.layers), versions


Note = Callable[[str], None]


def profile(
    pipeline: str | Path | Pipeline,
    platform: str | Path | Platform = "host",
    options: ProfileOptions | None = None,
    *,
    note: Note = lambda _: None,
    **fields: Any,
) -> Profile:
    """Measure every stage of a pipeline alone on this machine and return the times.

    `options`, or their fields by name: `repeat`, `until`, `inputs` (scans, images and arrays), `weights`, `seed`;
    `contention` adds the pairwise slowdowns of stages, `conversions` the costs of changing formats.  With
    `vendor_model` nothing is measured: see `expected_costs`.
    """
    from socsched.runtime.profile import measure

    how = ProfileOptions(**fields) if options is None else options
    chosen = sized(load_pipeline(pipeline), how.shapes, how.dims)
    board = load_platform(platform)
    if how.vendor_model:
        return expected_costs(chosen, board, load_weights(how.weights) if how.weights else None, note)
    scans = list_inputs(how.inputs)
    plan = _spread(plan_with(chosen, board, options=PlanOptions(refine=False, explain=False)), chosen)
    run = alone(chosen, Inputs(scans, how.weights, seed=how.seed))
    times = measure(plan, chosen, run, repeat=how.repeat, interval=how.until, note=note)
    return _together(times, chosen, scans, how, note) if how.contention or how.conversions else times


def _together(
    times: Profile, pipeline: Pipeline, scans: Sequence[Path] | None, how: ProfileOptions, note: Note
) -> Profile:
    """Return a profile with the co-run matrix and the conversions of a pipeline's stages on this machine."""
    from socsched.runtime import corun

    host = get_platform("host")
    plan = make_plan(pipeline, host, work=stage_work, profile=times)
    tasks = (replace(t, lanes=(number % 2,)) for number, t in enumerate(plan.tasks))  # pairs need distinct lanes
    plan = replace(plan, tasks=tuple(tasks))
    heard = corun.record(plan, pipeline, host, scans, how.weights)
    setting = Setting(plan, pipeline, host, bindings(pipeline), how.weights)
    return replace(
        times,
        contention=corun.contention(plan, setting, heard, repeat=how.repeat, note=note) if how.contention else (),
        conversions=corun.conversions(heard, host, repeat=how.repeat, note=note) if how.conversions else (),
    )


def _spread(plan: Plan, pipeline: Pipeline) -> Plan:
    """Return the plan with every divisible stage on all lanes, so that both extremes are measured."""
    lanes = {engine.id: engine.lanes for engine in plan.engines}
    networks = {stage.name for stage in pipeline.stages if stage.share == 0 and _is_network(stage)}
    tasks = (replace(t, lanes=tuple(range(lanes[t.engine]))) if t.name in networks else t for t in plan.tasks)
    return replace(plan, tasks=tuple(tasks))
