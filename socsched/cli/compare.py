"""`socsched compare`: two plans or two results side by side, with a gate for CI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import argument, option
from socsched.cli.options import allow_weaker, output_file
from socsched.cli.output import Output, echo, ready_to_write, show_all, table
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED
from socsched.files import write_file
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.reporting.compare import Comparison


class CompareRequest(Request):
    """What is compared, and what is tolerated."""

    paths: tuple[Path, ...] = argument(
        "path", multiple=True, required=False, metavar="A B | PLAN.json [SIMULATED] MEASURED"
    )
    max_regression: float = option(
        "--max-regression", kind="percent", default="5%", shown=True, help="Largest tolerated slowdown of B against A."
    )
    weaker: tuple[str, ...] = allow_weaker()
    tolerance: float = option(
        "--tolerance", kind="percent", default="5%", shown=True,
        help="Largest mean error of the prediction: chains' p50 (p99: three times this, stages: twice).",
    )  # fmt: skip
    file: Path | None = output_file("Also write the comparison of A and B to this Markdown file (FILE.md).")


@verb("compare", CompareRequest, "Compare two plans or results; fail on a regression.")
def command(output: Output, request: CompareRequest) -> int:
    """Compare A (the baseline) with B: two plan.json, or two result folders of `simulate` or `run`.

    For plans: changed requirements, moved stages, bounds and expected times of chains, power, traffic, verdict.  For
    results: stage medians, chain p99, frames late and dropped.  A regression names the move that caused it.  Exit
    code 1 if anything in B is worse by more than --max-regression, if a requirement of a plan is weaker, or if a
    larger share of a result's frames is late, or dropped.

    With a plan and results, line up the planned, simulated and measured p50, p99 and p99.9 of every stage and chain,
    and the energy; exit code 1 if the prediction error exceeds the tolerance, or more frames are late or dropped than
    predicted.
    """
    from socsched.api.loading import load_plan
    from socsched.reporting.compare import markdown, view
    from socsched.reporting.plan_diff import diff

    paths, file, allowed = request.paths, request.file, request.max_regression
    ready_to_write(file=file)
    plans = [path.suffix == ".json" and path.name != "result.json" and not path.is_dir() for path in paths]
    if file and file.suffix != ".md":
        raise click.UsageError(f"{file}: expected a name that ends in .md")
    if paths and plans[0] and not all(plans):
        if file:
            raise click.UsageError("-o applies to a comparison of two plans or of two results only")
        return _predicted(output, paths, request.tolerance)
    if len(paths) != 2 or any(plans) != all(plans):
        raise click.UsageError(
            "expected two plans, two result folders, or a plan and one or two result folders: "
            "socsched compare BASELINE NEW"
        )
    comparison = (
        diff(load_plan(paths[0]), load_plan(paths[1]), allowed, request.weaker)
        if all(plans)
        else _results(paths, allowed)
    )
    names = str(paths[0]), str(paths[1])
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, markdown(comparison, *names, allowed))
        output.note(f"wrote {file}")
    output.result(comparison.document(), lambda: view(comparison, *names, allowed))
    return EXIT_VIOLATED if comparison.regressions else EXIT_OK


def _result(path: Path) -> Mapping[str, Any]:
    """Return the result of a folder or file, computed of the journal where a bundle ran: it writes no result.json."""
    from socsched.api.folders import JOURNAL, PLAN, RESULT, load
    from socsched.reporting.compare import load_result

    if not (path / RESULT).is_file() and all((path / name).is_file() for name in (JOURNAL, PLAN)):
        return load(path)[2]
    return load_result(path)


def _results(paths: tuple[Path, ...], allowed: float) -> Comparison:
    """Compare two results, with their plans if both are available."""
    from socsched.api.folders import PLAN
    from socsched.api.loading import load_plan
    from socsched.reporting.compare import compare

    a, b = (_result(path) for path in paths)
    files = [(path if path.is_dir() else path.parent) / PLAN for path in paths]
    plans = (load_plan(files[0]), load_plan(files[1])) if all(file.is_file() for file in files) else None
    return compare(a, b, allowed, plans)


def _predicted(output: Output, paths: tuple[Path, ...], tolerance: float) -> int:
    from socsched.api import loading
    from socsched.reporting.compare import Tolerance, predict

    if not 2 <= len(paths) <= 3:
        raise click.UsageError("expected a plan and one or two result folders: PLAN.json [SIMULATED] MEASURED")
    results = [_result(path) for path in paths[1:]]
    simulated = results[0] if len(results) == 2 else None
    allowed = Tolerance(p50=tolerance, p99=3 * tolerance, stages=2 * tolerance)
    plan = loading.load_plan(paths[0])
    prediction = predict(plan, simulated, results[-1], allowed)

    def show() -> None:
        from socsched.reporting.view_model import intervals_line

        def cell(value: float | None, what: str) -> str:
            return "–" if value is None else f"{value:.0f} mW" if what == "energy" else format_duration(round(value))

        rows: list[list[Any]] = [
            [
                entry.name,
                entry.figure.replace("_", "."),
                *(cell(v, entry.what) for v in (entry.planned, entry.simulated, entry.measured)),
                "–" if entry.error is None else f"{entry.error:+.1%}" + " ✗" * entry.outside,
            ]
            for entry in prediction.lines
        ]
        columns = ["what", "figure", "planned", "simulated", "measured", "error"]
        show_all(table("Predicted against measured", columns, rows, (2, 3, 4, 5)))
        for name, error in prediction.errors.items():
            echo(f"{name}: mean error {'–' if error is None else f'{error:.1%}'}")
        if kept := intervals_line(plan, results[-1]):
            echo(kept)
        for text in prediction.beyond:
            echo(f"✗ {text}")

    output.result(prediction.document(), show)
    return EXIT_VIOLATED if prediction.beyond else EXIT_OK
