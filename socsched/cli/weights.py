"""`socsched weights` and `socsched calibrate`: weights of other projects, and int8 scales from frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from socsched.api.options import RunOptions, Whole, argument, option, shared
from socsched.cli.options import output_file, pipeline, weights
from socsched.cli.output import Output, echo, output_parameters, ready_to_write
from socsched.cli.verbs import Request, verb
from socsched.errors import UsageError
from socsched.files import replacing

LAYOUTS = ("auto", "zhulf0804", "mmdet3d-0.x", "mmdet3d-1.x", "openpcdet")

command = click.Group(
    "weights",
    params=output_parameters(),
    short_help="Import weights from checkpoints of other projects.",
    help="Convert weights of other projects to the format of the built-in networks.",
)


class ImportRequest(Request):
    """The checkpoint to read, and where its weights go."""

    file: Path = argument("file")
    layout: str = option(
        "--layout", kind=LAYOUTS, default="auto", shown=True,
        help="Project whose tensor names and conventions the file follows.",
    )  # fmt: skip
    target: Path = option(
        "-o", "--output", kind="file", default="weights.npz", shown=True, help="Output file: the weights."
    )


@verb("import", ImportRequest, group=command)
def import_weights(output: Output, request: ImportRequest) -> None:
    """Read a PointPillars checkpoint (.pth) or ONNX export and write its weights, batch norm folded, as .npz.

    Checkpoints of zhulf0804/PointPillars, mmdetection3d and OpenPCDet are known. A checkpoint is never unpickled: only
    tensors are read from it. Every unused tensor is named.
    """
    import numpy as np

    from socsched.models.pointpillars import checkpoints

    file, layout, target = request.file, request.layout, request.target
    ready_to_write(file=target)
    if file.suffix == ".onnx":
        if layout == "auto":
            raise UsageError(
                f"{file}: an ONNX file does not name the project it is from", "name the project with --layout"
            )
        converted = checkpoints.from_onnx(str(file), layout)
    else:
        from socsched.models.torch_file import read_checkpoint

        read = read_checkpoint(file)
        layout = checkpoints.guess(read.tensors, read.meta) if layout == "auto" else layout
        converted = checkpoints.convert(read.tensors, layout)
    with replacing(target) as archive:
        np.savez(archive, **converted.weights)  # type: ignore[arg-type]
    result: dict[str, Any] = {
        "file": str(target),
        "layout": layout,
        "model": converted.model,
        "tensors": len(converted.weights),
        "unplaced": list(converted.unplaced),
        "decode": converted.decode,
        "remarks": converted.remarks,
    }

    def show() -> None:
        echo(f"{target}: {result['tensors']} parameters of {result['model']}, read as {layout}")
        for remark in result["remarks"]:
            echo(f"- {remark}")
        if result["unplaced"]:
            echo(f"- unused tensors: {', '.join(result['unplaced'])}")
        if result["decode"]:
            params = ", ".join(f"{name}: {value}" for name, value in result["decode"].items())
            echo(f"- the decode stage needs `params: {{{params}}}`")

    output.result(result, show)


class CalibrateRequest(Request):
    """The networks and frames to calibrate with, and where the scales go."""

    pipeline: str = pipeline()
    inputs: Path | None = shared(RunOptions, "inputs")
    frames: int | None = option(
        "--frames", kind=Whole(1), help="Number of frames; default: all of --input, else 8 synthetic ones."
    )
    weights: Path | None = weights()
    file: Path = output_file("Output file: the scales of every stage.", "scales.json")
    seed: int = shared(RunOptions, "seed")


@verb("calibrate", CalibrateRequest, "Choose int8 scales for a pipeline's networks from frames.")
def calibrate(output: Output, request: CalibrateRequest) -> None:
    """Run PIPELINE's networks in fp32 on frames, and choose for every tensor the int8 step that loses least."""
    from socsched.api.execution import list_inputs
    from socsched.compiler.quantize.calibrate import calibrate_pipeline, networks_of
    from socsched.compiler.quantize.scales import write_pipeline_scales
    from socsched.descriptor.catalog import get_pipeline
    from socsched.models.registry import bindings
    from socsched.models.weights import draw_weights, load_weights
    from socsched.runtime.inputs import sources

    pipeline, files = get_pipeline(request.pipeline), list_inputs(request.inputs)
    networks = networks_of(pipeline)
    ready_to_write(file=request.file)
    if request.weights is None:
        if networks:
            output.warn("no weights given: the scales are valid for the seeded random weights only")
        arrays = {name: array for network in networks for name, array in draw_weights(network).items()}
    else:
        arrays = load_weights(request.weights)
    feeds = sources(pipeline, bindings(pipeline), files, request.seed)
    count = request.frames or max((feed.count for feed in feeds.values()), default=0) or 8
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
    scales = calibrate_pipeline(pipeline, arrays, usable)
    write_pipeline_scales(request.file, scales)
    sizes = {name: len(each.values) for name, each in scales.items()}
    stages = ", ".join(f"{name} ({size} tensors)" for name, size in sizes.items()) or "no stage"
    result = {"file": str(request.file), "frames": len(usable), "stages": sizes}
    output.result(result, lambda: f"{request.file}: int8 scales of {stages} from {len(usable)} frames")
