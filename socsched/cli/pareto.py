"""`socsched plan --pareto`: all power modes at once, as a table and as a figure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.cli.options import Output, terminal_width
from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, UsageError
from socsched.files import write_file

if TYPE_CHECKING:
    from socsched.api.planning import PlanOptions
    from socsched.planning.pareto import Point


def show(
    output: Output, pipeline: str, platform: str, mode: str | None, options: PlanOptions, file: Path | None
) -> int:
    """Print the front, draw it to `file`, and return the exit code: 0 if any mode meets every requirement."""
    from socsched.reporting import pareto

    if mode not in (None, "auto"):
        raise UsageError("--pareto plans every mode", "omit --mode")
    if file is not None and file.suffix.lower() != ".svg" and not file.name.endswith("pareto.json"):
        raise UsageError(f"{file}: the front can only be drawn as SVG", "use -o FILE.svg, or pareto.json for reports")
    points = explore(pipeline, platform, options)
    if file is not None:
        if file.suffix.lower() == ".json":
            write_file(file, json.dumps(pareto.document(points), indent=1) + "\n")
        else:
            pareto.draw(file, points)
        output.note(f"wrote {file}")

    def table() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(pareto.view(points))

    output.result(pareto.document(points), table)
    verdicts = {point.plan.verdict for point in points}
    if "feasible" in verdicts:
        return EXIT_OK
    return EXIT_UNDECIDED if "undecided" in verdicts else EXIT_VIOLATED


def explore(pipeline: str, platform: str, options: PlanOptions) -> list[Point]:
    """Plan every mode of a platform and every objective."""
    from socsched.api.planning import known_costs, plan_with
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.planning.pareto import explore

    board = get_platform(platform)
    costs = known_costs(board, options)
    return explore(
        get_pipeline(pipeline),
        board,
        costs.work,
        lambda mode, objective: plan_with(
            pipeline, platform, mode, replace(options, objective=objective, explain=False), costs
        ),
    )
