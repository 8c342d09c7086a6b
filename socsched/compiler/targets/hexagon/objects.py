"""Objects for the Hexagon DSP: built by LLVM's own back end and checked before they become an artefact.

TVM's hexagon target silently compiles the host half of a module, which for a whole stage is all of it, for the machine
it runs on; the back end is therefore selected by triple (see `target`), and its output is checked here.  The code runs
single operators on HVX in 128-byte mode; it needs TVM's runtime for Hexagon on the board, and has never been executed:
there is no simulator without the vendor's SDK.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from socsched.compiler.passes.link import write_objects
from socsched.compiler.target import Compilation
from socsched.compiler.targets.hexagon.elf import QDSP6, read_elf
from socsched.errors import CompileError

ENTRY = "__tvm_ffi__library_bin"
"""Symbol the loader looks up: the serialised executable with the weights."""


def link_objects(compilation: Compilation) -> Compilation:
    """Write the object files: linking them takes the vendor's SDK."""
    asked = compilation.asked
    note = "object files only: link them with the Hexagon SDK's hexagon-clang++ -shared"
    files = write_objects(compilation.executable, asked.folder, asked.spec)
    return replace(compilation, files=files, notes=(note, *compilation.notes))


def check(compilation: Compilation) -> Compilation:
    """Return the compilation with notes on its objects; CompileError as of `check_objects`."""
    found = check_objects(compilation.asked.folder, compilation.files)
    return replace(compilation, notes=(*compilation.notes, *found))


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
