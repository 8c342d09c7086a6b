"""Run the OpenCL kernels of the PointPillars network stages and of sample ONNX networks on this machine's device.

    python -m tools.verify.opencl [--full] [--only backbone trunk]

needs an OpenCL device; PoCL (pocl-opencl-icd) runs kernels on the CPU.  Stages are on a small canvas, with --full on
the real one.  Errors are the largest difference from the host's fp32 result relative to the largest output; times are
of the second run, memory transfers included, for information.  Exit code 1 when an error is above its tolerance, 3
without a device.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from socsched.compiler.builder import compile_stage
from socsched.compiler.targets.opencl.device import Device
from socsched.compiler.targets.opencl.run import OpenClStage
from socsched.errors import MachineError
from tests.compiler import small_stages

TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2}
ONNX = ("resnet", "trunk", "mobilenet", "yolo", "odd")


def main() -> int:
    """Compare network by network and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the stages' real canvas, 496 x 432")
    parser.add_argument("--only", nargs="+", choices=(*small_stages.STAGES, *ONNX), help="these networks")
    args = parser.parse_args()
    if args.full:
        small_stages.NY, small_stages.NX, small_stages.PILLARS, small_stages.SLOTS = 496, 432, 6000, 32
    try:
        device = Device()
    except MachineError as missing:
        print(f"{missing}: {missing.hint}", file=sys.stderr)
        return 3
    print(f"{device.name}\n{'network':10} {'':5} {'error':>8} {'allowed':>8} {'run':>11} {'build':>8}  kernels")
    with tempfile.TemporaryDirectory() as folder:
        names = args.only or (*small_stages.STAGES, *ONNX)
        results = [_good(name, precision, device, Path(folder)) for name in names for precision in TOLERANCE]
    return 0 if all(results) else 1


def _good(name: str, precision: str, device: Device, folder: Path) -> bool:
    if name in small_stages.STAGES:
        stage, arrays = small_stages.stage(name), small_stages.inputs(name)
    else:
        stage, arrays = small_stages.onnx_stage(name, folder)
    given = small_stages.halved(arrays) if precision == "fp16" else arrays
    start = time.perf_counter()
    artifact = compile_stage(stage, SimpleNamespace(id="gpu", kind="gpu", target={"kind": "opencl"}), precision)
    built = time.perf_counter() - start
    compiled = OpenClStage(artifact, device)
    compiled(*given)
    start = time.perf_counter()
    found = compiled(*given)
    elapsed = (time.perf_counter() - start) * 1e3
    error = small_stages.error(list(found), small_stages.reference(stage, arrays))
    good = error <= TOLERANCE[precision]
    figures = (
        f"{error:8.1e} {TOLERANCE[precision]:8.0e} {elapsed:8.1f} ms {built:6.1f} s {len(compiled.plan['launches']):8}"
    )
    print(f"{name:10} {precision:5} {figures}  {'ok' if good else 'FAILED'}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
