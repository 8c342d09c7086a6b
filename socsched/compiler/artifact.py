"""Compiled stages on disk: what they are, where they lie, under which key they are found again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.store import read_json
from socsched.files import file_digest
from socsched.graph.operators import TensorType

META = "artifact.json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stage compiled for one engine in one precision.

    `folder` holds `files` (the first is the one to load or link).  `key` is the sha256 over network, weights, target,
    versions and rule sources.  `inputs`/`outputs` say how tensors lie at the stage border (physical layout in
    `TensorType.layout`, -1 where a size varies), `input_names`/`output_names` are the model's ports.  `target` is the
    kind (llvm, cuda, opencl, hexagon, simulated), `triple` that of the code, `loadable` whether this machine can run
    it; `weights` is "seed 0" or the sha256 of the arrays; `notes` says what is missing or modelled.  `part` is empty
    for the whole network (otherwise as `graph.partition.Part` is written), `share` the units of the engine it is for,
    0 for all.  `code_inputs`/`code_outputs` say how the code wants and leaves tensors where that is not how they lie
    at the border, which is so for simulated engines.  `computes_half`: the code takes and leaves fp16 tensors; else
    fp16 is storage at the border, and the code's tensors are fp32.
    """

    stage: str
    model: str
    engine: str
    engine_kind: str
    target: str
    triple: str
    precision: str
    threads: int
    key: str
    folder: Path
    files: tuple[str, ...]
    input_names: tuple[str, ...]
    inputs: tuple[TensorType, ...]
    output_names: tuple[str, ...]
    outputs: tuple[TensorType, ...]
    weights: str
    loadable: bool
    notes: tuple[str, ...] = ()
    part: str = ""
    share: int = 0
    code_inputs: tuple[TensorType, ...] = ()
    code_outputs: tuple[TensorType, ...] = ()
    computes_half: bool = False

    @property
    def path(self) -> Path:
        """The file to load or link."""
        return self.folder / self.files[0]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a manifest, without the folder."""
        data = asdict(self)
        del data["folder"]
        return data


def from_json(data: Mapping[str, Any], folder: Path) -> Artifact:
    """Return the artefact that `Artifact.to_json` described; KeyError, TypeError or ValueError when it did not."""
    tensors = {
        side: tuple(TensorType(tuple(t["shape"]), t["dtype"], t["layout"]) for t in data[side])
        for side in ("inputs", "outputs", "code_inputs", "code_outputs")
    }
    names = {name: tuple(data[name]) for name in ("files", "input_names", "output_names", "notes")}
    return Artifact(**{**data, **tensors, **names, "folder": folder})


def find(folder: Path) -> Artifact | None:
    """Return the artefact in `folder` if it is whole: description readable, every file present with its digest."""
    data = read_json(folder / META)
    try:
        artifact = from_json(data["artifact"], folder)
        whole = all(file_digest(folder / name) == data["sha256"][name] for name in artifact.files)
    except (TypeError, KeyError, ValueError, OSError):
        return None
    return artifact if whole else None


def description(artifact: Artifact, folder: Path) -> dict[str, Any]:
    """Return what `find` expects in `META` for files that lie in `folder`."""
    return {
        "artifact": artifact.to_json(),
        "sha256": {name: file_digest(folder / name) for name in artifact.files},
    }


def weights_digest(weights: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return the sha256 over names, shapes and values."""
    total = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name], np.float32)
        total.update(repr((name, array.shape)).encode() + array.tobytes())
    return total.hexdigest()
