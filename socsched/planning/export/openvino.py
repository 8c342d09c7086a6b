"""Placement for OpenVINO's HETERO device: the affinity of every node, and a program that sets them.

Format: OpenVINO documentation, Heterogeneous execution, manual mode: the key `affinity` in the `rt_info` of every
operation holds a device, and the model is compiled for `HETERO:` with the devices in order of priority.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from socsched.planning.export.networks import exportable, listed, names_of

if TYPE_CHECKING:
    from socsched.planning.export.threads import Request

DEVICES = {("tvm", "llvm"): "CPU", ("tvm", "opencl"): "GPU"}
"""OpenVINO's GPU plugin runs on Intel's GPUs, through OpenCL; those of shipped platforms are others."""
RUN = "load.py"


def write(request: Request) -> dict[str, str | bytes]:
    """Return path -> content: for each network model.onnx and affinities.json, and load.py."""
    found, omitted = exportable(request.plan, DEVICES, "OpenVINO")
    files = {**listed(omitted), RUN: _PROGRAM}
    for placed in found:
        folder, onnx = names_of(found)[placed.name], placed.onnx()
        owners = placed.owners(onnx)
        nodes = {node.name: DEVICES[owners[node.name].program] for node in onnx.graph.node}
        order = sorted(dict.fromkeys(nodes.values()), key=lambda device: device == "CPU")
        document = {"network": placed.name, "device": "HETERO:" + ",".join(order), "affinities": nodes}
        files[f"{folder}/model.onnx"] = onnx.SerializeToString()
        files[f"{folder}/affinities.json"] = json.dumps(document, indent=1) + "\n"
    return files


_PROGRAM = '''\
#!/usr/bin/env python3
"""Compile an exported network for OpenVINO's HETERO device: python3 load.py FOLDER [DEVICES]

Every operation gets the device of the plan; constants and operations that the reader of ONNX added get that of their
reader.  DEVICES replaces the plan's, such as HETERO:CPU on a machine without the others.
"""

import json
import sys
from pathlib import Path

import openvino as ov


def load(folder, devices=None):
    """Return the compiled model, and the affinity of every operation."""
    document = json.loads((Path(folder) / "affinities.json").read_text())
    wanted = document["affinities"]
    core = ov.Core()
    model = core.read_model(str(Path(folder) / "model.onnx"))
    found, device = {}, None
    for node in reversed(model.get_ordered_ops()):
        names = [node.get_friendly_name(), *(n for o in node.outputs() for n in o.get_names())]
        own = next((wanted[name] for name in names if name in wanted), None)
        readers = [found[i.get_node().get_friendly_name()] for o in node.outputs() for i in o.get_target_inputs()]
        device = own or (readers[0] if readers else None)
        if device is None:  # a result: the device of what it returns
            source = node.input_value(0)
            names = [source.get_node().get_friendly_name(), *source.get_names()]
            device = next(wanted[name] for name in names if name in wanted)
        found[node.get_friendly_name()] = device
        node.get_rt_info()["affinity"] = device if devices is None else devices.partition(":")[2].split(",")[0]
    return core.compile_model(model, devices or document["device"]), found


if __name__ == "__main__":
    compiled, found = load(*sys.argv[1:3])
    print(json.dumps(found, indent=1))
'''
