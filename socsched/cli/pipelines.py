"""`socsched pipelines`: the available workloads and their contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api import interchange
from socsched.api.interchange import PIPELINE_FORMATS
from socsched.api.options import argument, option
from socsched.cli.options import output_file, strict
from socsched.cli.output import Output, ready_to_write, table
from socsched.cli.platforms import ListRequest, descriptors, grounds, listing
from socsched.cli.verbs import Request, verb
from socsched.errors import DescriptorError, UsageError
from socsched.models.precision import settled
from socsched.units import format_duration, format_size

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline, Stage
    from socsched.planning.feasibility.infeasible_plan import RefusedOperator

command = descriptors(
    "pipelines",
    "List, show and check pipeline descriptors.",
    "List, show and check descriptors of workloads; without a subcommand: list.",
)


@verb("list", ListRequest, group=command)
def list_pipelines(output: Output, _: ListRequest) -> None:
    """List all pipelines: shipped, in the current folder, in $SOCSCHED_PATH."""
    from socsched.descriptor.catalog import get_pipeline, pipeline_names

    rows: list[dict[str, str]] = []
    for name in pipeline_names():
        try:
            pipeline = get_pipeline(name)
        except DescriptorError as error:
            rows.append({"name": name, "title": f"invalid: {error.findings[0]}", "stages": "", "file": ""})
            continue
        stages = ", ".join(stage.name for stage in pipeline.stages)
        rows.append({"name": name, "title": pipeline.title, "stages": stages, "file": pipeline.file})
    output.result({"pipelines": rows}, lambda: listing("Pipelines", ["name", "title", "stages"], rows))


class ShowRequest(Request):
    """The pipeline to show."""

    name: str = argument("pipeline")


@verb("show", ShowRequest, group=command)
def show_pipeline(output: Output, request: ShowRequest) -> None:
    """Show sensors, stages and chains of a pipeline."""
    from socsched.descriptor.catalog import get_pipeline

    pipeline = get_pipeline(request.name)
    output.result({"pipeline": asdict(pipeline)}, lambda: _tables(pipeline))


def _tables(pipeline: Pipeline) -> list[Any]:
    shown: list[Any] = [f"[bold]{pipeline.title}[/bold]"]
    sensors = [[s.name, s.kind, format_duration(s.period_ns), format_size(s.bytes_per_frame)] for s in pipeline.sensors]
    shown.append(table("Sensors", ["sensor", "kind", "period", "frame size"], sensors, (2, 3)))
    stages = [
        [s.name, s.title, _trigger(s), s.model or f"{len(s.costs)} known times", ", ".join(s.precisions), str(s.queue)]
        for s in pipeline.stages
    ]
    shown.append(table("Stages", ["stage", "what", "runs", "model", "precisions", "queue"], stages, (5,), (1,)))
    chains = [
        [
            c.name,
            format_duration(c.deadline_ns),
            format_duration(c.max_age_ns) if c.max_age_ns else "–",
            " → ".join(c.path),
        ]
        for c in pipeline.chains
    ]
    shown.append(table("Chains", ["chain", "deadline", "max reduced data age", "path"], chains, (1, 2), (3,)))
    return shown


def _trigger(stage: Stage) -> str:
    when = f"after {', '.join(stage.after)}" if stage.after else f"every {format_duration(stage.period_ns or 0)}"
    return when + (f", reads {', '.join(stage.reads)}" if stage.reads else "")


class CheckRequest(Request):
    """The file to check, and the platform that has to run it."""

    file: str = argument("pipeline")
    platform: str | None = option(
        "-p", "--platform", kind="platform", help="Also check that its engines can run every stage."
    )
    strict: bool = strict()


@verb("check", CheckRequest, group=command)
def check_pipeline(output: Output, request: CheckRequest) -> None:
    """Check a pipeline file; all faults at once as file:line:col, exit code 2.

    With --platform, operators of its networks that an accelerator does not support are listed, with the rule's source.
    """
    from socsched.descriptor.catalog import check_places, get_pipeline, get_platform
    from socsched.models.registry import bindings
    from socsched.models.work import stage_work
    from socsched.planning.feasibility.infeasible_plan import refused_operators, require_engines

    pipeline = settled(get_pipeline(request.file))
    check_places(pipeline.file)
    bindings(pipeline)
    text = f"{request.file}: a valid pipeline with {len(pipeline.stages)} stages and {len(pipeline.chains)} chains"
    covered, remark = grounds(pipeline.file, request.strict)
    document: dict[str, Any] = {"valid": True, "name": pipeline.name, "numbers": covered}
    refused: list[RefusedOperator] = []
    if request.platform:
        board = get_platform(request.platform)
        require_engines(pipeline, board, stage_work)
        refused = refused_operators(pipeline, board, stage_work)
        document["refused"] = [asdict(row) for row in refused]
        remark += f"; {request.platform} has an engine for every stage"

    def show() -> list[Any]:
        from rich.text import Text

        return [Text(text + remark), *([_refused_table(refused)] if refused else [])]

    output.result(document, show)


def _refused_table(refused: Sequence[RefusedOperator]) -> Any:
    def few(names: Sequence[str]) -> str:
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")

    rows = [
        [row.stage, ", ".join(row.engines), row.precision, few(row.operators), row.reason, "; ".join(row.sources)]
        for row in refused
    ]
    columns = ["stage", "engines", "precision", "operators", "why", "source"]
    return table("Operators that accelerators do not support", columns, rows, (), (4, 5))


class ImportRequest(Request):
    """Another tool's model, configuration or trace, what it leaves open, and where the pipeline goes."""

    form: str = argument(PIPELINE_FORMATS, metavar="FORMAT")
    source: Path = argument("path")
    platform: str | None = option("-p", "--platform", kind="platform", help="Platform whose engines the costs are for.")
    mode: str | None = option(
        "-m", "--mode",
        help="Power mode of the costs; not given: the platform's default mode, marked as assumed.",
    )  # fmt: skip
    engines: tuple[tuple[str, str], ...] = option(
        "--engine", kind="pair", multiple=True, metavar="UNIT=ENGINE", help="Engine of a unit."
    )
    architecture: Path | None = option("--architecture", kind="path", help="CARET's architecture.yaml of a ros2 trace.")
    results: Path | None = option("--results", kind="folder", help="Result folder for a trace.")
    conf: Path | None = option("--conf", kind="path", help="Scheduler configuration of cyberrt.")
    channels: tuple[tuple[str, str], ...] = option(
        "--channel", kind="pair", multiple=True, metavar="CHANNEL=WRITER", help="Component or period of a channel."
    )
    file: Path = output_file("Output file: the pipeline.", "pipeline.yaml")


