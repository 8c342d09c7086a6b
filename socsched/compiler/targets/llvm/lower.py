"""CPU lowering: the fused operators of a network as a Relax module of blocked kernels, with packed constant weights.

Every operator either has a rule (`rules`) or is left individually to TVM's general schedules on plain tensors
(`emit_general`), so that one unusual operator does not slow down the rest of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from socsched.compiler.environment import relax
from socsched.compiler.passes.relax_form import emit_general, emit_main
from socsched.compiler.targets.llvm import rules
from socsched.compiler.targets.llvm.convolutions import Convolutions
from socsched.compiler.targets.llvm.fuse import fuse
from socsched.compiler.targets.llvm.images import EDGE, Array
from socsched.compiler.targets.llvm.sums import Sums
from socsched.compiler.targets.llvm.vector import Vector
from socsched.graph.batches import one_by_one
from socsched.graph.enlargements import before_resizing
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import TensorType

__all__ = ["EDGE", "Exact", "Lowered", "lower"]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A Relax module whose `main` takes and returns tensors with the layouts in `inputs` and `outputs`.

    `general` names the kinds of operators without a rule.
    """

    module: relax.IRModule
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    general: tuple[str, ...] = ()


def lower(graph: Graph, weights: Mapping[str, Array], vector: Vector) -> Lowered:
    """Return the CPU form of `graph`; CompileError if unsupported."""
    graph, weights = before_resizing(one_by_one(graph), weights)
    return Exact(fuse(graph, weights), weights, vector).run()


class Exact(Convolutions):
    """Emits the operators of a graph in fp32, all at once (`run`) or one at a time (`emit_group`)."""

    def run(self) -> Lowered:
        inputs = tuple(self.at_border(name) for name in self.graph.inputs)
        variables = [self.variable(name, t) for name, t in zip(self.graph.inputs, inputs, strict=True)]
        self.plan_slices()
        self.plan_siblings()
        general: list[str] = []
        sums = Sums(self)

        def operators() -> None:
            for group in self.graph.groups:
                if group.output in sums.found:
                    sums.emit(group.output)
                elif group.output not in sums.inside and self.emit_group(group):
                    general.append(group.kind)

        emit_main(self, inputs, variables, operators)
        outputs = tuple(self.at_border(name) for name in self.graph.outputs)
        return Lowered(self.builder.get(), inputs, outputs, tuple(dict.fromkeys(general)))

    def emit_group(self, group: Group) -> bool:
        """Emit an operator; return whether it had no rule."""
        if group.output in self.merged:
            return False
        if group.kind == "reshape" and min(self.graph.values[group.output].shape, default=0) > 0:
            self.plain[group.output] = self.reshaped(
                self.plain_of(group.inputs[0]), self.graph.values[group.output].shape
            )
            return False
        rule = self.rule(group)
        if rule is None:
            self.plain[group.output] = emit_general(self, group)
            return group.kind not in ("reshape", "transpose", "constant", "image_to_rows", "rows_to_image")
        rule(group)
        return False

    def rule(self, group: Group) -> Callable[[Group], None] | None:
        own = getattr(self, group.kind, None) if group.kind in Convolutions.KINDS else None
        if own is not None:
            return own if self.takes(group) else None
        return rules.find(self, group)
