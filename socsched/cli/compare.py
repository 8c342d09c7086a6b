"""`socsched compare`: two plans or two results side by side, with a gate for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.cli.options import (
    Output,
    Percentage,
    allow_weaker_option,
    echo,
    output_options,
    ready_to_write,
    terminal_width,
)

if TYPE_CHECKING:
    from socsched.reporting.compare import Comparison
    from socsched.reporting.plan_diff import PlanDiff


@click.command("compare", short_help="Compare two plans or results; fail on a regression.")
@click.argument(
    "paths",
    metavar="A B | PLAN.json [SIMULATED] MEASURED",
    nargs=-1,
    type=click.Path(path_type=Path),
)
@click.option(
    "--max-regression",
    type=Percentage(),
    default="5%",
    show_default=True,
    help="Largest tolerated slowdown of B against A.",
)
@allow_weaker_option
@click.option(
    "--tolerance",
    type=Percentage(),
    default="5%",
    show_default=True,
    help="Largest mean error of the prediction: chains' p50 (p99: three times this, stages: twice).",
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the comparison of A and B to this Markdown file (FILE.md).",
)
@output_options
@click.pass_obj
def command(
    output: Output,
    paths: tuple[Path, ...],
    max_regression: float,
    weaker: tuple[str, ...],
    tolerance: float,
    file: Path | None,
) -> int:
    """Compare A (the baseline) with B: two plan.json, or two result folders of `simulate` or `run`.

    For plans: changed requirements, moved stages, bounds and expected times of chains, power, traffic, verdict.  For
    results: stage medians, chain p99, frames late and dropped.  A regression names the move that caused it.  Exit
    code 1 if anything in B is worse by more than --max-regression, if a requirement of a plan is weaker, or if a
    larger share of a result's frames is late, or dropped.

    With a plan and results, line up the planned, simulated and measured p50, p99 and p99.9 of every stage and chain,
    and the energy; exit code 1 if the prediction error exceeds the tolerance, or more frames are late or dropped than
    predicted.
    """
    ready_to_write(file=file)
    plans = [path.suffix == ".json" and path.name != "result.json" and not path.is_dir() for path in paths]
    if file and file.suffix != ".md":
        raise click.UsageError(f"{file}: expected a name that ends in .md")
    if paths and plans[0] and not all(plans):
        if file:
            raise click.UsageError("-o applies to a comparison of two plans or of two results only")
        return _predicted(output, paths, tolerance)
    if len(paths) != 2 or any(plans) != all(plans):
        raise click.UsageError(
            "expected two plans, two result folders, or a plan and one or two result folders: "
            "socsched compare BASELINE NEW"
        )
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.files import write_file
    from socsched.reporting.compare import markdown, view

    comparison = _plans(paths, max_regression, weaker) if all(plans) else _results(paths, max_regression)
    names = str(paths[0]), str(paths[1])
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, markdown(comparison, *names, max_regression))
        output.note(f"wrote {file}")

    def show() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(view(comparison, *names, max_regression))

    output.result(comparison.document(), show)
    return EXIT_VIOLATED if comparison.regressions else EXIT_OK


def _plans(paths: tuple[Path, ...], allowed: float, weaker: tuple[str, ...]) -> PlanDiff:
    from socsched.api.loading import load_plan
    from socsched.reporting.plan_diff import diff

    return diff(load_plan(paths[0]), load_plan(paths[1]), allowed, weaker)


def _results(paths: tuple[Path, ...], allowed: float) -> Comparison:
    """Compare two results, with their plans if both are available."""
    from socsched.api.folders import PLAN
    from socsched.api.loading import load_plan
    from socsched.reporting.compare import compare, load_result

    a, b = (load_result(path) for path in paths)
    files = [(path if path.is_dir() else path.parent) / PLAN for path in paths]
    plans = (load_plan(files[0]), load_plan(files[1])) if all(file.is_file() for file in files) else None
    return compare(a, b, allowed, plans)


def _predicted(output: Output, paths: tuple[Path, ...], tolerance: float) -> int:
    from socsched.api import loading
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.reporting.compare import Tolerance, load_result, predict

    if not 2 <= len(paths) <= 3:
        raise click.UsageError("expected a plan and one or two result folders: PLAN.json [SIMULATED] MEASURED")
    results = [load_result(path) for path in paths[1:]]
    simulated = results[0] if len(results) == 2 else None
    allowed = Tolerance(p50=tolerance, p99=3 * tolerance, stages=2 * tolerance)
    prediction = predict(loading.load_plan(paths[0]), simulated, results[-1], allowed)

    def show() -> None:
        from socsched.reporting.terminal import console, table
        from socsched.units import format_duration

        def cell(value: float | None, what: str) -> str:
            return "–" if value is None else f"{value:.0f} mW" if what == "energy" else format_duration(round(value))

        rows = [
            [
                entry.name,
                entry.figure.replace("_", "."),
                *(cell(v, entry.what) for v in (entry.planned, entry.simulated, entry.measured)),
                "–" if entry.error is None else f"{entry.error:+.1%}",
            ]
            for entry in prediction.lines
        ]
        columns = ["what", "figure", "planned", "simulated", "measured", "error"]
        console(terminal_width()).print(table("Predicted against measured", columns, rows, (2, 3, 4, 5)))
        for name, error in prediction.errors.items():
            echo(f"{name}: mean error {'–' if error is None else f'{error:.1%}'}")
        for text in prediction.beyond:
            echo(f"✗ {text}")

    output.result(prediction.document(), show)
    return EXIT_VIOLATED if prediction.beyond else EXIT_OK
