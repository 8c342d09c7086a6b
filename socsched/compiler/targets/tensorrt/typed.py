"""Hand-over for strongly typed TensorRT (11.4.1 on): fp16 tensors, int8 as symmetric Q/DQ, no precision flags.

Sources: TensorRT 11.4.1 documentation, strongly typed networks for DLA, ONNX parser flags for DLA, DLA standalone mode.
ADJUST_FOR_DLA lets the parser change layers for the DLA; REPORT_CAPABILITY_DLA makes parsing fail at a layer that the
DLA cannot run, and needs the builder's configuration beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.targets.tensorrt.scales import shared
from socsched.compiler.vendor_compilers.qdq import quantised
from socsched.compiler.vendor_packages.package import MODEL, Package
from socsched.text import one_line


def model_of(package: Package, model: Any) -> Any:
    """Return a model in fp32 as fp16 tensors, in int8 with symmetric Q/DQ of signed bytes and shared ranges."""
    if package.precision == "int8":
        steps = shared(package.network, package.scales)
        scales = {name: Scale(step, True) for name, step in steps.items()}
        return bytes_at_borders(quantised(model, scales, unsigned=False))
    return half(model)


def bytes_at_borders(model: Any) -> Any:
    """Return a model with Q/DQ whose inputs and outputs are the int8 tensors: DIRECT_IO allows no conversion there."""
    from onnx import TensorProto

    graph = model.graph
    inputs, outputs = {value.name for value in graph.input}, {value.name for value in graph.output}
    kept = []
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in inputs:
            continue
        if node.op_type == "QuantizeLinear" and node.output[0].removesuffix(".bytes") in outputs:
            node.output[0] = node.output[0].removesuffix(".bytes")
        elif node.op_type == "DequantizeLinear" and node.output[0] in outputs:
            node.input[0], node.output[0] = node.output[0], f"{node.output[0]}.inner"
        elif node.op_type == "DequantizeLinear" and node.input[0].removesuffix(".bytes") in inputs:
            node.input[0] = node.input[0].removesuffix(".bytes")
        else:
            for place, name in enumerate(node.input):
                node.input[place] = f"{name}.inner" if name in outputs else name
        kept.append(node)
    read = {name for node in kept for name in node.input}
    del graph.node[:]
    graph.node.extend(node for node in kept if not node.output[0].endswith(".inner") or node.output[0] in read)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.INT8
    return model


def half(model: Any) -> Any:
    """Return a copy of a model with fp16 in place of fp32 in inputs, outputs and weights; other types stay."""
    import onnx
    from onnx import TensorProto, numpy_helper

    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    wide = {name for node in made.graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for entry in made.graph.initializer:
        if entry.data_type == TensorProto.FLOAT and entry.name not in wide:  # a Resize's scales stay fp32
            array = np.clip(numpy_helper.to_array(entry), -65504, 65504).astype(np.float16)
            entry.CopyFrom(numpy_helper.from_array(array, entry.name))
    return made


def write(package: Package, core: int, borders: Mapping[str, str]) -> dict[str, str]:
    """Return build.py, which makes the loadable; `borders` gives the format of every border tensor."""
    title = one_line(f"{package.stage} for TensorRT {package.version}")
    table = "".join(f"    {name!r}: {layout!r},\n" for name, layout in borders.items())
    return {"build.py": _PROGRAM.format(title=title, core=core, model=MODEL, borders=table)}


_PROGRAM = '''\
#!/usr/bin/env python3
# {title}
"""Build a DLA loadable with strongly typed TensorRT: python3 build.py [CORE]; run it on a Jetson AGX Orin.

Types come from the model.  No layer falls back to the GPU: parsing stops at a layer that the DLA cannot run.
"""

import sys
from pathlib import Path

import tensorrt as trt

HERE = Path(__file__).resolve().parent
CORE = int(sys.argv[1]) if len(sys.argv) > 1 else {core}
# Border tensors: format.
BORDERS = {{
{borders}}}


def main():
    builder = trt.Builder(trt.Logger(trt.Logger.INFO))
    if builder.num_DLA_cores <= CORE:
        sys.exit(f"DLA core {{CORE}} does not exist: this machine has {{builder.num_DLA_cores}}")
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = CORE
    config.engine_capability = trt.EngineCapability.DLA_STANDALONE
    config.set_flag(trt.BuilderFlag.DIRECT_IO)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.WARNING))
    parser.set_builder_config(config)
    parser.set_flag(trt.OnnxParserFlag.ADJUST_FOR_DLA)
    parser.set_flag(trt.OnnxParserFlag.REPORT_CAPABILITY_DLA)
    if not parser.parse_from_file(str(HERE / "{model}")):
        sys.exit("\\n".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    ends = [network.get_input(index) for index in range(network.num_inputs)]
    ends += [network.get_output(index) for index in range(network.num_outputs)]
    for tensor in ends:
        tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, BORDERS[tensor.name]))
    loadable = builder.build_serialized_network(network, config)
    if loadable is None:
        sys.exit("TensorRT could not build the loadable; its messages are above")
    (HERE / "model.dla").write_bytes(loadable)
    print(f"wrote {{HERE / 'model.dla'}}")


main()
'''
