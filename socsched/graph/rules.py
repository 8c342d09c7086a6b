"""Checks operators and stages against the declared operator rules of an engine.

Rules are in files of their own, by runtime version: four Jetsons share them.  A rule is a list of cases, one of which
must hold; conditions that numbers cannot decide are reported as such.  A predicate language would be too hard to check
against the vendor's list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from socsched.descriptor.operator_rules import FACTS, OperatorRule, OperatorRules
from socsched.descriptor.platform import NATIVE, ONNXRUNTIME, OWN, Engine, Runtime
from socsched.descriptor.processors import TENSOR_CORES, capability
from socsched.graph.operators import DTYPE_BYTES, Operator, StageWork, TensorType

RUNS, FALLS_BACK = "runs", "falls back"
ASYMMETRIC = "its file states int8 values about another zero than 0 or 128, symmetric ones only are computed"
SYMMETRICALLY = "quantise activations symmetrically (ONNX Runtime: ActivationSymmetric), or plan it on a CPU"


VARIES = "the size of its result depends on computed values, which ONNX Runtime knows on whole networks"


@dataclass(frozen=True, slots=True)
class Decision:
    """Result for one operator: runs on the engine or falls back to another, with reasons.

    `rule` is the name under which the rules list it; `dtype` is the type it actually runs in; `reasons` lists the
    objections (empty if it runs), `conditions` the further requirements that cannot be decided from numbers, `sources`
    the documents cited.
    """

    outcome: str
    dtype: str
    rule: str
    reasons: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Return whether the engine accepts the operator."""
        return self.outcome == RUNS


def decide(operator: Operator, engine: Engine, program: str = "") -> Decision:
    """Return the decision of `engine` on an operator of given shapes, attributes and dtype.

    `program`: what brings the user's file to the engine, where that is another than our hand-over.
    """
    rules = engine.operators
    # The user's file decides where the rules list its operator; else the layer, or the operators it is written as.
    listed = {**(rules.allowed or {}), **rules.refused}
    rule = operator.node if operator.node in listed else operator.whole or operator.kind
    if operator.kind == "constant":
        return Decision(RUNS, operator.dtype, rule)
    if operator.kind == "function":
        if rules.host_code:
            return Decision(RUNS, operator.dtype, rule)
        reasons = _against_function(operator, engine)
        return Decision(FALLS_BACK if reasons else RUNS, operator.dtype, rule, reasons)
    if lacking := unsupported(operator, engine):
        return Decision(FALLS_BACK, operator.dtype, rule, (lacking,))
    general = _general(operator, rules)
    sources = (rules.source,) if general and rules.source else ()
    if operator.dtype not in engine.precisions and not rules.host_code:
        general.insert(0, f"precision {operator.dtype} is not one of {', '.join(engine.precisions) or 'none'}")
    case, objections, cited = _case(operator, rule, rules, program)
    reasons = (*objections, *general)
    sources = tuple(dict.fromkeys(filter(None, (*cited, *sources))))
    if reasons:
        return Decision(FALLS_BACK, operator.dtype, rule, reasons, (), sources)
    conditions = (*case.conditions, *_unanswered(operator, rule, case)) if case else ()
    return Decision(RUNS, (case.runs_as if case else "") or operator.dtype, rule, (), conditions, sources)


def unsupported(operator: Operator, engine: Engine) -> str:
    """Return why none of an engine's programs has a kernel for an operator at all, empty where one may have.

    Networks are compiled here for engines that name no vendor's runtime.  `lint`, `plan` and `compile` ask this.
    """
    if not operator.unlayered or _on_tensor_cores(operator, engine):
        return ""
    stated = [runtime.name for runtime in engine.runtimes if operator.kind not in runtime.without]
    programs = stated or [engine.operators.runtime or OWN]
    if operator.attrs.get("varies"):  # only a file that runs as it is has results of other sizes than planned
        return "" if ONNXRUNTIME in programs and not operator.attrs.get("cut") else f"{operator.unlayered}: {VARIES}"
    known = (OWN, ONNXRUNTIME) if operator.attrs.get("plugin") else (OWN,)
    return operator.unlayered if all(name in known for name in programs) else ""


