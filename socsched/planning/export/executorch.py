"""Placement for ExecuTorch: the partitioners of each network in order of priority, and every layer's backend.

Format: ExecuTorch documentation, `to_edge_transform_and_lower(program, partitioner=[...])`, whose partitioners take
nodes one after the other; Qualcomm's takes compile specs and sets of nodes and operators to leave out, XNNPACK's and
Vulkan's take none.  ExecuTorch names nodes when it exports a PyTorch model, so that layers are listed for comparison.
"""

from __future__ import annotations

from pprint import pformat
from typing import TYPE_CHECKING, Any

from socsched.compiler.toolchains.hand_over import vendor_compiler
from socsched.planning.export.networks import Part, exportable

if TYPE_CHECKING:
    from socsched.planning.export.threads import Request

_BACKENDS = "executorch.backends"
XNNPACK = f"{_BACKENDS}.xnnpack.partition.xnnpack_partitioner.XnnpackPartitioner"
PARTITIONERS = {
    ("tvm", "llvm"): XNNPACK,
    ("tvm", "opencl"): f"{_BACKENDS}.vulkan.partitioner.vulkan_partitioner.VulkanPartitioner",
    ("qnn", "simulated"): f"{_BACKENDS}.qualcomm.partition.qnn_partitioner.QnnPartitioner",
}
CHIPS = {66: "SM8550", 39: "SA8295", 35: "QCM6490"}
"""QNN's number of a chip -> `QcomChipset` of ExecuTorch with the same HTP (architecture and VTCM)."""


def write(request: Request) -> str:
    """Return a Python module: `NETWORKS`, and `partitioners(NAME)` for `to_edge_transform_and_lower`."""
    entries: dict[str, Any] = {}
    found, omitted = exportable(request.plan, PARTITIONERS, "ExecuTorch")
    for placed in found:
        chosen: dict[str, dict[str, Any]] = {}
        for part in placed.parts:
            name = PARTITIONERS[part.program]
            chosen.setdefault(name, {"partitioner": name, "engine": part.engine.id, **_spec(part)})
        order = sorted(chosen.values(), key=lambda one: one["partitioner"] == XNNPACK)
        layers = {
            layer: PARTITIONERS[part.program].rpartition(".")[2] for layer, part in placed.part_of_layer().items()
        }
        precisions = {part.task.name: part.task.precision for part in placed.parts}
        entries[placed.name] = {"partitioners": order, "precisions": precisions, "layers": layers}
    return _PROGRAM.format(plan=_literal(entries), omitted=_literal(omitted))


def _literal(value: Any) -> str:
    return pformat(value, width=100, sort_dicts=False)


def _spec(part: Part) -> dict[str, Any]:
    if part.program[0] != "qnn":
        return {}
    compiler = vendor_compiler(part.engine)
    number = int(compiler.target(part.engine)["soc_model"]) if compiler else 0
    return {"chipset": CHIPS.get(number, ""), "fp16": part.task.precision == "fp16"}


_PROGRAM = '''\
"""Partitioners of a plan for ExecuTorch:

    to_edge_transform_and_lower(program, partitioner=partitioners(NAME))

The first takes every node that it supports, the next ones the rest.  Compare the result with `layers`: nodes that the
plan places elsewhere are left out by names of nodes or operators, which Qualcomm's partitioner takes.
"""

import importlib

NETWORKS = {plan}
OMITTED = {omitted}


def partitioners(name, skip_nodes=(), skip_operators=()):
    """Return the partitioners of a network in order of priority."""
    return [make(entry, set(skip_nodes), set(skip_operators)) for entry in NETWORKS[name]["partitioners"]]


def make(entry, skip_nodes, skip_operators):
    """Return one partitioner."""
    module, _, name = entry["partitioner"].rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    if "chipset" not in entry:
        return kind()
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
    )

    options = generate_htp_compiler_spec(use_fp16=entry["fp16"])
    chip = getattr(QcomChipset, entry["chipset"])
    specs = generate_qnn_executorch_compiler_spec(soc_model=chip, backend_options=options)
    return kind(specs, skip_node_id_set=skip_nodes, skip_node_op_set=skip_operators)
'''
