"""What the stages of a plan compute, frame by frame in this process, without time: for simulations of absent boards,
inputs of measurements, and references.

A *simulated target* takes its times from the simulation, whose trace includes the results found here: the stages of a
plan for another board run with each engine's precision and layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from socsched.compiler.toolchains.hand_over import vendor_compiler
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform
from socsched.errors import MachineError, SocschedError, UsageError
from socsched.models.registry import bindings
from socsched.planning.plan import Plan, Task
from socsched.runtime import timetable
from socsched.runtime.backends import Backend, Call, Instances, Outputs, Setting, pool_of, prepare
from socsched.runtime.collect import class_names, described, merge
from socsched.runtime.errors import StageFailed
from socsched.runtime.frames import FrameSource, facts_of
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import PLAIN_INPUTS, Inputs
from socsched.trace.trace import Trace

VENDOR_SIM = "vendor-sim"
"""Kind of target of engines that a vendor's simulator stands for, and the name of their backend."""

Values = Mapping[str, Outputs]
Heard = Callable[[Task, int, Values, Outputs], None]
"""Takes a task, the number of a frame, what the task was given by stage or sensor, and its outputs."""


class _Nothing:
    """A no-op for stages with only a planned time, and for conversions, which happen where tensors are handed over."""

    title = "nothing to compute"
    real = False

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        return lambda values: {}


@dataclass(slots=True)
class _Evaluation:
    """Data on their way: each job runs as soon as it has the same frame of all its inputs, after its producer."""

    plan: Plan
    needs: Mapping[str, set[str]]
    calls: Mapping[str, Call]
    heard: Heard
    latest: dict[str, Values] = field(default_factory=dict)
    arrived: dict[tuple[str, int], dict[str, Values]] = field(default_factory=dict)

    def deliver(self, name: str, frame: int, values: Values) -> None:
        """Hand a frame of a stage, sensor or timer to the tasks that follow it."""
        self.latest[name] = values
        for task in self.plan.tasks:
            if task.timer or name not in task.after:
                continue
            given = self.arrived.setdefault((task.name, frame), {})
            given[name] = values
            if len(given) == len(task.after):
                del self.arrived[task.name, frame]
                self.run(task, frame, {key: value for one in given.values() for key, value in one.items()})

    def run(self, task: Task, frame: int, values: Values) -> None:
        """Run a job on its data and the latest of what it reads, unless something that it needs is missing."""
        for name in task.reads:
            values = {**self.latest.get(name, {}), **values}
        if self.needs.get(task.name, set()) - values.keys():
            return
        try:
            outputs = self.calls[task.name](values)
        except Exception as error:
            raise StageFailed(task.name, frame, error, Trace("measured", 0, 0)) from error
        self.heard(task, frame, values, outputs)
        values = {**values, task.name: outputs}
        if move := next((move for move in self.plan.transitions if move.task == task.name), None):
            values[move.source] = {**values.get(move.source, {}), **outputs}
        self.deliver(task.name, frame, values)


def evaluate(
    setting: Setting,
    feeds: Mapping[str, FrameSource],
    horizon_ns: int,
    heard: Heard,
    backends: Mapping[str, Backend] | None = None,
) -> None:
    """Run the frames of a plan that are released before the horizon, one after another, and call `heard` for every job.

    `backends`, by sort of stage, replace the registered ones.  Raises StageFailed if a stage raises.
    """
    instances, calls = Instances(backends or {}), {}
    for task in setting.plan.tasks:
        try:
            with pool_of(len(task.lanes)):
                calls[task.name] = prepare(task, setting, instances)
        except SocschedError:
            raise
        except Exception as error:
            text = f"stage {task.name!r} could not be prepared: {type(error).__name__}: {error}"
            raise MachineError(text, "see `socsched doctor`") from error
    needs = {stage: set(ports.values()) for stage, ports in setting.bound.items()}
    evaluation = _Evaluation(setting.plan, needs, calls, heard)
    timers = {task.name: task for task in setting.plan.tasks if task.timer}
    with pool_of(max((len(task.lanes) for task in setting.plan.tasks), default=1)):
        for group in timetable.releases(setting.plan, horizon_ns):
            for _, name, frame in group:
                if name in timers:
                    evaluation.run(timers[name], frame, {})
                elif not (content := feeds[name].frame(frame)).problem:
                    evaluation.deliver(name, frame, {name: content.outputs})


def compute(
    plan: Plan,
    pipeline: Pipeline,
    platform: Platform,
    inputs: Inputs = PLAIN_INPUTS,
    *,
    stats: bool = False,
    vendor: bool = False,
) -> dict[int, dict[str, Any]]:
    """Return the results of the stages of `plan` for each frame, in the form of `Trace.details`.

    `platform` is the plan's.  With `vendor`, stages of accelerators run in their vendor's simulator, compiled by its
    compiler.
    """
    if vendor:
        check_vendors(plan, platform)
    here = as_simulated(platform, vendor)
    setting = Setting(plan, pipeline, here, bindings(pipeline), inputs.weights, inputs.seed, inputs.scales)
    feeds, horizon = prepare_inputs(setting, inputs)
    return details_of(setting, feeds, horizon, stats, {"synthetic": _Nothing(), "conversion": _Nothing()})


def details_of(
    setting: Setting,
    feeds: Mapping[str, FrameSource],
    horizon_ns: int,
    stats: bool = False,
    backends: Mapping[str, Backend] | None = None,
) -> dict[int, dict[str, Any]]:
    """Return the results of every frame that is released before the horizon; `stats`: those of all tensors."""
    classes = class_names(setting.pipeline)
    details: dict[int, dict[str, Any]] = {}
    for name in timetable.names(setting.plan):
        for number in range(timetable.frames_of(setting.plan, name, horizon_ns)) if name in feeds else ():
            if facts := facts_of(feeds[name].frame(number)):
                details.setdefault(number, {"frame": number}).update(facts)

    def heard(task: Task, frame: int, values: Values, outputs: Outputs) -> None:
        if part := described(outputs, classes.get(task.name, ()), stats):
            merge(details.setdefault(frame, {"frame": frame}), part)

    evaluate(setting, feeds, horizon_ns, heard, backends)
    return details


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