def _on_tensor_cores(operator: Operator, engine: Engine) -> bool:
    """Return whether our code for a GPU computes an operator that no layer does."""
    if not operator.tensor_cores or operator.dtype != "fp16" or engine.target.get("kind") != "cuda":
        return False
    return capability(str(engine.target.get("arch", "sm_0"))) >= TENSOR_CORES


def uncompiled_operators(work: StageWork, engine: Engine) -> dict[str, list[str]]:
    """Return the operators that our compiler has no kernel for on an engine, by the reason."""
    lacking: dict[str, list[str]] = {}
    for operator in work.operators:
        if operator.unlayered and not _on_tensor_cores(operator, engine):
            lacking.setdefault(operator.unlayered, []).append(operator.name)
    return lacking


def without_kernel(work: StageWork, engine: Engine) -> dict[str, list[str]]:
    """Return the operators that none of an engine's programs has a kernel for, by the reason."""
    found: dict[str, list[str]] = {}
    for operator in work.operators:
        if reason := unsupported(operator, engine):
            found.setdefault(reason, []).append(operator.name)
    return found


def named(lacking: Mapping[str, Sequence[str]]) -> str:
    """Return operators by reason in words, each by its name."""
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in lacking.items())


def _against_function(operator: Operator, engine: Engine) -> tuple[str, ...]:
    """Return the objections of an engine that runs only the functions it declares."""
    function = engine.functions.get(operator.device)
    if function is None:
        declared = f"; of functions it runs {', '.join(sorted(engine.functions))}" if engine.functions else ""
        return (f"host code cannot run here{declared}",)
    sizes = [(name, operator.attrs.get(name), limit) for name, limit in function.limits.items()]
    return tuple(
        f"{operator.device}: {name} is {value:.4g}, allowed {low:g} to {high:g}"
        for name, value, (low, high) in sizes
        if value is not None and not low <= value <= high
    )


def _case(
    operator: Operator, rule: str, rules: OperatorRules, program: str
) -> tuple[OperatorRule | None, list[str], tuple[str, ...]]:
    """Return the case that holds, or the objections of the closest case, and the sources."""
    if rules.allowed is None:
        return None, [], ()
    cases = rules.allowed.get(rule, ())
    if not cases:
        refused = rules.refused.get(rule)
        why = f": {refused.note}" if refused else ""
        return None, [f"operator {rule} is not supported{why}"], (refused.source if refused else rules.source,)
    judged = [(case, _against(operator, rule, case, program)) for case in cases]
    case, problems = min(judged, key=lambda pair: len(pair[1]))
    return case, problems, (case.source,)


def _against(operator: Operator, name: str, rule: OperatorRule, program: str) -> list[str]:
    problems = []
    if any(fnmatchcase(program, glob) for glob in rule.unless):
        problems.append(f"{name}: {program} leaves it to another unit{f' ({rule.note})' if rule.note else ''}")
    attrs = operator.attrs
    for attribute, (low, high) in rule.limits.items():
        value = attrs.get(attribute)
        if value is not None and not low <= value <= high:
            problems.append(f"{name}: {attribute} is {value:g}, allowed {low:g} to {high:g}{_why(attribute, rule)}")
    for attribute, values in rule.values.items():
        value = attrs.get(attribute)
        if value is not None and value not in values:
            allowed = ", ".join(f"{v:g}" for v in values)
            problems.append(f"{name}: {attribute} is {value:g}, allowed {allowed}{_why(attribute, rule)}")
    for attribute, other in rule.below.items():
        if attribute == "pad" and "pad_h" in attrs:  # sides differ: each against its own side of the window
            continue
        value, limit = attrs.get(attribute), _reach(attrs, other)
        if value is not None and limit is not None and value >= limit:
            problems.append(f"{name}: {attribute} is {value:g}, must be below {other}, {limit:g}")
    if rule.dtypes and operator.dtype not in rule.dtypes:
        problems.append(f"{name}: {operator.dtype}, allowed {', '.join(rule.dtypes)}")
    return problems


