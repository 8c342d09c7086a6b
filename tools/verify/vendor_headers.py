"""The executor's adapters against vendors' public headers: python -m tools.verify.vendor_headers FOLDER ...

Each FOLDER holds one release of one vendor's headers, which are known by their names: TensorRT's are what its adapter
is compiled with, of all others every function, structure and constant that the executor declares itself is compared
(`tests/executor/headers`).  Prints a line for each; exit code 1 if one does not fit.  No header is
part of this project.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from socsched.executor.build import SOURCES, cxx_compiler
from socsched.executor.vendor_stages import BOARD_SOURCES
from tools import ROOT

CUDA = Path("/usr/local/cuda/include")
HEADERS = ROOT / "tests" / "executor" / "headers"
SOURCE_OF = {
    "NvInferVersion.h": BOARD_SOURCES / "tensorrt_adapter.cpp",
    "rknn_api.h": HEADERS / "rknn.cpp",
    "cudla.h": HEADERS / "cudla.cpp",
    "onnxruntime_c_api.h": HEADERS / "onnxruntime.cpp",
    "CL/cl.h": HEADERS / "opencl.cpp",
    "cuda.h": HEADERS / "cuda.cpp",
}
"""What is compiled with a release, by one of its headers."""
_VERSION = re.compile(
    r"^#define (?:(?:NV_TENSORRT|TRT|CUDLA_VER)_(?:MAJOR|MINOR|PATCH)\w*|ORT_API_VERSION|CUDA_VERSION) (\d+)", re.M
)


def check(folder: Path, header: str) -> str:
    """Return what the compiler says of an adapter against the headers in a folder, empty if they fit."""
    command = [cxx_compiler() or "c++", "-std=c++17", "-fsyntax-only", "-fno-access-control", "-w"]
    command += [f"-I{folder}", f"-I{SOURCES}", f"-I{HEADERS}", f"-I{CUDA}", str(SOURCE_OF[header])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else next(line for line in done.stderr.splitlines() if "error" in line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    failed = 0
    for folder in parser.parse_args(arguments).folder:
        header = next((name for name in SOURCE_OF if (folder / name).is_file()), "")
        said = check(folder, header) if header else f"none of {', '.join(SOURCE_OF)} is there"
        version = ".".join(_VERSION.findall((folder / header).read_text(errors="replace"))) if header else ""
        failed += bool(said)
        print(f"{header} {version or folder.name}: {said or 'fits'}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
