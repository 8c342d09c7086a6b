"""Decoding of anchor heads on a GPU: device implementation "anchor-decode"."""

from __future__ import annotations

import numpy as np

from socsched.compiler.targets.gpu_functions import tables
from socsched.compiler.targets.gpu_functions.program import Program, map_defines
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.models.elementary import length_of, logit
from socsched.models.pointpillars.boxes import CLASSES, PER_CELL, anchor_tables, map_shape


def build(asked: Request) -> Program:
    """Return the program of an anchor decoder: class logits, offsets and directions in; boxes, scores, labels out.

    Outputs have `max_boxes` rows, best first; rows past the last box have label -1 and zeros.
    """
    settings = asked.keywords()["settings"]
    rows, columns = map_shape(settings.grid)
    anchors, most = rows * columns * PER_CELL, min(settings.candidates, rows * columns * PER_CELL)
    tables.check_candidates(asked.model.name, most)
    maps = [asked.image(port.type) for port in asked.model.inputs]
    defines = {
        **tables.top_defines(anchors, most),
        **tables.PI,
        **map_defines(maps[0]),
        "KINDS": PER_CELL,
        "CLASSES": len(CLASSES),
        "ROWS": rows,
        "COLUMNS": columns,
        "MAP_CELLS": rows * columns,
        "MAX_BOXES": settings.max_boxes,
        "FLOOR": np.float32(logit(settings.score) - 1e-3),
        "THRESHOLD": tables.threshold(settings.score),
        "MOST_IOU": float(settings.iou),
        "TURN": np.float32(settings.turn),
    }
    parts = ("elementary.c", "top.c", "rotated.c", "suppress.c", "anchor_decode.c")
    program = Program(asked.model.name, parts, defines, asked.items)
    ports = zip(asked.model.inputs, maps, strict=True)
    cls, reg, direction = (program.input(port.name, tensor) for port, tensor in ports)
    boxes, scores, labels = (program.output(port.name, port.type) for port in asked.model.outputs)
    table = program.constant("anchors", _anchors(settings))
    items = min(asked.most_items, 1024)

    def score(keys: int, histogram: int, broken: int) -> None:
        program.launch("anchor_score", anchors, cls, keys, histogram, broken)

    chosen, number, broken = tables.top_candidates(program, anchors, most, score, items)
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
