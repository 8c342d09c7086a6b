"""`socsched compile`: stages of a pipeline as code for a platform's engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from socsched.cli.options import Output, output_options, pipeline_argument, platform_option, terminal_width


@click.command("compile", short_help="Compile the stages of a pipeline for a platform.")
@pipeline_argument
@platform_option()
@click.option("--stage", help="Only this stage.")
@click.option("--engine", help="Only for this engine.")
@click.option("--weights", type=click.Path(path_type=Path), envvar="SOCSCHED_WEIGHTS", help="npz file with weights.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="artifacts",
    show_default=True,
    help="Folder for the artefacts and their manifest.",
)
@output_options
@click.pass_obj
def command(
    output: Output,
    pipeline: str,
    platform: str,
    stage: str | None,
    engine: str | None,
    weights: Path | None,
    folder: Path,
) -> None:
    """Compile PIPELINE's network stages for every engine of the platform that takes them; results are cached."""
    from socsched.compile.deploy import compile_pipeline
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.weights import load_weights

    manifest = compile_pipeline(
        get_pipeline(pipeline),
        get_platform(platform),
        None,
        folder,
        stage,
        engine,
        load_weights(weights) if weights else None,
        output.note,
    )
    output.result(manifest, lambda: _show(manifest, folder))


def _show(manifest: dict[str, Any], folder: Path) -> None:
    from socsched.report.terminal import console, table

    rows = [
        [a["stage"], a["engine"], a["precision"], a["target"], ", ".join(a["files"]), "; ".join(a["notes"])]
        for a in manifest["artifacts"]
    ]
    columns = ["stage", "engine", "precision", "target", "files", "notes"]
    title = f"{manifest['pipeline']} for {manifest['platform']}, in {folder}/"
    console(terminal_width()).print(table(title, columns, rows))
