"""`socsched calibrate`: int8 scales of a pipeline's networks, from representative frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from socsched.cli.options import (
    Output,
    input_option,
    output_options,
    pipeline_argument,
    ready_to_write,
    seed_option,
    terminal_width,
)


@click.command("calibrate", short_help="Choose int8 scales for a pipeline's networks from frames.")
@pipeline_argument
@input_option
@click.option(
    "--frames", type=click.IntRange(1), help="Number of frames; default: all of --input, else 8 synthetic ones."
)
@click.option("--weights", type=click.Path(path_type=Path), envvar="SOCSCHED_WEIGHTS", help=".npz file with weights.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default="scales.json",
    show_default=True,
    help="Output file: the scales of every stage.",
)
@seed_option
@output_options
@click.pass_obj
def command(
    output: Output,
    pipeline: str,
    input_path: Path | None,
    frames: int | None,
    weights: Path | None,
    file: Path,
    seed: int,
) -> None:
    """Run PIPELINE's networks in fp32 on frames, and choose for every tensor the int8 step that loses least."""
    from socsched.api.execution import list_inputs
    from socsched.compiler.quantize.calibrate import calibrate_pipeline, networks_of
    from socsched.compiler.quantize.scales import write_pipeline_scales
    from socsched.descriptor.catalog import get_pipeline
    from socsched.models.registry import bindings
    from socsched.models.weights import draw_weights, load_weights
    from socsched.runtime.inputs import sources

    chosen, files = get_pipeline(pipeline), list_inputs(input_path)
    networks = networks_of(chosen)
    ready_to_write(file=file)
    if weights is None:
        if networks:
            output.warn("no weights given: the scales are valid for the seeded random weights only")
        arrays = {name: array for network in networks for name, array in draw_weights(network).items()}
    else:
        arrays = load_weights(weights)
    feeds = sources(chosen, bindings(chosen), files, seed)
    count = frames or max((feed.count for feed in feeds.values()), default=0) or 8
    synthetic = [name for name, feed in feeds.items() if not feed.count and feed.frame(0).outputs]
    if synthetic:
        output.warn(
            f"synthetic frames for {', '.join(synthetic)}: the scales are only as good as the frames are realistic"
        )
    samples = [[feed.frame(number) for feed in feeds.values()] for number in range(count)]
    usable = [
        {k: v for one in frame for k, v in one.outputs.items()}
        for frame in samples
        if not any(f.problem for f in frame)
    ]
    scales = calibrate_pipeline(chosen, arrays, usable)
    write_pipeline_scales(file, scales)
    result = {"file": str(file), "frames": len(usable), "stages": {name: len(s.values) for name, s in scales.items()}}
    output.result(result, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    from socsched.reporting.terminal import console

    stages = ", ".join(f"{name} ({count} tensors)" for name, count in result["stages"].items()) or "no stage"
    console(terminal_width()).print(f"{result['file']}: int8 scales of {stages} from {result['frames']} frames")
