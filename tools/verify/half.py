"""Accuracy of half-precision arithmetic on networks of full size, with the aarch64 kernels' numbers computed here.

    python -m tools.verify.half [--only backbone head resnet18]

LLVM carries half precision out on any processor, slowly: a multiply-add rounds twice here and once on Arm.  Errors are
the largest difference from fp32 relative to the largest output, with dense random weights: of fp16 as storage at the
stage's border (what processors without half arithmetic get), of half-precision arithmetic as compiled, and of it
with sums of eight products only, most of which is what storing every activation in half precision costs.  A network
whose activations leave half precision's range (65504) gives no finite number.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from socsched.compiler.builder import SEED
from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import NUMPY_DTYPES, convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.passes.fusion import read
from socsched.compiler.passes.relax_import import import_network
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm import half
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import native_target, vector_unit
from socsched.compiler.targets.llvm.vector import NEON_HALF, Vector
from socsched.descriptor.pipeline import Stage
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.network import backbone_network, head_network
from socsched.models.registry import get_model
from socsched.models.weights import draw_weights
from tools.bench import reference_networks

Array = np.ndarray[Any, Any]
POINTPILLARS: dict[str, Callable[[], Network]] = {"backbone": backbone_network, "head": head_network}
FILES: dict[str, Callable[[Path], Path]] = {
    "resnet18": lambda path: reference_networks.resnet(path, (2, 2, 2, 2), False),
    "mobilenet_v2": reference_networks.mobilenet_v2,
    "resnet50": lambda path: reference_networks.resnet(path, (3, 4, 6, 3), True),
}


def main() -> int:
    """Print a line a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=(*POINTPILLARS, *FILES), help="these networks")
    args = parser.parse_args()
    print(f"{'network':14} {'storage only':>13} {'arithmetic':>11} {'sums of 8':>10}")
    for name in args.only or (*POINTPILLARS, *FILES):
        start = time.perf_counter()
        network, weights = opened(name)
        rng = np.random.default_rng(7)
        given = [rng.standard_normal(t.shape).astype(np.float32) for t in network.inputs.values()]
        if name in POINTPILLARS:  # features behind a ReLU; the others take images
            given = [np.maximum(array, 0) for array in given]
        rounded = {key: array.astype(np.float16).astype(np.float32) for key, array in weights.items()}
        wide = vector_unit(resolve({"kind": "llvm", "host": True}))
        expected = computed(network, weights, given, wide)
        errors = [error(computed(network, rounded, [a.astype(np.float16) for a in given], wide), expected)]
        errors.append(error(computed(network, rounded, given, NEON_HALF), expected))
        with patch.object(half, "most", lambda graph: 8):
            errors.append(error(computed(network, rounded, given, NEON_HALF), expected))
        elapsed = time.perf_counter() - start
        print(f"{name:14} {errors[0]:13.1e} {errors[1]:11.1e} {errors[2]:10.1e}   ({elapsed:.0f} s)", flush=True)
    return 0


def opened(name: str) -> tuple[Network, Mapping[str, Array]]:
    """Return a network and its weights."""
    if name in POINTPILLARS:
        network = POINTPILLARS[name]()
        return network, draw_weights(network, SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = FILES[name](Path(folder) / f"{name}.onnx")
        model = get_model("onnx", Stage(name, name, "onnx", params={"file": str(path)}).params)
        assert model.network is not None and model.weights is not None
        return model.network(), model.weights()


def computed(network: Network, weights: Mapping[str, Array], given: list[Array], vector: Vector) -> list[Array]:
    """Return the plain outputs of a network's form for `vector`, run on this machine."""
    lowered = lower(read(import_network(network), network), weights, vector)
    executable = relax.build(lowered.module, tvm.target.Target(dict(native_target())))
    operands = []
    for name, array, kind in zip(network.inputs, given, lowered.inputs, strict=True):
        array = array.astype(NUMPY_DTYPES[kind.dtype])
        plain = TensorType(array.shape, kind.dtype, "NCHW" * (array.ndim == 4))
        operands.append(to_tvm(convert(array, plain, kind), kind, name))
    found = zip(relax.VirtualMachine(executable, tvm.cpu())["main"](*operands), lowered.outputs, strict=True)
    arrays = []
    for result, kind in found:
        array = from_tvm(result)
        whole = len(kind.shape) == 4
        arrays.append(convert(array, kind, TensorType(kind.shape, kind.dtype, "NCHW")) if whole else array)
    return [array.astype(np.float64) for array in arrays]


def error(found: list[Array], expected: list[Array]) -> float:
    """Return the largest difference relative to the largest value of the same output."""
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, expected, strict=True))


if __name__ == "__main__":
    sys.exit(main())
