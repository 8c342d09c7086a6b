"""Frames of sensors from files: LiDAR scans (.bin), camera images, arrays by port name (.npz), and MCAP recordings.

A file serves every sensor with matching ports, so that a folder may hold scans for the LiDAR and images for the camera.
A file that matches no port is refused before the run.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.bounded import open_file
from socsched.descriptor.pipeline import Sensor
from socsched.errors import InputError
from socsched.graph.operators import TensorType
from socsched.models.npz import read_npz, read_shapes
from socsched.models.pointpillars.scan import SUFFIXES as SCANS
from socsched.models.pointpillars.scan import Layout, read_scan
from socsched.runtime.frames import Frame, FrameSource
from socsched.runtime.mcap_file import McapFile, Topic, open_mcap
from socsched.runtime.ros_messages import CLOUD, COMPRESSED, IMAGE, TYPES, decode
from socsched.text import one_line, printable

# Frames of a sensor from a topic of an MCAP file, in the order of the file; they are released at the planned rate.

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """The messages of `topic` as arrays."""

    file: McapFile
    topic: Topic

    def array(self, number: int) -> Any:
        """Return message `number`; InputError if its content is not of the topic's type."""
        kind = TYPES[self.topic.type, self.topic.encoding]
        content = self.file.message(self.topic, number)
        try:
            return decode(kind, self.topic.encoding, content)
        except ValueError as error:
            what = f"{self.file.path}: {one_line(self.topic.name)}: message {number}"
            raise InputError(f"{what}: {one_line(str(error))}", f"expected {self.topic.type}") from None


def recorded_topic(path: Path, kinds: Collection[str], sensor: str, chosen: str) -> RecordedTopic | None:
    """Return the topic that feeds a sensor, None if none holds one of `kinds` (values of `TYPES`).

    That is the topic `chosen`; if empty, the only one of these kinds, or the only one whose name contains the sensor's.
    Raises InputError for a choice that does not fit, or if a choice is needed.
    """
    file = _opened(path.resolve(), *_state(path))
    fitting = {name: topic for name, topic in file.topics.items() if TYPES.get((topic.type, topic.encoding)) in kinds}
    if chosen:
        if chosen not in fitting:
            found = file.topics.get(chosen)
            problem = f"is of type {found.type} ({found.encoding})" if found else "is not in the file"
            raise InputError(f"{path}: topic {chosen} {one_line(problem)}", _listed("topics for this sensor", fitting))
        return RecordedTopic(file, fitting[chosen])
    if len(fitting) > 1:
        named = {name: topic for name, topic in fitting.items() if sensor and sensor in name}
        if len(named) != 1:
            text = _listed("topics that could feed sensor " + (sensor or "it"), fitting)
            raise InputError(f"{path}: {text}", f"choose one with --topic {sensor or 'SENSOR'}=TOPIC")
        fitting = named
    return next((RecordedTopic(file, topic) for topic in fitting.values() if len(topic)), None)


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "check the path given as input") from None
    return found.st_size, found.st_mtime_ns


@lru_cache(2)
def _opened(path: Path, size: int, time_ns: int) -> McapFile:
    return open_mcap(path)


def _listed(what: str, topics: Collection[str]) -> str:
    names = sorted(map(one_line, topics))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}: {', '.join(names[:_SHOWN]) or 'none'}{more}"


ARRAYS, MCAP = ".npz", ".mcap"
IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm")
SUFFIXES = (*SCANS, ARRAYS, MCAP, *IMAGES)
POINTS = "points"
LARGEST = 1 << 30
"""Limit on the bytes of a file's arrays, and on three times an image's pixels: larger files are damaged or hostile."""
_ARRAYS = "array", f"expected {ARRAYS}"
_KINDS = {
    "fp32": "float32", "fp16": "float16", "int8": "int8", "uint8": "uint8", "int32": "int32", "int64": "int64",
    "bool": "bool",
}  # fmt: skip
_HINT = (
    f"expected scans ({', '.join(SCANS)}: rows x, y, z, intensity), images ({', '.join(IMAGES)}), "
    f"{ARRAYS} or {MCAP} files"
)

