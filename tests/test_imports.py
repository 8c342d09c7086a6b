"""Allowed imports: results flow from left to right, and no earlier step imports a later one."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "socsched"
GUESTS = PACKAGE.with_name("socsched_literature")
LOWEST = {
    "units",
    "errors",
    "limits",
    "resources",
    "progress",
    "deadline",
    "files",
    "cache",
    "text",
    "lexer",
    "bounded",
    "confined",
    "plugins",
    "pool",
}
UP_TO_MODELS = {*LOWEST, "descriptor", "graph", "models"}
UP_TO_PLAN = {*UP_TO_MODELS, "compiler", "cost", "plan", "schedulability", "planning"}
PLAN = {"plan", "task", "execution"}
"""Modules of planning/ that say what a plan is and when its jobs run; proofs start there, the search from proofs."""
UP_TO_FAULTS = {*UP_TO_PLAN, "faults"}
ALLOWED: dict[str, set[str]] = {
    "units": set(),
    "errors": set(),
    "limits": set(),
    "resources": {"errors"},
    "progress": set(),
    "deadline": set(),
    "files": set(),
    "cache": {"errors", "progress", "files"},
    "text": set(),
    "lexer": {"errors"},
    "bounded": {"errors"},
    "confined": set(),
    "plugins": {"errors", "resources"},
    "pool": {"errors", "progress", "cache"},
    "descriptor": LOWEST,
    "graph": {*LOWEST, "descriptor"},
    "models": {*LOWEST, "descriptor", "graph"},
    "compiler": UP_TO_MODELS,
    "cost": UP_TO_MODELS,
    "plan": {*LOWEST, "descriptor", "cost"},
    "schedulability": {*LOWEST, "descriptor", "compiler", "cost", "plan"},
    "planning": {*UP_TO_MODELS, "compiler", "cost", "plan", "schedulability"},
    "faults": {*LOWEST, "descriptor", "plan", "planning"},
    "trace": {*LOWEST, "descriptor", "plan", "planning", "cost"},
    "sim": {*UP_TO_FAULTS, "trace"},
    "runtime": {*UP_TO_FAULTS, "trace"},
    "executor": {*UP_TO_FAULTS, "trace", "sim", "runtime"},
    "interchange": {*UP_TO_FAULTS, "trace", "runtime"},
    "reporting": {*UP_TO_FAULTS, "trace", "sim", "runtime"},
    "modebook": {*UP_TO_FAULTS, "trace", "sim", "reporting"},
    "api": {*UP_TO_FAULTS, "trace", "sim", "runtime", "executor", "interchange", "reporting", "modebook"},
    "validation": {*UP_TO_PLAN, "reporting"},
    "lint": {*UP_TO_PLAN, "api"},
    "study": {*UP_TO_FAULTS, "trace", "sim", "runtime", "reporting", "api"},
    "cli": {*UP_TO_FAULTS, "trace", "sim", "runtime", "executor", "reporting", "api", "validation", "lint", "study"}
    | {"modebook"},
}
"""Part of socsched -> the parts it may import besides itself."""
ONLY_IN = {
    "tvm": "compiler",
    "tvm_ffi": "compiler",
    "pydantic": "descriptor",
    "pydantic_core": "descriptor",
    "yaml": "descriptor",
    "ortools": "planning",
    "pandas": "api",
    "pyarrow": "study",
    "ray": "study",
    "socsched_literature": "no part",
}
"""Outside package -> the only part that may import it."""
MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The part a module belongs to; modules directly in the package are parts of their own."""
    return part_named(list(path.relative_to(PACKAGE).with_suffix("").parts))


def part_named(names: list[str]) -> str:
    """The part of a module given by the names below `socsched`."""
    return "plan" if names[0] == "planning" and names[1:] and names[1] in PLAN else names[0]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a module imports, inside functions as well."""
    package = ["socsched", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from socsched import units` names a part too, `from socsched.planning import plan` as well.
            packages = ("socsched", "socsched.planning")
            yield from (
                (node.lineno, f"{module}.{alias.name}" if module in packages else module) for alias in node.names
            )


def runtime_imports(name: str, path: Path, modules: Collection[str]) -> set[str]:
    """The modules that a module imports when it is loaded or run, so not for type checks alone."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            inside = {f"{module}.{alias.name}" for alias in node.names}
            found |= {one if one in modules else module for one in inside}
    return found & set(modules) - {name}


