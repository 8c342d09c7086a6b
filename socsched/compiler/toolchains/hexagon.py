"""Stages compiled for the scalar cores and HVX of a Hexagon DSP, as object files that are checked here.

TVM's hexagon target silently compiles the host half of a module, which for a whole stage is all of it, for the machine
it runs on; the back end is therefore selected by triple (see `resolve`), and its output is checked here.  The code runs
single operators on HVX in 128-byte mode; it needs TVM's runtime for Hexagon on the board, and has never been executed:
there is no simulator without the vendor's SDK.

The check reads ELF itself, the processor, defined and undefined symbols (System V ABI, "Object Files"; both classes,
little-endian).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.compiler.target import Compilation, Passes, Target, TargetSpec
from socsched.compiler.targets.llvm import target as llvm
from socsched.errors import CompileError, InputError

ARCHITECTURES = ("v68", "v69", "v73", "v75")
"""Architectures with floating point on HVX; older ones would compute it one number at a time."""


def resolve(entry: Mapping[str, Any], engine: str) -> TargetSpec:
    """Return a spec for LLVM's own back end, selected by triple.

    TVM's hexagon tags compile the host half, all code here, for x86-64.  CompileError for an architecture without HVX
    floating point.
    """
    arch = str(entry.get("arch", ""))
    if arch not in ARCHITECTURES:
        raise CompileError(
            f"{engine}: target hexagon needs an architecture with HVX floating point, got {arch!r}",
            f"give `arch`, one of {', '.join(ARCHITECTURES)}",
        )
    features = [f"+hvx{arch}", "+hvx-length128b", "+hvx-qfloat", "-hvx-ieee-fp"]
    return TargetSpec(
        "hexagon", {"kind": "llvm", "mtriple": "hexagon", "mcpu": f"hexagon{arch}", "mattr": features}, False
    )


def passes(compilation: Compilation) -> Passes:
    """Return the passes of a CPU, which end with checked object files here."""
    own = llvm.passes(compilation)
    return replace(own, link=(link_objects,), package=(*own.package, check))


TARGET = Target(resolve, passes)


ENTRY = "__tvm_ffi__library_bin"
"""Symbol the loader looks up: the serialised executable with the weights."""


def link_objects(compilation: Compilation) -> Compilation:
    """Write the object files: linking them takes the vendor's SDK."""
    from socsched.compiler.passes.link import write_objects

    request = compilation.asked
    note = "object files only: link them with the Hexagon SDK's hexagon-clang++ -shared"
    files = write_objects(compilation.executable, request.folder, request.spec)
    return replace(compilation, files=files, notes=(note, *compilation.notes))


def check(compilation: Compilation) -> Compilation:
    """Return the compilation with notes on its objects; CompileError as of `check_objects`."""
    notes = check_objects(compilation.asked.folder, compilation.files)
    return replace(compilation, notes=(*compilation.notes, *notes))


def check_objects(folder: Path, files: tuple[str, ...]) -> tuple[str, ...]:
    """Return notes on the objects among `files`; CompileError unless all are Hexagon code and one holds the stage."""
    objects = {name: read_elf(folder / name) for name in files if name.endswith(".o")}
    for name, elf in objects.items():
        if elf.machine != QDSP6 or elf.bits != 32:
            raise CompileError(
                f"{name} is {elf.bits}-bit code for {elf.processor}, not for Hexagon",
                "the compiler ignored the target; report the target entry",
            )
    defined = frozenset().union(*(elf.defined for elf in objects.values()))
    if ENTRY not in defined:
        raise CompileError(f"the objects for Hexagon do not define {ENTRY}", "report the target entry")
    needed = frozenset().union(*(elf.undefined for elf in objects.values())) - defined
    return (f"never executed; the board has to provide {', '.join(sorted(needed))}",)


MOST_BYTES = 2**30

X86_64, QDSP6, AARCH64 = 62, 164, 183
"""Values of e_machine; QDSP6 is the original name of Hexagon."""
MACHINES = {X86_64: "x86-64", QDSP6: "Hexagon (QDSP6)", AARCH64: "aarch64"}
_SYMBOL_TABLE, _UNDEFINED, _LOCAL = 2, 0, 0


@dataclass(frozen=True, slots=True)
class Elf:
    """An object file or library: `bits` 32 or 64, `machine` (e_machine), global symbols by place of definition."""

    bits: int
    machine: int
    defined: frozenset[str]
    undefined: frozenset[str]

    @property
    def processor(self) -> str:
        """Return the processor's name, or its number if it is not known."""
        return MACHINES.get(self.machine, f"e_machine {self.machine}")


def read_elf(path: Path) -> Elf:
    """Return the content of an ELF file; InputError if it is not ELF or is truncated."""
    data = read_bytes(path, "library", "compile it again", MOST_BYTES)
    if data[:4] != b"\x7fELF" or len(data) < 52 or data[5] != 1:
        raise InputError(f"{path}: no little-endian ELF file")
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError) as error:
        raise InputError(f"{path}: damaged ELF file: {error}") from None


def _read(data: bytes) -> Elf:
    wide = data[4] == 2
    (machine,) = struct.unpack_from("<H", data, 18)
    (start,) = struct.unpack_from("<Q", data, 40) if wide else struct.unpack_from("<I", data, 32)
    size, count = struct.unpack_from("<HH", data, 58 if wide else 46)
    sections = [_section(data, start + index * size, wide) for index in range(count)]
    defined: set[str] = set()
    undefined: set[str] = set()
    for kind, offset, length, link, entry in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][1]
        for at in range(offset, offset + length, entry):
            name, info, section = _symbol(data, at, wide)
            if name and info >> 4 != _LOCAL:
                end = data.index(b"\0", names + name)
                (undefined if section == _UNDEFINED else defined).add(data[names + name : end].decode())
    return Elf(64 if wide else 32, machine, frozenset(defined), frozenset(undefined))


def _section(data: bytes, at: int, wide: bool) -> tuple[int, int, int, int, int]:
    """Return type, offset, size, link and entry size of a section header."""
    layout = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    _, kind, _, _, offset, size, link, _, _, entry = struct.unpack_from(layout, data, at)
    return kind, offset, size, link, entry


def _symbol(data: bytes, at: int, wide: bool) -> tuple[int, int, int]:
    """Return name (offset), info and section of a symbol."""
    if wide:
        name, info, _, section = struct.unpack_from("<IBBH", data, at)
        return name, info, section
    name, _, _, info, _, section = struct.unpack_from("<IIIBBH", data, at)
    return name, info, section
