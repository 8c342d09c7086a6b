"""Host stages compiled from stages/*.c, called in this process, and how a model's function calls one."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.native.compilers import SOURCES, build_shared_object
from socsched.graph.operators import TensorType
from socsched.models import camera_decode, camera_image
from socsched.models.camera import CLASSES, OUTPUTS
from socsched.models.centerpoint import decode as centres
from socsched.models.centerpoint.network import MAPS
from socsched.models.elementary import logit
from socsched.models.host import CompiledStages, aligned
from socsched.models.model import Model
from socsched.models.pointpillars import boxes
from socsched.models.pointpillars.decode import Settings as AnchorSettings
from socsched.models.pointpillars.grid import Grid

# Calls of the compiled host stages: params as stages/stages.h declares them, which is read here, and results.

LARGEST = 2**31 - 1
FORMATS = {"rgb": 0, "bgr": 1, "planar": 2, "nv12": 3}
MARGIN = 1e-3
"""Logits this much below a score's are not considered, as in the decoders."""
Array = npt.NDArray[Any]


def _declared() -> dict[str, Any]:
    """Return the params that the header declares, by the name of their kind."""
    text = re.sub(r"/\*.*?\*/", "", Path(__file__).with_name("stages").joinpath("stages.h").read_text(), flags=re.S)
    sizes = {name: int(size) for name, size in re.findall(r"(\w+) = (\d+)", text)}
    kinds: Mapping[str, Any] = {"float": ctypes.c_float, "double": ctypes.c_double, "int32_t": ctypes.c_int32}
    found = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} socsched_(\w+)_params;", text, re.S):
        fields = []
        for kind, names in re.findall(r"(\w+) ([^;]+);", body):
            for field, sides in re.findall(r"(\w+)((?:\[\w+\])*)", names):
                whole = kinds[kind]
                for side in reversed(re.findall(r"\w+", sides)):
                    whole *= sizes[side] if side in sizes else int(side)
                fields.append((field, whole))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


PARAMS = _declared()


@dataclass(frozen=True, slots=True)
class StageCall:
    """A call of `function`: its params, and its results, each a data type and a shape.

    Where their number of rows is found by the call, `rows` is the most, for any inputs; shapes have the most for these
    inputs.  0: they have their shape.  `inner` and `last` are its further arguments after the inputs and the results;
    of decoders the last is filled with the number of values that are not finite.
    """

    function: str
    params: ctypes.Structure
    results: Sequence[tuple[Any, tuple[int, ...]]]
    rows: int
    inner: Sequence[Any] = ()
    last: Sequence[Any] = ()


def _decoder(function: str, params: Any, most: int, rows: int, *columns: int) -> StageCall:
    """Return a call for boxes, scores, labels and further outputs, of `columns` values each."""
    boxes_of, *others = ((np.float32, (most, width)) for width in columns)
    results = (boxes_of, (np.float32, (most,)), (np.int32, (most,)), *others)
    return StageCall(function, params, results, rows, (), (ctypes.byref(dropped := ctypes.c_int64()), dropped))


def _voxelise(
    arrays: Sequence[Array], max_pillars: int, max_points: int, grid: Grid, clear_fourth: bool = False
) -> StageCall | None:
    """Return the call for voxels, counts and coords of points[N, 4]; None unless they are float32 and C-contiguous."""
    (points,) = arrays
    if points.dtype != np.float32 or not points.flags.c_contiguous or points.shape[1:] != (4,):
        return None
    rows = min(max_pillars, grid.cells[0] * grid.cells[1])
    most = min(rows, len(points))
    results = ((np.float32, (most, max_points, 4)), (np.int32, (most,)), (np.int32, (most, 2)))
    params = voxelise(grid, max_pillars, max_points, clear_fourth)
    return StageCall("voxelise", params, results, rows, (ctypes.c_int64(len(points)),))


def _decode_anchors(arrays: Sequence[Array], settings: AnchorSettings) -> StageCall | None:
    """Return the call for maps of logits, offsets and directions [kinds, values, cells]."""
    rows, columns = boxes.map_shape(settings.grid)
    if [array.shape for array in arrays] != [(boxes.PER_CELL, values, rows * columns) for values in (3, 7, 2)]:
        return None
    most = min(settings.max_boxes, 3 * settings.candidates, 3 * boxes.PER_CELL * rows * columns)
    return _decoder("decode_anchors", decode_anchors(settings), most, settings.max_boxes, 7)


