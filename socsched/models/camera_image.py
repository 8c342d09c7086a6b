"""Camera images as a network's input: colours, size, normalisation, layout and precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.errors import InputError
from socsched.models.host import CompiledStages

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
"""Channel statistics (RGB, 0..1) of ImageNet, with which published ResNet weights are trained."""
FORMATS = ("rgb", "bgr", "nv12")
FITS = ("stretch", "letterbox")
PRECISIONS = {"fp32": np.float32, "fp16": np.float16}
LAYOUTS = ("NCHW", "NHWC")
GREY = 114
"""Value of the padding around a letterboxed image, as YOLO's networks are trained with (ultralytics/yolov5,
utils/augmentations.py)."""
GAIN, BIAS = 1 / (255 * STD), MEAN / STD
"""A pixel's value is value * GAIN - BIAS."""
PADDING = np.float32(GREY) * GAIN - BIAS

_RED, _BLUE = 0.299, 0.114
_GREEN = 1 - _RED - _BLUE
LUMA = np.float32(255 / 219)
RED_V, BLUE_U = (np.float32(2 * (1 - share) * 255 / 224) for share in (_RED, _BLUE))
GREEN_U, GREEN_V = (np.float32(-2 * share * (1 - share) / _GREEN * 255 / 224) for share in (_BLUE, _RED))
"""R'G'B' of Y'CbCr with footroom 16 and chroma about 128 (ITU-R BT.601-7, sections 2.5.1 to 2.5.3)."""

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Target:
    """What a network takes: `height` and `width`, and where the image comes from and goes to.

    `format` is the image's, one of FORMATS; `fit`, one of FITS, is "letterbox" to keep its aspect ratio; `precision` is
    one of PRECISIONS and `layout` one of LAYOUTS.
    """

    height: int
    width: int
    format: str = "rgb"
    fit: str = "stretch"
    precision: str = "fp32"
    layout: str = "NCHW"

    def rectangle(self, rows: int, columns: int) -> tuple[int, int, int, int]:
        """Return top, left, height and width of the rectangle that an image of `rows` x `columns` fills."""
        if self.fit == "stretch":
            return 0, 0, self.height, self.width
        scale = min(self.height / rows, self.width / columns)
        height, width = (max(1, round(side * scale)) for side in (rows, columns))
        return (self.height - height) // 2, (self.width - width) // 2, height, width


def prepare(image: Image, target: Target, compiled: CompiledStages | None = None) -> npt.NDArray[Any]:
    """Return `image` as `target` asks, [1, 3, H, W] or [1, H, W, 3]: resized bilinearly, pixel centres at half
    integers, and normalised.

    NV12 is [H * 3 / 2, W], H and W even: its chroma is that of each block of 2 x 2 pixels, all channels are resized and
    then converted.  Other images are [1, 3, H, W] or [H, W, 3].  Raises InputError for any other array.
    """
    if compiled is not None and (found := compiled("preprocess", [image], target)) is not None:
        return found[0]  # type: ignore[no-any-return]
    planes = _yuv(image) if target.format == "nv12" else checked_planes(image)
    top, left, height, width = target.rectangle(*planes[0].shape)
    inner = np.empty((3, height, width), np.float32)
    for plane, part in zip(planes, inner, strict=True):
        _resize(plane, part)
    if target.format == "nv12":
        inner = _rgb(inner)
    elif target.format == "bgr":
        inner = inner[::-1]
    result = np.empty((1, 3, target.height, target.width), np.float32)
    result[0] = PADDING[:, None, None]
    result[0, :, top : top + height, left : left + width] = inner * GAIN[:, None, None] - BIAS[:, None, None]
    if target.layout == "NHWC":
        result = np.ascontiguousarray(result.transpose(0, 2, 3, 1))
    return result.astype(PRECISIONS[target.precision], copy=False)


def _resize(plane: Image, target: Floats) -> None:
    """Write `plane` into `target`, resized."""
    top, bottom, y = taps(plane.shape[0], target.shape[0])
    left, right, x = taps(plane.shape[1], target.shape[1])
    # Pixels are gathered as 8-bit values, so that only those needed are converted.
    target[:] = blend_columns(plane[top], left, right, x)
    below = blend_columns(plane[bottom], left, right, x)
    below -= target
    below *= y[:, None]
    target += below


def blend_columns(rows: Image, left: npt.NDArray[np.intp], right: npt.NDArray[np.intp], x: Floats) -> Floats:
    """Return rows of 8-bit pixels blended from their columns `left` and `right`, the latter with weight `x`."""
    near, far = (rows.take(columns, 1).astype(np.float32) for columns in (left, right))
    far -= near
    far *= x[None, :]
    near += far
    return near


def _rgb(yuv: Floats) -> Floats:
    """Return [3, H, W] as R, G, B from 0 to 255."""
    luma, u, v = np.maximum(yuv[0] - 16, 0) * LUMA, yuv[1] - 128, yuv[2] - 128
    rgb: Floats = np.stack([luma + v * RED_V, luma + u * GREEN_U + v * GREEN_V, luma + u * BLUE_U])
    return np.clip(rgb, 0, 255)


def planes_of(image: Image) -> Image | None:
    """Return a view [3, H, W] of an 8-bit image [1, 3, H, W] or [H, W, 3], None for any other array."""
    planes: Image | None = None
    if image.dtype == np.uint8 and image.size:
        if image.ndim == 4 and image.shape[:2] == (1, 3):
            planes = image[0]
        elif image.ndim == 3 and image.shape[2] == 3:
            planes = image.transpose(2, 0, 1)
    return planes


def is_nv12(image: Image) -> bool:
    """Return whether an array can be an NV12 image."""
    shaped = image.ndim == 2 and image.size > 0 and image.shape[0] % 3 == 0 and image.shape[1] % 2 == 0
    return image.dtype == np.uint8 and shaped


def checked_planes(image: Image) -> Image:
    """Return an 8-bit image as [3, H, W]; InputError for any other array."""
    planes = planes_of(image)
    if planes is None:
        raise InputError(
            f"image: expected uint8 [1, 3, H, W] or [H, W, 3], got {image.dtype} {list(image.shape)}",
            "decode the frame to 8-bit RGB first",
        )
    return planes


def _yuv(image: Image) -> list[Image]:
    if not is_nv12(image):
        raise InputError(
            f"image: expected NV12, uint8 [H * 3 / 2, W] with H and W even, got {image.dtype} {list(image.shape)}",
            "give the luma plane followed by the plane of interleaved chroma, without padding between rows",
        )
    height = image.shape[0] // 3 * 2
    chroma = image[height:].reshape(height // 2, -1, 2).repeat(2, 0).repeat(2, 1)
    return [image[:height], chroma[..., 0], chroma[..., 1]]


def taps(source: int, target: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    """Return the indices of both neighbours of every target pixel, and the weight of the second."""
    centre = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    first = np.floor(centre).astype(np.intp)
    return first, np.minimum(first + 1, source - 1), (centre - first).astype(np.float32)
