"""Where the frames of a run come from: scan files in turn, a synthetic street scene, seeded camera images, or nothing.

A source gives frame k as arrays by port name, or says why the frame is unusable; it is read ahead of its release, so
that reading is no part of a response time.  More frames than scans go round the scans again; a run without a number of
frames ends with the last scan.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from socsched.descriptor.pipeline import Pipeline, Sensor
from socsched.errors import InputError
from socsched.text import printable

ALL_ROUND = frozenset(("centerpoint.voxelise",))
"""Models that look all around: the synthetic LiDAR gives them its full turn, others what a camera ahead sees."""
SCENES = 32
"""Synthetic scenes kept in memory; longer runs go round them."""
_IMAGES = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a sensor: arrays by port name, what it is called, and why it cannot be used (empty: it can)."""

    outputs: Mapping[str, Any]
    title: str = ""
    problem: str = ""


class FrameSource(Protocol):
    """Frames of one sensor; `count` is how many there are before they repeat, 0 when that has no meaning."""

    count: int

    def frame(self, number: int) -> Frame:
        """Return frame `number` (from 0)."""
        ...

    def warm(self) -> Frame:
        """Return a sound frame to warm up with."""
        ...

    def preload(self, frames: int) -> None:
        """Make what takes long to make of the first `frames` frames, before the run."""
        ...


@dataclass(slots=True)
class ScanFiles:
    """Scan files in turn; an unusable one is reported to stderr every time its turn comes."""

    paths: Sequence[Path]
    spare: FrameSource
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.paths)

    def frame(self, number: int) -> Frame:
        """Return the points of scan `number`, or why it cannot be used."""
        from socsched.models.pointpillars.scan import read_scan

        path = self.paths[number % self.count]
        try:
            return Frame({"points": read_scan(path)}, path.name)
        except InputError as error:
            print(printable(f"socsched: frame {number} skipped: {error}"), file=sys.stderr)
            return Frame({}, path.name, str(error))

    def warm(self) -> Frame:
        """Return the first sound scan, a synthetic scene when there is none."""
        from socsched.models.pointpillars.scan import read_scan

        for path in self.paths:
            with suppress(InputError):
                return Frame({"points": read_scan(path)}, path.name)
        return self.spare.warm()

    def preload(self, frames: int) -> None:
        """A scan is read in a millisecond: nothing to do."""


@dataclass(slots=True)
class Scenes:
    """A drive through the synthetic street, a scene every tenth of a second; scenes are made in turn and kept."""

    seed: int
    all_round: bool = False
    count: int = 0
    made: list[Frame] = field(default_factory=list)
    drive: Iterator[Any] | None = None

    def frame(self, number: int) -> Frame:
        """Return the points the rotating-LiDAR model sees of scene `number` modulo `SCENES`."""
        self.preload(number % SCENES + 1)
        return self.made[number % SCENES]

    def preload(self, frames: int) -> None:
        """Make the first `frames` scenes, `SCENES` at most."""
        from socsched.models.lidar.sensor import KITTI_CAMERA
        from socsched.models.pointpillars.scene import sequence

        if self.drive is None:
            self.drive = sequence(self.seed, SCENES, camera=None if self.all_round else KITTI_CAMERA)
        while len(self.made) < min(frames, SCENES):
            _, points = next(self.drive)
            self.made.append(Frame({"points": points}, f"scene {len(self.made)}"))

    def warm(self) -> Frame:
        """Return the first scene."""
        return self.frame(0)


@dataclass(slots=True)
class Images:
    """Seeded noise in the shape the camera's stage expects: timing does not depend on what is seen."""

    port: str
    shape: tuple[int, ...]
    seed: int
    count: int = 0
    made: dict[int, Frame] = field(default_factory=dict)

    def frame(self, number: int) -> Frame:
        """Return image `number` modulo 4."""
        import numpy

        index = number % _IMAGES
        if index not in self.made:
            generator = numpy.random.default_rng([self.seed, index])
            image = generator.integers(0, 256, self.shape, dtype=numpy.uint8)
            self.made[index] = Frame({self.port: image}, f"image {index}")
        return self.made[index]

    def warm(self) -> Frame:
        """Return the first image."""
        return self.frame(0)

    def preload(self, frames: int) -> None:
        """Make the images."""
        for number in range(min(frames, _IMAGES)):
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
        """There is nothing to make."""


def sources(
    pipeline: Pipeline, bound: Mapping[str, Mapping[str, str]], scans: Sequence[Path] | None, seed: int
) -> dict[str, FrameSource]:
    """Return the source of every sensor; `bound` (`registry.bindings`) says which ports a sensor provides."""
    return {sensor.name: _source(pipeline, sensor, bound, scans, seed) for sensor in pipeline.sensors}


def _source(
    pipeline: Pipeline, sensor: Sensor, bound: Mapping[str, Mapping[str, str]], scans: Sequence[Path] | None, seed: int
) -> FrameSource:
    ports = [(stage, port) for stage, inputs in bound.items() for port, name in inputs.items() if name == sensor.name]
    if any(port == "points" for _, port in ports):
        scenes = Scenes(seed, any(pipeline.stage(stage).model in ALL_ROUND for stage, _ in ports))
        return ScanFiles(tuple(scans), scenes) if scans else scenes
    if ports:
        stage, port = ports[0]
        return Images(port, _shape(pipeline, stage, port), seed)
    return Nothing()


def _shape(pipeline: Pipeline, stage: str, port: str) -> tuple[int, ...]:
    from socsched.models.registry import get_model

    chosen = pipeline.stage(stage)
    model = get_model(chosen.model or "", chosen.params)
    return next(p.type.shape for p in model.inputs if p.name == port)
