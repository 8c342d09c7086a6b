"""The kernel's modules put together as one for the C compiler, which then sees every call and constant.

The modules are written a subject each and imported like that where they are interpreted.  Compiled apart, every call
from one layer to another would go through a table, and every named number would be read from memory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

_CONSTANT = re.compile(r"^([A-Z]\w*) = cython\.declare\(cython\.longlong, (\d+)\)$")
_METHOD = re.compile(r"^    cdef [^()]*\(.*\)")


def merged(folder: Path, modules: Sequence[str]) -> tuple[str, str]:
    """Return what all `modules` of `folder` say, in their order, as the text of one .py and of its .pxd.

    What a module imports from the others is left out, numbers with names become macros of C, methods final.
    """
    imports: dict[str, None] = {}
    bodies, numbers, declared = [], [], []
    for name in modules:
        body, constants = _body((folder / f"{name}.py").read_text(encoding="utf-8"), imports)
        bodies.append(body)
        numbers += constants
        declarations = folder / f"{name}.pxd"
        if declarations.exists():
            declared.append(_declarations(declarations.read_text(encoding="utf-8")))
    macros = [f"    #define SOCSCHED_{name} {value}LL" for name, value in numbers]
    named = [f'    const long long {name} "SOCSCHED_{name}"' for name, _ in numbers]
    head = ["cimport cython", "cdef extern from *:", '    """', *macros, '    """', *named]
    source = "\n".join(["from __future__ import annotations", *imports, *bodies])
    return source + "\n", "\n".join([*head, *declared]) + "\n"


def _body(text: str, imports: dict[str, None]) -> tuple[str, list[tuple[str, str]]]:
    """Return a module without its imports, which are added to `imports`, and its named numbers."""
    lines = text.split("\n")
    constants = []
    for node in ast.parse(text).body:
        own = lines[node.lineno - 1 : node.end_lineno]
        constant = _CONSTANT.match(own[0])
        if constant:
            constants.append((constant[1], constant[2]))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if not getattr(node, "level", 0) and getattr(node, "module", "") != "__future__":
                imports["\n".join(own)] = None
        elif not (isinstance(node, ast.If) and "cython.compiled" in own[0]):
            continue
        lines[node.lineno - 1 : node.end_lineno] = [""] * len(own)
    return "\n".join(lines), constants


def _declarations(text: str) -> str:
    """Return a module's .pxd without what others or macros declare, every method final."""
    kept = []
    for line in text.split("\n"):
        if "cimport" in line or re.match(r"cdef long long [A-Z]{2}", line):
            continue
        if _METHOD.match(line):
            kept.append("    @cython.final")
        kept.append(line)
    return "\n".join(kept)
