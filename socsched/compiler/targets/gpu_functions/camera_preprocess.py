"""Camera images straight into a network's first tensor: device implementation "camera-preprocess"."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from socsched.compiler.targets.gpu_functions.program import Program, map_defines
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.graph.operators import TensorType
from socsched.models import camera_image as image

_FORMATS = ("rgb", "bgr", "nv12")
"""The kernel's numbers of formats."""


def build(asked: Request) -> Program:
    """Return the program of a preprocessing model: a uint8 image in, the network's input out.

    Resizing, colour conversion, normalisation, layout and data type are one kernel.  A model with a layout or precision
    of its own keeps it; others give the engine's.
    """
    target: image.Target = asked.keywords()["target"]
    source = asked.model.inputs[0].type
    height, width = _size(source, target.format)
    top, left, inner_height, inner_width = target.rectangle(height, width)
    output, lying = _output(asked, target)
    tables = [image.taps(height, inner_height), image.taps(width, inner_width)]
    defines: dict[str, object] = {
        **map_defines(lying),
        "FORMAT": _FORMATS.index(target.format),
        "HEIGHT": height,
        "WIDTH": width,
        "INPUT_HEIGHT": target.height,
        "INPUT_WIDTH": target.width,
        "TOP": top,
        "LEFT": left,
        "INNER_HEIGHT": inner_height,
        "INNER_WIDTH": inner_width,
        "PADDING": _list(image.PADDING),
        "GAIN": _list(image.GAIN),
        "BIAS": _list(image.BIAS),
        **{name: getattr(image, name) for name in ("LUMA", "RED_V", "BLUE_U", "GREEN_U", "GREEN_V")},
    }
    program = Program(asked.model.name, ("camera_preprocess.c",), defines, asked.items)
    given = program.input(asked.model.inputs[0].name, source)
    taps = np.concatenate([np.stack(table[:2], 1) for table in tables])
    tap_table = program.constant("taps", taps.astype(np.int32))
    weight_table = program.constant("weights", np.concatenate([table[2] for table in tables]))
    made = program.output(asked.model.outputs[0].name, output)
    program.launch("camera_input", target.height * target.width, given, tap_table, weight_table, made)
    return program


def _size(source: TensorType, form: str) -> tuple[int, int]:
    """Return height and width of an image of a format (`camera_image.FORMATS`)."""
    shape = source.shape
    if form == "nv12":
        return shape[0] // 3 * 2, shape[1]
    return (shape[2], shape[3]) if len(shape) == 4 else (shape[0], shape[1])


def _output(asked: Request, target: image.Target) -> tuple[TensorType, TensorType]:
    """Return the output's type, and the image as which the kernel writes it."""
    declared = asked.model.outputs[0].type
    if target.layout == "NHWC":
        return declared, TensorType(declared.shape, declared.dtype, "NHWC")
    lying = asked.image(declared)
    return lying, lying


def _list(values: Iterable[np.floating]) -> str:
    """Return an initialiser of floats."""
    return ", ".join(f"{float(value).hex()}f" for value in values)
