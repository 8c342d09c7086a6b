"""Files that make a folder of artefacts runnable on a board: program, its sources, weights, start script."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched import __version__, plugins
from socsched.compiler.artifact import weights_digest
from socsched.compiler.versions import PINNED
from socsched.descriptor.pipeline import Pipeline
from socsched.graph.taskgraph import task_graph
from socsched.models.registry import GROUP, bindings, get_model

LIBRARY, WEIGHTS, START = "lib", "weights.npz", "start.sh"
PROGRAM = "socsched.compiler.packaging.bundle_runner"
_PACKAGE = Path(__file__).parents[2]


def sort_of(model: str | None, params: Mapping[str, Any]) -> str:
    """Return the kind of a stage for an executor: network, function, or timed (known only by its execution times)."""
    if model is None:
        return "timed"
    return "network" if get_model(model, params).network is not None else "function"


def stages(
    pipeline: Pipeline, artifacts: list[dict[str, Any]], handovers: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the stages in execution order, each with its inputs and the indices of its artefacts."""
    bound = bindings(pipeline)
    entries = []
    for name in task_graph(pipeline).order:
        stage = pipeline.stage(name)
        sort = sort_of(stage.model, stage.params)
        entries.append(
            {
                "name": name,
                "sort": sort,
                "model": stage.model,
                "params": dict(stage.params) if sort == "function" else {},
                "inputs": bound.get(name, {}),
                "artifacts": [i for i, a in enumerate(artifacts) if a["stage"] == name and not a["part"]],
                "handovers": [i for i, h in enumerate(handovers) if h["stage"] == name],
            }
        )
    return entries


def write_weights(folder: Path, weights: Mapping[str, np.ndarray[Any, Any]] | None) -> dict[str, Any]:
    """Write the given weights and return their manifest entry; the code already contains them."""
    if weights is None:
        return {"seed": 0}
    np.savez(folder / WEIGHTS, **weights)  # type: ignore[arg-type]
    return {"file": WEIGHTS, "sha256": weights_digest(weights)}


def write_program(folder: Path, pipeline: Pipeline) -> list[str]:
    """Write the start script and every module of socsched that the program and the host stages need; return them."""
    functions = [s for s in pipeline.stages if sort_of(s.model, s.params) == "function"]
    roots = [PROGRAM, *(plugins.entries(GROUP)[str(stage.model)].module for stage in functions)]
    modules = sources(roots)
    for module in modules:
        target = folder / LIBRARY / module.relative_to(_PACKAGE.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, target)
    versions = ", ".join(f"{package} {version}" for package, version in PINNED.items())
    _register(folder / LIBRARY)
    (folder / START).write_text(_START.format(versions=versions, program=PROGRAM, library=LIBRARY), encoding="utf-8")
    (folder / START).chmod(0o755)
    return [module.relative_to(_PACKAGE.parent).as_posix() for module in modules]


def _register(library: Path) -> None:
    """Register the models on the board, where no package is installed."""
    info = library / f"socsched-{__version__}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {entry.value}" for name, entry in sorted(plugins.entries(GROUP).items())]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]), encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: socsched\nVersion: {__version__}\n")


_START = """\
#!/bin/sh
# Runs this bundle on its board. Needs Python 3.10 or later with numpy and TVM's runtime ({versions});
# no compiler is loaded. For its options, run start.sh --help.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
if [ ! -d "$here/{library}" ]; then
    echo "error: no {library}/ here: an update of this bundle was interrupted; build it again" >&2
    exit 2
fi
export TVM_USE_RUNTIME_LIB=1
export PYTHONPATH="$here/{library}${{PYTHONPATH:+:$PYTHONPATH}}"
exec "${{PYTHON:-python3}}" -m {program} "$here" "$@"
"""


def sources(roots: Iterable[str]) -> list[Path]:
    """Return the files of `roots` (socsched modules) and everything they import, packages included, sorted by name."""
    queue, files = list(roots), set[Path]()
    while queue:
        path = _file(queue.pop())
        if path is None or path in files:
            continue
        files.add(path)
        files |= {folder / "__init__.py" for folder in path.parents if _PACKAGE in (folder, *folder.parents)}
        nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        while nodes:
            node = nodes.pop()
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                nodes += node.orelse  # what only a type checker imports is not needed on a board
                continue
            nodes += ast.iter_child_nodes(node)
            if isinstance(node, ast.Import):
                queue += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                queue += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return sorted(files)


def _file(module: str) -> Path | None:
    """Return the file of a socsched module, None for anything else."""
    first, *rest = module.split(".")
    if first != _PACKAGE.name:
        return None
    base = _PACKAGE.joinpath(*rest)
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
