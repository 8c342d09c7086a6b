"""Sizes that networks' files leave open, as asked for: shapes of inputs, and symbolic dimensions with a bound.

A dimension with bounds (1..8) is planned and compiled at its upper one; frames may have less and are filled with 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from socsched.errors import UsageError
from socsched.models.onnx_import import input_sizes

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline, Stage

SIZES = ("shapes", "dims")
"""The params of a stage that set sizes."""


def sized(pipeline: Pipeline, shapes: Sequence[str] = (), dims: Sequence[str] = ()) -> Pipeline:
    """Return a pipeline with the sizes of its ONNX files set: INPUT=1x3x640x640 and NAME=8 or NAME=1..8.

    They take the place of the pipeline's own.  UsageError for other text, and for an input or a dimension that no
    network has.
    """
    if not shapes and not dims:
        return pipeline
    asked = {name: [_size(f"--shape {text}", one) for one in sizes.split("x")] for text, name, sizes in _split(shapes)}
    bounds = {name: bound for _, name, bound in _split(dims)}
    stages, used = [], set[str]()
    for stage in pipeline.stages:
        known = input_sizes(stage.params["file"]) if "file" in stage.params else {}
        symbols = {one for sizes in known.values() for one in sizes if isinstance(one, str)}
        own: dict[str, Mapping[str, Any]] = {
            "shapes": {name: sizes for name, sizes in asked.items() if name in known},
            "dims": {name: bound for name, bound in bounds.items() if name in symbols},
        }
        used.update(*own.values())
        params = {**stage.params, **{key: {**stage.params.get(key, {}), **new} for key, new in own.items() if new}}
        stages.append(replace(stage, params=params))
    for name in (*asked, *bounds):
        if name not in used:
            what = "input" if name in asked else "open dimension"
            raise UsageError(f"{pipeline.name} has no network with the {what} {name!r}", _known(pipeline.stages))
    return replace(pipeline, stages=tuple(stages))


def open_batches(pipeline: Pipeline) -> list[str]:
    """Return the inputs whose batch is left open and is therefore planned as 1, each in words."""
    from socsched.models.registry import get_model

    return [
        f"{stage.name}: the file leaves the batch of {', '.join(inputs)} open: planned with a batch of 1"
        for stage in pipeline.stages
        if "file" in stage.params and (inputs := get_model(stage.model or "", stage.params).open_batch)
    ]


def _split(texts: Sequence[str]) -> list[tuple[str, str, str]]:
    found = []
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not (equals and name and value):
            raise UsageError(f"{text}: expected NAME=SIZES", "--shape images=1x3x640x640, --dim N=1..8")
        found.append((text, name, value))
    return found


def _size(what: str, text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{what}: expected sizes with x between them, got {text!r}", "--shape images=1x3x640x640")
    return int(text)


def _known(stages: Sequence[Stage]) -> str:
    rows = [
        f"{name} [{', '.join(str(one) for one in sizes)}]"
        for stage in stages
        if "file" in stage.params
        for name, sizes in input_sizes(stage.params["file"]).items()
    ]
    return f"inputs: {'; '.join(rows)}" if rows else "it has no ONNX file"
