"""Decoders on GPUs: anchor heads, centre heads and the camera's detector, and what they share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from socsched.compiler.targets.gpu_functions.program import FunctionRequest, Program, map_defines
from socsched.errors import CompileError
from socsched.models import camera
from socsched.models.camera_decode import SIZES, mapping
from socsched.models.centerpoint.decode import HEADING_NORM, SEARCH_M
from socsched.models.centerpoint.network import CLASSES as CENTRE_CLASSES
from socsched.models.elementary import length_of, logit, sigmoid
from socsched.models.pointpillars.boxes import CLASSES, PER_CELL, anchor_tables, map_shape

BINS, BIN_SHIFT = 4096, 20
ROOM = 2048
"""Candidates that fit into a group's local memory."""
SATURATED = np.float32(20)
"""Up to this logit different float32 logits have different scores in double precision (`models.elementary`)."""
_CERTAIN = 37.0
"""Above this logit every score is 1."""
PI: dict[str, object] = {"PI": math.pi, "HALF_PI": math.pi / 2, "PI_FLOAT": np.float32(np.pi)}


def threshold(score: float) -> Any:
    """Return the largest float32 logit whose score in double precision is not above `score`.

    The sigmoid is monotone: comparing logits with this value selects exactly what comparing scores selects.
    """
    low, high = np.float32(-800), np.float32(_CERTAIN)
    if score >= 1:
        return np.float32(np.inf)
    while (middle := np.float32((float(low) + float(high)) / 2)) not in (low, high):
        low, high = (middle, high) if sigmoid(np.array([middle], np.float32))[0] <= score else (low, middle)
    return low


def check_candidates(stage: str, candidates: int) -> None:
    """Raise CompileError if a decoder considers more candidates than a group can sort."""
    if candidates > ROOM:
        raise CompileError(
            f"{stage}: {candidates} candidates, the GPU's decoder takes {ROOM}",
            "give fewer `candidates`, or place the stage on a processor",
        )


