"""Sources of a run's frames: files in turn, shipped scans of a synthetic street, seeded inputs, or no data.

A source returns frame k as arrays by port name, or the reason it is unusable.  Frames are read ahead of their release,
so that reading is not part of a response time.  If more frames than files are wanted, the files repeat; a run without
a number of frames ends with the last file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.models.model import Model
from socsched.models.registry import get_model
from socsched.runtime import timetable
from socsched.runtime.backends import Setting, sort_of
from socsched.runtime.errors import warn
from socsched.runtime.frames import Frame, FrameSource
from socsched.runtime.input_files import MCAP, POINTS, InputFiles, of_files, require_used
from socsched.runtime.options import Inputs
from socsched.units import format_duration

ALL_ROUND = frozenset(("centerpoint.voxelise",))
"""Models that get as many points as a full turn has; others get a front camera's field of view."""
_SAMPLES = 4
"""Different inputs of a sensor; they repeat."""


@dataclass(slots=True)
class Scenes:
    """The shipped drive down a synthetic street, one scan per 100 ms, over and over; `seed` chooses the first scan."""

    seed: int
    all_round: bool = False
    count: int = 0
    made: list[Frame] = field(default_factory=list)

    def frame(self, number: int) -> Frame:
        """Return the points of scene `number`, modulo the number of scans."""
        from socsched.models.street import SCANS

        self.preload(number % SCANS + 1)
        return self.made[number % SCANS]

    def preload(self, frames: int) -> None:
        """Read the first `frames` scenes, at most all."""
        from socsched.models import street

        while len(self.made) < min(frames, street.SCANS):
            points = street.scan(self.seed + len(self.made), self.all_round)
            self.made.append(Frame({"points": points}, f"scene {len(self.made)}"))

    def warm(self) -> Frame:
        """Return the first scene."""
        return self.frame(0)


@dataclass(slots=True)
class Samples:
    """Seeded inputs of the stages that read a sensor, in the range that they expect: `readers` is a model by port."""

    readers: Mapping[str, Model]
    seed: int
    count: int = 0
    made: dict[int, Frame] = field(default_factory=dict)

    def frame(self, number: int) -> Frame:
        """Return input `number` modulo 4."""
        import numpy

        from socsched.models.samples import draw

        index = number % _SAMPLES
        if index not in self.made:
            generator = numpy.random.default_rng([self.seed, index])
            drawn = {id(model): draw(model, generator) for model in self.readers.values()}
            outputs = {port: drawn[id(model)][port] for port, model in self.readers.items()}
            dtypes = [str(array.dtype) for array in outputs.values()]
            self.made[index] = Frame(outputs, f"{'image' if dtypes == ['uint8'] else 'input'} {index}")
        return self.made[index]

    def warm(self) -> Frame:
        """Return the first input."""
        return self.frame(0)

    def preload(self, frames: int) -> None:
        """Draw the inputs."""
        for number in range(min(frames, _SAMPLES)):
            self.frame(number)


@dataclass(slots=True)
class Nothing:
    """A sensor whose data no model reads: only its release times matter."""

    count: int = 0

    def frame(self, number: int) -> Frame:
        """Return a frame without arrays."""
        return Frame({})

    def warm(self) -> Frame:
        """Return a frame without arrays."""
        return Frame({})

    def preload(self, frames: int) -> None:
        """Do nothing: there is no data to generate."""


