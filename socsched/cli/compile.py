"""`socsched compile`: a plan, or a pipeline for a platform, compiled into a folder that runs on the board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from socsched.api.options import CompileOptions, argument, requested
from socsched.cli.options import output_folder, platform, source
from socsched.cli.output import Output, ready_to_write
from socsched.cli.results import on_the_line
from socsched.cli.verbs import Request, verb


class CompileRequest(Request):
    """What is compiled, for what, and where the artefacts go."""

    pipeline: str = argument("pipeline", metavar="PLAN.json|PIPELINE")
    platform: str | None = platform(required=False)
    source: str | None = source()
    options: CompileOptions = requested(CompileOptions)
    folder: Path = output_folder("Folder for the artefacts, their manifest and the start script.", "artifacts")


@verb("compile", CompileRequest, "Compile a plan, or the stages of a pipeline, for a platform.")
def command(output: Output, request: CompileRequest) -> None:
    """Compile the stages of a plan for the engines it chose, or PIPELINE's for every engine that takes them.

    The output is one folder with a start script that needs only TVM's runtime; stages of a DLA or NPU become
    an ONNX model with build scripts for the vendor's toolchain, and where its compiler is installed (`socsched doctor`)
    the file that it makes. Results are cached.
    """
    from socsched.api import loading
    from socsched.api.deployment import compile_pipeline, compile_plan
    from socsched.descriptor.catalog import get_platform

    name, folder, options = request.pipeline, request.folder, request.options
    if name.endswith(".json"):
        plan = loading.load_plan(Path(name))
        if on_the_line("platform") and request.platform != plan.platform:
            raise click.UsageError(f"{name} is a plan for {plan.platform}: omit --platform")
        pipeline = loading.pipeline_of(plan, request.source, output.warn)
        ready_to_write(folder=folder)
        manifest = compile_plan(plan, pipeline, folder, options, output.note)
    elif request.platform is None:
        raise click.UsageError(f"a pipeline needs a platform: socsched compile {name} -p PLATFORM")
    else:
        pipeline, board = loading.load_pipeline(name), get_platform(request.platform)
        ready_to_write(folder=folder)
        manifest = compile_pipeline(pipeline, board, folder, options, output.note)
    output.result(manifest, lambda: _table(manifest, folder))


def _table(manifest: dict[str, Any], folder: Path) -> Any:
    from socsched.reporting.terminal import table

    rows = []
    for a in manifest["artifacts"]:
        files = [*a["files"], *([a["qdq"]] if "qdq" in a else [])]
        rows.append([a["stage"], a["engine"], a["precision"], a["target"], ", ".join(files), "; ".join(a["notes"])])
    for h in manifest["handovers"]:
        if "compiled" in h:
            files = [f"{h['folder']}/{name}" for name in h["compiled"]["files"]]
            versions = ", ".join(f"{name} {version}" for name, version in h["compiled"]["versions"].items())
            left = f"compiled by {versions}"
        else:
            files = [f"{h['folder']}/model.onnx"]
            left = f"run {next(name for name in ('build.sh', 'build.py') if name in h['files'])} there"
        rows.append([h["stage"], h["engine"], h["precision"], h["toolchain"], ", ".join(files), left])
    title = f"{manifest['pipeline']} for {manifest['platform']}, in {folder}/"
    return table(title, ["stage", "engine", "precision", "target", "files", "notes"], rows)
