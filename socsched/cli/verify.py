"""`socsched verify`: a network's outputs on this machine or in a bundle against ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.options import PlanOptions, argument, option, shared
from socsched.cli.output import Output, table
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED
from socsched.models.precision import CHOICES
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.api.verification import Verified


class VerifyRequest(Request):
    """Which network is verified, where, on which inputs."""

    network: Path = argument("path", metavar="NETWORK.onnx")
    place: str = option(
        "-p", "--platform", metavar="host|BUNDLE", default="host", shown=True,
        help="This machine, or the folder of a bundle for a machine like this one.",
    )  # fmt: skip
    inputs: Path | None = option(
        "--inputs", kind="file",
        help="An .npz file with an array for each input.  [default: seeded, in the range that the first layers expect]",
    )  # fmt: skip
    precision: str = option(
        "--precision", kind=CHOICES, default="auto", shown=True,
        help="Data type to plan the network in; auto: the fastest, or as the file's integers.",
    )  # fmt: skip
    runtimes: tuple[str, ...] = option(
        "--runtime", multiple=True, metavar="[ENGINE=]NAME",
        help="Program that computes the network here, as for `plan`.  [default: tvm, this project's kernels]",
    )  # fmt: skip
    shapes: tuple[str, ...] = shared(PlanOptions, "shapes")
    dims: tuple[str, ...] = shared(PlanOptions, "dims")


@verb("verify", VerifyRequest, "Compare a network's outputs and time with ONNX Runtime's.")
def command(output: Output, request: VerifyRequest) -> int:
    """Plan, compile and run NETWORK on this machine, or run it in a bundle, and compare it with ONNX Runtime.

    Outputs may be apart by the tolerance of the precision: 0.001 of the largest value in fp32, 0.02 in fp16 and int8.
    Beyond it the values within the network are compared in order, and the first node that differs is named. Times are
    medians, with the same number of threads.

    Exit code 0: equal, 1: an output differs, 2: a network or bundle that cannot be used, 3: ONNX Runtime or a C++
    compiler is missing.
    """
    from socsched.api.verification import verify

    found = verify(
        request.network,
        request.place,
        inputs=request.inputs,
        precision=request.precision,
        runtimes=request.runtimes,
        shapes=request.shapes,
        dims=request.dims,
        note=output.note,
    )
    output.result(found.document(), lambda: _show(found))
    return EXIT_OK if found.equal else EXIT_VIOLATED


def _show(found: Verified) -> list[Any]:
    from rich.text import Text

    mark, word = ("✓", "equal to") if found.equal else ("✗", "differs from")
    place = "on this machine" if found.place == "host" else f"in {found.place}"
    first, times = found.first, (found.ours_ns, found.predicted_ns, found.theirs_ns)
    ours, planned, theirs = map(format_duration, times)
    by = f"{found.runtime or 'socsched'}, {found.threads} thread{'s' if found.threads > 1 else ''}"
    ratio = f", {found.theirs_ns / found.ours_ns:.2f} times that" if found.ours_ns else ""
    rows = []
    for one in found.outputs:
        shape = " x ".join(map(str, one.shape)) or "scalar"
        told = "equal" if one.near else "as ONNX Runtime from itself" if one.equal else "differs"
        rows.append([one.name, shape, f"{one.error:.2g}", f"{one.tolerance:g}", told])
    shown: list[Any] = [
        Text(f"{mark} {Path(found.network).name} {place}, {found.precision}: {word} ONNX Runtime"),
        table("Outputs", ["output", "shape", "error", "tolerance", ""], rows, (2, 3)),
    ]
    if first is not None:
        told = f"First difference, of {found.checked} values: node {first.node} ({first.op}), its result {first.name}"
        shown.append(Text(f"{told}: error {first.error:.2g}, tolerance {first.tolerance:g}"))
    elif found.checked:
        shown.append(Text(f"None of {found.checked} inner values differs where all leave the network"))
    if spread := [f"{one.name} by {one.spread:.2g}" for one in found.outputs if not one.near and one.spread]:
        own = "Optimised, or with inputs one last place away, ONNX Runtime differs from itself"
        shown.append(Text(f"{own}: {', '.join(spread)}"))
    shown.append(Text(f"Time: {ours} ({by}; planned {planned}), ONNX Runtime {theirs}{ratio}"))
    shown.append(Text(f"Plan: {found.why}"))
    return shown