Ports = Mapping[str, TensorType]
"""The ports a sensor provides, with the types their stages expect."""


def list_frames(path: str | Path) -> tuple[Path, ...]:
    """Return `path` itself, or all scans, images, .npz and .mcap files of a folder in order of name.

    Raises InputError if the path does not exist or has no files of these kinds.
    """
    path = Path(path)
    if path.is_dir():
        files = tuple(sorted(entry for entry in path.iterdir() if entry.suffix.lower() in SUFFIXES and entry.is_file()))
        if not files:
            raise InputError(f"{path}: no scan, image or {ARRAYS} in this folder", _HINT)
        return files
    if not path.exists():
        raise InputError(f"{path}: no such scan, image or folder", "check the path given as input")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: not a scan, an image or a file of arrays", _HINT)
    return (path,)


@dataclass(slots=True)
class InputFiles:
    """Files in turn, an .npz row by row and an .mcap message by message.

    An unusable file is reported to stderr each time it is read.  `least`: the sizes of ports whose frames may be
    smaller; they are `filled` up with 0.
    """

    ports: Ports
    places: Sequence[tuple[Path, int]]
    spare: FrameSource
    recordings: Mapping[Path, RecordedTopic] = field(default_factory=dict)
    layout: Layout | None = None
    least: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    filled: bool = True
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.places)

    def frame(self, number: int) -> Frame:
        """Return the contents of file `number`, or the reason it cannot be used."""
        path, row = self.places[number % self.count]
        try:
            return self._read(path, row)
        except InputError as error:
            print(printable(f"socsched: frame {number} skipped: {error}"), file=sys.stderr)
            return Frame({}, path.name, str(error))

    def warm(self) -> Frame:
        """Return the first usable frame, or a synthetic one if there is none."""
        for path, row in self.places:
            with suppress(InputError):
                return self._read(path, row)
        return self.spare.warm()

    def preload(self, frames: int) -> None:
        """Do nothing: a file is read in milliseconds, ahead of its release."""

    def _read(self, path: Path, row: int) -> Frame:
        suffix = path.suffix.lower()
        if suffix == ARRAYS:
            return Frame(_arrays(path, self.ports, row, self.least, self.filled), f"{path.name} {row}")
        if suffix in SCANS:
            return Frame({POINTS: read_scan(path, self.layout)}, path.name)
        if suffix == MCAP:
            return Frame({next(iter(self.ports)): self.recordings[path].array(row)}, f"{path.name} {row}")
        return Frame({next(iter(self.ports)): _image(path)}, path.name)


def of_files(
    files: Sequence[Path],
    ports: Ports,
    spare: FrameSource,
    sensor: Sensor,
    topic: str = "",
    least: Mapping[str, tuple[int, ...]] | None = None,
) -> InputFiles | None:
    """Return the frames that files hold for a sensor with `ports`, None if they hold none.

    `topic`: the one that feeds the sensor from MCAP files, if several could; `least`: the sizes of ports whose arrays
    may be smaller.  Raises InputError for arrays whose type
    or shape differs from the port's, and for a topic that is missing or has to be chosen.
    """
    places: list[tuple[Path, int]] = []
    recordings: dict[Path, RecordedTopic] = {}
    for path in files:
        suffix = path.suffix.lower()
        if suffix == ARRAYS:
            places += [(path, row) for row in range(_rows(path, ports, least or {}))]
        elif suffix == MCAP:
            if (found := recorded_topic(path, _kinds(ports), sensor.name, topic)) is not None:
                recordings[path] = found
                places += [(path, row) for row in range(len(found.topic))]
        elif POINTS in ports if suffix in SCANS else _takes_images(ports):
            places.append((path, 0))
    layout = Layout(sensor.columns, sensor.column_type) if sensor.columns else None
    return InputFiles(ports, places, spare, recordings, layout, least or {}) if places else None


