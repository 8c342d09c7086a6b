"""A network compiled by its vendor's compiler, from the cache if the same was compiled before."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.cache import cache_dir, private
from socsched.compiler.store import digest, publish, scratch
from socsched.compiler.vendor_compilers.environments import environment, identity
from socsched.compiler.vendor_compilers.helper import Helper, Refused
from socsched.compiler.vendor_compilers.qdq import quantised
from socsched.compiler.vendor_packages.package import MODEL, Compiler, Package
from socsched.errors import CompileError, MachineError
from socsched.files import file_digest

RECORD = "built.json"


@dataclass(frozen=True, slots=True)
class Built:
    """What a compiler made: `files` with their sha256 in `folder`, its `versions`, and how long it took.

    `layers` is the compiler's own table of layers with the cycles that it expects, empty for compilers without one.
    """

    folder: Path
    files: Mapping[str, str]
    versions: Mapping[str, str]
    target: Mapping[str, Any]
    seconds: float
    layers: tuple[Mapping[str, Any], ...]

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum((self.folder / name).stat().st_size for name in self.files)


def model_for(compiler: Compiler, package: Package, model: Any) -> bytes:
    """Return the ONNX file to compile: `model` in fp32, with Q/DQ of the package's scales in int8."""
    if package.precision == "int8":
        model = quantised(model, package.exact, compiler.unsigned)
    data: bytes = model.SerializeToString()
    return data


def build(compiler: Compiler, package: Package, model: bytes) -> Built:
    """Return `model` compiled for the package's engine.

    Raises UsageError for an engine that the compiler does not know, MachineError if its environment is missing or
    fails, and CompileError with the compiler's reason if it refuses the model.
    """
    made_by, target = environment(compiler.environment), dict(compiler.target(package.engine))
    made_by.require()
    key = digest("vendor", identity(made_by), hashlib.sha256(model).hexdigest(), target)
    parent = private(cache_dir() / "vendors")
    found = _recalled(parent / key)
    if found is not None:
        return found
    with scratch(parent) as folder, Helper(made_by) as helper:
        (helper.folder / MODEL).write_bytes(model)
        try:
            answer = helper.ask("compile", model=MODEL, target=target)
        except Refused as error:
            raise CompileError(
                f"stage {package.stage!r} for {package.engine.id} in {package.precision}: {error}",
                "place the stage on another engine, or compile a part of it (--part)",
            ) from None
        made = folder / key
        made.mkdir(mode=0o700)
        files = {}
        for name in answer["files"]:
            if Path(name).name != name:
                raise MachineError(f"{made_by.title} wrote a file outside of its folder", made_by.command)
            shutil.copyfile(helper.folder / name, made / name)
            files[name] = file_digest(made / name)
        record = {"files": files, "versions": helper.versions, "target": target, "seconds": answer["seconds"]}
        record["layers"] = answer.get("layers", [])
        (made / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
        publish(made, parent / key, lambda folder: _recalled(folder) is not None)
    found = _recalled(parent / key)
    if found is None:
        raise MachineError(f"{parent / key}: the compiled model cannot be read back", "set SOCSCHED_CACHE")
    return found


def _recalled(folder: Path) -> Built | None:
    """Return a cached result, None if it is absent or damaged."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if any(file_digest(folder / name) != known for name, known in record["files"].items()):
            return None
        return Built(
            folder,
            record["files"],
            record["versions"],
            record["target"],
            record["seconds"],
            tuple(record["layers"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
