"""`socsched weights`: convert weights of other projects to the format of the built-in networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from socsched.cli.options import Output, echo, output_options, ready_to_write

LAYOUTS = ("auto", "zhulf0804", "mmdet3d-0.x", "mmdet3d-1.x", "openpcdet")


@click.group("weights", short_help="Import weights from checkpoints of other projects.")
@output_options
def command() -> None:
    """Convert weights of other projects to the format of the built-in networks."""


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="auto",
    show_default=True,
    help="Project whose tensor names and conventions the file follows.",
)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    default="weights.npz",
    show_default=True,
    help="Output file: the weights.",
)
@output_options
@click.pass_obj
def import_(output: Output, file: Path, layout: str, target: Path) -> None:
    """Read a PointPillars checkpoint (.pth) or ONNX export and write its weights, batch norm folded, as .npz.

    Checkpoints of zhulf0804/PointPillars, mmdetection3d and OpenPCDet are known. A checkpoint is never unpickled: only
    tensors are read from it. Every unused tensor is named.
    """
    import numpy as np

    from socsched.errors import UsageError
    from socsched.files import replacing
    from socsched.models.pointpillars import checkpoints

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
    output.result(result, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    echo(f"{result['file']}: {result['tensors']} parameters of {result['model']}, read as {result['layout']}")
    for remark in result["remarks"]:
        echo(f"- {remark}")
    if result["unplaced"]:
        echo(f"- unused tensors: {', '.join(result['unplaced'])}")
    if result["decode"]:
        params = ", ".join(f"{name}: {value}" for name, value in result["decode"].items())
        echo(f"- the decode stage needs `params: {{{params}}}`")
