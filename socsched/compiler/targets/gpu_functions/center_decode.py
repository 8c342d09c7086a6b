"""Decoding of centre heads on a GPU: device implementation "center-decode"."""

from __future__ import annotations

import numpy as np

from socsched.compiler.targets.gpu_functions import tables
from socsched.compiler.targets.gpu_functions.program import Program, map_defines
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.models.centerpoint.decode import HEADING_NORM, SEARCH_M
from socsched.models.centerpoint.network import CLASSES

_FILL = 32


def build(asked: Request) -> Program:
    """Return the program of a centre decoder: the head's maps in; boxes, scores, labels and velocities out.

    Outputs have `max_boxes` rows, best first; rows past the last box have label -1 and zeros.
    """
    settings = asked.keywords()["settings"]
    columns, rows, _ = settings.grid.cells
    cells, most = rows * columns, min(settings.candidates, rows * columns)
    tables.check_candidates(asked.model.name, most)
    maps = [asked.image(port.type) for port in asked.model.inputs]
    defines = {
        **tables.top_defines(cells, most),
        **tables.PI,
        **map_defines(maps[0]),
        "CLASSES": len(CLASSES),
        "COLUMNS": columns,
        "MAX_BOXES": settings.max_boxes,
        "FILL": _FILL,
        "THRESHOLD": tables.threshold(settings.score),
        "MOST_IOU": float(settings.iou),
        "CIRCLE_2": np.float32(settings.circle * settings.circle),
        "SEARCH_2": np.float32(SEARCH_M**2),
        "PILLAR_X": float(settings.grid.pillar[0]),
        "PILLAR_Y": float(settings.grid.pillar[1]),
        "CORNER_X": float(settings.grid.low[0]),
        "CORNER_Y": float(settings.grid.low[1]),
    }
    parts = ("elementary.c", "top.c", "rotated.c", "suppress.c", "center_decode.c")
    program = Program(asked.model.name, parts, defines, asked.items)
    ports = zip(asked.model.inputs, maps, strict=True)
    heat, reg, height, dim, rot, vel = (program.input(port.name, tensor) for port, tensor in ports)
    outputs = [program.output(port.name, port.type) for port in asked.model.outputs]
    norms = program.constant("norms", HEADING_NORM)

    def score(keys: int, histogram: int, broken: int) -> None:
        program.launch("center_score", cells, heat, rot, norms, keys, histogram, broken)

    chosen, number, broken = tables.top_candidates(program, cells, most, score, min(asked.most_items, 1024))
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