def _decode_centres(arrays: Sequence[Array], settings: centres.Settings) -> StageCall | None:
    """Return the call for the head's six maps [channels, cells]."""
    cells = settings.grid.cells[0] * settings.grid.cells[1]
    if [array.shape for array in arrays] != [(channels, cells) for _, channels in MAPS]:
        return None
    most = min(settings.max_boxes, settings.candidates, cells)
    return _decoder("decode_centres", decode_centres(settings), most, settings.max_boxes, 7, 2)


def _decode_image_boxes(arrays: Sequence[Array], settings: camera_decode.Settings) -> StageCall | None:
    """Return the call for a map [40, rows, columns] in float32."""
    (output,) = arrays
    rows, columns = output.shape[-2:]
    if output.dtype != np.float32 or output.size != OUTPUTS * rows * columns:
        return None
    most = min(settings.max_boxes, settings.candidates, OUTPUTS // (5 + CLASSES) * rows * columns)
    params = decode_image_boxes(settings, rows, columns)
    return _decoder("decode_image_boxes", params, most, settings.max_boxes, 4)


def _preprocess(arrays: Sequence[Array], target: camera_image.Target) -> StageCall | None:
    """Return the call for the network's input; None for an image of another format, or not C-contiguous."""
    (image,) = arrays
    form = image_form(image, target) if image.flags.c_contiguous else None
    if form is None:
        return None
    shape = (1, 3, target.height, target.width) if target.layout == "NCHW" else (1, target.height, target.width, 3)
    rows = (ctypes.c_int32(0), ctypes.c_int32(target.height))
    return StageCall(
        "preprocess", preprocess(target, *form), ((camera_image.PRECISIONS[target.precision], shape),), 0, (), rows
    )


CALLS: Mapping[str, Callable[..., StageCall | None]] = {
    "voxelise": _voxelise,
    "decode_anchors": _decode_anchors,
    "decode_centres": _decode_centres,
    "decode_image_boxes": _decode_image_boxes,
    "preprocess": _preprocess,
}
"""Takes the arrays that a stage reads and what its params are made of; None where it does not take these arrays."""


@lru_cache(maxsize=32)
def voxelise(grid: Grid, max_pillars: int, max_points: int, clear_fourth: bool) -> Any:
    """Return the params of voxelising on `grid`."""
    most = min(max_pillars, LARGEST)
    return PARAMS["voxelise"](_floats(grid.low), _floats(grid.pillar), grid.cells, most, max_points, clear_fourth)


@lru_cache(maxsize=32)
def decode_anchors(settings: AnchorSettings) -> Any:
    """Return the params of decoding an anchor head's maps."""
    grid = settings.grid
    xs, ys, kinds = boxes.anchor_tables(grid, settings.edges)
    origins, steps = zip(*(boxes.spacing(grid, axis, settings.edges) for axis in range(2)), strict=True)
    return PARAMS["anchors"](
        *(settings.score, settings.iou, settings.turn, logit(settings.score) - MARGIN),
        *(origins, steps, (xs[-1], ys[-1]), tuple(map(_floats, kinds))),
        *(*boxes.map_shape(grid), min(settings.candidates, LARGEST), min(settings.max_boxes, LARGEST)),
    )


@lru_cache(maxsize=32)
def decode_centres(settings: centres.Settings) -> Any:
    """Return the params of decoding a centre head's maps."""
    grid, norms = settings.grid, _floats(centres.HEADING_NORM)
    return PARAMS["centres"](
        *(settings.score, settings.circle, settings.iou, centres.SEARCH_M, logit(settings.score) - MARGIN),
        *(tuple(grid.low[:2]), tuple(grid.pillar[:2]), norms, len(norms), grid.cells[1], grid.cells[0]),
        *(min(settings.candidates, LARGEST), min(settings.max_boxes, LARGEST)),
    )


@lru_cache(maxsize=32)
def decode_image_boxes(settings: camera_decode.Settings, rows: int, columns: int) -> Any:
    """Return the params of decoding the camera detector's map of `rows` x `columns` cells."""
    scale, shift = camera_decode.mapping(rows, columns, settings)
    return PARAMS["image_boxes"](
        *(settings.score, settings.iou, logit(settings.score) - MARGIN, tuple(map(_floats, camera_decode.SIZES))),
        *(scale, shift, (settings.width, settings.height), rows, columns),
        *(min(settings.candidates, LARGEST), min(settings.max_boxes, LARGEST)),
    )


def image_form(image: Any, target: camera_image.Target) -> tuple[str, int, int] | None:
    """Return the memory format of an image, its height and width; None for one that is not of the target's format."""
    if target.format == "nv12":
        return ("nv12", image.shape[0] // 3 * 2, image.shape[1]) if camera_image.is_nv12(image) else None
    planes = camera_image.planes_of(image)
    if planes is None or (image.ndim == 4 and target.format == "bgr"):
        return None
    return ("planar" if image.ndim == 4 else target.format, *planes.shape[1:])


@lru_cache(maxsize=32)
def preprocess(target: camera_image.Target, form: str, height: int, width: int) -> Any:
    """Return the params of preparing an image of `height` x `width` in memory format `form`, one of FORMATS."""
    image = camera_image
    return PARAMS["preprocess"](
        *(FORMATS[form], height, width, target.height, target.width, *target.rectangle(height, width)),
        *(target.precision == "fp16", target.layout == "NHWC"),
        *(_floats(values) for values in (image.GAIN, image.BIAS, image.PADDING)),
        *_floats((image.LUMA, image.RED_V, image.GREEN_U, image.GREEN_V, image.BLUE_U)),
    )


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))


