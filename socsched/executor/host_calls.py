"""Host stages as the native executor calls them: the function of stages.h and its params, found by asking the model."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.native import stage_params
from socsched.graph.operators import TensorType
from socsched.models.model import Model


@dataclass(frozen=True, slots=True)
class HostCall:
    """A function of stages.h with its params, and the most rows of its outputs (0: they have their nominal shape)."""

    function: str
    params: ctypes.Structure
    rows: int


class _Found(Exception):
    """Carries the call out of the model's function."""

    def __init__(self, call: HostCall) -> None:
        super().__init__()
        self.call = call


class _Asked:
    """Takes the place of compiled stages (`models.host`): keeps the call instead of computing."""

    def voxelise(
        self, points: Any, max_pillars: int, max_points: int, grid: Any, clear_fourth: bool = False
    ) -> tuple[Any, ...]:
        """Raise _Found for voxelising."""
        params = stage_params.voxelise(grid, max_pillars, max_points, clear_fourth)
        raise _Found(HostCall("voxelise", params, min(max_pillars, grid.cells[0] * grid.cells[1])))

    def decode_anchors(self, maps: Sequence[Any], settings: Any) -> tuple[Any, ...]:
        """Raise _Found for decoding an anchor head's maps."""
        raise _Found(HostCall("decode_anchors", stage_params.decode_anchors(settings), settings.max_boxes))

    def decode_centres(self, maps: Sequence[Any], settings: Any) -> tuple[Any, ...]:
        """Raise _Found for decoding a centre head's maps."""
        raise _Found(HostCall("decode_centres", stage_params.decode_centres(settings), settings.max_boxes))

    def decode_image_boxes(self, output: Any, settings: Any) -> tuple[Any, ...]:
        """Raise _Found for decoding the camera detector's map."""
        params = stage_params.decode_image_boxes(settings, *output.shape[-2:])
        raise _Found(HostCall("decode_image_boxes", params, settings.max_boxes))

    def preprocess(self, image: Any, target: Any) -> Any:
        """Raise _Found for preparing an image of this shape; None for one that is not of the target's format."""
        form = stage_params.image_form(image, target)
        if form is None:
            return None
        raise _Found(HostCall("preprocess", stage_params.preprocess(target, *form), 0))


def host_call(model: Model, inputs: Sequence[TensorType]) -> HostCall | None:
    """Return the call of a host function for inputs of these types, None if it has no compiled form."""
    if model.function is None or not model.compiled:
        return None
    arrays = [np.zeros(physical_shape(kind), NUMPY_DTYPES[kind.dtype]) for kind in inputs]
    try:
        model.function(*arrays, compiled=_Asked())
    except _Found as found:
        return found.call
    return None
