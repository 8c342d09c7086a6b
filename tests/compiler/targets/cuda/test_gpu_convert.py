"""The GPU's conversion kernels compiled for this processor, thread after thread, against numpy's conversions."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from itertools import permutations

import numpy as np
import pytest

from socsched.compiler.layouts import NUMPY_DTYPES, convert, physical_shape
from socsched.compiler.targets.cuda.convert import SOURCE, channel_block, kernel_for
from socsched.graph.operators import TensorType

_AS_HOST = """
struct Index { int x, y; };
static Index threadIdx, blockIdx, blockDim;
#define __device__
#define __global__
#define __shared__ static
static void __syncthreads() {}
typedef float __half; // the templates are the same for every pair of types
"""
_RUN = """
extern "C" void run_{name}(int count, const void *in, void *out, int c, int p, int from, int to) {{
  blockDim = {{1, 1}}; threadIdx = {{0, 0}};
  for (int i = 0; i < count; i++) {{ blockIdx = {{i, 0}}; {name}(({source} *)in, ({target} *)out, c, p, from, to); }}
}}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("kernels")
    runs = _RUN.format(name="lay_ff", source="float", target="float")
    (folder / "k.cc").write_text(_AS_HOST + SOURCE.replace("#include <cuda_fp16.h>", "") + runs)
    made = subprocess.run(["g++", "-O1", "-w", "-shared", "-fPIC", "-o", str(folder / "k.so"), str(folder / "k.cc")],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert not made.returncode, made.stderr
    return ctypes.CDLL(str(folder / "k.so"))


@pytest.mark.parametrize(("before", "after"), [*permutations(("NHWC", "NCHW", "NCHW16c", "NCHW32c", "NCHW4c"), 2)])
def test_blocks_of_channels_are_laid_as_numpy_lays_them(kernels: ctypes.CDLL, before: str, after: str) -> None:
    for channels in (37, 16, 3):
        given, wanted = (TensorType((1, channels, 5, 7), "fp32", lying) for lying in (before, after))
        name, sizes = kernel_for(given, wanted)
        if not name.startswith("lay"):
            assert {before, after} == {"NHWC", "NCHW"}
            return
        plain = np.random.default_rng(channels).normal(size=given.shape).astype(np.float32)
        array = convert(plain, TensorType(given.shape, "fp32", "NCHW"), given)
        out = np.full(physical_shape(wanted), 77, NUMPY_DTYPES[wanted.dtype])
        ways = [channel_block(before), channel_block(after)]
        kernels[f"run_{name}"](out.size, array.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p),
                               *sizes, *ways)  # fmt: skip
        assert np.array_equal(out, convert(array, given, wanted))
