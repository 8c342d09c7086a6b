"""`socsched compile`: a plan, or a pipeline for a platform, compiled into a folder that runs on the board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from socsched.cli.names import ENGINE, STAGE
from socsched.cli.options import (
    NameOrPath,
    Output,
    output_options,
    platform_option,
    ready_to_write,
    source_option,
    terminal_width,
)


@click.command("compile", short_help="Compile a plan, or the stages of a pipeline, for a platform.")
@click.argument("pipeline", metavar="PLAN.json|PIPELINE", type=NameOrPath("pipelines"))
@platform_option(required=False)
@source_option
@click.option("--stage", type=STAGE, help="Compile only this stage.")
@click.option("--engine", type=ENGINE, help="Compile only for this engine.")
@click.option(
    "--part", help="With --stage: compile only the layers between two cuts, BEGIN:END (layer names joined by +)."
)
@click.option("--weights", type=click.Path(path_type=Path), envvar="SOCSCHED_WEIGHTS", help=".npz file with weights.")
@click.option(
    "--scales", type=click.Path(path_type=Path), help="JSON file with INT8 scales, as `socsched calibrate` writes it."
)
@click.option("--qdq", is_flag=True, help="Also write int8 stages as ONNX files with Q/DQ and the same integers.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="artifacts",
    show_default=True,
    help="Folder for the artefacts, their manifest and the start script.",
)
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    pipeline: str,
    platform: str | None,
    source: str | None,
    stage: str | None,
    engine: str | None,
    part: str | None,
    weights: Path | None,
    scales: Path | None,
    qdq: bool,
    folder: Path,
) -> None:
    """Compile the stages of a plan for the engines it chose, or PIPELINE's for every engine that takes them.

    The output is one folder with a start script that needs only TVM's runtime; stages of a DLA or NPU become
    an ONNX model with build scripts for the vendor's toolchain, and where its compiler is installed (`socsched doctor`)
    the file that it makes. Results are cached.
    """
    from socsched.api import loading
    from socsched.compiler.packaging.deploy import (
        Request,
        compile_bundle,
        placement,
        runtimes_by_stage,
        shares_by_stage,
    )
    from socsched.compiler.quantize.scales import read_pipeline_scales
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.executor.application import write_application
    from socsched.graph.partition import parse_part
    from socsched.models.weights import load_weights

    output: Output = ctx.obj
    options: dict[str, Any] = {
        "stage": stage,
        "engine": engine,
        "part": parse_part(part) if part else None,
        "scales": read_pipeline_scales(scales) if scales else {},
        "qdq": qdq,
    }
    if pipeline.endswith(".json"):
        plan = loading.load_plan(Path(pipeline))
        if ctx.get_parameter_source("platform") is click.core.ParameterSource.COMMANDLINE and platform != plan.platform:
            raise click.UsageError(f"{pipeline} is a plan for {plan.platform}: omit --platform")
        chosen, board = loading.pipeline_of(plan, source, output.warn), get_platform(plan.platform)
        options |= {"shares": shares_by_stage(plan.tasks), "runtimes": runtimes_by_stage(plan.tasks)}
        if stage is None and engine is None and part is None:
            options["application"] = lambda made: write_application(
                plan, chosen, made, output.note, board, weights, scales
            )
        request = Request(placement(plan.tasks), plan=loading.plan_document(plan), **options)
    elif platform is None:
        raise click.UsageError(f"a pipeline needs a platform: socsched compile {pipeline} -p PLATFORM")
    else:
        chosen, board, request = get_pipeline(pipeline), get_platform(platform), Request(**options)
    ready_to_write(folder=folder)
    arrays = load_weights(weights) if weights else None
    manifest = compile_bundle(chosen, board, request, folder, arrays, output.note)
    output.result(manifest, lambda: _show(manifest, folder))


def _made(handover: dict[str, Any]) -> tuple[str, str]:
    """Return a hand-over's files, and what remains to be done."""
    if "compiled" in handover:
        made = handover["compiled"]
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        return ", ".join(f"{handover['folder']}/{name}" for name in made["files"]), f"compiled by {versions}"
    script = next(name for name in ("build.sh", "build.py") if name in handover["files"])
    return f"{handover['folder']}/model.onnx", f"run {script} there"


def _files(artifact: dict[str, Any]) -> list[str]:
    return [*artifact["files"], *([artifact["qdq"]] if "qdq" in artifact else [])]


def _show(manifest: dict[str, Any], folder: Path) -> None:
    from socsched.reporting.terminal import console, table

    rows = [
        [a["stage"], a["engine"], a["precision"], a["target"], ", ".join(_files(a)), "; ".join(a["notes"])]
        for a in manifest["artifacts"]
    ]
    rows += [[h["stage"], h["engine"], h["precision"], h["toolchain"], *_made(h)] for h in manifest["handovers"]]
    columns = ["stage", "engine", "precision", "target", "files", "notes"]
    title = f"{manifest['pipeline']} for {manifest['platform']}, in {folder}/"
    console(terminal_width()).print(table(title, columns, rows))
