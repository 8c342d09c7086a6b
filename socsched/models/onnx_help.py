"""Remedies for unsupported ONNX operators, by kind, addressed to the exporter of the file."""

from __future__ import annotations

_CUT = "cut the file before it (onnx.utils.extract_model): decoding runs as host code after the network"
_NORM = "use batch normalisation, which folds into convolutions, or spell it out: ReduceMean, Sub, Mul, Sqrt, Div"
_CONTROL = "export by tracing, so that control flow is unrolled for the fixed shapes"
_GATHER = "indices known beforehand can be written as Slice, Split or a 1x1 convolution; others belong into host code"
_KINDS: dict[str, tuple[str, ...]] = {
    _CUT: ("NonMaxSuppression", "NonZero", "ArgMin", "Unique", "RoiAlign", "MaxRoiPool"),
    _NORM: ("MeanVarianceNormalization",),
    _CONTROL: ("If", "Loop", "Scan", "SequenceEmpty", "SequenceInsert", "SequenceAt", "ConcatFromSequence"),
    _GATHER: ("GatherND", "ScatterElements", "OneHot"),
    "unroll it into MatMul, Add, Sigmoid and Tanh for the fixed length": ("LSTM", "GRU", "RNN"),
    "write it with Exp, Mul and Div, or retrain with LeakyRelu, HardSwish or Sigmoid": (
        "Selu",
        "Celu",
        "Softsign",
        "ThresholdedRelu",
    ),
    "fix the shapes on export, so that it folds to a constant": (
        "Shape",
        "ConstantOfShape",
        "Range",
        "Size",
        "EyeLike",
    ),
    "export in fp32 throughout": ("CastLike",),
    "train and export without it": ("RandomNormal", "RandomUniform", "RandomNormalLike", "Bernoulli"),
}
_HELP = {op: text for text, ops in _KINDS.items() for op in ops}


def help_for(op: str) -> str:
    """Return a remedy for an unsupported ONNX operator, empty where none is known."""
    return _HELP.get(op, "")
