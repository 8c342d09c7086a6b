"""The task graph of a pipeline: stages with their rates, in precedence order, and chains split where rates change.

A stage with `after` inherits the period of its trigger; a stage with a timer has its own.  `after` edges carry every
frame; `reads` edges are sampled: the consumer takes the latest finished output when it starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.errors import UsageError


@dataclass(frozen=True, slots=True)
class ChainSegment:
    """A stretch of a chain that handles every frame of one trigger: `root` is its first element, `period_ns` its rate.

    `nodes` are the stages of the stretch (a leading sensor is only in `root`); `sampled`: the stretch reads the latest
    output of the previous one instead of being triggered by it.
    """

    root: str
    nodes: tuple[str, ...]
    period_ns: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Stages of a pipeline in topological order with period, first release and release jitter (ns) of each.

    `sources` maps every stage to the sensors and timer stages at the origin of its triggers.
    """

    pipeline: Pipeline
    order: tuple[str, ...]
    period_ns: Mapping[str, int]
    offset_ns: Mapping[str, int]
    jitter_ns: Mapping[str, int]
    sources: Mapping[str, tuple[str, ...]]
    _segments: dict[tuple[str, ...], tuple[ChainSegment, ...]] = field(default_factory=dict, repr=False, compare=False)
    _stages: dict[str, Stage] = field(default_factory=dict, repr=False, compare=False)

    def stage(self, name: str) -> Stage:
        """Return the stage of this name; KeyError if there is none."""
        if not self._stages:
            self._stages.update({stage.name: stage for stage in self.pipeline.stages})
        return self._stages[name]

    def predecessors(self, name: str) -> tuple[str, ...]:
        """Return the stages (no sensors) whose outputs trigger this stage."""
        after = self.stage(name).after
        return tuple(n for n in after if n in self._stages)

    def successors(self, name: str) -> tuple[str, ...]:
        """Return the stages this stage triggers, in topological order."""
        return tuple(n for n in self.order if name in self.stage(n).after)

    def hyperperiod_ns(self) -> int:
        """Return the least common multiple of all stage periods (ns)."""
        return math.lcm(*self.period_ns.values())

    def segments(self, chain: Chain) -> tuple[ChainSegment, ...]:
        """Return the segments of a chain, split where a stage samples its predecessor without being triggered."""
        if chain.path not in self._segments:
            self._segments[chain.path] = self._split(chain)
        return self._segments[chain.path]

    def _split(self, chain: Chain) -> tuple[ChainSegment, ...]:
        stages, cut = set(self.order), []
        for index, node in enumerate(chain.path):
            triggered = node in stages and index > 0 and chain.path[index - 1] in self.stage(node).after
            if not triggered:
                cut.append((node, [node] if node in stages else [], index > 0))
            else:
                cut[-1][1].append(node)
        rates = {sensor.name: sensor.period_ns for sensor in self.pipeline.sensors} | dict(self.period_ns)
        return tuple(ChainSegment(root, tuple(nodes), rates[root], sampled) for root, nodes, sampled in cut)

    def gap_ns(self, name: str) -> int:
        """Return the longest delay beyond its period of a sensor's or stage's next frame (ns)."""
        sources = self.sources.get(name, (name,))
        return max((s.gap_ns for s in self.pipeline.sensors if s.name in sources), default=0)


def task_graph(pipeline: Pipeline) -> TaskGraph:
    """Return the task graph of a pipeline; UsageError on a cycle, an unknown name, or triggers of different rates."""
    order = _order(pipeline)
    sensors = {sensor.name: sensor for sensor in pipeline.sensors}
    stages = {stage.name: stage for stage in pipeline.stages}
    period: dict[str, int] = {}
    offset: dict[str, int] = {}
    jitter: dict[str, int] = {}
    sources: dict[str, tuple[str, ...]] = {}
    for name in order:
        stage = stages[name]
        if stage.period_ns is not None:
            period[name], offset[name] = stage.period_ns, stage.offset_ns
            jitter[name], sources[name] = stage.jitter_ns, (name,)
            continue
        period[name] = _common_period(stage, sensors, period)
        offset[name] = min(sensors[n].offset_ns if n in sensors else offset[n] for n in stage.after)
        jitter[name] = max(_latest(n, sensors, offset, jitter) for n in stage.after) - offset[name]
        sources[name] = tuple(dict.fromkeys(s for n in stage.after for s in sources.get(n, (n,))))
    return TaskGraph(pipeline, order, period, offset, jitter, sources)


def _latest(name: str, sensors: Mapping[str, Sensor], offset: Mapping[str, int], jitter: Mapping[str, int]) -> int:
    if name in sensors:
        return sensors[name].offset_ns + sensors[name].jitter_ns
    return offset[name] + jitter[name]


def _order(pipeline: Pipeline) -> tuple[str, ...]:
    names = [stage.name for stage in pipeline.stages]
    all_names = {*names, *(sensor.name for sensor in pipeline.sensors)}
    for stage in pipeline.stages:
        for other in (*stage.after, *stage.reads):
            if other not in all_names:
                raise UsageError(
                    f"stage {stage.name!r} refers to {other!r}, which is not a stage or sensor of the pipeline"
                )
        if not stage.after and stage.period_ns is None:
            raise UsageError(f"stage {stage.name!r} has no trigger", "give it `after` or `period`")
    sorter = TopologicalSorter({s.name: [n for n in s.after if n in names] for s in pipeline.stages})
    try:
        sorter.prepare()
    except CycleError as error:
        raise UsageError(f"cycle of triggers: {' -> '.join(error.args[1])}") from None
    rank, done = {name: i for i, name in enumerate(names)}, []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=rank.__getitem__)
        done += ready
        sorter.done(*ready)
    return tuple(done)


def _common_period(stage: Stage, sensors: Mapping[str, Sensor], period: Mapping[str, int]) -> int:
    rates = {n: sensors[n].period_ns if n in sensors else period[n] for n in stage.after}
    if len(set(rates.values())) != 1:
        listed = ", ".join(f"{name} every {value} ns" for name, value in rates.items())
        raise UsageError(
            f"stage {stage.name!r} waits for inputs of different rates: {listed}",
            "keep the one that triggers it under `after` and move the others to `reads`",
        )
    return next(iter(rates.values()))
