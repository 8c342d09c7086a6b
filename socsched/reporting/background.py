"""Report content beyond a plan and its trace: rooflines from descriptors, the Pareto front over modes, provenance.

Each part is optional; for a missing part the report gives the reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.cost.roofs import Point, Roof
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.platform import Supply
from socsched.errors import SocschedError
from socsched.planning.plan import Plan
from socsched.reporting.front import read_front
from socsched.trace.generation import FILES, MADE

_HINT = "simulate or run again with -o, into this folder"
PARETO = "pareto.json"
"""Output of `socsched plan --pareto -o FILE.json`; if present in a result folder, it becomes part of the report."""


@dataclass(frozen=True, slots=True)
class Background:
    """Roofs of the planned mode with stages, the front's document (`reporting.pareto`), the folder's provenance.

    `supply`: carrier board and adaptor of the platform, if it states them.
    `missing` gives the reason for a missing "roofline", and the command that creates a missing "front".
    """

    roofs: tuple[Roof, ...] = ()
    points: tuple[Point, ...] = ()
    front: Mapping[str, Any] | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    supply: Supply | None = None


def gather(plan: Plan, folder: Path | None, pipeline: str | None = None, platform: str | None = None) -> Background:
    """Return the background of `plan`; `pipeline` and `platform`: files to use if the plan's names are not shipped."""
    missing: dict[str, str] = {}
    roofs, points, supply, why = _rooflines(plan, pipeline, platform)
    if why:
        missing["roofline"] = why
    front = read_front(folder / PARETO) if folder and (folder / PARETO).exists() else None
    if front is None:
        option = f" --pipeline {shlex.quote(pipeline)}" if pipeline else ""
        missing["front"] = f"socsched report {shlex.quote(str(folder or 'DIR'))} --pareto{option}"
    return Background(roofs, points, front, _made(folder / MADE) if folder else {}, missing, supply)


def _made(file: Path) -> dict[str, str]:
    """Return how a folder was made, besides its files; nothing if it does not say so."""
    if not file.exists():
        return {}
    document = JsonFile.open(file, "file", _HINT).data
    return (
        {str(key): str(value) for key, value in document.items() if key != FILES} if isinstance(document, dict) else {}
    )


def _rooflines(
    plan: Plan, pipeline: str | None, platform: str | None
) -> tuple[tuple[Roof, ...], tuple[Point, ...], Supply | None, str]:
    from socsched.cost.roofs import PRECISIONS, roofs
    from socsched.descriptor.catalog import get_pipeline, get_platform, input_hashes
    from socsched.planning.cutting.restore import as_planned

    if not plan.tasks:
        return (), (), None, "No stage is mapped: no rooflines to draw."
    try:
        board, workload = get_platform(platform or plan.platform), get_pipeline(pipeline or plan.pipeline)
        for name, digest in input_hashes(board, workload).items():
            if plan.inputs.get(name, digest) != digest:
                return (), (), None, f"{name} differs from the version that the plan was made from."
        mode = board.mode(plan.mode)
        precisions = [p for p in PRECISIONS if any(task.precision == p for task in plan.tasks)]
        used = {task.engine for task in plan.tasks}
        shown = tuple(roof for roof in roofs(board, mode, precisions) if used.intersection(roof.engines))
        return shown, tuple(_points(plan, as_planned(workload, plan), board, mode, shown)), board.supply, ""
    except (SocschedError, KeyError) as error:
        return (), (), None, f"No rooflines: {error}"


def _points(plan: Plan, pipeline: Any, board: Any, mode: Any, shown: Sequence[Roof]) -> list[Point]:
    from socsched.cost.model import CostModel
    from socsched.models.work import stage_work

    model, points = CostModel(board, mode, stage_work), []
    for task in plan.tasks:
        roof = next((r for r in shown if task.engine in r.engines and task.precision == r.precision), None)
        if task.kind != "stage" or roof is None:
            continue
        try:
            work = model.work_of(pipeline.stage(task.name), task.precision)
        except (SocschedError, KeyError):
            continue
        if work is None or not work.flops or not work.bytes or not task.cost_ns:
            continue
        intensity = work.flops / work.bytes
        point = Point(task.name, task.engine, task.precision, intensity, roof.attainable(intensity), 0.0)
        points.append(replace(point, predicted=work.flops / task.cost_ns * 1e9))
    return points
