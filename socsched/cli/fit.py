"""`socsched fit`: parameters of a platform's cost model from measured times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import NameOrPath, Output, output_options, ready_to_write, terminal_width

if TYPE_CHECKING:
    from socsched.cost.fitting.recipe import Report

FILE = click.Path(path_type=Path)


@click.command("fit", short_help="Fit a platform's cost model to measured times.")
@click.argument("platform", type=NameOrPath("platforms"))
@click.option("--measurements", type=FILE, multiple=True, metavar="PAIRS.csv", help="Measured times; may be repeated.")
@click.option("--networks", type=FILE, metavar="DIR", help="Folder with NAME.onnx or NAME.onnx.xz.")
@click.option("--profile", "profiles", type=FILE, multiple=True, help="Times of `socsched profile`; with --pipeline.")
@click.option("--pipeline", type=NameOrPath("pipelines"), help="Pipeline whose stages the profiles time.")
@click.option("--engine", metavar="ID", help="Fit this engine only.")
@click.option("--precision", help="Fit this precision only.")
@click.option("--mode", help="Power mode of the anchors; default: the platform's.")
@click.option("--anchor", "anchors", multiple=True, metavar="NETWORK=TIME", help="One measured time; may be repeated.")
@click.option("--family", metavar="NAME", help="Engine family, where the descriptor does not tell it.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out rows, e.g. 'engine=gpu,source=a/*|b/*'.")
@click.option(
    "--host", "hosts", multiple=True, metavar="PATTERN=LAUNCH+SUBMIT", help="Rows under a known host program."
)
@click.option("--joined", multiple=True, metavar="PATTERN", help="Rows that used all clusters of the same core.")
@click.option("--source", default="measurements", show_default=True, help="Key of the descriptor's sources to state.")
@click.option("--date", type=click.DateTime(["%Y-%m-%d"]), help="Day to state; default: today.")
@click.option("-o", "--output", "file", type=FILE, help="Write the sections to paste into the descriptor.")
@click.option("--write", is_flag=True, help="Put the sections into PLATFORM, which must be a file.")
@output_options
@click.pass_obj
def command(
    output: Output,
    /,
    platform: str,
    source: str,
    date: Any,
    file: Path | None,
    write: bool,
    **given: Any,
) -> None:
    """Fit the cost model of PLATFORM's engines to measured times of networks, on it and on boards of its families.

    Without measurements of the board the parameters are those of its engines' families.
    """
    import datetime

    from socsched.api.fitting import fit
    from socsched.cost.fitting.recipe import document, rewritten
    from socsched.cost.measurements import STEM
    from socsched.errors import UsageError
    from socsched.files import write_file

    if not STEM.fullmatch(source):
        raise UsageError(f"--source {source[:50]!r}: expected a key such as boards-2026")
    if write and not Path(platform).is_file():
        raise UsageError(
            f"--write: {platform} is not a file", "socsched platforms new copies a descriptor; use -o otherwise"
        )
    if file is not None:
        ready_to_write(file=file)
    report = fit(platform, **given)
    day = (date.date() if date else datetime.date.today()).isoformat()
    if file is not None:
        write_file(file, document(report.sections, source, day))
        output.note(f"wrote {file}")
    if write:
        from socsched.descriptor.source import read_bytes

        write_file(platform, rewritten(read_bytes(platform), platform, report.sections, source, day))
        output.note(f"wrote {platform}")
    output.result(_content(report), lambda: _show(report))


def _content(report: Report) -> dict[str, Any]:
    from dataclasses import asdict

    sections = [
        {
            "engine": one.use.engine.id,
            "precision": one.use.precision,
            "family": one.family.name,
            "nominal": asdict(one.nominal),
            "parameters": asdict(one.parameters),
            "networks": list(one.networks),
            "error": one.error,
            "error_design": one.error_design,
            "interval": one.interval,
            "classes": list(one.classes),
        }
        for one in report.sections
    ]
    return {
        "platform": report.platform.name,
        "sections": sections,
        "cells": [{"family": found.family.name, **asdict(row)} for found in report.families for row in found.rows],
        "refused": [asdict(one) for one in report.refused],
    }


def _show(report: Report) -> None:
    from collections import Counter
    from dataclasses import asdict

    from socsched.reporting.terminal import console, table

    screen = console(terminal_width())
    for found in report.families:
        if found.rows:
            rows = [
                [
                    row.name,
                    str(len(row.networks)),
                    *(f"{100 * v:.1f}" for v in (row.fitted, row.network, row.design, row.board)),
                ]
                for row in found.rows
            ]
            columns = ["cell", "networks", "fit %", "network out %", "design out %", "board out %"]
            screen.print(table(f"Mean error, {found.family.title}", columns, rows, (1, 2, 3, 4, 5)))
    sections = [
        [
            one.name.removeprefix(f"{report.platform.name}."),
            one.family.name,
            str(len(one.networks)),
            f"{100 * one.error:.1f}",
            "" if one.error_design is None else f"{100 * one.error_design:.1f}",
            f"±{100 * one.interval:.0f}",
        ]
        for one in report.sections
    ]
    columns = ["engine, precision", "family", "networks", "error %", "design out %", "interval %"]
    screen.print(table(f"Fitted: {report.platform.name}", columns, sections, (2, 3, 4, 5)))
    for one in report.sections:
        values = "  ".join(f"{name} {value:.3g}" for name, value in asdict(one.parameters).items())
        screen.print(f"{one.name}: {values}")
        if one.networks:
            screen.print(f"  networks: {', '.join(one.networks)}")
    reasons = Counter(one.reason for one in report.refused)
    if reasons:
        screen.print(
            table("Not used", ["rows", "reason"], [[str(n), reason] for reason, n in reasons.most_common()], (0,))
        )
