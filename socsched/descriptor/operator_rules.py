"""What an engine can compute: rules by operator and limits of a whole job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """Limits under which an engine takes an operator: attribute -> inclusive (min, max); `dtypes` empty means all.

    Attribute names are those of `graph.operators.Operator.attrs` (kernel_h, stride_w, pad, dilation, groups,
    in_channels, out_channels, window, axis, ...).  `note`: conditions the limits cannot say, for people.
    """

    op: str
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """What an engine can compute: `allowed` by operator kind (None: everything), and limits of a whole job.

    `max_jobs`: compiled jobs resident at a time (loadables per DLA core), 0 = unlimited; `static_shapes`: no symbolic
    dimension; `max_dim`: largest non-batch dimension, 0 = unlimited; `host_code`: arbitrary functions may run here.
    `source`: key of `Platform.sources` the rules are from.
    """

    allowed: Mapping[str, OperatorRule] | None = None
    max_jobs: int = 0
    static_shapes: bool = False
    max_dim: int = 0
    weight_bytes: int = 0
    activation_bytes: int = 0
    host_code: bool = False
    source: str = ""
