"""The kernel as compiled: every layer's methods in one class, every named number once."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

import socsched.sim.kernel.kernel as top
from socsched.sim.build import MODULES
from socsched.sim.kernel.columns import Columns
from socsched.sim.merge import merge_layers

FOLDER = Path(top.__file__).parent


def test_one_class_has_what_all_layers_have() -> None:
    source, declared = merge_layers(FOLDER, MODULES)
    (kernel,) = [x for x in ast.parse(source).body if isinstance(x, ast.ClassDef) and x.name == "Kernel"]
    found = [x.name for x in kernel.body if isinstance(x, ast.FunctionDef)]
    layers = [layer for layer in top.Kernel.__mro__ if issubclass(layer, Columns) and layer is not Columns]
    methods = [name for layer in layers for name, value in vars(layer).items() if callable(value) and name[0] != "_"]
    assert sorted(name for name in found if not name.startswith("make_") and name[0] != "_") == sorted(methods)
    assert len([name for name in found if name.startswith("make_")]) == len(layers) - 1
    assert "cython.cimports" not in source and "cimport" not in declared.removeprefix("cimport cython")
    assert {path.stem for path in FOLDER.glob("*.py")} == {*MODULES, "__init__"}


def test_named_numbers_are_the_modules_own() -> None:
    _, declared = merge_layers(FOLDER, MODULES)
    macros = dict(re.findall(r"#define SOCSCHED_([A-Z_]+) (\d+)LL", declared))
    assert int(macros["FAR"]) == 2**62 and int(macros["SHIFT"]) == 20
    assert len(macros) == len(set(re.findall(r'const long long ([A-Z_]+) "', declared))) > 20


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("queues", "\nDONE = cython.declare(cython.longlong, 7)\n", "DONE has two values"),
        ("queues", "\n\nX = 1\n", None),
        ("kernel", "\n    def mark_queue(self, t: i64) -> None:\n        pass\n", "mark_queue is in two layers"),
    ],
)
def test_what_would_mean_two_things_is_refused(tmp_path: Path, module: str, text: str, said: str | None) -> None:
    folder = tmp_path / "kernel"
    shutil.copytree(FOLDER, folder)
    file = folder / f"{module}.py"
    file.write_text(file.read_text() + text)
    if said is None:
        assert "X = 1" in merge_layers(folder, MODULES)[0]
    else:
        with pytest.raises(ValueError, match=said):
            merge_layers(folder, MODULES)
