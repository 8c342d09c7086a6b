"""The networks of a plan and the engine of each of their layers, for runtimes that divide networks themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from socsched.compiler.builder import shipped_scales, weights_for
from socsched.compiler.quantize.scales import per_layer
from socsched.compiler.toolchains.onnx_model import to_onnx, without_operator
from socsched.compiler.toolchains.qdq import quantised
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import OWN, Engine
from socsched.errors import UsageError
from socsched.graph.expand import layer_types
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import parse_part, take
from socsched.models.model import Model
from socsched.models.parts import part_of, without_part
from socsched.models.registry import get_model
from socsched.planning.plan import Plan, Task
from socsched.text import one_line

Program = tuple[str, str]
"""The runtime of a task, and the kind of compilation target of its engine."""
OMITTED = "omitted.txt"


@dataclass(frozen=True, slots=True)
class Part:
    """A network, or a part of one, that runs on one engine; `program` identifies what computes it there."""

    task: Task
    engine: Engine
    network: Network

    @property
    def program(self) -> Program:
        """Return the planned runtime and the kind of the engine's target; a plan without runtimes has the engine's."""
        own = self.engine.operators.runtime.lower() or OWN
        return self.task.runtime or own, str(self.engine.target.get("kind", ""))


@dataclass(slots=True)
class PlacedNetwork:
    """A network of a plan with its parts in the order of execution; every layer is in exactly one of them."""

    name: str
    model: Model
    network: Network
    types: Mapping[str, TensorType]
    parts: tuple[Part, ...]
    _weights: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def part_of_layer(self) -> dict[str, Part]:
        """Return the part of every layer."""
        return {layer.name: part for part in self.parts for layer in part.network.layers}

    def onnx(self, part: Part | None = None) -> Any:
        """Return the ONNX model of the network, or of a part, in fp32; CompileError for a layer without operator."""
        if not self._weights:
            self._weights = weights_for(self.model, self.network, None)[0]
        return to_onnx(part.network if part else self.network, self._weights, self.types)

    def quantised(self, part: Part, unsigned: bool) -> Any:
        """Return the ONNX model of a part with Q/DQ, None if no scales of the network are known."""
        scales = shipped_scales(self.model)
        return quantised(self.onnx(part), per_layer(self.network, scales), unsigned) if scales else None

    def owners(self, onnx: Any) -> dict[str, Part]:
        """Return the part of every node of `onnx()`; a layer may be several nodes, one of which has its name."""
        home = self.part_of_layer()
        found: dict[str, Part] = {}
        waiting: list[str] = []
        for node in onnx.graph.node:
            waiting.append(node.name)
            if node.name in home:
                found.update(dict.fromkeys(waiting, home[node.name]))
                waiting = []
        if waiting and found:
            found.update(dict.fromkeys(waiting, list(found.values())[-1]))
        return found


def networks(plan: Plan) -> list[PlacedNetwork]:
    """Return the networks of a plan; UsageError for a plan without any, or a model that cannot be found."""
    platform = get_platform(plan.platform)
    groups: dict[str, list[Task]] = {}
    for task in plan.tasks:
        if task.kind != "stage" or task.model is None or get_model(task.model, task.params).network is None:
            continue
        part = part_of(task.params)
        groups.setdefault(part.stage if part else task.name, []).append(task)
    if not groups:
        raise UsageError("nothing to export: no stage of the plan is a network", "host functions stay as they are")
    return [_placed(name, tasks, {engine.id: engine for engine in platform.engines}) for name, tasks in groups.items()]


def exportable(plan: Plan, known: Mapping[Program, Any], tool: str) -> tuple[list[PlacedNetwork], dict[str, str]]:
    """Return the networks of a plan that a runtime can run as planned, and for the others the reason.

    `known`: its programs.  Raises UsageError, with the first reason, where no network remains.
    """
    taken: list[PlacedNetwork] = []
    omitted: dict[str, str] = {}
    for placed in networks(plan):
        lost = without_operator(placed.network)
        try:
            for part in placed.parts:
                require(part, known, tool)
            if lost:
                raise UsageError(f"{placed.name}: ONNX has no operator for {', '.join(lost)}", "it stays with socsched")
            taken.append(placed)
        except UsageError as error:
            omitted[placed.name] = f"{error}; {error.hint}" if error.hint else str(error)
    if not taken:
        raise UsageError(f"nothing to export to {tool}: {next(iter(omitted.values()))}")
    return taken, omitted


def listed(omitted: Mapping[str, str]) -> dict[str, str | bytes]:
    """Return the file that names the networks left out, none where all are exported."""
    text = "".join(f"{one_line(name)}: {one_line(reason)}\n" for name, reason in omitted.items())
    return {OMITTED: text} if text else {}


def _placed(name: str, tasks: list[Task], engines: Mapping[str, Engine]) -> PlacedNetwork:
    first = tasks[0]
    model = get_model(str(first.model), without_part(first.params))
    assert model.network is not None
    network = model.network()
    types, parts = layer_types(network), []
    for task in sorted(tasks, key=lambda each: part.number if (part := part_of(each.params)) else 0):
        part = part_of(task.params)
        own = take(network, parse_part(part.cut), types) if part else network
        parts.append(Part(task, engines[task.engine], own))
    return PlacedNetwork(name, model, network, types, tuple(parts))


def require(part: Part, known: Mapping[Program, Any], tool: str) -> Any:
    """Return the entry of a part's program in a table of a runtime; UsageError where the runtime has none."""
    if part.program in known:
        return known[part.program]
    raise UsageError(
        f"{tool} has nothing that runs on {part.engine.id}, where {part.task.name} is planned ({part.program[0]})",
        f"plan it elsewhere: --pin {part.task.name.partition('.')[0]}=ENGINE",
    )


def file_name(text: str) -> str:
    """Return a name of a stage as that of a file or a symbol: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]", "_", text)


def names_of(found: list[PlacedNetwork]) -> dict[str, str]:
    """Return a folder for each network; names that would coincide are numbered."""
    taken: dict[str, str] = {}
    for placed in found:
        name, count = file_name(placed.name), 1
        while name in taken.values():
            count += 1
            name = f"{file_name(placed.name)}_{count}"
        taken[placed.name] = name
    return taken