def _unanswered(operator: Operator, name: str, rule: OperatorRule) -> list[str]:
    """Return what a rule asks of the graph around an operator that states nothing of it: one that stands alone."""
    bounds = {**rule.limits, **rule.values}
    return [
        f"{name}: {attribute} is {', '.join(f'{value:g}' for value in bounds[attribute])}{_why(attribute, rule)}"
        for attribute in bounds
        if attribute in FACTS and attribute not in operator.attrs
    ]


def _why(attribute: str, rule: OperatorRule) -> str:
    """Return the remark of a rule that asks for a fact of the graph, which says in words what the number stands for."""
    return f" ({rule.note})" if attribute in FACTS and rule.note else ""


def _reach(attrs: Mapping[str, float], side: str) -> float | None:
    """Return an attribute, and of a side of a window what it spans with its dilation."""
    size = attrs.get(side)
    if size is None or side not in ("kernel_h", "kernel_w"):
        return size
    return (size - 1) * attrs.get(side.replace("kernel", "dilation"), 1) + 1


def _general(operator: Operator, rules: OperatorRules) -> list[str]:
    """Return the objections to any operator of these shapes."""
    problems: list[str] = []
    for tensor in (*operator.inputs, *operator.outputs):
        problems += _shape(tensor, rules, operator.kind)
    if rules.weight_bytes and operator.weight_bytes > rules.weight_bytes:
        problems.append(f"{operator.weight_bytes} B of weights, at most {rules.weight_bytes} B fit")
    live = max((_size(tensor) for tensor in (*operator.inputs, *operator.outputs)), default=0)
    if rules.activation_bytes and live > rules.activation_bytes:
        problems.append(f"a tensor of {live} B, at most {rules.activation_bytes} B fit")
    return list(dict.fromkeys(problems))


def _shape(tensor: TensorType, rules: OperatorRules, kind: str) -> list[str]:
    problems = []
    # Compilers merge a reshape, transpose and reshape into ones of fewer dimensions, where the first is an only one.
    rank = len(tensor.shape) - (kind in ("reshape", "transpose") and tensor.shape[:1] == (1,))
    if rules.max_rank and rank > rules.max_rank:
        problems.append(f"a tensor of {len(tensor.shape)} dimensions, at most {rules.max_rank} are supported")
    if rules.static_shapes and any(size < 0 for size in tensor.shape):
        problems.append("a dimension varies from frame to frame, only static shapes are supported")
    largest = max(tensor.shape[1:], default=0)
    if rules.max_dim and largest > rules.max_dim:
        problems.append(f"a dimension of {largest}, at most {rules.max_dim} is supported")
    if rules.max_batch and len(tensor.shape) > 1 and tensor.shape[0] > rules.max_batch:
        problems.append(f"a batch of {tensor.shape[0]}, at most {rules.max_batch} is supported")
    return problems


def _size(tensor: TensorType) -> int:
    size = DTYPE_BYTES[tensor.dtype]
    for dimension in tensor.shape:
        size *= max(dimension, 0)
    return size


def offered(engine: Engine, work: StageWork | None) -> tuple[Runtime, ...]:
    """Return the runtimes to choose from for a stage; a nameless one for work that no runtime computes.

    Empty where the engine declares runtimes, and none of them can compute the stage.
    """
    if work is None:
        return (Runtime(""),)
    if work.host_code:
        return (Runtime(NATIVE),)
    runtimes = engine.runtimes
    if not runtimes:
        rules, simulated = engine.operators.runtime, engine.target.get("kind") == "simulated"
        runtimes = (Runtime(rules.lower() if rules else "" if simulated else OWN),)
    kinds = {operator.kind for operator in work.operators}
    whole = uncompiled_operators(work, engine)
    return tuple(
        runtime
        for runtime in runtimes
        if kinds.isdisjoint(runtime.without)
        and (not runtime.precisions or work.precision in runtime.precisions)
        and (runtime.name != OWN or work.integers is None or work.integers.any)
        and not (whole and runtime.name == OWN)
    )


COMPILED = {"opencl": ("fp32", "fp16")}
"""Data types that our code for a kind of target has, where it lacks some."""


