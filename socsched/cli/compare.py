"""`socsched compare`: two results side by side, with a gate for CI."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import Output, Percentage, output_options, terminal_width


@click.command("compare", short_help="Compare two results; fail on a regression.")
@click.argument("dir_a", type=click.Path(path_type=Path))
@click.argument("dir_b", type=click.Path(path_type=Path))
@click.option(
    "--max-regression",
    type=Percentage(),
    default="5%",
    show_default=True,
    help="How much slower B may be than A.",
)
@output_options
@click.pass_obj
def command(output: Output, dir_a: Path, dir_b: Path, max_regression: float) -> int:
    """Compare the results in DIR_A (the baseline) and DIR_B: stage medians and chain p99.

    Either may come from `simulate` or `run`.  Exit code 1 when anything in B is slower than allowed, or misses more.
    """
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
