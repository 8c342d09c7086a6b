"""`socsched platforms`: what SoCs there are and what is known about each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import NameOrPath, Output, mode_option, output_options, terminal_width

if TYPE_CHECKING:
    from socsched.descriptor.platform import Figure, Platform, PowerMode


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
            rows.append({"name": name, "title": f"faulty: {error.findings[0]}", "engines": "", "file": ""})
            continue
        engines = ", ".join(engine.id for engine in platform.engines)
        rows.append({"name": name, "title": platform.title, "engines": engines, "file": platform.file})

    def show() -> None:
        from socsched.report.terminal import console, table

        columns = ["name", "title", "engines"]
        console(terminal_width()).print(table("Platforms", columns, [[r[c] for c in columns] for r in rows]))

    output.result({"platforms": rows}, show)


@command.command("show")
@click.argument("name", type=NameOrPath("platforms"))
@mode_option
@output_options
@click.pass_obj
def show_platform(output: Output, name: str, mode: str | None) -> None:
    """Show engines, power modes and the source of every figure of a platform."""
    from dataclasses import asdict

    from socsched.cli.line import get_mode
    from socsched.descriptor.catalog import get_platform

    platform = get_platform(name)
    chosen = get_mode(platform, mode)
    output.result({"platform": asdict(platform)}, lambda: _show(platform, chosen))


def _show(platform: Platform, mode: PowerMode) -> None:
    from socsched.report.terminal import console, table
    from socsched.units import format_bandwidth, format_frequency, format_power

    screen = console(terminal_width())
    screen.print(f"[bold]{platform.title}[/bold]  ({platform.vendor})")
    achievable = _figure(platform.dram.achievable, format_bandwidth)
    screen.print(f"DRAM {achievable} of {format_bandwidth(platform.dram.peak.value)} peak")
    engines: list[list[str]] = []
    for engine in platform.engines:
        state = mode.engines[engine.id]
        on = f"{state.units} {engine.unit}s at {format_frequency(state.clock_hz)}" if state.units else "off"
        formats = ", ".join(f"{p.dtype} ({p.layout})" for p in engine.precisions.values())
        rest = "at any instant" if engine.preemption.kind == "full" else engine.preemption.segment_kind or "never"
        engines.append([engine.id, engine.title, on, formats, rest, _figure(engine.bandwidth, format_bandwidth)])
    columns = ["engine", "what", f"in mode {mode.name}", "precisions", "gives up", "bandwidth alone"]
    screen.print(table("Engines", columns, engines))
    modes = [
        [
            m.name,
            _figure(m.cap_mw, format_power) if m.cap_mw else "none stated",
            _figure(m.dram, format_bandwidth),
            "default" if m.default else "",
        ]
        for m in platform.modes
    ]
    screen.print(table("Power modes", ["mode", "cap", "DRAM", ""], modes))
    sources = [[key, source.title, source.where] for key, source in platform.sources.items()]
    screen.print(table("Sources", ["key", "title", "where"], sources))


def _figure(figure: Figure, show: Any) -> str:
    source = f", {figure.source}" if figure.source else ""
    return f"{show(figure.value)} ({figure.kind}{source})"


@command.command("check")
@click.argument("file", type=NameOrPath("platforms"))
@output_options
@click.pass_obj
def check_platform(output: Output, file: str) -> None:
    """Check a platform file; all faults at once as file:line:col, exit code 2."""
    from socsched.descriptor.catalog import get_platform

    platform = get_platform(file)
    text = f"{file}: a valid platform with {len(platform.engines)} engines and {len(platform.modes)} power modes"
    output.result({"valid": True, "name": platform.name}, lambda: click.echo(text))
