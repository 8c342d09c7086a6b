"""Compiled stages on disk: their description, location and cache key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.store import publish, read_json, require_space, scratch, write_json
from socsched.errors import MachineError
from socsched.files import file_digest
from socsched.graph.operators import TensorType

META = "artifact.json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stage compiled for one engine in one precision.

    `folder` holds `files` (the first is the one to load or link).  `key` is the sha256 over network, weights, target,
    versions and rule sources.  `inputs`/`outputs` describe the tensors at the stage border (physical layout in
    `TensorType.layout`, -1 where a size varies); `input_names`/`output_names` are the model's ports.  `target` is the
    kind (llvm, cuda, opencl, simulated), `triple` the code's target triple, `loadable` whether this machine
    can run it; `weights` is "seed 0" or the sha256 of the arrays; `notes` lists what is missing or modelled.  `part` is
    empty for the whole network (otherwise in the notation of `graph.partition.Part`); `share` is the number of engine
    units it is built for, 0 for all.  `code_inputs`/`code_outputs` give the code's own tensor layouts where these
    differ from the border's, as for simulated engines.  `computes_half`: the code takes and returns fp16 tensors;
    otherwise fp16 is storage at the border, and the code's tensors are fp32.
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
        """Return the file to load or link."""
        return self.folder / self.files[0]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a manifest, without the folder."""
        data = asdict(self)
        del data["folder"]
        return data


def from_json(data: Mapping[str, Any], folder: Path) -> Artifact:
    """Return the artefact described by `Artifact.to_json`; KeyError, TypeError or ValueError if the data is invalid."""
    tensors = {
        side: tuple(TensorType(tuple(t["shape"]), t["dtype"], t["layout"]) for t in data[side])
        for side in ("inputs", "outputs", "code_inputs", "code_outputs")
    }
    names = {name: tuple(data[name]) for name in ("files", "input_names", "output_names", "notes")}
    return Artifact(**{**data, **tensors, **names, "folder": folder})


def find(folder: Path) -> Artifact | None:
    """Return the artefact in `folder` if it is complete: description readable, every file present with its digest."""
    data = read_json(folder / META)
    try:
        artifact = from_json(data["artifact"], folder)
        whole = all(file_digest(folder / name) == data["sha256"][name] for name in artifact.files)
    except (TypeError, KeyError, ValueError, OSError):
        return None
    return artifact if whole else None


def store(folder: Path, size: int, build: Callable[[Path], Artifact]) -> Artifact:
    """Return what `build` makes of a folder, moved into the cache complete; at most `size` bytes are written.

    MachineError if it cannot be read back.
    """
    with scratch(folder.parent) as space:
        entry = space / "entry"
        entry.mkdir()
        require_space(entry, size)
        write_json(entry / META, description(build(entry), entry))
        publish(entry, folder, lambda place: find(place) is not None)
    stored = find(folder)
    if stored is None:
        raise MachineError(
            f"{folder}: the artefact just written cannot be read back", "check the disk, or set SOCSCHED_CACHE"
        )
    return stored


def description(artifact: Artifact, folder: Path) -> dict[str, Any]:
    """Return the content of `META` that `find` expects for the files in `folder`."""
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
