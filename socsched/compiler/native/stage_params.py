"""The params of the compiled host stages, as stages/stages.h declares them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int32
from functools import lru_cache
from typing import Any

import numpy as np

from socsched.models import camera_decode, camera_image
from socsched.models.centerpoint import decode as centres
from socsched.models.elementary import logit
from socsched.models.pointpillars import boxes as boxes
from socsched.models.pointpillars.decode import Settings as AnchorSettings
from socsched.models.pointpillars.grid import Grid

LARGEST = 2**31 - 1
FORMATS = {"rgb": 0, "bgr": 1, "planar": 2, "nv12": 3}
MARGIN = 1e-3
"""Logits this much below a score's are not considered, as in the decoders."""


class VoxeliseParams(ctypes.Structure):
    """socsched_voxelise_params."""

    _fields_ = (
        *((name, c_float * 3) for name in ("low", "size")),
        ("cells", c_int32 * 3),
        *((name, c_int32) for name in ("max_pillars", "max_points", "clear_fourth")),
    )


class AnchorsParams(ctypes.Structure):
    """socsched_anchors_params."""

    _fields_ = (
        *((name, c_double) for name in ("score", "iou", "turn", "least_logit")),
        *((name, c_double * 2) for name in ("origin", "step")),
        ("last", c_float * 2),
        ("anchors", c_float * 7 * boxes.PER_CELL),
        *((name, c_int32) for name in ("rows", "columns", "candidates", "max_boxes")),
    )


class CentresParams(ctypes.Structure):
    """socsched_centres_params."""

    _fields_ = (
        *((name, c_double) for name in ("score", "circle", "iou", "search", "least_logit")),
        *((name, c_double * 2) for name in ("origin", "step")),
        ("least_heading", c_float * 16),
        *((name, c_int32) for name in ("classes", "rows", "columns", "candidates", "max_boxes")),
    )


class ImageBoxesParams(ctypes.Structure):
    """socsched_image_boxes_params."""

    _fields_ = (
        *((name, c_double) for name in ("score", "iou", "least_logit")),
        ("sizes", c_double * 2 * len(camera_decode.SIZES)),
        *((name, c_double * 2) for name in ("scale", "shift", "limit")),
        *((name, c_int32) for name in ("rows", "columns", "candidates", "max_boxes")),
    )


class PreprocessParams(ctypes.Structure):
    """socsched_preprocess_params."""

    _fields_ = (
        *((name, c_int32) for name in ("format", "height", "width", "output_height", "output_width")),
        *((name, c_int32) for name in ("top", "left", "fit_height", "fit_width", "half", "channels_last")),
        *((name, c_float * 3) for name in ("gain", "bias", "padding")),
        *((name, c_float) for name in ("luma", "red_v", "green_u", "green_v", "blue_u")),
    )


@lru_cache(maxsize=32)
def voxelise(grid: Grid, max_pillars: int, max_points: int, clear_fourth: bool) -> VoxeliseParams:
    """Return the params of voxelising on `grid`."""
    return VoxeliseParams(
        _floats(grid.low),
        _floats(grid.pillar),
        (c_int32 * 3)(*grid.cells),
        min(max_pillars, LARGEST),
        max_points,
        clear_fourth,
    )


@lru_cache(maxsize=32)
def decode_anchors(settings: AnchorSettings) -> AnchorsParams:
    """Return the params of decoding an anchor head's maps."""
    grid = settings.grid
    rows, columns = boxes.map_shape(grid)
    xs, ys, kinds = boxes.anchor_tables(grid, settings.edges)
    spacing = [boxes.spacing(grid, axis, settings.edges) for axis in range(2)]
    return AnchorsParams(
        settings.score,
        settings.iou,
        settings.turn,
        logit(settings.score) - MARGIN,
        (c_double * 2)(*(origin for origin, _ in spacing)),
        (c_double * 2)(*(step for _, step in spacing)),
        (c_float * 2)(xs[-1], ys[-1]),
        tuple(_floats(kind) for kind in kinds),
        rows,
        columns,
        min(settings.candidates, LARGEST),
        min(settings.max_boxes, LARGEST),
    )


@lru_cache(maxsize=32)
def decode_centres(settings: centres.Settings) -> CentresParams:
    """Return the params of decoding a centre head's maps."""
    grid = settings.grid
    headings = [*centres.HEADING_NORM.tolist(), *[0.0] * (16 - len(centres.HEADING_NORM))]
    return CentresParams(
        settings.score,
        settings.circle,
        settings.iou,
        centres.SEARCH_M,
        logit(settings.score) - MARGIN,
        (c_double * 2)(*grid.low[:2]),
        (c_double * 2)(*grid.pillar[:2]),
        (c_float * 16)(*headings),
        len(centres.HEADING_NORM),
        grid.cells[1],
        grid.cells[0],
        min(settings.candidates, LARGEST),
        min(settings.max_boxes, LARGEST),
    )


@lru_cache(maxsize=32)
def decode_image_boxes(settings: camera_decode.Settings, rows: int, columns: int) -> ImageBoxesParams:
    """Return the params of decoding the camera detector's map of `rows` x `columns` cells."""
    scale, shift = camera_decode.mapping(rows, columns, settings)
    return ImageBoxesParams(
        settings.score,
        settings.iou,
        logit(settings.score) - MARGIN,
        tuple((c_double * 2)(*size) for size in camera_decode.SIZES),
        (c_double * 2)(*scale),
        (c_double * 2)(*shift),
        (c_double * 2)(settings.width, settings.height),
        rows,
        columns,
        min(settings.candidates, LARGEST),
        min(settings.max_boxes, LARGEST),
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
def preprocess(target: camera_image.Target, form: str, height: int, width: int) -> PreprocessParams:
    """Return the params of preparing an image of `height` x `width` in memory format `form`, one of FORMATS."""
    top, left, fit_height, fit_width = target.rectangle(height, width)
    image = camera_image
    colours = [float(gain) for gain in (image.LUMA, image.RED_V, image.GREEN_U, image.GREEN_V, image.BLUE_U)]
    gains = [_floats(values) for values in (image.GAIN, image.BIAS, image.PADDING)]
    return PreprocessParams(
        FORMATS[form],
        height,
        width,
        target.height,
        target.width,
        top,
        left,
        fit_height,
        fit_width,
        target.precision == "fp16",
        target.layout == "NHWC",
        *gains,
        *colours,
    )


def _floats(values: Sequence[float] | np.ndarray[Any, Any]) -> Any:
    return (c_float * len(values))(*(float(value) for value in values))
