"""Merges the kernel's layers into one class, so that the C compiler sees every call and constant.

Each layer covers one subject, and the interpreted kernel stacks them as subclasses.  Compiled that way, every call
between layers would go through a table, and every named number would be read from memory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

BASE, TOP = "Columns", "Kernel"
"""Base class of the lowest layer, and the topmost layer, which names the merged class."""
_CONSTANT = re.compile(r"^([A-Z]\w*) = cython\.declare\(cython\.longlong, (\d+)\)$")
_PASSED = "tables, hooks, end, record"


class _Merger:
    """Text of the .py and .pxd being built; `layers` are the names of the classes merged into one."""

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.numbers: dict[str, str] = {}
        self.layers: list[str] = []
        self.methods: dict[str, str] = {}
        self.source: list[str] = []
        self.whole: list[str] = []
        self.declared: list[str] = []

    def module(self, text: str, declarations: str) -> None:
        """Add a module and its declarations."""
        lines = text.split("\n")
        for node in ast.parse(text).body:
            own = lines[node.lineno - 1 : node.end_lineno]
            constant = _CONSTANT.match(own[0])
            if constant:
                if constant[1] in self.numbers:
                    raise ValueError(f"{constant[1]} has two values in the kernel")
                self.numbers[constant[1]] = constant[2]
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                if not getattr(node, "level", 0) and getattr(node, "module", "") != "__future__":
                    self.imports["\n".join(own)] = None
            elif isinstance(node, ast.If) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                continue
            elif isinstance(node, ast.ClassDef) and own[0] in (_head(node.name, self.layers), _head(node.name, [BASE])):
                self.layer(node, own) if _takes_tables(node) else self.source.extend(["", *own])
            else:
                self.source += ["", *own]
        for line in declarations.split("\n"):
            head = re.match(r"cdef class (\w+)", line)
            if "cimport" in line or re.match("cdef long long [A-Z]{2}", line) or (head and head[1] in self.layers):
                continue
            self.declared.append(line)

    def layer(self, node: ast.ClassDef, own: list[str]) -> None:
        """Add the methods of a layer; its `__init__` becomes a method with a name of its own."""
        first = not self.layers
        if first:
            self.whole += ["", f"class {TOP}({BASE}):"]
            self.declared += ["@cython.final", f"cdef class {TOP}({BASE}):"]
        before = f"{BASE}.__init__(self)" if first else f"self.make_{self.layers[-1].lower()}({_PASSED})"
        self.layers.append(node.name)
        for method in (x.name for x in node.body if isinstance(x, ast.FunctionDef) and x.name != "__init__"):
            if method in self.methods:
                raise ValueError(f"{method} is in two layers of the kernel: {self.methods[method]} and {node.name}")
            self.methods[method] = node.name
        if node.name == TOP:
            constructor = "__init__"
        else:
            constructor = f"make_{node.name.lower()}"
            parameters = "dict tables, object hooks, long long end, long long record"
            self.declared.append(f"    cdef int {constructor}(self, {parameters}) except -1")
        for line in own[(node.body[0].end_lineno or node.lineno) - node.lineno + 1 :]:
            line = line.replace("def __init__(", f"def {constructor}(")
            self.whole.append(re.sub(r"super\(\)\.__init__\(.*\)", before, line))


def merge_layers(folder: Path, modules: Sequence[str]) -> tuple[str, str]:
    """Return the merged text of all `modules` of `folder`, in order, as one .py and its .pxd.

    Imports between the modules are dropped, and named numbers become C macros.
    """
    merger = _Merger()
    for name in modules:
        declarations = folder / f"{name}.pxd"
        known = declarations.read_text(encoding="utf-8") if declarations.exists() else ""
        merger.module((folder / f"{name}.py").read_text(encoding="utf-8"), known)
    macros = [f"    #define SOCSCHED_{name} {value}LL" for name, value in merger.numbers.items()]
    named = [f'    const long long {name} "SOCSCHED_{name}"' for name in merger.numbers]
    head = ["cimport cython", "cdef extern from *:", '    """', *macros, '    """', *named]
    source = ["from __future__ import annotations", *merger.imports, *merger.source, *merger.whole]
    return "\n".join(source) + "\n", "\n".join([*head, *merger.declared]) + "\n"


def _head(name: str, below: list[str]) -> str:
    return f"class {name}({below[-1] if below else BASE}):"


def _takes_tables(node: ast.ClassDef) -> bool:
    """Return whether a class is a layer, that is, constructed from the tables and nothing else."""
    constructor = next((x for x in node.body if isinstance(x, ast.FunctionDef) and x.name == "__init__"), None)
    return constructor is not None and ", ".join(a.arg for a in constructor.args.args[1:]) == _PASSED
