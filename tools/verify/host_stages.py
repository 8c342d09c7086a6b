"""Compare the host stages' C code with numpy bit for bit, under sanitizers or on another processor.

    python -m tools.verify.host_stages [--cases 400] [--seed 0] [--compiler 'gcc -fsanitize=address,undefined']
    python -m tools.verify.host_stages --compiler 'aarch64-linux-gnu-gcc -static' --runner qemu-aarch64

By default the compiler is gcc with both sanitizers, and the program runs here; `--runner` names an emulator.  Half of
the cases are scans and maps of LiDAR detectors, half images and maps of the camera's (tests/compiler/native).  Arrays
are exactly as large as their stages state, so that any access beyond is found.  Exit code 1 when a bit differs or the
program fails, 3 when the compiler or the runner is missing.
"""

from __future__ import annotations

import argparse
import ctypes
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.native.host_stages import SOURCES, STAGES, NativeStages
from socsched.compiler.native.shared_object import FLAGS
from tests.compiler.native.stage_cases import Case, camera_cases, equal, lidar_cases, run

SANITIZED = "gcc -g -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"
OUTPUTS = {"voxelise": (2, 3, 4), "decode_anchors": (3, 4, 5, 6), "decode_centres": (6, 7, 8, 9, 10)}
OUTPUTS |= {"decode_image_boxes": (1, 2, 3, 4), "preprocess": (1,)}
"""The arguments after the params that a stage writes."""


class Recorder(NativeStages):
    """Stages that write their calls down, and return what the program has found for them."""

    def __init__(self, results: Any = None) -> None:
        self.calls: list[bytes] = []
        self.results = results
        super().__init__(_NoCode())  # type: ignore[arg-type]

    def _run(self, name: str, params: Any, *arguments: Any) -> int | None:
        values: list[Any] = []
        for value in arguments:  # the number of dropped boxes comes as a reference
            values.append(np.zeros(1, np.int64) if not isinstance(value, (np.ndarray, ctypes._SimpleCData)) else value)
        if self.results is None:
            self.calls.append(_call(name, params, values))
            return 0
        count = int.from_bytes(self.results.read(8), "little", signed=True)
        for index in OUTPUTS[name]:
            array = values[index]
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(self.results.read(array.nbytes), np.uint8)
        for value, given in zip(values, arguments, strict=True):
            if value is not given and not isinstance(given, np.ndarray):
                given._obj.value = int(value[0])
        return None if count < 0 else count


class _NoCode:
    def __getattr__(self, name: str) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_int64)()


def _call(name: str, params: Any, values: list[Any]) -> bytes:
    parts = [_number(STAGES.index(name)), _number(ctypes.sizeof(params)), bytes(params), _number(len(values))]
    for index, value in enumerate(values):
        if not isinstance(value, np.ndarray):
            parts += [_number(2), _number(value.value)]
        elif index in OUTPUTS[name]:
            parts += [_number(1), _number(value.nbytes)]
        else:
            parts += [_number(0), _number(value.nbytes), value.tobytes()]
    return b"".join(parts)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def main() -> int:
    """Build the program, run the cases and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiler", default=SANITIZED)
    parser.add_argument("--runner", default="")
    args = parser.parse_args()
    compiler, runner = shlex.split(args.compiler), shlex.split(args.runner)
    for program in (compiler[0], *runner[:1]):
        if not shutil.which(program):
            print(f"{program}: not found", file=sys.stderr)
            return 3
    half = args.cases // 2
    cases = [*lidar_cases(args.seed, half), *camera_cases(args.seed, args.cases - half)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        code = [str(path) for path in (*SOURCES, Path(__file__).with_name("run_stages.c")) if path.suffix == ".c"]
        flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
        subprocess.run([*compiler, *flags, *code, "-o", place / "run", "-lm"], check=True)
        recorder = Recorder()
        for case in cases:
            run(case, recorder)
        (place / "calls").write_bytes(_number(len(recorder.calls)) + b"".join(recorder.calls))
        done = subprocess.run([*runner, place / "run", place / "calls", place / "results"])
        if done.returncode:
            print(f"the program ended with {done.returncode}", file=sys.stderr)
            return 1
        with (place / "results").open("rb") as results:
            wrong = _wrong(cases, Recorder(results))
    print(f"{len(cases)} calls of {len(STAGES)} stages: {len(wrong)} differ from numpy")
    for case in wrong[:5]:
        print(f"  {case.stage} {case.params}")
    return 1 if wrong else 0


def _wrong(cases: list[Case], replay: Recorder) -> list[Case]:
    return [case for case in cases if not equal(run(case, replay), run(case))]


if __name__ == "__main__":
    sys.exit(main())
