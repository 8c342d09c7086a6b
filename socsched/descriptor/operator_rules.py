"""What an engine can compute: rules per operator and limits on a whole job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """A case in which an engine supports an operator; all its conditions must hold.

    `limits`: attribute -> inclusive (min, max); `values`: attribute -> allowed values; `below`: attribute -> attribute
    it must stay under; `dtypes` empty means all of the engine.  Attribute names are those of
    `graph.operators.Operator.attrs` (kernel_h, stride_w, pad, dilation, groups, in_channels, out_channels, window,
    axis, ...); a condition on an attribute the operator lacks is ignored.  `conditions` are those that numbers cannot
    express; `runs_as` is the dtype it is promoted to, empty for its own; `source` names the source of the rule.
    """

    op: str
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    note: str = ""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    below: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    runs_as: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """An operator known not to run, with the reason and its source."""

    note: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """A tensor's permitted memory format at an engine's interface; `use` is in, out or both."""

    layout: str
    use: str
    note: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """What an engine can compute: cases by operator kind (`allowed` None: everything), and limits on a whole job.

    `max_jobs`: compiled jobs resident at a time (loadables per DLA core), 0 = unlimited; `static_shapes`: no symbolic
    dimension; `max_dim`: largest non-batch dimension, `max_batch`: largest batch, 0 = unlimited; `host_code`: arbitrary
    functions may run here.  `formats`: interface formats by dtype.  `name` is the rule file, `runtime` and `version`
    what the rules apply to; all empty for rules written into a platform file.  `source` names the source of the rules.
    """

    allowed: Mapping[str, tuple[OperatorRule, ...]] | None = None
    max_jobs: int = 0
    static_shapes: bool = False
    max_dim: int = 0
    weight_bytes: int = 0
    activation_bytes: int = 0
    host_code: bool = False
    source: str = ""
    max_batch: int = 0
    refused: Mapping[str, Refused] = field(default_factory=dict)
    formats: Mapping[str, tuple[Format, ...]] = field(default_factory=dict)
    name: str = ""
    runtime: str = ""
    version: str = ""


def version_key(version: str) -> tuple[int, ...]:
    """Return a version such as "8.6.12" as numbers that compare part by part."""
    return tuple(int(part) for part in version.split("."))
