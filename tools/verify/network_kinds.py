"""Kinds of files that one network reaches users as: quantised, rounded to fp16, optimised, of other operator sets.

Usage: python -m tools.verify.network_kinds FOLDER FILE.onnx ...; then tools.verify.network_verdicts --files FOLDER/*
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_NUMPY = {1: np.float32, 2: np.uint8, 6: np.int32, 7: np.int64, 9: np.bool_}


class Frames:
    """Three frames of drawn inputs, as ONNX Runtime's calibration reads them."""

    def __init__(self, model: Any) -> None:
        generator = np.random.default_rng(0)
        held = {one.name for one in model.graph.initializer}
        inputs = [one for one in model.graph.input if one.name not in held]

        def array(one: Any) -> Any:
            kind = one.type.tensor_type
            shape = [side.dim_value or 1 for side in kind.shape.dim]
            drawn = generator.normal(0, 1, shape) if kind.elem_type == 1 else generator.integers(0, 50, shape)
            return (drawn > 5 if kind.elem_type == 9 else drawn).astype(_NUMPY[kind.elem_type])

        self.left = [{one.name: array(one) for one in inputs} for _ in range(3)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def kinds(source: Path, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return how each kind of a network is written; the exporters' errors have no common class."""
    import onnx
    import onnxruntime
    from onnx import version_converter
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from onnxruntime.transformers.float16 import convert_float_to_float16

    def target(kind: str) -> str:
        return str(folder / f"{source.stem}.{kind}.onnx")

    def static(kind: str, **how: Any) -> Callable[[], None]:
        def write() -> None:
            prepared = folder / f"{source.stem}.{kind}.tmp"
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
            quantize_static(prepared, target(kind), Frames(onnx.load(source)), **how)
            prepared.unlink()

        return write

    def optimised(kind: str) -> Callable[[], None]:
        def write() -> None:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{kind}")
            options.optimized_model_filepath = target(kind.lower())
            onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

        return write

    def half(kind: str, border: bool) -> Callable[[], None]:
        return lambda: onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=border), target(kind))

    def operators(opset: int) -> Callable[[], None]:
        return lambda: onnx.save(version_converter.convert_version(onnx.load(source), opset), target(f"op{opset}"))

    def beside() -> None:
        name = f"{source.stem}.weights"
        onnx.save(onnx.load(source), target("beside"), save_as_external_data=True, location=name, size_threshold=256)

    unsigned, signed, linear, marked = QuantType.QUInt8, QuantType.QInt8, QuantFormat.QOperator, QuantFormat.QDQ
    symmetric = {"ActivationSymmetric": True, "WeightSymmetric": True}
    return {
        "qop": static("qop", quant_format=linear),
        "qop_chan": static("qop_chan", quant_format=linear, per_channel=True, activation_type=signed),
        "qdq_asym": static("qdq_asym", quant_format=marked, activation_type=unsigned, weight_type=signed),
        "qdq_sym": static("qdq_sym", quant_format=marked, activation_type=signed, extra_options=symmetric),
        "qdq_chan": static("qdq_chan", quant_format=marked, per_channel=True),
        "dynamic": lambda: quantize_dynamic(source, target("dynamic"), weight_type=signed),
        "fp16": half("fp16", False),
        "fp16io": half("fp16io", True),
        **{level.lower(): optimised(level) for level in ("BASIC", "EXTENDED", "ALL")},
        **{f"op{opset}": operators(opset) for opset in (11, 13, 15, 19, 21)},
        "beside": beside,
    }


def main() -> None:
    """Write the kinds of every file, and say what is not written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for file in asked.files:
        for kind, write in kinds(file, asked.folder).items():
            try:
                write()
            except Exception as error:
                print(f"{file.stem}.{kind}: not written: {type(error).__name__}: {str(error).splitlines()[:1]}")


if __name__ == "__main__":
    main()
