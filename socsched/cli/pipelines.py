"""`socsched pipelines`: the available workloads and their contents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.interchange import PIPELINE_FORMATS
from socsched.cli.options import NameOrPath, Output, Pair, output_options, ready_to_write, strict_option, terminal_width

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline, Stage
    from socsched.planning.feasibility.infeasible_plan import RefusedOperator


@click.group("pipelines", invoke_without_command=True, short_help="List, show and check pipeline descriptors.")
@output_options
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and check descriptors of workloads; without a subcommand: list."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_pipelines)


@command.command("list")
@output_options
@click.pass_obj
def list_pipelines(output: Output) -> None:
    """List all pipelines: shipped, in the current folder, in $SOCSCHED_PATH."""
    from socsched.descriptor.catalog import get_pipeline, pipeline_names
    from socsched.errors import DescriptorError

    rows: list[dict[str, str]] = []
    for name in pipeline_names():
        try:
            pipeline = get_pipeline(name)
        except DescriptorError as error:
            rows.append({"name": name, "title": f"invalid: {error.findings[0]}", "stages": "", "file": ""})
            continue
        stages = ", ".join(stage.name for stage in pipeline.stages)
        rows.append({"name": name, "title": pipeline.title, "stages": stages, "file": pipeline.file})

    def show() -> None:
        from socsched.reporting.terminal import console, table

        columns = ["name", "title", "stages"]
        console(terminal_width()).print(table("Pipelines", columns, [[r[c] for c in columns] for r in rows]))

    output.result({"pipelines": rows}, show)


@command.command("show")
@click.argument("name", type=NameOrPath("pipelines"))
@output_options
@click.pass_obj
def show_pipeline(output: Output, name: str) -> None:
    """Show sensors, stages and chains of a pipeline."""
    from dataclasses import asdict

    from socsched.descriptor.catalog import get_pipeline

    pipeline = get_pipeline(name)
    output.result({"pipeline": asdict(pipeline)}, lambda: _show(pipeline))


def _show(pipeline: Pipeline) -> None:
    from socsched.reporting.terminal import console, table
    from socsched.units import format_duration, format_size

    screen = console(terminal_width())
    screen.print(f"[bold]{pipeline.title}[/bold]")
    sensors = [[s.name, s.kind, format_duration(s.period_ns), format_size(s.bytes_per_frame)] for s in pipeline.sensors]
    screen.print(table("Sensors", ["sensor", "kind", "period", "frame size"], sensors, (2, 3)))
    stages = [
        [s.name, s.title, _trigger(s), s.model or f"{len(s.costs)} known times", ", ".join(s.precisions), str(s.queue)]
        for s in pipeline.stages
    ]
    screen.print(table("Stages", ["stage", "what", "runs", "model", "precisions", "queue"], stages, (5,), (1,)))
    chains = [
        [
            c.name,
            format_duration(c.deadline_ns),
            format_duration(c.max_age_ns) if c.max_age_ns else "–",
            " → ".join(c.path),
        ]
        for c in pipeline.chains
    ]
    screen.print(table("Chains", ["chain", "deadline", "max reduced data age", "path"], chains, (1, 2), (3,)))


def _trigger(stage: Stage) -> str:
    from socsched.units import format_duration

    when = f"after {', '.join(stage.after)}" if stage.after else f"every {format_duration(stage.period_ns or 0)}"
    return when + (f", reads {', '.join(stage.reads)}" if stage.reads else "")


@command.command("check")
@click.argument("file", type=NameOrPath("pipelines"))
@click.option("-p", "--platform", type=NameOrPath("platforms"), help="Also check that its engines can run every stage.")
@strict_option
@output_options
@click.pass_obj
def check_pipeline(output: Output, file: str, platform: str | None, strict: bool) -> None:
    """Check a pipeline file; all faults at once as file:line:col, exit code 2.

    With --platform, operators of its networks that an accelerator does not support are listed, with the rule's source.
    """
    from socsched.cli.checks import grounds, say
    from socsched.descriptor.catalog import check_places, get_pipeline, get_platform
    from socsched.models.registry import bindings

    pipeline = get_pipeline(file)
    check_places(pipeline.file)
    bindings(pipeline)
    text = f"{file}: a valid pipeline with {len(pipeline.stages)} stages and {len(pipeline.chains)} chains"
    covered, remark = grounds(pipeline.file, strict)
    document: dict[str, Any] = {"valid": True, "name": pipeline.name, "numbers": covered}
    refused: list[RefusedOperator] = []
    if platform:
        from dataclasses import asdict

        from socsched.models.work import stage_work
        from socsched.planning.feasibility.infeasible_plan import refused_operators, require_engines

        board = get_platform(platform)
        require_engines(pipeline, board, stage_work)
        refused = refused_operators(pipeline, board, stage_work)
        document["refused"] = [asdict(row) for row in refused]
        remark += f"; {platform} has an engine for every stage"

    def show() -> None:
        say(text + remark)
        if refused:
            _show_refused(refused)

    output.result(document, show)


def _show_refused(refused: Sequence[RefusedOperator]) -> None:
    from socsched.reporting.terminal import console, table

    def few(names: Sequence[str]) -> str:
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")

    rows = [
        [row.stage, ", ".join(row.engines), row.precision, few(row.operators), row.reason, "; ".join(row.sources)]
        for row in refused
    ]
    columns = ["stage", "engines", "precision", "operators", "why", "source"]
    console(terminal_width()).print(table("Operators that accelerators do not support", columns, rows, (), (4, 5)))


@command.command("import")
@click.argument("form", metavar="FORMAT", type=click.Choice(PIPELINE_FORMATS))
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-p", "--platform", type=NameOrPath("platforms"), help="Platform whose engines the costs are for.")
@click.option(
    "-m", "--mode", help="Power mode of the costs; not given: the platform's default mode, marked as assumed."
)
@click.option("--engine", "engines", type=Pair(), multiple=True, metavar="UNIT=ENGINE", help="Engine of a unit.")
@click.option("--architecture", type=click.Path(path_type=Path), help="CARET's architecture.yaml of a ros2 trace.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="Result folder for a trace.")
@click.option("--conf", type=click.Path(path_type=Path), help="Scheduler configuration of cyberrt.")
@click.option(
    "--channel",
    "channels",
    type=Pair(),
    multiple=True,
    metavar="CHANNEL=WRITER",
    help="Component or period of a channel.",
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default="pipeline.yaml",
    show_default=True,
    help="Output file: the pipeline.",
)
@output_options
@click.pass_obj
def import_pipeline(
    output: Output,
    form: str,
    source: Path,
    platform: str | None,
    mode: str | None,
    engines: tuple[tuple[str, str], ...],
    architecture: Path | None,
    results: Path | None,
    conf: Path | None,
    channels: tuple[tuple[str, str], ...],
    file: Path,
) -> None:
    """Make a pipeline file from another tool's model, configuration or trace.

    SOURCE: an AMALTHEA model (.amxmi), the thread configuration of Autoware's callback isolated executor, a trace in
    BTF, a DAG file of CyberRT or a folder of them, the folder of a CTF trace of ros2_tracing or CARET, an .mcap file,
    a bag of ROS 1, or the folder of a rosbag2 recording.  What the source does not state is left out, or marked as
    assumed.
    """
    from socsched.api import interchange
    from socsched.errors import UsageError

    ready_to_write(file=file)
    if (architecture and form != "ros2") or (results and form not in ("ros2", "btf")):
        raise UsageError("--architecture is for ros2 traces, --results for ros2 and btf", "leave them out")
    if form != "cyberrt" and (conf or channels):
        raise UsageError("--conf and --channel are for cyberrt", "leave them out")
    found = interchange.import_pipeline(
        form,
        source,
        platform=platform,
        mode=mode or "",
        engines=dict(engines),
        architecture=architecture,
        conf=conf,
        channels=dict(channels),
    )
    pipeline = interchange.write_pipeline(found, file)
    output.note(f"wrote {file}")
    if results:
        interchange.import_results(source, results, pipeline=pipeline, architecture=architecture)
        output.note(f"wrote {results}/ (plan.json, result.json, trace.pftrace)")
    for note in found.notes:
        output.note(note)
    document = {
        "pipeline": str(file),
        "sensors": len(pipeline.sensors),
        "stages": [stage.name for stage in pipeline.stages],
        "chains": [chain.name for chain in pipeline.chains],
        "notes": list(found.notes),
    }
    output.result(document, lambda: _show(pipeline))