@verb("import", ImportRequest, group=command)
def import_pipeline(output: Output, request: ImportRequest) -> None:
    """Make a pipeline file from another tool's model, configuration or trace.

    SOURCE: an AMALTHEA model (.amxmi), the thread configuration of Autoware's callback isolated executor, a trace in
    BTF, a DAG file of CyberRT or a folder of them, the folder of a CTF trace of ros2_tracing or CARET, an .mcap file,
    a bag of ROS 1, or the folder of a rosbag2 recording.  What the source does not state is left out, or marked as
    assumed.
    """
    form, file, results, architecture = request.form, request.file, request.results, request.architecture
    ready_to_write(file=file)
    if (architecture and form != "ros2") or (results and form not in ("ros2", "btf")):
        raise UsageError("--architecture is for ros2 traces, --results for ros2 and btf", "leave them out")
    if form != "cyberrt" and (request.conf or request.channels):
        raise UsageError("--conf and --channel are for cyberrt", "leave them out")
    imported = interchange.import_pipeline(
        form,
        request.source,
        platform=request.platform,
        mode=request.mode or "",
        engines=dict(request.engines),
        architecture=architecture,
        conf=request.conf,
        channels=dict(request.channels),
    )
    pipeline = interchange.write_pipeline(imported, file)
    output.note(f"wrote {file}")
    if results:
        interchange.import_results(request.source, results, pipeline=pipeline, architecture=architecture)
        output.note(f"wrote {results}/ (plan.json, result.json, trace.bin)")
    for note in imported.notes:
        output.note(note)
    document = {
        "pipeline": str(file),
        "sensors": len(pipeline.sensors),
        "stages": [stage.name for stage in pipeline.stages],
        "chains": [chain.name for chain in pipeline.chains],
        "notes": list(imported.notes),
    }
    output.result(document, lambda: _tables(pipeline))