def uncompiled(engine: Engine, precision: str) -> str:
    """Return why no program that a bundle ships computes in a data type on an engine, empty if one does.

    The engine's own figures may be those of another program, which plans stand for where that is said (`--runtime`).
    """
    kinds = COMPILED.get(str(engine.target.get("kind")), (precision,))
    if precision in kinds or engine.runtimes or engine.operators.runtime:
        return ""
    return f"our code for it computes in {', '.join(kinds)} only, not in {precision}"


def as_a_whole(work: StageWork, engine: Engine) -> tuple[str, ...]:
    """Return what `engine` has against `work` that is none of its operators' fault: its border, zero points, programs.

    `lint`, `plan` and `compile` ask this beside `decide`.
    """
    rules = engine.operators
    reasons = []
    for side, tensors, ranks in (
        ("input", work.inputs, rules.input_ranks),
        ("output", work.outputs, rules.output_ranks),
    ):
        ranks = ranks or tuple(range(rules.max_rank + 1)) if rules.max_rank else ranks
        wrong = [tensor for tensor in tensors if ranks and len(tensor.shape) not in ranks]
        if wrong:
            shape = "x".join(map(str, wrong[0].shape)) or "without dimensions"
            listed = " or ".join(map(str, ranks))
            reasons.append(f"an {side} of {shape}: its {side}s have {listed} dimensions")
    if work.integers is not None and work.integers.asymmetric and not engine.zero_points:
        reasons.append(ASYMMETRIC)
    if work.operators and work.precision in engine.precisions and not offered(engine, work):
        listed = ", ".join(runtime.name for runtime in engine.runtimes) or OWN
        reasons.append(f"no runtime to choose from computes the stage in {work.precision}: {listed}")
    return tuple(reasons)


def check_operators(work: StageWork, engine: Engine) -> tuple[str, ...]:
    """Return every rule of `engine` that `work` breaks, in words with numbers; empty if the engine can compute it.

    Equal violations of several operators are reported once, with the number of operators.
    """
    lacking = without_kernel(work, engine)
    problems: Counter[str] = Counter()
    first: dict[str, str] = {}
    wrong = f"precision {work.precision} is not one of {', '.join(engine.precisions) or 'none'}"
    for operator in work.operators:
        for problem in decide(operator, engine).reasons:
            if problem != wrong and problem not in lacking:
                problems[problem] += 1
                first.setdefault(problem, operator.name)
    reasons = [
        f"{first[problem]}{f' (and {count - 1} more)' if count > 1 else ''}: {problem}"
        for problem, count in problems.items()
    ]
    if lacking:
        reasons.insert(0, named(lacking))
    reasons += [reason for reason in as_a_whole(work, engine) if not (lacking and reason.startswith("no runtime"))]
    if work.operators and work.precision not in engine.precisions and not engine.operators.host_code:
        reasons.insert(0, wrong)
    return tuple(reasons)


# What of a network an accelerator leaves to other engines: which unit runs it, and how many operators go elsewhere.


@dataclass(frozen=True, slots=True)
class FallBack:
    """How an engine takes a network: the kind of engine that runs most of its operators, and what it refuses.

    `operators` counts those of the network, `elsewhere` those that the engine refuses, `reasons` the commonest
    objections with their counts; `share`: of the arithmetic, refused.
    """

    unit: str
    operators: int
    elsewhere: int
    share: float
    reasons: tuple[tuple[str, int], ...] = ()


def fall_back(work: StageWork, engine: Engine, program: str = "") -> FallBack:
    """Return what of a network falls back from an engine to the CPU, by the engine's operator rules.

    `program`: what brings the user's file to the engine, where that is another than our hand-over.
    """
    refused: Counter[str] = Counter()
    flops = 0
    for operator in work.operators:
        decision = decide(operator, engine, program)
        if not decision.runs:
            refused[decision.reasons[0]] += 1
            flops += operator.flops
    share, count, left = flops / max(work.flops, 1), len(work.operators), sum(refused.values())
    unit = "cpu" if 2 * left > count else engine.kind
    return FallBack(unit, count, left, share, tuple(refused.most_common(3)))