def circles(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The largest sets of modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for name in graph:
        pending, seen = list(graph[name]), set[str]()
        while pending:
            other = pending.pop()
            if other not in seen:
                seen.add(other)
                pending += graph[other]
        reached[name] = seen
    groups = (frozenset(other for other in reached[name] if name in reached[other]) for name in graph)
    return sorted({group for group in groups if group}, key=sorted)


def test_no_circle_of_modules() -> None:
    """Imports inside functions count; `socsched/__init__.py` does not, which imports nothing and names the verbs."""
    names = {".".join(["socsched", *path.relative_to(PACKAGE).with_suffix("").parts]): path for path in MODULES}
    paths = {name.removesuffix(".__init__"): path for name, path in names.items() if name != "socsched.__init__"}
    found = circles({name: runtime_imports(name, path, paths) for name, path in paths.items()})
    assert found == [], "modules that import each other in a circle, imports inside functions included"


def test_circles_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("if TYPE_CHECKING:\n    import p.c\ndef f():\n    from p import b\n")
    assert runtime_imports("p.a", path, {"p.a", "p.b", "p.c"}) == {"p.b"}
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [frozenset("abc")]


def breaches(path: Path) -> Iterator[str]:
    part = part_of(path)
    for line, name in imported(path):
        top, *rest = name.split(".")
        if top == "socsched" and rest and (other := part_named(rest)) in ALLOWED and part in ALLOWED:
            if other != part and other not in ALLOWED[part]:
                yield f"{path.relative_to(PACKAGE.parent)}:{line}: {part} imports {name}"
        elif ONLY_IN.get(top, part) != part:
            yield f"{path.relative_to(PACKAGE.parent)}:{line}: only {ONLY_IN[top]} may import {top}"


def test_every_part_has_a_rule() -> None:
    parts = {part_of(path) for path in MODULES} - {"__init__", "__main__"}
    assert parts <= set(ALLOWED)


def test_the_literature_imports_what_any_package_may_and_no_private_name() -> None:
    public = {*UP_TO_FAULTS, "__init__", "trace", "sim", "runtime", "reporting", "api", "study", "cli"}
    for path in GUESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("socsched."):
                assert node.module.split(".")[1] in public, path
                assert not any(part.startswith("_") for part in node.module.split(".")), path
                assert not any(alias.name.startswith("_") for alias in node.names), path


def test_rules_have_no_circle() -> None:
    order = list(ALLOWED)
    assert all(order.index(other) < order.index(part) for part, others in ALLOWED.items() for other in others)


def test_import_rule() -> None:
    found = [breach for path in MODULES for breach in breaches(path)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from socsched.planning.plan import Plan", "imports socsched.planning.plan"),
        ("from socsched import sim", "imports socsched.sim"),
        ("def f():\n    import tvm.relax", "only compiler may import tvm"),
        ("from ..runtime import x", "imports socsched.runtime"),
    ],
)
def test_the_rule_sees_breaches(text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "socsched")
    path = tmp_path / "socsched" / "graph" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert [expected in breach for breach in breaches(path)] == [True]


def test_tvm_and_its_ffi_are_the_pair_that_works() -> None:
    """With ffi 0.1.15, MetaSchedule of this TVM ends in a segmentation fault."""
    versions = {name: importlib.metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi")}
    assert versions == {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post0"}


def test_looking_up_names_imports_nothing_heavy() -> None:
    heavy = "{'tvm', 'numpy', 'pydantic', 'yaml', 'rich', 'perfetto', 'ortools'}"
    code = (
        f"import sys, socsched.descriptor.catalog as c; c.pipeline_names(); print(sorted({heavy} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent, check=True)
    assert shown.stdout.strip() == "[]"


def test_the_design_page_lists_rooms_below_what_they_import() -> None:
    page = (PACKAGE.parent / "docs" / "design.md").read_text(encoding="utf-8")
    rows = [re.findall("`([^`]+)`", line.split("|")[1]) for line in page.splitlines() if line.startswith("| `")]
    rows = [["plan"] if "planning.plan" in names else names for names in rows]
    places = {name: place for place, names in enumerate(rows) for name in names}
    assert set(ALLOWED) - LOWEST <= set(places)
    for room, below in ALLOWED.items():
        assert not [other for other in below if places.get(other, 0) > places.get(room, 99)], room


def test_no_function_is_longer_than_a_page() -> None:
    lengths = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {place: lines for place, lines in lengths.items() if lines > 80} == {}
