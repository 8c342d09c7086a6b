"""Frames of cameras: colour formats, and the sampling of a frame at the size of a network's input."""

from __future__ import annotations

from typing import Any

import numpy as np

from socsched.errors import InputError, UsageError

FRAMES = ("rgb", "rgb-pixels", "bgr", "nv12")
"""Colour formats: RGB planes [1, 3, H, W] (or pixels [H, W, 3]), RGB or BGR pixels [H, W, 3], and NV12 [H * 3 / 2, W]:
luma, then interleaved chroma at half the resolution, BT.601 in limited range (ITU-R BT.601-7, section 2.5)."""
FITS = ("stretch", "letterbox")
"""The frame fills the input, or keeps its proportions between even borders."""
PADDING = 114
"""Value of letterbox borders in all channels, as in YOLOv5 (ultralytics/yolov5, utils/augmentations.py)."""
_LUMA, _RED_V, _GREEN_U, _GREEN_V, _BLUE_U = 76309, 104597, 25675, 53279, 132201
"""BT.601's factors 1.164383, 1.596027, 0.391762, 0.812968 and 2.017232 in units of 1 / 65536."""

Array = np.ndarray[Any, Any]


def frame_shape(colour: str, height: int, width: int) -> tuple[int, ...]:
    """Return the shape of a frame of a colour format; UsageError for a format or size that does not exist."""
    if colour not in FRAMES:
        raise UsageError(f"camera: format {colour!r} is not known", f"one of {', '.join(FRAMES)}")
    if colour == "nv12" and (height % 2 or width % 2):
        raise UsageError(f"camera: NV12 frames have even sizes, got {width} x {height}")
    return {"rgb": (1, 3, height, width), "nv12": (height * 3 // 2, width)}.get(colour, (height, width, 3))


def frame_planes(image: Array, colour: str) -> Array:
    """Return the planes [3, H, W] in RGB order, uint8, of a frame; InputError if it is no frame of that format."""
    shape: tuple[int, ...] = image.shape if image.dtype == np.uint8 and image.size else ()
    planes: Array
    if colour == "nv12":
        if len(shape) != 2 or shape[0] % 3 or shape[1] % 2:
            raise InputError(f"image: expected uint8 [H * 3 / 2, W] in NV12, got {image.dtype} {list(image.shape)}")
        return _from_nv12(image)
    if colour == "rgb" and len(shape) == 4 and shape[:2] == (1, 3):
        planes = image[0]
        return planes
    if len(shape) == 3 and shape[2] == 3:
        planes = image.transpose(2, 0, 1)[:: -1 if colour == "bgr" else 1]
        return planes
    expected = "[1, 3, H, W] or [H, W, 3]" if colour == "rgb" else "[H, W, 3]"
    raise InputError(
        f"image: expected uint8 {expected}, got {image.dtype} {list(image.shape)}",
        "decode the frame to 8-bit RGB first",
    )


def _from_nv12(image: Array) -> Array:
    height = len(image) * 2 // 3
    luma = _LUMA * (image[:height].astype(np.int32) - 16)
    chroma = image[height:].reshape(height // 2, -1, 2).astype(np.int32).repeat(2, 0).repeat(2, 1) - 128
    u, v = chroma[..., 0], chroma[..., 1]
    sums = (luma + _RED_V * v, luma - _GREEN_U * u - _GREEN_V * v, luma + _BLUE_U * u)
    return np.stack([np.clip((value + 32768) >> 16, 0, 255).astype(np.uint8) for value in sums])


def inner_size(source: tuple[int, int], target: tuple[int, int], fit: str) -> tuple[int, int]:
    """Return height and width of the part of the input that the frame fills; UsageError for an unknown fit."""
    if fit not in FITS:
        raise UsageError(f"camera: fit {fit!r} is not known", f"one of {', '.join(FITS)}")
    if fit == "stretch":
        return target
    zoom = min(target[0] / source[0], target[1] / source[1])
    return max(round(source[0] * zoom), 1), max(round(source[1] * zoom), 1)


def frame_taps(source: tuple[int, int], target: tuple[int, int], fit: str) -> list[tuple[Array, Array, Array]]:
    """Return, for rows and columns of the input, both frame pixels each is blended from, and the second's weight.

    Pixel centres are at half integers.  Indices are -1 in the borders.
    """
    found = []
    for size, wanted, inner in zip(source, target, inner_size(source, target, fit), strict=True):
        centre = np.clip((np.arange(inner) + 0.5) * size / inner - 0.5, 0, size - 1)
        lower = np.floor(centre).astype(np.intp)
        first, second, weight = np.full(wanted, -1, np.intp), np.full(wanted, -1, np.intp), np.zeros(wanted, np.float32)
        start = (wanted - inner) // 2
        inside = slice(start, start + inner)
        first[inside], second[inside], weight[inside] = lower, np.minimum(lower + 1, size - 1), centre - lower
        found.append((first, second, weight))
    return found
