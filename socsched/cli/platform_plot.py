"""`socsched platforms show --plot`: the rooflines of a platform with the stages of a pipeline on them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from socsched.descriptor.platform import Platform, PowerMode


def plot(
    platform: Platform, mode: PowerMode, path: Path, pipeline: str, precision: str | None, engine: str | None
) -> dict[str, Any]:
    """Draw rooflines to `path` (.svg) and return their roofs and points as plain data.

    `pipeline` is a name or path; `precision` and `engine` (id) restrict the figure.  Raises UsageError if nothing
    remains.
    """
    from socsched.cost.roofs import PRECISIONS, points, roofs
    from socsched.descriptor.catalog import get_pipeline
    from socsched.errors import UsageError
    from socsched.models.work import stage_work
    from socsched.reporting.roofline import draw

    shown = roofs(platform, mode, (precision,) if precision else PRECISIONS, engine)
    if not shown:
        raise UsageError(
            f"nothing to draw: no powered engine of {platform.name} in {mode.name} computes in {precision}"
        )
    workload = get_pipeline(pipeline)
    placed = points(workload, platform, mode, shown, stage_work)
    title = f"{platform.name}, mode {mode.name}: rooflines, with {workload.name}"
    notes = [
        "Thick: peak and DRAM bandwidth of an engine alone; thin: attainable rate of convolutions. A marker is a "
        "stage's predicted rate; the line from it leads to the attainable rate at its intensity."
    ]
    if any(point.predicted > point.attainable for point in placed):
        notes += [
            "Above the roof: Winograd convolutions, which need fewer multiplications than the direct ones counted."
        ]
    draw(path, shown, placed, title, notes)
    return {"roofs": [asdict(roof) for roof in shown], "points": [asdict(point) for point in placed]}
