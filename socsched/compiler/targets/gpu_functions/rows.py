"""Artefacts of functions, whose outputs have room for the most rows there can be: which rows are in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.targets.opencl.plan_format import PLAN


def is_function(artifact: Artifact) -> bool:
    """Return whether an artefact is a function with a launch plan, as opposed to a network on CUDA."""
    return PLAN in artifact.files


def marking(outputs: Iterable[str]) -> str | None:
    """Return the output that marks the rows in use, None if every row is: counts are 0 and labels -1 in the others."""
    return next((name for name in outputs if name == "counts" or name.endswith("labels")), None)


def used_rows(name: str, marks: np.ndarray[Any, Any]) -> int:
    """Return the number of rows in use; `marks` is the content of the marking output `name`."""
    return int(np.count_nonzero(marks > 0 if name == "counts" else marks >= 0))


def valid_rows(found: Mapping[str, np.ndarray[Any, Any]]) -> int | None:
    """Return the number of rows in use among a function's outputs, None if every row is."""
    name = marking(found)
    return None if name is None else used_rows(name, found[name])
