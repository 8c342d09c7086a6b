"""`socsched platforms`: the available SoCs and their properties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.names import ENGINE
from socsched.cli.options import NameOrPath, Output, mode_option, output_options, strict_option, terminal_width
from socsched.cli.platform_rules import command as rules

if TYPE_CHECKING:
    from socsched.descriptor.platform import Engine, Platform, PowerMode


@click.group("platforms", invoke_without_command=True, short_help="List, show and check platform descriptors.")
@output_options
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and check descriptors of SoCs; without a subcommand: list."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_platforms)


@command.command("list")
@output_options
@click.pass_obj
def list_platforms(output: Output) -> None:
    """List all platforms: shipped, in the current folder, in $SOCSCHED_PATH; `host` is this machine."""
    from socsched.descriptor.catalog import HOST, get_platform, platform_names
    from socsched.errors import DescriptorError

    rows: list[dict[str, str]] = []
    for name in platform_names():
        if name == HOST:
            rows.append({"name": name, "title": "this machine, detected", "engines": "", "file": ""})
            continue
        try:
            platform = get_platform(name)
        except DescriptorError as error:
            rows.append({"name": name, "title": f"invalid: {error.findings[0]}", "engines": "", "file": ""})
            continue
        engines = ", ".join(engine.id for engine in platform.engines)
        rows.append({"name": name, "title": platform.title, "engines": engines, "file": platform.file})

    def show() -> None:
        from socsched.reporting.terminal import console, table

        columns = ["name", "title", "engines"]
        console(terminal_width()).print(table("Platforms", columns, [[r[c] for c in columns] for r in rows]))

    output.result({"platforms": rows}, show)


@command.command("show")
@click.argument("name", type=NameOrPath("platforms"))
@mode_option
@click.option("--engine", type=ENGINE, help="Show only this engine, with its operating points.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the rooflines: FILE.svg.")
@click.option(
    "--pipeline",
    type=NameOrPath("pipelines"),
    default="pointpillars",
    show_default=True,
    help="Pipeline whose stages to place on the rooflines.",
)
@click.option("--precision", type=click.Choice(["fp32", "fp16", "int8"]), help="Draw one precision only.")
@output_options
@click.pass_obj
def show_platform(
    output: Output,
    name: str,
    mode: str | None,
    engine: str | None,
    plot: Path | None,
    pipeline: str,
    precision: str | None,
) -> None:
    """Show engines with their peaks in a power mode, the modes, rails and limits, and where the figures are from."""
    from dataclasses import asdict

    from socsched.api.planning import get_mode
    from socsched.cost.roofs import accelerator_int8_peak, peaks
    from socsched.descriptor.catalog import get_platform

    platform = get_platform(name)
    chosen = get_mode(platform, mode)
    only = _engine(platform, engine)
    drawn: dict[str, Any] = {}
    if plot:
        from socsched.cli.platform_plot import plot as draw

        drawn = draw(platform, chosen, plot, pipeline, precision, engine)
        output.note(f"wrote {plot}")
    total = accelerator_int8_peak(platform, chosen)
    document = {
        "platform": asdict(platform),
        "mode": chosen.name,
        "peaks": [asdict(item) for item in peaks(platform, chosen)],
        "int8_total": {"dense": total.dense, "sparse": total.sparse},
        **drawn,
    }
    output.result(document, lambda: _show(platform, chosen, only))


def _engine(platform: Platform, name: str | None) -> Engine | None:
    from socsched.errors import UsageError

    if name is None:
        return None
    try:
        return platform.engine(name)
    except KeyError:
        known = ", ".join(engine.id for engine in platform.engines)
        raise UsageError(f"{platform.name} has no engine {name!r}", f"its engines: {known}") from None


def _show(platform: Platform, mode: PowerMode, engine: Engine | None) -> None:
    from dataclasses import replace

    from socsched.reporting import platform_tables as tables
    from socsched.reporting.terminal import console

    screen = console(terminal_width())
    if engine is None:
        for part in tables.view(platform, mode):
            screen.print(part)
        return
    screen.print(tables.engines(replace(platform, engines=(engine,)), mode))
    points = tables.operating_points(engine)
    screen.print(points if points is not None else "no known operating points")


command.add_command(rules)


@command.command("new")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file; default: platforms/NAME.yaml.  An existing file is not overwritten.",
)
@output_options
@click.pass_obj
def new_platform(output: Output, name: str, file: Path | None) -> None:
    """Write a commented platform file to fill in; it passes `check --strict`, its figures are placeholders."""
    from socsched.descriptor.platform_file import write_skeleton

    written = write_skeleton(name, file or Path("platforms") / f"{name}.yaml")
    show = f"wrote {written}: replace the placeholders, then: socsched platforms check {written} --strict"
    output.result({"file": str(written)}, lambda: click.echo(show))


@command.command("check")
@click.argument("file", type=NameOrPath("platforms"))
@strict_option
@output_options
@click.pass_obj
def check_platform(output: Output, file: str, strict: bool) -> None:
    """Check a platform file; all faults at once as file:line:col, exit code 2."""
    from socsched.cli.checks import grounds, say
    from socsched.descriptor.catalog import get_platform

    platform = get_platform(file)
    text = f"{file}: a valid platform with {len(platform.engines)} engines and {len(platform.modes)} power modes"
    covered, remark = grounds(platform.file, strict)
    document = {"valid": True, "name": platform.name, "numbers": covered}
    output.result(document, lambda: say(text + remark))
