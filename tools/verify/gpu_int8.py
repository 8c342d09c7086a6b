"""Check the int8 CUDA lowering on this machine's GPU, bit by bit, and measure it against fp16 and PyTorch.

    python -m tools.verify.gpu_int8 [--arch sm_90] [--repeats 40] [--layers] [--only NAME]

needs an NVIDIA GPU, its driver, nvcc and a C++ compiler, and PyTorch for the times.  Small networks that take every
rule are compared with the numpy definition of the integer network, PointPillars and ResNet-50 at full size with this
machine's int8 CPU code; integers leave no tolerance, except ResNet-50's mean and classifier, which are fp32.  Exit
code 1 when a result is wrong.
"""

from __future__ import annotations

import argparse
import sys

from socsched.compiler.environment import tvm
from socsched.compiler.targets.cuda.runtime import GpuStage
from tools.bench import gpu_int8 as checks

IN_FP32 = {"resnet50": 1e-5}
"""Networks that end in operators computed in fp32, and the largest error relative to the largest output there."""


def main() -> int:
    """Check, measure, print the table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--layers", action="store_true", help="print a line per kernel")
    parser.add_argument("--only", default="", help="part of a network's name")
    args = parser.parse_args()
    cases = [case for case in (*checks.large_cases(), *checks.small_cases()) if args.only in case.name]
    ready = checks.built(cases, args.arch)
    if not tvm.cuda(0).exist:
        print("no CUDA device: TVM sees no GPU (driver, libcudart.so.13)", file=sys.stderr)
        return 3
    failed = []
    for case, artifact, seconds in ready:
        inputs, wanted, whose = checks.expected(case, artifact)
        try:
            found = checks.difference(checks.on(GpuStage(artifact), inputs), wanted)
        except Exception as fault:
            failed.append(case.name)
            print(f"{case.name:22} FAILED {type(fault).__name__}: {str(fault)[:400]}", flush=True)
            continue
        good = not found.count if case.name not in IN_FP32 else found.largest <= IN_FP32[case.name]
        failed += [] if good else [case.name]
        line = f"{found.count} of {found.size} differ from {whose}, by {found.largest:.1e} of the largest at most"
        print(f"{case.name:22} {line}, built in {seconds:.1f} s  {'ok' if good else 'WRONG'}", flush=True)
    large = [entry for entry in ready if entry[0].signed is None and entry[0].name not in failed]
    if large:
        checks.compare(large, args.arch, args.repeats, args.layers)
    print("failed: " + ", ".join(failed) if failed else "every result as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
