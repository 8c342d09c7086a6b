"""Slowdowns of co-running stages and costs of conversions, measured on this machine.

For every ordered pair of stages with a model on disjoint lanes, the aggressor repeats its job while the victim is
measured.  Conversions are timed on real stage outputs.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from socsched.cost.profile import CoRun, MeasuredConversion
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.graph.operators import TensorType
from socsched.models.registry import bindings
from socsched.planning.plan import Plan, Task
from socsched.runtime.backends import Backend, Instances, Outputs, Placed, Setting, pool_of, prepare, sort_of, to_layout
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.errors import warn
from socsched.runtime.functional import evaluate
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import Inputs

_WARM = 2
_SETTLE_S = 0.02
"""Time the aggressor runs before its victim is measured."""
_PREPARING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Recorded:
    """What stages with a model were given and made in one frame, by stage."""

    given: dict[str, Mapping[str, Outputs]] = field(default_factory=dict)
    made: dict[str, Outputs] = field(default_factory=dict)


def record(
    plan: Plan, pipeline: Pipeline, platform: Platform, scans: Sequence[Path] | None, weights: Path | None,
    backends: Mapping[str, Backend] | None = None,
) -> Recorded:  # fmt: skip
    """Run one frame and return the inputs and outputs of every stage with a model."""
    setting = Setting(plan, pipeline, platform, bindings(pipeline), weights)
    feeds, horizon = prepare_inputs(setting, Inputs(scans, frames=1))
    recorded = Recorded()

    def heard(task: Task, frame: int, values: Mapping[str, Outputs], outputs: Outputs) -> None:
        if sort_of(task, setting) in ("network", "function"):
            recorded.given[task.name], recorded.made[task.name] = values, outputs

    evaluate(setting, feeds, horizon, heard, backends)
    return recorded


def contention(
    plan: Plan, setting: Setting, heard: Recorded, *, repeat: int = 10, note: Callable[[str], None] = warn,
    backends: Mapping[str, Backend] | None = None,
) -> tuple[CoRun, ...]:  # fmt: skip
    """Return the slowdown of every stage by every other stage on disjoint lanes."""
    tasks = [task for task in plan.tasks if task.name in heard.given and sort_of(task, setting) != "synthetic"]
    instances, board = Instances(backends or {}), LocalBoard(setting.platform)
    slowdowns = []
    for victim, aggressor in permutations(tasks, 2):
        if victim.engine == aggressor.engine and set(victim.lanes) & set(aggressor.lanes):
            continue
        alone = _measured(victim, None, setting, heard, repeat, instances, board)
        corunning = _measured(victim, aggressor, setting, heard, repeat, instances, board)
        factor = round(statistics.median(corunning) / statistics.median(alone), 3)
        note(f"{victim.name} with {aggressor.name} co-running: {factor} times as long")
        slowdowns.append(CoRun(victim.name, aggressor.name, factor, repeat))
    return tuple(slowdowns)


def _measured(
    victim: Task, aggressor: Task | None, setting: Setting, heard: Recorded, repeat: int, instances: Instances,
    board: LocalBoard,
) -> list[int]:  # fmt: skip
    """Return the execution times of `victim`, in a thread on its lanes, while `aggressor` runs in another."""
    times: list[int] = []
    failures: list[BaseException] = []
    over, going = threading.Event(), threading.Event()

    def ready(task: Task) -> Callable[[], Any]:
        if cpus := board.cpus(task.engine, tuple(task.lanes)):
            os.sched_setaffinity(0, cpus)
        values = heard.given[task.name]
        with _PREPARING, pool_of(len(task.lanes)):
            call = prepare(task, setting, instances)
            for _ in range(_WARM):
                call(values)
        return lambda: call(values)

    def disturb() -> None:
        assert aggressor is not None
        try:
            again = ready(aggressor)
            going.set()
            while not over.is_set():
                again()
        except BaseException as error:
            failures.append(error)
        finally:
            going.set()

    def measure() -> None:
        try:
            again = ready(victim)
            going.wait()
            time.sleep(_SETTLE_S)
            for _ in range(repeat):
                start = time.perf_counter_ns()
                again()
                times.append(time.perf_counter_ns() - start)
        except BaseException as error:
            failures.append(error)
        finally:
            over.set()

    works = (disturb, measure) if aggressor else (measure,)
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    if aggressor is None:
        going.set()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        over.set()  # after SIGINT too
    if failures:
        raise failures[0]
    return times


def conversions(
    heard: Recorded, platform: Platform, *, repeat: int = 10, note: Callable[[str], None] = warn
) -> tuple[MeasuredConversion, ...]:
    """Return measured costs of converting stage outputs to the layouts and types of the engines of `platform`."""
    from socsched.compiler.layouts import parse_layout
    from socsched.errors import UsageError

    wanted = {("NCHW", "fp32")}
    for engine in platform.engines:
        for dtype, precision in engine.precisions.items():
            if dtype in ("fp32", "fp16"):
                try:
                    parse_layout(precision.layout)
                except UsageError:
                    continue  # a vendor format that only the vendor's code converts
                wanted.add((precision.layout, dtype))
    found = []
    for stage, outputs in heard.made.items():
        for port, value in outputs.items():
            given = value if isinstance(value, Placed) else None
            if given is None or len(given.type.shape) != 4:
                continue
            for layout, dtype in sorted(wanted):
                kind = TensorType(given.type.shape, dtype, layout)
                if (kind.dtype, kind.layout) != (given.type.dtype, given.type.layout):
                    found.append(_timed(f"{stage}.{port}", given, kind, repeat, note))
    return tuple(found)


def _timed(name: str, given: Placed, kind: TensorType, repeat: int, note: Callable[[str], None]) -> MeasuredConversion:
    times = []
    for _ in range(repeat + 1):
        start = time.perf_counter_ns()
        converted = to_layout(given, kind)
        times.append(time.perf_counter_ns() - start)
    median = round(statistics.median(times[1:]))
    before, after = (f"{t.dtype} {t.layout or 'NCHW'}" for t in (given.type, kind))
    note(f"{name} from {before} to {after}: {median / 1e6:.3f} ms")
    return MeasuredConversion(name, before, after, int(given.array.nbytes + converted.nbytes), median, repeat)
