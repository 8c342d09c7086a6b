"""Consistency of operator rules, in a rule file or in a platform file."""

from __future__ import annotations

from socsched.descriptor.validation import Tree, check_figures

FACTS = frozenset(
    ("operands", "rank", "out_rank", "batch", "width", "broadcast", "low", "high", "step", "fraction", "moves",
     "first_axis", "counts_padding", "in_gelu", "in_norm")
)  # fmt: skip
"""What rules can ask of the graph around an operator (`graph.counting.Facts`)."""
OPERATOR_ATTRS = frozenset(
    (
        *("kernel_h", "kernel_w", "stride_h", "stride_w", "pad", "pad_h", "pad_w", "dilation"),
        *("dilation_h", "dilation_w", "groups", "in_channels", "out_channels", "window", "axis", "axis_dim"),
        *("other_dims", "scale", "scale_h", "scale_w", "bilinear", "spatial"),
        *FACTS,
    )
)
"""Attributes of operators that rules can name (`graph.operators.Operator.attrs`, `graph.counting.Facts`)."""


OPERATORS = frozenset(
    (
        *(
            "abs",
            "add",
            "argmax",
            "avg_pool",
            "batch_norm",
            "cast",
            "clip",
            "concat",
            "conv2d",
            "conv2d_transpose",
            "cos",
            "dense",
        ),
        *("divide", "elu", "equal", "erf", "exp", "function", "gather", "gather_nd", "gelu", "global_avg_pool"),
        *(
            "greater",
            "grid_sample",
            "group_norm",
            "hard_sigmoid",
            "hard_swish",
            "instance_norm",
            "layer_norm",
            "leaky_relu",
            "less",
        ),
        *("log", "lrn", "matmul", "max_pool", "maximum", "minimum", "multiply", "nms", "one_hot", "pad"),
        *("pillar_features", "prelu", "reduce_max", "reduce_mean", "reduce_sum", "relu", "reshape", "resize2d"),
        *(
            "scatter",
            "scatter_nd",
            "sigmoid",
            "sin",
            "slice",
            "softmax",
            "softplus",
            "split",
            "sqrt",
            "subtract",
            "tanh",
            "topk",
            *("depth_to_space", "einsum", "lp_norm", "mish", "neg", "pow", "reciprocal", "reduce_l2"),
            *("space_to_depth", "swish"),
        ),
        "transpose",
    )
)
"""Operators that rules can name: `graph.operators.Operator.kind` or `node`, and others that vendors list."""


def check_operators(entries: Tree) -> None:
    """Report unknown operator names: a rule for one would never apply."""
    for entry in entries.items():
        if entry.key not in OPERATORS:
            entry.unknown("operator", OPERATORS, key=True)


def check_case(case: Tree) -> None:
    """Report unknown attributes, empty ranges and duplicate dtypes within one case of a rule."""
    for name in ("limits", "values", "below"):
        for entry in case.at(name).items():
            if entry.key not in OPERATOR_ATTRS:
                entry.unknown("operator attribute", OPERATOR_ATTRS, key=True)
    for limit in case.at("limits").items():
        bounds = [bound.value for bound in limit.items()]
        if len(bounds) == 2 and all(isinstance(bound, (int, float)) for bound in bounds) and bounds[0] > bounds[1]:
            limit.report(f"expected [smallest, largest], got {bounds[0]} above {bounds[1]}")
    for other in case.at("below").texts():
        if other.text not in OPERATOR_ATTRS:
            other.unknown("operator attribute", OPERATOR_ATTRS)


def check_cases(root: Tree) -> None:
    """Report faults of every case, operators without a case, and operators both allowed and refused."""
    refused = root.at("refused").names()
    check_operators(root.at("operators"))
    check_operators(root.at("refused"))
    for operator in root.at("operators").items():
        if operator.value == []:
            operator.report("expected at least one case; an operator that never runs belongs under refused")
        if operator.key in refused:
            operator.report("expected either cases or an entry under refused, not both", key=True)
        for case in operator.items():
            check_case(case)


def check_grounds_of_rules(root: Tree) -> None:
    """Report rules without a source, which a rule file exists to give."""
    entries = [root.at("job"), *root.at("unavailable").items(), *root.at("refused").items()]
    entries += [case for operator in root.at("operators").items() for case in operator.items()]
    entries += [entry for formats in root.at("formats").items() for entry in formats.items()]
    for entry in entries:
        if isinstance(entry.value, dict) and not (entry.at("source").text or entry.at("assumed").text.strip()):
            entry.report("a rule needs source, a key of sources, or assumed, the reasoning")


CHECKS = (check_cases, check_grounds_of_rules, check_figures)
