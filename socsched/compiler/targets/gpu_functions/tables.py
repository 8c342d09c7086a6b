"""Thresholds and shared parts of the decoders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from socsched.compiler.targets.gpu_functions.program import Program
from socsched.errors import CompileError
from socsched.models.elementary import sigmoid

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
