"""Recurrent operators (ONNX's GRU and LSTM) that have a kernel on tensor cores, though no layer computes them.

Counting, operator rules and the compiler ask `steps_of`, so that a plan offers what is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched.graph.fusion import Graph, Group

GATES = {"GRU": 3, "LSTM": 4}
TILE = 16
"""Rows and columns of a product on tensor cores: hidden units come in as many."""
WIDEST = 256
"""Hidden units up to which a block of threads holds what it computes in registers."""
_KEPT = 112
"""Registers of a thread that weights may take."""
_KNOWN = {"hidden_size", "linear_before_reset", "direction"}
_ROLES = ("weight", "recurrent", "shift", "lengths", "state", "cell", "peepholes")
"""What the second and later inputs are."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The size of a recurrent layer."""

    steps: int
    batch: int
    hidden: int
    gates: int
    reversed: bool

    @property
    def kept(self) -> bool:
        """Return whether the weights stay in registers."""
        return self.gates * self.hidden // 4 <= _KEPT


def roles(group: Group) -> dict[str, str]:
    """Return role -> weight of a recurrent operator taken as it is, whose inputs but the first are constants."""
    names = iter(group.weights.values())
    operands = group.options["operands"][1:]
    return {role: next(names) for role, operand in zip(_ROLES, operands, strict=False) if operand}


def unread(graph: Graph, group: Group) -> bool:
    """Return whether nothing reads an operator's result."""
    return group.output not in graph.outputs and not graph.consumers(group.output)


def steps_of(graph: Graph, group: Group) -> Steps | None:
    """Return the size of a recurrent operator that has a kernel, None for any other operator or form."""
    options = group.options
    if group.kind != "onnx" or options["operator"] not in GATES or options["domain"] or options["stored"]:
        return None
    attributes, (first, *others) = options["attributes"], options["operands"]
    if set(attributes) - _KNOWN or first != 0 or len(group.inputs) != 1 or any(isinstance(one, int) for one in others):
        return None
    constants, gates = roles(group), GATES[options["operator"]]
    hidden, direction = int(attributes.get("hidden_size", 0)), attributes.get("direction", "forward")
    if not {"weight", "recurrent"} <= constants.keys() or {"lengths", "peepholes"} & constants.keys():
        return None
    if hidden % TILE or not 0 < hidden <= WIDEST or direction not in ("forward", "reverse"):
        return None
    if (gates == 3 and not attributes.get("linear_before_reset")) or (
        gates == 4 and ("state" in constants) != ("cell" in constants)
    ):
        return None
    steps, batch, width = graph.values[group.inputs[0]].shape
    if min(steps, batch, width) < 1 or (options["result"] > 1 and not unread(graph, group)):
        return None
    return Steps(steps, batch, hidden, gates, direction == "reverse")
