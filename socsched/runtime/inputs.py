"""Where the frames of a run come from: files in turn, a synthetic street scene, seeded camera images, or nothing.

A source gives frame k as arrays by port name, or says why the frame is unusable; it is read ahead of its release, so
that reading is no part of a response time.  More frames than files go round the files again; a run without a number of
frames ends with the last file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.graph.operators import TensorType
from socsched.runtime.frames import Frame, FrameSource
from socsched.runtime.input_files import POINTS, InputFiles, of_files, require_used

ALL_ROUND = frozenset(("centerpoint.voxelise",))
"""Models that look all around: the synthetic LiDAR gives them its full turn, others what a camera ahead sees."""
SCENES = 32
"""Synthetic scenes kept in memory; longer runs go round them."""
_IMAGES = 4


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
    pipeline: Pipeline, bound: Mapping[str, Mapping[str, str]], files: Sequence[Path] | None, seed: int
) -> dict[str, FrameSource]:
    """Return the source of every sensor; `bound` (`registry.bindings`) says which ports a sensor provides.

    `files` (`input_files.list_frames`) feed the sensors they fit, the others see what is made up for them.  Raises
    InputError for a file that fits none.
    """
    found: dict[str, FrameSource] = {}
    read: list[InputFiles] = []
    offered: dict[str, TensorType] = {}
    for sensor in pipeline.sensors:
        stages = [
            (stage, port) for stage, given in bound.items() for port, name in given.items() if name == sensor.name
        ]
        ports = {port: _type(pipeline, stage, port) for stage, port in stages}
        offered |= ports
        found[sensor.name] = spare = _synthetic(pipeline, stages, ports, seed)
        if files and (fed := of_files(files, ports, spare)) is not None:
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
        port, kind = next(iter(ports.items()))
        return Images(port, kind.shape, seed)
    return Nothing()


def _type(pipeline: Pipeline, stage: str, port: str) -> TensorType:
    from socsched.models.registry import get_model

    chosen = pipeline.stage(stage)
    model = get_model(chosen.model or "", chosen.params)
    return next(p.type for p in model.inputs if p.name == port)