def top_defines(anchors: int, candidates: int) -> dict[str, object]:
    """Return the sizes of the selection and of the suppression."""
    sizes: dict[str, object] = {"ANCHORS": anchors, "CANDIDATES": candidates, "WORDS": -(-candidates // 32)}
    return {**sizes, "BINS": BINS, "BIN_SHIFT": BIN_SHIFT, "ROOM": ROOM, "SATURATED": SATURATED}


def top_candidates(
    program: Program, anchors: int, candidates: int, score: Any, select_items: int
) -> tuple[int, int, int]:
    """Add the selection of the best anchors; `score(keys, histogram, broken)` adds the kernel that values them.

    Returns the buffers of the chosen anchors, of their number, and of the number of anchors that are not finite.
    """
    keys, histogram = program.scratch("keys", "uint32", anchors), program.scratch("histogram", "int32", BINS)
    listed, broken = program.scratch("listed", "int32", 1), program.scratch("broken", "int32", 1)
    items, chosen = program.scratch("list", "uint64", anchors), program.scratch("chosen", "int32", candidates)
    number = program.scratch("candidates", "int32", 1)
    program.launch("top_clear", BINS, histogram, listed, broken)
    score(keys, histogram, broken)
    groups = min(256, -(-anchors // program.items))
    program.launch("top_gather", groups, keys, histogram, listed, items, grouped=True)
    program.launch("top_select", 1, items, listed, chosen, number, items=select_items, grouped=True)
    return chosen, number, broken


def decode_anchors(asked: FunctionRequest) -> Program:
    """Return the program of an anchor decoder: class logits, offsets and directions in; boxes, scores, labels out.

    Outputs have `max_boxes` rows, best first; rows past the last box have label -1 and zeros.
    """
    settings = asked.keywords()["settings"]
    rows, columns = map_shape(settings.grid)
    anchors, most = rows * columns * PER_CELL, min(settings.candidates, rows * columns * PER_CELL)
    check_candidates(asked.model.name, most)
    maps = [asked.image(port.type) for port in asked.model.inputs]
    defines = {
        **top_defines(anchors, most),
        **PI,
        **map_defines(maps[0]),
        "KINDS": PER_CELL,
        "CLASSES": len(CLASSES),
        "ROWS": rows,
        "COLUMNS": columns,
        "MAP_CELLS": rows * columns,
        "MAX_BOXES": settings.max_boxes,
        "FLOOR": np.float32(logit(settings.score) - 1e-3),
        "THRESHOLD": threshold(settings.score),
        "MOST_IOU": float(settings.iou),
        "TURN": np.float32(settings.turn),
    }
    parts = ("elementary.h", "top.c", "rotated.h", "suppress.c", "anchor_decode.c")
    program = Program(asked.model.name, parts, defines, asked.items)
    ports = zip(asked.model.inputs, maps, strict=True)
    cls, reg, direction = (program.input(port.name, tensor) for port, tensor in ports)
    boxes, scores, labels = (program.output(port.name, port.type) for port in asked.model.outputs)
    table = program.constant("anchors", _anchors(settings))
    items = min(asked.most_items, 1024)

    def score(keys: int, histogram: int, broken: int) -> None:
        program.launch("anchor_score", anchors, cls, keys, histogram, broken)

    chosen, number, broken = top_candidates(program, anchors, most, score, items)
    found, prints = program.scratch("found", "float32", most, 7), program.scratch("footprints", "real", most, 7)
    logits = program.scratch("logits", "float32", most, len(CLASSES))
    usable, words = program.scratch("usable", "int32", most), -(-most // 32)
    excludes = program.scratch("excludes", "uint32", most, words)
    kept = program.scratch("kept", "int32", len(CLASSES), settings.max_boxes)
    kept_count = program.scratch("kept_count", "int32", len(CLASSES))
    candidates = (found, prints, logits, usable, broken)
    program.launch("anchor_boxes", most, cls, reg, direction, table, chosen, number, *candidates, items=32)
    program.launch("anchor_overlaps", most * words, prints, number, excludes, items=32, grouped=True)
    lists = (logits, usable, number, excludes, kept, kept_count)
    program.launch("anchor_suppress", len(CLASSES), *lists, items=min(128, asked.most_items), grouped=True)
    best = (found, logits, kept, kept_count, boxes, scores, labels)
    program.launch("anchor_write", 1, *best, items=min(256, asked.most_items), grouped=True)
    return program


def _anchors(settings: object) -> np.ndarray:
    """Return the columns' x, the rows' y, and z, w, l, h, ry and the diagonal of every kind."""
    xs, ys, kinds = anchor_tables(settings.grid, settings.edges)  # type: ignore[attr-defined]
    shapes = np.column_stack([kinds[:, 2:], length_of(kinds[:, 3], kinds[:, 4])])
    return np.concatenate([xs, ys, shapes.ravel()]).astype(np.float32)


_FILL = 32


def decode_centres(asked: FunctionRequest) -> Program:
    """Return the program of a centre decoder: the head's maps in; boxes, scores, labels and velocities out.

    Outputs have `max_boxes` rows, best first; rows past the last box have label -1 and zeros.
    """
    settings = asked.keywords()["settings"]
    columns, rows, _ = settings.grid.cells
    cells, most = rows * columns, min(settings.candidates, rows * columns)
    check_candidates(asked.model.name, most)
    maps = [asked.image(port.type) for port in asked.model.inputs]
    defines = {
        **top_defines(cells, most),
        **PI,
        **map_defines(maps[0]),
        "CLASSES": len(CENTRE_CLASSES),
        "COLUMNS": columns,
        "MAX_BOXES": settings.max_boxes,
        "FILL": _FILL,
        "THRESHOLD": threshold(settings.score),
        "MOST_IOU": float(settings.iou),
        "CIRCLE_2": np.float32(settings.circle * settings.circle),
        "SEARCH_2": np.float32(SEARCH_M**2),
        "PILLAR_X": float(settings.grid.pillar[0]),
        "PILLAR_Y": float(settings.grid.pillar[1]),
        "CORNER_X": float(settings.grid.low[0]),
        "CORNER_Y": float(settings.grid.low[1]),
    }
    parts = ("elementary.h", "top.c", "rotated.h", "suppress.c", "center_decode.c")
    program = Program(asked.model.name, parts, defines, asked.items)
    ports = zip(asked.model.inputs, maps, strict=True)
    heat, reg, height, dim, rot, vel = (program.input(port.name, tensor) for port, tensor in ports)
    outputs = [program.output(port.name, port.type) for port in asked.model.outputs]
    norms = program.constant("norms", HEADING_NORM)

    def score(keys: int, histogram: int, broken: int) -> None:
        program.launch("center_score", cells, heat, rot, norms, keys, histogram, broken)

    chosen, number, broken = top_candidates(program, cells, most, score, min(asked.most_items, 1024))
    found, prints = program.scratch("found", "float32", most, 11), program.scratch("footprints", "real", most, 7)
    usable, words = program.scratch("usable", "int32", most), -(-most // 32)
    excludes = program.scratch("excludes", "uint32", most, words)
    kept, kept_count = program.scratch("kept", "int32", settings.max_boxes), program.scratch("kept_count", "int32", 1)
    clear = program.scratch("clear", "int32", settings.max_boxes)
    maps_in = (heat, reg, height, dim, rot, vel)
    program.launch("center_boxes", most, *maps_in, chosen, number, found, prints, usable, broken, items=32)
    program.launch("center_circles", most * words, found, number, excludes, items=32, grouped=True)
    program.launch("center_suppress", 1, usable, number, excludes, kept, kept_count, grouped=True)
    boxes = (found, prints, kept, kept_count, clear)
    program.launch("center_clear", settings.max_boxes, *boxes, items=_FILL, grouped=True)
    program.launch("center_write", 1, found, kept, clear, *outputs, grouped=True)
    return program


def decode_image_boxes(asked: FunctionRequest) -> Program:
    """Return the program of the decoder: the detector's map in; boxes, scores and labels out.

    Outputs have `max_boxes` rows, best first; rows past the last box have label -1 and zeros.
    """
    settings = asked.keywords()["settings"]
    tensor = asked.image(asked.model.inputs[0].type)
    rows, columns = tensor.shape[2:]
    boxes, most = rows * columns * camera.ANCHORS, min(settings.candidates, rows * columns * camera.ANCHORS)
    check_candidates(asked.model.name, most)
    scale, shift = mapping(rows, columns, settings)
    defines = {
        **map_defines(tensor),
        "ANCHORS": boxes,
        "CANDIDATES": most,
        "WORDS": -(-most // 32),
        "KINDS": camera.ANCHORS,
        "CLASSES": camera.CLASSES,
        "CHANNELS": camera.OUTPUTS,
        "ROWS": rows,
        "COLUMNS": columns,
        "MAP_CELLS": rows * columns,
        "MAX_BOXES": settings.max_boxes,
        "SIZES": _reals(size for pair in SIZES for size in pair),
        "SCALE": _reals(scale),
        "SHIFT": _reals(shift),
        "LEAST_SCORE": float(settings.score),
        "MOST_IOU": float(settings.iou),
        "IMAGE_WIDTH": settings.width,
        "IMAGE_HEIGHT": settings.height,
    }
    program = Program(asked.model.name, ("elementary.h", "suppress.c", "camera_decode.c"), defines, asked.items)
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


def _reals(values: Iterable[float]) -> str:
    """Return an initialiser."""
    return ", ".join(f"(real){float(value).hex()}" for value in values)
