"""The int8 kernels against golden layers, of a small network and of a real accelerator, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.int8_dot import dot_for, int8_options
from socsched.compiler.targets.llvm.int8_lower import lower_int8
from socsched.errors import CompileError
from socsched.graph.operators import TensorType

pytest.importorskip("onnx")
import npu_golden
import onnx
import reference_int8


@pytest.mark.slow
def test_every_layer_equals_the_golden_one(accelerator: tuple[Path, Path]) -> None:
    quantised, source, golden = npu_golden.load(*accelerator)
    spec = resolve({"kind": "llvm", "host": True})
    vector, dot = dot_for(spec)
    try:
        lowered = lower_int8(quantised, {}, vector, dot)
    except CompileError as error:
        # the small network concatenates 24 channels, one and a half of AVX-512's vectors
        assert vector.lanes == 16 and "whole blocks of 16" in str(error)
        pytest.skip(str(error))
    executable = relax.build(lowered.module, tvm.target.Target(int8_options(spec)))
    function = relax.VirtualMachine(executable, tvm.cpu())["main"]
    (kind,) = lowered.inputs
    results = function(to_tvm(convert(source, TensorType(source.shape, "fp32", "NCHW"), kind), kind, "input"))
    assert len(results) == len(golden) >= 11
    for name, result, lies in zip(golden, results, lowered.outputs, strict=True):
        found = convert(from_tvm(result), lies, TensorType(lies.shape, "fp32", "NCHW"))
        assert np.array_equal(found, golden[name]), name


def test_the_golden_layers_are_those_of_the_definition(accelerator: tuple[Path, Path]) -> None:
    file, golden = accelerator[0], dict(np.load(accelerator[1]))
    found = reference_int8.run(onnx.load(str(file)), npu_golden.FIRST, golden[npu_golden.FIRST])
    assert set(found) == set(golden) - {npu_golden.FIRST}
    for name, array in found.items():
        assert np.array_equal(array, golden[name]), name
