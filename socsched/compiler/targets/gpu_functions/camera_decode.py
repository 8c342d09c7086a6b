"""Decoding of the camera's detector on a GPU: device implementation "camera-decode"."""

from __future__ import annotations

from collections.abc import Iterable

from socsched.compiler.targets.gpu_functions import tables
from socsched.compiler.targets.gpu_functions.program import Program, map_defines
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.models.camera import ANCHORS, CLASSES, OUTPUTS
from socsched.models.camera_decode import SIZES, mapping


def build(asked: Request) -> Program:
    """Return the program of the decoder: the detector's map in; boxes, scores and labels out.

    Outputs have `max_boxes` rows, best first; rows past the last box have label -1 and zeros.
    """
    settings = asked.keywords()["settings"]
    tensor = asked.image(asked.model.inputs[0].type)
    rows, columns = tensor.shape[2:]
    boxes, most = rows * columns * ANCHORS, min(settings.candidates, rows * columns * ANCHORS)
    tables.check_candidates(asked.model.name, most)
    scale, shift = mapping(rows, columns, settings)
    defines = {
        **map_defines(tensor),
        "ANCHORS": boxes,
        "CANDIDATES": most,
        "WORDS": -(-most // 32),
        "KINDS": ANCHORS,
        "CLASSES": CLASSES,
        "CHANNELS": OUTPUTS,
        "ROWS": rows,
        "COLUMNS": columns,
        "MAP_CELLS": rows * columns,
        "MAX_BOXES": settings.max_boxes,
        "SIZES": _list(size for pair in SIZES for size in pair),
        "SCALE": _list(scale),
        "SHIFT": _list(shift),
        "LEAST_SCORE": float(settings.score),
        "MOST_IOU": float(settings.iou),
        "IMAGE_WIDTH": settings.width,
        "IMAGE_HEIGHT": settings.height,
    }
    program = Program(asked.model.name, ("elementary.c", "suppress.c", "camera_decode.c"), defines, asked.items)
    source = program.input(asked.model.inputs[0].name, tensor)
    outputs = [program.output(port.name, port.type) for port in asked.model.outputs]
    scores, labels = program.scratch("scores", "real", boxes), program.scratch("labels", "int32", boxes)
    chosen, number = program.scratch("chosen", "int32", most), program.scratch("candidates", "int32", 1)
    found, words = program.scratch("found", "float32", most, 4), -(-most // 32)
    excludes = program.scratch("excludes", "uint32", most, words)
    kept = program.scratch("kept", "int32", settings.max_boxes)
    program.launch("camera_clear", 1, number, grouped=True)
    program.launch("camera_score", boxes, source, scores, labels)
    program.launch("camera_rank", boxes, scores, chosen, number)
    program.launch("camera_boxes", most, source, chosen, number, found, items=32)
    program.launch("camera_overlaps", most * words, found, labels, chosen, number, excludes, items=32, grouped=True)
    last = (scores, labels, chosen, number, found, excludes, kept, *outputs)
    program.launch("camera_write", 1, *last, grouped=True)
    return program


def _list(values: Iterable[float]) -> str:
    """Return an initialiser."""
    return ", ".join(f"(real){float(value).hex()}" for value in values)
