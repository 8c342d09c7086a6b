"""Times that a vendor's compiler expects of networks: the cycles of its table of layers, over the engine's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from socsched.compiler.builder import network_of, shipped_scales
from socsched.compiler.toolchains.environments import environment
from socsched.compiler.toolchains.hand_over import built_here, prepare, vendor_compiler
from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import CompileError, UsageError
from socsched.graph.rules import check_operators
from socsched.models.registry import get_model
from socsched.models.work import stage_work

ERROR = 0.7
"""Relative error of RKNN's cycles: MobileNetV2 in int8 takes 1.30 ms by the table and 2.22 ms (450.7 frames/s) as
published in Rockchip's model zoo, calls of the runtime included."""


def expected_costs(
    pipeline: Pipeline, platform: Platform, weights: Mapping[str, Any] | None, note: Callable[[str], None]
) -> Profile:
    """Return the expected time of every network on every engine whose compiler states cycles, in each precision.

    Engines alike are asked once.  Raises UsageError where no engine has such a compiler, MachineError where it is not
    installed.
    """
    mode, costs, tools = platform.modes[0], [], set()
    engines = [engine for engine in platform.engines if _states_cycles(engine)]
    if not engines:
        raise UsageError(
            f"no engine of {platform.name} has a compiler that states cycles",
            "RKNN states them (rk3588); QNN's emulation does not count a device's cycles",
        )
    for engine in engines:
        environment(vendor_compiler(engine).environment).require()  # type: ignore[union-attr]
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


def _states_cycles(engine: Engine) -> bool:
    compiler = vendor_compiler(engine)
    return compiler is not None and compiler.cycles


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
