"""CUDA sources of scheduled functions, and the compiler's report on them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.compiler.environment import tvm
from socsched.compiler.pipeline import fused, run
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.target import Build, Compilation, TargetSpec
from socsched.compiler.targets.cuda.passes import OPTIONS, in_memory, tir_pipeline
from socsched.compiler.targets.cuda.toolkits import device_source
from socsched.graph.network import Network

needs_nvcc = pytest.mark.needs("nvcc")


def source_of(functions: dict[str, Any], arch: str = "sm_87") -> str:
    target = tvm.target.Target({"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32})
    module = tvm.IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()})
    with target, tvm.transform.PassContext(config=OPTIONS):
        return device_source(tvm.compile(module, target=target, tir_pipeline=tir_pipeline()).mod)


def report(source: str, folder: Path, arch: str = "sm_87") -> str:
    """The report of ptxas on registers, stack and spills."""
    (folder / "k.cu").write_text(source)
    command = ["nvcc", "-cubin", f"-arch={arch}", "-O3", "-Xptxas", "-v", "-o", str(folder / "k.cubin"), "k.cu"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert not done.returncode, done.stderr
    return done.stderr


def build_executable(
    network: Network,
    weights: Mapping[str, np.ndarray[Any, Any]],
    target: Mapping[str, Any],
    precision: str,
    scales: Scales | None = None,
    sms: int = 0,
) -> Compilation:
    """Return a network with its executable for a CUDA target in memory; no file is written.

    `sms`: multiprocessors it will run on, 0 for all; tiles of fp16 products are chosen accordingly.
    """
    asked = Build(Path(), network, weights, TargetSpec("cuda", target, False), precision, scales, share=sms)
    compilation = fused(asked)
    own = in_memory(compilation)
    return run(compilation, (*own.quantise, *own.lower, *own.build))
