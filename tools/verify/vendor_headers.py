"""The adapters of the executor against vendors' public headers: python -m tools.verify.vendor_headers FOLDER ...

Each FOLDER holds one release: TensorRT's include/ (the adapter is compiled against it, with the CUDA headers of this
machine), or rknn_api.h (every structure and constant that the adapter declares itself is compared).  Prints a line for
each; exit code 1 if one does not fit.  No header is part of this repository.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from socsched.executor.build import SOURCES, cxx_compiler
from socsched.executor.vendor_stages import BOARD_SOURCES

CUDA = Path("/usr/local/cuda/include")
_RKNN = """
#include <cstddef>
#include "rknn_api.h"
#include "rknn_adapter.cpp"
namespace socsched { namespace {
#define SAME(ours, own, theirs, their) \\
  static_assert(offsetof(ours, own) == offsetof(theirs, their) && sizeof(ours::own) == sizeof(theirs::their))
static_assert(sizeof(Context) == sizeof(rknn_context) && sizeof(Count) == sizeof(rknn_input_output_num));
static_assert(sizeof(Attributes) == sizeof(rknn_tensor_attr) && sizeof(Input) == sizeof(rknn_input));
static_assert(sizeof(Output) == sizeof(rknn_output));
SAME(Count, outputs, rknn_input_output_num, n_output);
SAME(Attributes, index, rknn_tensor_attr, index);
SAME(Attributes, name, rknn_tensor_attr, name);
SAME(Attributes, elements, rknn_tensor_attr, n_elems);
SAME(Attributes, type, rknn_tensor_attr, type);
SAME(Input, memory, rknn_input, buf);
SAME(Input, bytes, rknn_input, size);
SAME(Input, pass_through, rknn_input, pass_through);
SAME(Input, type, rknn_input, type);
SAME(Input, format, rknn_input, fmt);
SAME(Output, as_float, rknn_output, want_float);
SAME(Output, preallocated, rknn_output, is_prealloc);
SAME(Output, index, rknn_output, index);
SAME(Output, memory, rknn_output, buf);
SAME(Output, bytes, rknn_output, size);
static_assert(IN_OUT_NUM == RKNN_QUERY_IN_OUT_NUM && INPUT_ATTR == RKNN_QUERY_INPUT_ATTR);
static_assert(OUTPUT_ATTR == RKNN_QUERY_OUTPUT_ATTR && CORE_AUTO == RKNN_NPU_CORE_AUTO);
static_assert(RKNN_NPU_CORE_0 == 1 && RKNN_NPU_CORE_1 == 2 && RKNN_NPU_CORE_2 == 4);  // 1 << core
static_assert(NCHW == RKNN_TENSOR_NCHW && NHWC == RKNN_TENSOR_NHWC && UNDEFINED == RKNN_TENSOR_UNDEFINED);
static_assert(TYPES[SOCSCHED_FP32] == RKNN_TENSOR_FLOAT32 && TYPES[SOCSCHED_FP16] == RKNN_TENSOR_FLOAT16);
static_assert(TYPES[SOCSCHED_INT8] == RKNN_TENSOR_INT8 && TYPES[SOCSCHED_UINT8] == RKNN_TENSOR_UINT8);
static_assert(TYPES[SOCSCHED_INT32] == RKNN_TENSOR_INT32 && TYPES[SOCSCHED_INT64] == RKNN_TENSOR_INT64);
static_assert(std::is_same_v<decltype(rknn_run(0, nullptr)), int>);
} }
"""


def check(folder: Path) -> str:
    """Return what the compiler says of an adapter against the headers in a folder, empty if they fit."""
    compiler = cxx_compiler()
    assert compiler is not None
    common = [compiler, "-std=c++17", "-fsyntax-only", "-Wno-deprecated-declarations", f"-I{folder}", f"-I{SOURCES}"]
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "rknn.cpp"
        source.write_text(_RKNN)
        if (folder / "rknn_api.h").is_file():
            command = [*common, str(source)]
        else:
            command = [*common, f"-I{CUDA}", str(BOARD_SOURCES / "tensorrt_adapter.cpp")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else next(line for line in done.stderr.splitlines() if "error" in line)


def release(folder: Path) -> str:
    """Return the name of the release in a folder."""
    version = folder / "NvInferVersion.h"
    if not version.is_file():
        return f"RKNN, {folder.name}"
    found = re.findall(r"#define (?:NV_TENSORRT|TRT)_(?:MAJOR|MINOR|PATCH)\w* (\d+)", version.read_text())
    return "TensorRT " + ".".join(found[:3])


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    failed = 0
    for folder in parser.parse_args(arguments).folder:
        said = check(folder)
        failed += bool(said)
        print(f"{release(folder)}: {said or 'fits'}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