_ROOM = 1 << 20
"""Granularity in bytes of the memory kept for results."""


@cache
def compiled_stages() -> CompiledStages | None:
    """Return the stages compiled for this machine, None if that is not possible."""
    found = build_shared_object(*SOURCES)
    return None if found is None else NativeStages(found)


class NativeStages:
    """Stages in C (`models.host.CompiledStages`); every thread has its own workspace.

    Memory for results is recycled: it is reused when no array refers to it any longer.
    """

    def __init__(self, code: ctypes.CDLL) -> None:
        self._free: dict[int, list[Any]] = {}
        self._local = threading.local()
        self._stages = {name: getattr(code, f"socsched_{name}") for name in CALLS}
        self._sizes = {name: getattr(code, f"socsched_{name}_workspace") for name in CALLS}
        for name in CALLS:
            self._stages[name].restype, self._sizes[name].restype = ctypes.c_int64, ctypes.c_size_t

    def __call__(self, name: str, arrays: Sequence[Any], *settings: Any) -> tuple[Any, ...] | None:
        """Return the results of a stage; None for arrays or settings that it does not take."""
        call = CALLS[name](arrays, *settings)
        size = self._sizes[name](ctypes.byref(call.params)) if call else 0
        if call is None or not size:
            return None
        results = [self._lent(shape, dtype) for dtype, shape in call.results]
        last, dropped = (call.last[:1], call.last[1:]) if call.rows else (call.last, ())
        given = [np.ascontiguousarray(array) for array in arrays]
        passed = (*map(_at, given), *call.inner, *map(_at, results), *last, _at(self._workspace(size)))
        count: int = self._stages[name](ctypes.byref(call.params), *passed, ctypes.c_size_t(size))
        if count < 0:
            return None
        return (*(array[:count] if call.rows else array for array in results), *(one.value for one in dropped))

    def _lent(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an aligned, uninitialised array in the recycled memory."""
        size = prod(shape) * np.dtype(dtype).itemsize
        room = -(-max(size, 1) // _ROOM) * _ROOM
        free = self._free.setdefault(room, [])
        try:
            raw = free.pop()
        except IndexError:
            raw = aligned((room,), np.uint8)
        return np.asarray(_Lent(raw, free))[:size].view(dtype).reshape(shape)

    def _workspace(self, size: int) -> Any:
        """Return memory of this thread for a stage's own use."""
        known = getattr(self._local, "workspace", None)
        if known is None or len(known) < size:
            known = self._local.workspace = aligned((size,), np.uint8)
        return known


class _Lent:
    """Memory in use by arrays; returns to `free` when the last one is gone."""

    def __init__(self, raw: Any, free: list[Any]) -> None:
        self._raw, self._free = raw, free
        self.__array_interface__ = raw.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._raw)


def _at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class _Asked(Exception):
    """Carries the call out of a model's function."""


def host_call(model: Model, inputs: Sequence[TensorType]) -> StageCall | None:
    """Return how a host function is called for inputs of these types, None if it has no compiled form for them.

    One row stands for any number of rows.
    """
    if model.function is None or not model.compiled:
        return None

    def ask(name: str, arrays: Sequence[Any], *settings: Any) -> None:
        raise _Asked(CALLS[name](arrays, *settings))

    fixed = (replace(kind, shape=tuple(max(size, 1) for size in kind.shape)) for kind in inputs)
    try:
        model.function(*(np.zeros(physical_shape(kind), NUMPY_DTYPES[kind.dtype]) for kind in fixed), compiled=ask)
    except _Asked as asked:
        found: StageCall | None = asked.args[0]
        return found
    return None