def require_used(files: Sequence[Path], found: Sequence[InputFiles], ports: Ports) -> None:
    """Raise InputError for a file that no sensor takes: otherwise a wrong folder would go unnoticed."""
    used = {path for one in found for path, _ in one.places}
    unused = next((path for path in files if path not in used), None)
    if unused is None:
        return
    known = ", ".join(f"{name} {kind.dtype} {list(kind.shape)}" for name, kind in ports.items()) or "none"
    if unused.suffix.lower() not in IMAGES:
        raise InputError(f"{unused}: no sensor of this pipeline takes it", f"ports that sensors feed: {known}")
    raise InputError(
        f"{unused}: no sensor of this pipeline takes an image without preprocessing; ports that sensors feed: {known}",
        "its scaling and normalisation are not known: put a stage with model camera.preprocess before the network, or "
        f"give {ARRAYS} files with an array of the port's name",
    )


def _kinds(ports: Ports) -> tuple[str, ...]:
    """Return the kinds of recorded messages that ports take."""
    if set(ports) == {POINTS}:
        return (CLOUD,)
    return (IMAGE, COMPRESSED) if _takes_images(ports) else ()


def _takes_images(ports: Ports) -> bool:
    kind = next(iter(ports.values()), None)
    return len(ports) == 1 and kind is not None and kind.dtype == "uint8" and kind.shape[:2] == (1, 3)


def _image(path: Path) -> Any:
    """Return an image as uint8 [1, 3, H, W], RGB."""
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        with open_file(path, "image", "write it again as PNG") as file, Image.open(file) as image:
            if 3 * image.width * image.height > LARGEST:
                raise InputError(f"{path}: {image.width} x {image.height} pixels are too many", "scale it down first")
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: not a readable image: {error}", "write it again as PNG") from None
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def _rows(path: Path, ports: Ports, least: Mapping[str, tuple[int, ...]]) -> int:
    """Return the number of frames an .npz has for `ports`, 0 if it names none of them; only headers are read."""
    headers = read_shapes(path, *_ARRAYS, LARGEST)
    counts = {}
    for name, kind in ports.items():
        if name not in headers:
            continue
        shape, dtype = headers[name]
        expected = tuple(kind.shape)
        low = least.get(name, expected)
        inner = all(a <= size <= b for a, size, b in zip(low[1:], shape[1:], expected[1:], strict=False))
        fits = low[:1] == expected[:1] or shape[:1] <= expected[:1] or shape[0] % expected[0] == 0
        one = len(shape) == len(expected) and inner and fits
        free = name == POINTS or (kind.dtype == "uint8" and len(kind.shape) == 4)  # scaled to the network's size
        sized = len(shape) == len(expected) and shape[1] == expected[1] if free and shape else False
        if dtype != _KINDS.get(kind.dtype) or not (one or sized) or 0 in shape:
            raise InputError(
                f"{path}: {name}: {dtype} {list(shape)}, expected {_KINDS.get(kind.dtype)} {list(expected)}",
                "the first size may be the number of frames",
            )
        counts[name] = 1 if name == POINTS else max(shape[0] // max(expected[0], 1), 1 if name in least else 0)
    if not counts:
        return 0
    if set(counts) != set(ports) or len(set(counts.values())) > 1:
        counted = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(f"{path}: frames of the ports: {counted}", f"expected as many of each of {', '.join(ports)}")
    return next(iter(counts.values()))


def _arrays(path: Path, ports: Ports, row: int, least: Mapping[str, tuple[int, ...]], filled: bool) -> dict[str, Any]:
    """Return frame `row` of an .npz whose headers have been checked."""
    import numpy as np

    arrays = read_npz(path, *_ARRAYS, ports, LARGEST)
    if missing := ports.keys() - arrays.keys():
        raise InputError(f"{path}: {', '.join(sorted(missing))} is no longer in it", "do not change it during the run")
    found = {}
    for name, array in arrays.items():
        size = len(array) if name == POINTS else ports[name].shape[0]
        found[name] = np.ascontiguousarray(array[row * size : (row + 1) * size])
        if array.dtype.kind == "f" and not np.isfinite(found[name]).all():
            raise InputError(f"{path}: {name}: frame {row} holds NaN or infinite values", "record it again")
        if name in least and filled:
            sizes = zip(ports[name].shape, found[name].shape, strict=True)
            found[name] = np.pad(found[name], [(0, most - size) for most, size in sizes])
    return found
