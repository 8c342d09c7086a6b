"""Camera frames straight into a network's first tensor: device implementation "camera-preprocess"."""

from __future__ import annotations

import numpy as np

from socsched.compiler.targets.gpu_functions.program import Program, map_defines
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.graph.operators import TensorType
from socsched.models.camera import MEAN, STD
from socsched.models.camera_frames import FRAMES, PADDING, frame_taps


def build(asked: Request) -> Program:
    """Return the program of a preprocessing model: a uint8 frame in, the network's input out.

    Colour conversion, resizing, normalisation, layout and data type are one kernel.
    """
    bound = asked.keywords()
    height, width, frame, fit = (bound[name] for name in ("height", "width", "colour", "fit"))
    source = asked.model.inputs[0].type
    size = bound["source"]
    target = asked.image(TensorType(asked.model.outputs[0].type.shape, "fp32", "NCHW"))
    taps, weights = [], []
    for first, second, weight in frame_taps(size, (height, width), fit):
        taps.append(np.stack([first, second], 1))
        weights.append(weight)
    scale, offset = 1 / (255 * STD), MEAN / STD
    defines = {
        **map_defines(target),
        "FORMAT": FRAMES.index(frame),
        "HEIGHT": size[0],
        "WIDTH": size[1],
        "INPUT_HEIGHT": height,
        "INPUT_WIDTH": width,
        "CHANNELS": 3,
        "PADDING": np.float32(PADDING),
        "SCALE": ", ".join(f"{float(value).hex()}f" for value in scale.astype(np.float32)),
        "OFFSET": ", ".join(f"{float(value).hex()}f" for value in offset.astype(np.float32)),
    }
    program = Program(asked.model.name, ("camera_preprocess.c",), defines, asked.items)
    image = program.input(asked.model.inputs[0].name, source)
    tap_table = program.constant("taps", np.concatenate(taps).astype(np.int32))
    weight_table = program.constant("weights", np.concatenate(weights).astype(np.float32))
    output = program.output(asked.model.outputs[0].name, target)
    program.launch("camera_input", height * width, image, tap_table, weight_table, output)
    return program
