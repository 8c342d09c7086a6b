"""`socsched validate`: predictions against measured execution times, with a bar for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from socsched.cli.options import NameOrPath, Output, folder_option, output_options, ready_to_write, terminal_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from socsched.validation.power import PowerValidation
    from socsched.validation.validate import Validation


@click.command("validate", short_help="Compare predicted with measured execution times, or power, of networks.")
@click.argument("pairs", type=click.Path(path_type=Path, dir_okay=False), metavar="PAIRS.csv")
@click.option(
    "--networks",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the networks, NAME.onnx or NAME.onnx.xz.",
)
@click.option(
    "--bar",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Limits on the scores (YAML); exit code 1 beyond them.",
)
@click.option(
    "-p",
    "--platform",
    "platforms",
    type=NameOrPath("platforms"),
    multiple=True,
    help="Own descriptor file for the rows of its platform; several may be given.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Predict rows without scoring them, e.g. 'network=bert*,engine=gpu'; several may be given.",
)
@folder_option
@output_options
@click.pass_obj
def command(
    output: Output,
    /,
    pairs: Path,
    networks: Path,
    bar: Path | None,
    platforms: tuple[str, ...],
    exclude: tuple[str, ...],
    folder: Path | None,
) -> int:
    """Predict every row of PAIRS.csv (or .csv.gz) as `plan` does, and score the predictions.

    Columns: id, platform, engine, precision, mode, share (units used; empty: all), network (file stem), measured_ms,
    statistic, flag (empty: usable), source; others are kept.  Rows that agree in platform, engine, precision, mode,
    share and network are one cell, and the fastest unflagged one is its measurement.  Per engine and precision, and
    overall: cells, median ratio of predicted to measured, MAPE (mean of |ratio - 1|), P90 (what 90 % keep within),
    Spearman's rank correlation, and the share measured inside the interval, time x (1 +- stated error).

    A table with the column measured_w instead of measured_ms is one of power: meter (wall, module or rail NAME) says
    where it was measured, and engine may name several that run the network at the same time (gpu+dla0).

    With a column runtime, a row of a program whose speed a fit states is predicted for that program, and rows of others
    are kept apart: predicted, counted, and scored in a line of their own.

    The folder gets rows.csv (the input and predicted_ms, lo_ms, hi_ms, inside, provenance, refused), summary.json and
    index.html.  Exit code 0: the bar is kept, or none is given, 1: it is not.
    """
    from socsched.cost.measurements import is_power_table
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.validation.page import save
    from socsched.validation.power import validate_power
    from socsched.validation.validate import validate

    ready_to_write(folder=folder)
    if is_power_table(pairs):
        found: Validation | PowerValidation = validate_power(pairs, networks, bar, platforms)
    else:
        found = validate(pairs, networks, bar, platforms, exclude)
    if folder:
        save(found, folder)
        output.note(f"wrote {folder}/ (rows.csv, summary.json, index.html)")
    output.result(found.document, lambda: _show(found))
    held = found.document["bar"]
    return EXIT_VIOLATED if held and not held["held"] else EXIT_OK


def _show(found: Validation | PowerValidation) -> None:
    from rich.text import Text

    from socsched.reporting.terminal import console, table
    from socsched.validation.page import SCORES, headline, score_cells

    document = found.document
    names = [
        name for name in ("platform", "meter", "engine", "precision") if any(name in g for g in document["groups"])
    ]
    names = names or ["platform", "engine"]
    rows = [[*(str(dict(group)[name]) for name in names), *score_cells(group)] for group in document["groups"]]
    rows.append(["overall", *("" for _ in names[1:]), *score_cells(document["overall"])])
    fields = cast("Mapping[str, Any]", document)
    apart = fields.get("apart", ())
    if apart:
        rows.append(["with cells apart", *("" for _ in names[1:]), *score_cells(fields["everything"])])
    heads = ["" if name == "precision" else name for name in names]
    right = range(len(names), len(names) + len(SCORES))
    screen = console(terminal_width())
    screen.print(table("Predicted against measured", [*heads, *SCORES], rows, right, (len(names) + 1, len(names) + 5)))
    lines = [headline(document)]
    lines += [f"refused {item['rows']} rows: {item['reason']}" for item in document["refusals"][:5]]
    lines += [f"apart {item['cells']} cells: {item['reason']}" for item in apart[:5]]
    bar = document["bar"]
    if bar:
        lines.append(f"✓ {bar['file']} is kept" if bar["held"] else f"✗ {bar['file']} is not kept")
        lines += [f"  {failure}" for failure in bar["failures"]]
    for line in lines:
        screen.print(Text(line))
