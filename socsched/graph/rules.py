"""Whether an engine can compute a stage: its operators against the engine's declared rules (pure, no compiler)."""

from __future__ import annotations

from collections import Counter

from socsched.descriptor.operator_rules import OperatorRule, OperatorRules
from socsched.descriptor.platform import Engine
from socsched.graph.operators import DTYPE_BYTES, Operator, StageWork, TensorType


def check_operators(work: StageWork, engine: Engine) -> tuple[str, ...]:
    """Return every rule of `engine` that `work` breaks, in words with numbers; empty when the engine can compute it.

    Equal violations of several operators are reported once, with how many operators there are.
    """
    rules = engine.operators
    problems: Counter[str] = Counter()
    first: dict[str, str] = {}
    for operator in work.operators:
        for problem in _operator(operator, rules):
            problems[problem] += 1
            first.setdefault(problem, operator.name)
    found = [_counted(first[problem], problem, count) for problem, count in problems.items()]
    if work.operators and work.precision not in engine.precisions and not rules.host_code:
        found.insert(0, f"precision {work.precision} is not one of {', '.join(engine.precisions) or 'none'}")
    return tuple(found)


def _counted(name: str, problem: str, count: int) -> str:
    more = f" (and {count - 1} more)" if count > 1 else ""
    return f"{name}{more}: {problem}"


def _operator(operator: Operator, rules: OperatorRules) -> list[str]:
    if operator.kind == "function":
        return [] if rules.host_code else ["host code cannot run here"]
    problems = _kind(operator, rules)
    for tensor in (*operator.inputs, *operator.outputs):
        problems += _shape(tensor, rules)
    if rules.weight_bytes and operator.weight_bytes > rules.weight_bytes:
        problems.append(f"{operator.weight_bytes} B of weights, at most {rules.weight_bytes} B fit")
    live = max((_size(tensor) for tensor in (*operator.inputs, *operator.outputs)), default=0)
    if rules.activation_bytes and live > rules.activation_bytes:
        problems.append(f"a tensor of {live} B, at most {rules.activation_bytes} B fit")
    return problems


def _kind(operator: Operator, rules: OperatorRules) -> list[str]:
    if rules.allowed is None:
        return []
    rule = rules.allowed.get(operator.kind)
    if rule is None:
        return [f"operator {operator.kind} is not supported"]
    return _limits(operator, rule)


def _limits(operator: Operator, rule: OperatorRule) -> list[str]:
    problems = []
    for attribute, (low, high) in rule.limits.items():
        value = operator.attrs.get(attribute)
        if value is not None and not low <= value <= high:
            problems.append(f"{operator.kind}: {attribute} is {value:g}, allowed {low:g} to {high:g}")
    if rule.dtypes and operator.dtype not in rule.dtypes:
        problems.append(f"{operator.kind}: {operator.dtype}, allowed {', '.join(rule.dtypes)}")
    return problems


def _shape(tensor: TensorType, rules: OperatorRules) -> list[str]:
    problems = []
    if rules.static_shapes and any(size < 0 for size in tensor.shape):
        problems.append("a dimension varies from frame to frame, only static shapes are supported")
    largest = max(tensor.shape[1:], default=0)
    if rules.max_dim and largest > rules.max_dim:
        problems.append(f"a dimension of {largest}, at most {rules.max_dim} is supported")
    return problems


def _size(tensor: TensorType) -> int:
    size = DTYPE_BYTES[tensor.dtype]
    for dimension in tensor.shape:
        size *= max(dimension, 0)
    return size
