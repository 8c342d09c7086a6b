"""Loops of aarch64 assembly: the hot code of a kernel, for inspection and for predicting cycles."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"(\.L\w+):")
_BRANCH = re.compile(r"\s+(?:b(?:\.\w+)?|cbn?z|tbn?z)\s+(?:.*\s)?(\.L\w+)$")
_NO_INSTRUCTION = re.compile(r"\s*(\.|//|$)")


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop that mostly multiplies and adds, and what the loop around it does besides."""

    body: list[str]
    around: list[str]


def instructions(lines: list[str]) -> list[str]:
    """Return `lines` without labels, directives and comments."""
    return [line for line in lines if not _NO_INSTRUCTION.match(line) and not line.rstrip().endswith(":")]


def products(assembly: str) -> list[Loop]:
    """Return the innermost loops (from a label to a branch back to it) that mostly multiply and add."""
    lines = assembly.splitlines()
    labels: dict[str, int] = {}
    loops: list[range] = []
    for index, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = index
        branch = _BRANCH.match(line)
        if branch and branch[1] in labels:
            loops.append(range(labels[branch[1]] + 1, index))
    inner = [loop for loop in loops if not any(other != loop and other.start in loop for other in loops)]
    found = []
    for loop in inner:
        body = [lines[index] for index in loop]
        if len(body) <= 40 or sum("fmla" in line for line in body) < 0.4 * len(body):
            continue
        outside = [other for other in loops if loop.start in other and other != loop]
        parent = min(outside, key=len, default=loop)
        nested = [other for other in loops if other != parent and other.start in parent]
        own = [lines[index] for index in parent if not any(index in other for other in nested)]
        found.append(Loop(body, own))
    return found