def sources(
    pipeline: Pipeline,
    bound: Mapping[str, Mapping[str, str]],
    files: Sequence[Path] | None,
    seed: int,
    topics: Mapping[str, str] | None = None,
) -> dict[str, FrameSource]:
    """Return the source of every sensor; `bound` (`registry.bindings`) gives the ports a sensor provides.

    `files` (`input_files.list_frames`) feed the matching sensors, MCAP files by their `topics` (by sensor); the others
    get synthetic data.  Raises InputError for a file that matches no sensor, UsageError for topics of unknown sensors.
    """
    topics = topics or {}
    names = [sensor.name for sensor in pipeline.sensors]
    if unknown := sorted(set(topics) - set(names)):
        raise UsageError(f"{pipeline.name} has no sensor {unknown[0]!r}", f"sensors: {', '.join(names)}")
    if topics and not any(path.suffix.lower() == MCAP for path in files or ()):
        raise UsageError(f"a topic is chosen for {min(topics)}, but no {MCAP} file is given", "give one with --input")
    found: dict[str, FrameSource] = {}
    read: list[InputFiles] = []
    offered: dict[str, TensorType] = {}
    for sensor in pipeline.sensors:
        stages = [
            (stage, port) for stage, given in bound.items() for port, name in given.items() if name == sensor.name
        ]
        taken = {port: next(p for p in _model(pipeline, stage).inputs if p.name == port) for stage, port in stages}
        ports = {name: port.type for name, port in taken.items()}
        least = {name: port.least for name, port in taken.items() if port.least}
        offered |= ports
        found[sensor.name] = spare = _synthetic(pipeline, stages, ports, seed)
        if files and (fed := of_files(files, ports, spare, sensor, topics.get(sensor.name, ""), least)) is not None:
            read.append(fed)
            found[sensor.name] = fed
    require_used(files or (), read, offered)
    return found


def _synthetic(
    pipeline: Pipeline, stages: Sequence[tuple[str, str]], ports: Mapping[str, TensorType], seed: int
) -> FrameSource:
    if POINTS in ports:
        return Scenes(seed, any(pipeline.stage(stage).model in ALL_ROUND for stage, _ in stages))
    if ports:
        return Samples({port: _model(pipeline, stage) for stage, port in reversed(stages)}, seed)
    return Nothing()


def _model(pipeline: Pipeline, stage: str) -> Model:
    chosen = pipeline.stage(stage)
    return get_model(chosen.model or "", chosen.params)


def prepare_inputs(
    setting: Setting, inputs: Inputs, topics: Mapping[str, str] | None = None
) -> tuple[dict[str, FrameSource], int]:
    """Return the frame sources of a run and its horizon in ns; `topics` as in `sources`.

    Warns of a run that is shorter than asked for, and of stages without weights or scales.
    """
    plan, pipeline, duration_ns = setting.plan, setting.pipeline, inputs.duration_ns
    feeds = sources(pipeline, setting.bound, inputs.scans, setting.seed, topics)
    fed = next((name for name, feed in feeds.items() if isinstance(feed, InputFiles)), None)
    lidar = fed or next((sensor.name for sensor in pipeline.sensors if sensor.kind == "lidar"), None)
    lead = timetable.lead_source(plan, lidar)
    files = 0 if fed is None or inputs.loop else feeds[fed].count
    horizon = timetable.horizon_ns(plan, lead, files, inputs.frames, duration_ns)
    if files and not inputs.frames and duration_ns and horizon < duration_ns:
        length = f"{format_duration(horizon)} of {format_duration(duration_ns)}"
        warn(f"the input has {files} frames of {fed}: the run ends after {length}; --loop repeats them")
    networks = [
        task for task in plan.tasks if sort_of(task, setting) in ("network", "cuda", "dla") and task.kind == "stage"
    ]
    ready = {s.name for s in pipeline.stages if s.model and get_model(s.model, s.params).ready}  # with own weights
    unready = [task for task in networks if task.name not in ready]
    if setting.weights is None and unready:
        warn("no weights given: the networks run with seeded random weights, so their outputs are meaningless")
    if setting.scales is None and any(
        task.precision == "int8" for task in (unready if setting.weights is None else networks)
    ):
        warn("no int8 scales given: scales from seeded inputs are used, so outputs of the networks may be inaccurate")
    for name in timetable.names(plan):
        if name in feeds:
            feeds[name].preload(timetable.frames_of(plan, name, horizon))
    return feeds, horizon
