"""Linking of a compiled module to a shared library, or to object files if no linker for the target is present."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.compiler.native import compilers
from socsched.compiler.native.compilers import cross_compiler
from socsched.compiler.target import Compilation, TargetSpec
from socsched.errors import CompileError, MachineError

LIBRARY = "stage.so"


def link(compilation: Compilation) -> Compilation:
    """Write the library, or the object files where no linker for the target is present."""
    files, notes = write_library(compilation.executable, compilation.asked.folder, compilation.asked.spec)
    return replace(compilation, files=files, notes=(*notes, *compilation.notes))


def write_library(executable: Any, folder: Path, spec: TargetSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write stage.so into `folder` (or its object files when the cross linker is missing); return (files, notes)."""
    linker = (host_linker(),) if spec.native else _cross(spec)
    if linker is None:
        note = f"no compiler for {spec.triple}: object files only, link them on the board with g++ -shared"
        return write_objects(executable, folder, spec), (note,)
    try:
        executable.export_library(
            str(folder / LIBRARY), fcompile=_linking(linker), workspace_dir=str(_workspace(folder))
        )
        require_whole(folder / LIBRARY)
    except RuntimeError as error:
        if os.strerror(errno.ENOSPC).lower() in str(error).lower():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise CompileError(
            f"linking with {linker[0]} failed: {error}", "run the linker manually on this machine"
        ) from error
    finally:
        shutil.rmtree(folder / "work", ignore_errors=True)
    return (LIBRARY,), ()


def require_whole(library: Path) -> None:
    """Raise OSError when the end of an ELF file is missing: on a full disk GNU ld truncates its output and succeeds."""
    with library.open("rb") as file:
        header = file.read(64)
    if header[:5] != b"\x7fELF\2":  # only 64-bit ELF is written here; macOS has another format
        if header:
            return
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    (offset,) = struct.unpack_from("<Q", header, 0x28)
    size, count = struct.unpack_from("<HH", header, 0x3A)
    if library.stat().st_size < offset + size * count:  # the section headers are the last thing in the file
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def tools(spec: TargetSpec) -> tuple[str, ...]:
    """Return the tools that determine an artefact's form: the cross linker, if there is one."""
    linker = None if spec.native else _cross(spec)
    return tuple(Path(word).name for word in linker or ())


def _cross(spec: TargetSpec) -> tuple[str, ...] | None:
    machine, linux, _ = spec.triple.partition("-linux-gnu")
    return cross_compiler(machine) if linux else None


def host_linker() -> str:
    """Return the C++ compiler of this machine ($CXX, g++, clang++, c++); MachineError if there is none."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++", "c++"):
        if name and (path := shutil.which(name)):
            return path
    raise MachineError("no C++ compiler found: compiled stages cannot be linked", "apt-get install build-essential")


def _linking(linker: Sequence[str]) -> Any:
    """Return the function that links objects for TVM; RuntimeError with the linker's words if it fails."""
    from tvm.support import cc

    if len(linker) == 1:
        return cc.cross_compiler(linker[0])

    def link_objects(output: str, objects: Sequence[str], *_: Any, **options: Any) -> None:
        try:
            compilers.run([*linker, "-shared", "-fPIC", "-o", output, *objects], Path(output).parent)
        except subprocess.CalledProcessError as error:
            raise RuntimeError(error.output) from error

    return link_objects


def _workspace(folder: Path) -> Path:
    path = folder / "work"
    path.mkdir()
    return path


def write_objects(executable: Any, folder: Path, spec: TargetSpec) -> tuple[str, ...]:
    """Write the module's object files as the linker would have received them; return their names."""
    files: list[str] = []

    def keep(output: str, objects: list[str], *args: Any, **options: Any) -> None:
        for index, source in enumerate(objects):
            name = f"stage{index}{Path(source).suffix}"
            shutil.copy(source, folder / name)
            files.append(name)

    keep.need_system_lib = False  # type: ignore[attr-defined]
    keep.get_target_triple = lambda: spec.triple  # type: ignore[attr-defined]
    executable.export_library(str(folder / LIBRARY), fcompile=keep, workspace_dir=str(_workspace(folder)))
    shutil.rmtree(folder / "work", ignore_errors=True)
    files.sort(key=lambda name: not name.endswith(".o"))
    return tuple(files)
