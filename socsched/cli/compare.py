"""`socsched compare`: two results side by side, with a gate for CI."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import Output, Percentage, output_options, terminal_width


@click.command("compare", short_help="Compare two results; fail on a regression.")
@click.argument(
    "paths", metavar="DIR_A DIR_B | PLAN.json [SIMULATED] MEASURED", nargs=-1, type=click.Path(path_type=Path)
)
@click.option(
    "--max-regression",
    type=Percentage(),
    default="5%",
    show_default=True,
    help="How much slower B may be than A.",
)
@click.option(
    "--tolerance",
    type=Percentage(),
    default="5%",
    show_default=True,
    help="With a plan: mean error of the chains' p50 (p99: three times, stages: twice as much).",
)
@output_options
@click.pass_obj
def command(output: Output, paths: tuple[Path, ...], max_regression: float, tolerance: float) -> int:
    """Compare the results in DIR_A (the baseline) and DIR_B: stage medians and chain p99.

    Either may come from `simulate` or `run`.  Exit code 1 when anything in B is slower than allowed, or misses more.

    With a plan first, line up what it, its simulation and its run say of every stage and chain, p50, p99 and p99.9, and
    of energy; exit code 1 when the prediction is further from the measurement than the tolerance, or more is lost.
    """
    if paths and paths[0].suffix == ".json" and paths[0].name != "result.json":
        return _predicted(output, paths, tolerance)
    if len(paths) != 2:
        raise click.UsageError("expected two result folders, or a plan and one or two result folders")
    dir_a, dir_b = paths
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.report.compare import compare, load_result

    comparison = compare(load_result(dir_a), load_result(dir_b), max_regression)

    def show() -> None:
        from socsched.report.terminal import console, table
        from socsched.units import format_duration

        rows = [
            [
                row.name,
                row.figure,
                format_duration(row.a),
                format_duration(row.b),
                f"{row.ratio:.3f}",
                "✗ regression" if row.regressed else "",
            ]
            for row in comparison.rows
        ]
        screen = console(terminal_width())
        columns = ["what", "figure", "A", "B", "B/A", f"above {1 + max_regression:.3g}"]
        screen.print(table(f"A: {dir_a}   B: {dir_b}", columns, rows, (2, 3, 4)))
        for line in comparison.remarks:
            click.echo(line)
        click.echo(f"{len(comparison.regressions)} regressions" if comparison.regressions else "no regression")

    output.result(comparison.document(), show)
    return EXIT_VIOLATED if comparison.regressions else EXIT_OK


def _predicted(output: Output, paths: tuple[Path, ...], tolerance: float) -> int:
    from socsched.cli import line
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.report.compare import load_result
    from socsched.report.prediction import Tolerance, predict

    if not 2 <= len(paths) <= 3:
        raise click.UsageError("expected a plan and one or two result folders: PLAN.json [SIMULATED] MEASURED")
    results = [load_result(path) for path in paths[1:]]
    simulated = results[0] if len(results) == 2 else None
    allowed = Tolerance(p50=tolerance, p99=3 * tolerance, stages=2 * tolerance)
    found = predict(line.load_plan(paths[0]), simulated, results[-1], allowed)

    def show() -> None:
        from socsched.report.terminal import console, table
        from socsched.units import format_duration

        def told(value: float | None, what: str) -> str:
            return "–" if value is None else f"{value:.0f} mW" if what == "energy" else format_duration(round(value))

        rows = [
            [
                entry.name,
                entry.figure.replace("_", "."),
                *(told(v, entry.what) for v in (entry.planned, entry.simulated, entry.measured)),
                "–" if entry.error is None else f"{entry.error:+.1%}",
            ]
            for entry in found.lines
        ]
        columns = ["what", "figure", "planned", "simulated", "measured", "error"]
        console(terminal_width()).print(table("Predicted against measured", columns, rows, (2, 3, 4, 5)))
        for name, error in found.errors.items():
            click.echo(f"{name}: mean error {'–' if error is None else f'{error:.1%}'}")
        for text in found.beyond:
            click.echo(f"✗ {text}")

    output.result(found.document(), show)
    return EXIT_VIOLATED if found.beyond else EXIT_OK
