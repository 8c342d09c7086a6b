"""Networks compiled for a board's 64-bit Arm CPU: equal to ONNX Runtime under qemu, and how busy their loops are.

    python -m tools.verify.aarch64_networks FILE.onnx... [--precision fp32 fp16] [--loops] [--mca llvm-mca-19]
        [--platform jetson-agx-orin-64gb] [--engine cpu0]

A row for each network and precision: seconds of compilation and under qemu, the largest difference from ONNX Runtime in
fp32 relative to the largest value of that output, and of the innermost loops that multiply and add how many there are
and their share of the peak of two vector multiply-adds a cycle, least and median (`mca_aarch64`: a static prediction,
all data in the first-level cache).  --loops leaves qemu out.  Needs what tests/compiler/aarch64_emulator.py names.
Exit code 1 for a difference above 1e-4 in fp32 or 0.03 in fp16.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from socsched.compiler.builder import compile_stage
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import SocschedError
from tests.compiler import aarch64_emulator
from tests.compiler.aarch64_loops import instructions, products
from tools.bench.mca_aarch64 import Analyser, analyser

TOLERANCE = {"fp32": 1e-4, "fp16": 0.03}
_CODE = re.compile(r"\s+([0-9a-f]+):\t(?:[0-9a-f]+ *\s)(\S+)\s*(.*?)(?:\s*//.*)?$")
_TARGET = re.compile(r"\b([0-9a-f]+) <[^>]*>$")


def assembly(library: Path) -> str:
    """Return a library's code with labels where it branches to, as a compiler prints it."""
    command = ["aarch64-linux-gnu-objdump", "-d", str(library)]
    found = [_CODE.match(line) for line in subprocess.check_output(command, text=True).splitlines()]
    known = [match for match in found if match]
    targets = {target[1] for match in known if (target := _TARGET.search(match[3]))}
    lines = []
    for match in known:
        lines += [f".L{match[1]}:"] if match[1] in targets else []
        lines.append("\t".join(("", match[2], _TARGET.sub(r".L\1", match[3]))))
    return "\n".join(lines)


def shares(library: Path, mca: Analyser) -> list[float]:
    """Return the shares of the peak that a library's loops of products reach, in ascending order."""
    found = []
    for body in {"\n".join(instructions(loop.body)) for loop in products(assembly(library))}:
        found.append(body.count("fmla") / 2 / mca.cycles(body.splitlines()))
    return sorted(found)


def difference(file: Path, found: list[np.ndarray], given: list[np.ndarray]) -> float:  # type: ignore[type-arg]
    """Return the largest difference from ONNX Runtime, relative to the largest value of its output."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {item.name: array for item, array in zip(session.get_inputs(), given, strict=True)})
    pairs = zip(found, wanted, strict=True)
    return max(float(np.abs(a.reshape(b.shape) - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def main() -> int:
    """Print a row for each network and precision."""
    import onnx

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="jetson-agx-orin-64gb")
    parser.add_argument("--engine", default="cpu0")
    parser.add_argument("--precision", nargs="+", choices=tuple(TOLERANCE), default=["fp32"])
    parser.add_argument("--loops", action="store_true")
    parser.add_argument("--mca")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.onnx")
    args = parser.parse_args()
    engine = next(one for one in get_platform(args.platform).engines if one.id == args.engine)
    mca, failed = analyser(args.mca, "neoverse-n1"), False
    if isinstance(mca, str):
        print(f"no shares: {mca}")
    print(f"{'network':22} compiled s qemu s difference loops  least median of the peak")
    for file in args.files:
        random, given = np.random.default_rng(0), []
        for item in onnx.load(file, load_external_data=False).graph.input:
            shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
            given.append(random.normal(size=shape).astype(np.float16).astype(np.float32))
        for precision in args.precision:
            start = time.perf_counter()
            try:
                artifact = compile_stage(get_pipeline(str(file)).stages[0], engine, precision)
            except SocschedError as error:  # ONNX Runtime's, as there too
                print(f"{file.stem:16} {precision:5} {error}", flush=True)
                continue
            words = f"{file.stem:16} {precision:5} {time.perf_counter() - start:10.1f}"
            if args.loops:
                words += f" {'':6} {'':10}"
            else:
                start = time.perf_counter()
                half = precision == "fp16"
                with tempfile.TemporaryDirectory() as folder:
                    emulator = aarch64_emulator.emulator(Path(folder))
                    found, _ = emulator.run(artifact, [a.astype(np.float16) for a in given] if half else given)
                apart = difference(file, [array.astype(np.float32) for array in found], given)
                failed |= not apart <= TOLERANCE[precision]
                words += f" {time.perf_counter() - start:6.0f} {apart:10.1e}"
            loops = [] if isinstance(mca, str) else shares(artifact.path, mca)
            busy = f" {loops[0]:6.2f} {loops[len(loops) // 2]:6.2f}" if loops else ""
            print(f"{words} {len(loops):5}{busy}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
