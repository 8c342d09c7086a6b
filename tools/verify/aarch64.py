"""Run aarch64 code of the PointPillars network stages and of sample ONNX networks under qemu; compare with the host.

    python -m tools.verify.aarch64 [--mcpu cortex-a78ae] [--cpu cortex-a76] [--only backbone trunk]

needs qemu-aarch64 (qemu-user), aarch64-linux-gnu-g++ and, once, a network to fetch TVM's aarch64 runtime.  Sizes are
small.  Errors are the largest difference from the host's result (in fp32, for int8 in int8) relative to the largest
output; times are the emulator's, for information.  Exit code 1 when an error is above its tolerance, 3 when something
is missing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from socsched.compiler.builder import compile_stage
from tests.compiler import aarch64_emulator, small_stages

TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.0}
INTEGER = ("backbone", "head")
ONNX = ("resnet", "trunk", "mobilenet", "yolo", "odd")


def main() -> int:
    """Compare network by network and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mcpu", default="cortex-a78ae", help="processor to compile for, as LLVM calls it")
    parser.add_argument("--cpu", default=aarch64_emulator.CPU, help="qemu's name of the processor to emulate")
    parser.add_argument("--only", nargs="+", choices=(*small_stages.STAGES, *ONNX), help="these networks")
    args = parser.parse_args()
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": args.mcpu, "num-cores": 4}
    engine = SimpleNamespace(id="cpu", kind="cpu", target=target)
    with tempfile.TemporaryDirectory() as folder:
        try:
            emulator = aarch64_emulator.emulator(Path(folder), args.cpu)
        except aarch64_emulator.Unavailable as missing:
            print(missing, file=sys.stderr)
            return 3
        failed = 0
        print(f"{'network':10} {'':5} {'error':>8} {'allowed':>8} {'qemu':>11} {'build':>8}")
        for name in args.only or (*small_stages.STAGES, *ONNX):
            for precision in TOLERANCE:
                if precision != "int8" or name in INTEGER:
                    failed += not _good(name, precision, engine, emulator, Path(folder))
    return 1 if failed else 0


def _good(
    name: str, precision: str, engine: SimpleNamespace, emulator: aarch64_emulator.Emulator, folder: Path
) -> bool:
    if name in small_stages.STAGES:
        stage, arrays = small_stages.stage(name), small_stages.inputs(name)
    else:
        stage, arrays = small_stages.onnx_stage(name, folder)
    start = time.perf_counter()
    artifact = compile_stage(stage, engine, precision)
    built = time.perf_counter() - start
    found, elapsed = emulator.run(artifact, small_stages.halved(arrays) if precision == "fp16" else arrays, repeats=2)
    expected = small_stages.reference(stage, arrays, "int8" if precision == "int8" else "fp32")
    error = small_stages.error(found, expected)
    good = error <= TOLERANCE[precision]
    figures = f"{error:8.1e} {TOLERANCE[precision]:8.0e} {elapsed:8.0f} ms {built:6.1f} s"
    print(f"{name:10} {precision:5} {figures}  {'ok' if good else 'FAILED'}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
