"""Attention as one kernel: its device function emulated on the CPU against float64, and what nvcc makes of it."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_sources import needs_nvcc, report, source_of

from socsched.compiler.targets.cuda.attention import attention_kernel, completed, warps
from socsched.compiler.targets.cuda.sequence_kernels import AttentionShape

HERE = Path(__file__).parents[2]
CODE = Path(__file__).parents[4] / "socsched" / "compiler" / "targets" / "cuda"

SHAPES = [
    AttentionShape(4, 2, 49, 49, 32, 2, 0.17),
    AttentionShape(3, 3, 37, 130, 64, 0, 0.125),
    AttentionShape(2, 1, 16, 8, 40, 0, 1.0),
    AttentionShape(2, 2, 33, 70, 128, 1, 0.1),
    AttentionShape(1, 1, 1, 1, 8, 0, 0.5),
    AttentionShape(2, 2, 65, 65, 96, 0, 0.1),
]


def emulated(shape: AttentionShape, count: int, folder: Path) -> Any:
    """Return the device function for a shape, compiled for the processor."""
    values = {"HEAD_WIDTH": shape.width, "BLOCK_WARPS": count, "BIAS_TABLES": shape.biases}
    values["KEY_CHUNK"] = 64 if shape.width <= 64 else 32
    library = folder / f"attention-{count}.so"
    command = ["g++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", f"-I{HERE}", f"-I{CODE}"]
    command += [f"-D{name}={value}" for name, value in values.items()]
    done = subprocess.run(
        [*command, "-o", str(library), str(HERE / "attention_emulator.cc")], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return ctypes.CDLL(str(library)).run


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_equals_float64(shape: AttentionShape, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    batch, rows, length, width = shape.batch, shape.rows, shape.length, shape.width
    step = width + 8  # rows that are longer than a head
    tensors = [generator.normal(size=(batch, n, step)).astype(np.float16) for n in (rows, length, length)]
    bias = generator.normal(size=(max(shape.biases, 1), rows, -(-length // 8) * 8)).astype(np.float16)
    query, keys, values = (tensor[:, :, :width].astype(np.float64) for tensor in tensors)
    scores = query @ keys.transpose(0, 2, 1) * shape.factor
    if shape.biases:
        scores += bias[np.arange(batch) % shape.biases][:, :, :length]
    shares = np.exp(scores - scores.max(2, keepdims=True))
    wanted = shares / shares.sum(2, keepdims=True) @ values
    firsts = [(np.arange(batch) * tensor.shape[1] * step).astype(np.int32) for tensor in tensors]
    for count in (1, 2) if width > 96 else (1, 2, 4):
        found = np.full((batch // shape.heads, rows, shape.heads, width), np.nan, np.float16)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*tensors, *firsts, bias, found)]
        sizes = (batch, shape.heads, rows, length, step, step, step)
        assert emulated(shape, count, tmp_path)(*pointers, *sizes, ctypes.c_float(shape.factor)) == 0
        result = found.transpose(0, 2, 1, 3).reshape(batch, rows, width).astype(np.float64)
        assert np.abs(result - wanted).max() <= 3e-3 * np.abs(wanted).max()


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_87", "sm_90", "sm_110"])
def test_attention_is_compiled_without_spills(arch: str, tmp_path: Path) -> None:
    functions = {}
    for number, shape in enumerate(SHAPES[:4]):
        size = shape.batch * max(shape.rows, shape.length) * shape.width
        functions[f"attention{number}"] = attention_kernel(shape, (shape.width,) * 3, (size,) * 3, arch)
    said = report(completed(source_of(functions)), tmp_path, arch)
    assert said.count("Used ") == 4 and said.count(" 0 bytes spill stores") == 4, said


def test_blocks_are_as_many_as_the_gpu_takes() -> None:
    assert warps(AttentionShape(192, 3, 49, 49, 32, 3, 1.0), "sm_90") == 4
    assert warps(AttentionShape(12, 12, 197, 197, 64, 0, 1.0), "sm_90") == 2
    assert warps(AttentionShape(12, 12, 197, 197, 64, 0, 1.0), "sm_87") == 4
    assert warps(AttentionShape(99, 9, 16, 16, 64, 0, 1.0), "sm_87") == 1
