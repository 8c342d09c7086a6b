"""What an engine can compute: rules per operator and limits on a whole job, in a platform file or a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from socsched import resources
from socsched.descriptor.fields import (
    LAYOUT_PATTERN,
    OR_NULL,
    VERSION_PATTERN,
    Assumed,
    Count,
    Entry,
    Limit,
    Listed,
    Name,
    OneOf,
    PrecisionName,
    Size,
    Source,
    SourceKey,
    Title,
    doc,
)
from socsched.descriptor.source import base_files, read_extended
from socsched.descriptor.validation import Tree, check_figures, validate

Version = Annotated[str, Field(pattern=VERSION_PATTERN)]
_FACTS = """
    operands rank out_rank bits out_bits batch width broadcast low high step fraction moves first_axis counts_padding
    in_gelu in_norm of_input to_output
"""
FACTS = frozenset(_FACTS.split())
"""What rules can ask of the graph around an operator (`graph.counting.Facts`)."""
_OPERATOR_ATTRS = """
    kernel_h kernel_w stride_h stride_w pad pad_h pad_w dilation dilation_h dilation_w groups in_channels
    out_channels window axis axis_dim other_dims scale scale_h scale_w bilinear spatial
"""
OPERATOR_ATTRS = FACTS | frozenset(_OPERATOR_ATTRS.split())
"""Attributes of operators that rules can name (`graph.operators.Operator.attrs`, `graph.counting.Facts`)."""
_OPERATORS = """
    abs add argmax avg_pool batch_norm cast ceil clip concat constant conv2d conv2d_transpose cos dense
    depth_to_space divide einsum elu equal erf exp floor floor_mod function gather gather_nd gelu global_avg_pool
    greater greater_equal grid_sample group_norm hard_sigmoid hard_swish instance_norm isinf isnan layer_norm
    leaky_relu less less_equal log logical_and logical_not logical_or logical_xor lp_norm lrn matmul max_pool
    maximum minimum mish multiply neg nms one_hot other_conv pad pillar_features pow power prelu reciprocal reduce_l2
    reduce_max reduce_mean reduce_sum relu reshape resize2d round scatter scatter_nd sigmoid sign sin slice softmax
    softplus space_to_depth split sqrt subtract swish tanh topk transpose where
"""
OPERATORS = frozenset(_OPERATORS.split())
"""Operators that rules can name: `graph.operators.Operator.kind` or `node`, and others that vendors list."""


@dataclass(frozen=True, slots=True)
class OperatorRule(Entry):
    """A case in which an engine takes an operator.

    All its conditions must hold.  Attribute names are those of `graph.operators.Operator.attrs`; a condition on an
    attribute that the operator lacks is ignored.
    """

    op: str
    limits: Annotated[Mapping[Name, Limit], doc("attribute: [smallest, largest] value taken")] = field(
        default_factory=dict
    )
    dtypes: Annotated[Listed[PrecisionName], doc("data types taken, empty = all of the engine")] = ()
    note: Annotated[str, doc("remarks")] = ""
    values: Annotated[Mapping[Name, Listed[float]], doc("attribute: values taken")] = field(default_factory=dict)
    below: Annotated[Mapping[Name, Name], doc("attribute: attribute it must stay below")] = field(default_factory=dict)
    conditions: Annotated[Listed[str], doc("conditions that numbers cannot express")] = ()
    runs_as: Annotated[PrecisionName, OR_NULL, doc("data type the operator is promoted to")] = ""
    source: SourceKey = ""
    assumed: Assumed = ""
    since: Annotated[Version | None, doc("first version of the runtime where this holds")] = None
    until: Annotated[Version | None, doc("first version where this no longer holds")] = None
    unless: Annotated[
        Listed[str], doc("programs (globs) that leave such operators of their files to another unit")
    ] = ()

    def holds(self, version: tuple[int, ...]) -> bool:
        """Return whether the case applies to a version of the runtime."""
        early = self.since is not None and version < version_key(self.since)
        late = self.until is not None and version >= version_key(self.until)
        return not early and not late


@dataclass(frozen=True, slots=True)
class Refused(Entry):
    """An operator known not to run."""

    note: Annotated[str, doc("reason, and what to do instead", min_length=1)]
    source: SourceKey = ""
    assumed: Assumed = ""


@dataclass(frozen=True, slots=True)
class Format(Entry):
    """How a tensor may lie in memory at the engine's border."""

    layout: Annotated[str, doc("NCHW, NHWC, NCHW32c, NHWC8h8w32c, ...", pattern=LAYOUT_PATTERN)]
    use: Annotated[str, OneOf("in", "out", "both"), doc("as input, output or both")] = "both"
    note: Annotated[str, doc("alignment and other conditions")] = ""
    source: SourceKey = ""
    assumed: Assumed = ""


@dataclass(frozen=True, slots=True)
class OperatorRules(Entry):
    """What an engine can compute: a rule file by name, or rules written out.

    A loaded platform has the rules of the file for the version (`find_rules`): several cases an operator, operators
    refused, and interface formats by dtype.  `source` is then the title of the source.
    """

    allowed: Mapping[str, tuple[OperatorRule, ...]] | None = None
    max_jobs: Annotated[Count, doc("compiled jobs resident at a time, 0 = unlimited")] = 0
    static_shapes: Annotated[bool, doc("no dimension may vary from frame to frame")] = False
    max_dim: Annotated[Count, doc("largest non-batch dimension, 0 = unlimited")] = 0
    weight_bytes: Annotated[Size, doc("largest size of the weights of one job, 0 B = unlimited", "weights")] = 0
    activation_bytes: Annotated[
        Size, doc("largest size of the inner tensors of one job, 0 B = unlimited", "activations")
    ] = 0
    host_code: Annotated[bool, doc("whether arbitrary host functions can run")] = False
    source: SourceKey = ""
    max_batch: int = 0
    max_rank: int = 0
    input_ranks: Listed[int] = ()
    output_ranks: Listed[int] = ()
    refused: Mapping[str, Refused] = field(default_factory=dict)
    formats: Mapping[str, tuple[Format, ...]] = field(default_factory=dict)
    name: Annotated[Name, OR_NULL, doc("rule file: platforms/rules/NAME.yaml", "rules")] = ""
    runtime: str = ""
    version: Annotated[Version, OR_NULL, doc("version of the runtime, such as TensorRT's")] = ""
    assumed: Assumed = ""

    class File:
        """Written out, an operator has one case."""

        allowed: Annotated[Mapping[Name, OperatorRule] | None, doc("rule by operator; absent: everything")] = None

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> OperatorRules:
        """Return the rules as written."""
        cases = values.pop("allowed", None)
        allowed = None if cases is None else {name: (replace(case, op=name),) for name, case in cases.items()}
        return cls(allowed=allowed, **values)

    def resolved(self, folder: Path | None = None) -> OperatorRules:
        """Return the rules of the file that these name, themselves where they are written out."""
        return load_rules(find_rules(self.name, folder)).of_version(self.version) if self.name else self


@dataclass(frozen=True, slots=True)
class Unavailable(Entry):
    """Versions of the runtime that do not support the engine."""

    since: Annotated[Version, doc("first such version")]
    note: Annotated[str, doc("remarks", min_length=1)]
    until: Annotated[Version | None, doc("first version that supports it again")] = None
    source: SourceKey = ""
    assumed: Assumed = ""


@dataclass(frozen=True, slots=True)
class JobLimits(Entry):
    """Limits of a whole job."""

    static_shapes: Annotated[bool, doc("no dimension may vary from frame to frame")] = False
    max_jobs: Annotated[Count, doc("compiled jobs resident at a time, 0 = unlimited")] = 0
    max_batch: Annotated[Count, doc("largest batch, 0 = unlimited")] = 0
    max_dim: Annotated[Count, doc("largest non-batch dimension, 0 = unlimited")] = 0
    max_rank: Annotated[
        Count, doc("most dimensions of a tensor, a first one of 1 not counted where values only move; 0 = unlimited")
    ] = 0
    input_ranks: Annotated[Listed[int], doc("numbers of dimensions that inputs may have, empty = all")] = ()
    output_ranks: Annotated[Listed[int], doc("numbers of dimensions that outputs may have, empty = all")] = ()
    weights: Annotated[Size, doc("largest size of the weights of one job, 0 B = unlimited")] = 0
    activations: Annotated[Size, doc("largest size of the inner tensors of one job, 0 B = unlimited")] = 0
    note: Annotated[str, doc("remarks")] = ""
    source: SourceKey = ""
    assumed: Assumed = ""


@dataclass(frozen=True, slots=True)
class RuleFile(Entry):
    """What an accelerator takes, by operator, data type and version of its runtime."""

    schema_version: Annotated[Literal["1"], doc('version of this format, "1"')]
    name: Annotated[Name, doc("name of the rules, as in the file's name")]
    title: Annotated[Title, doc("one-line description")]
    runtime: Annotated[str, doc("runtime that the versions refer to, such as TensorRT", min_length=1)]
    version: Annotated[Version, doc("version used if a platform names none")]
    sources: Annotated[Mapping[Name, Source], doc("sources of the rules, by key", min_length=1)]
    job: Annotated[JobLimits, doc("limits of a whole job")]
    operators: Annotated[Mapping[Name, Listed[OperatorRule]], doc("cases by operator", min_length=1)]
    unavailable: Annotated[Listed[Unavailable], doc("versions without this engine")] = ()
    formats: Annotated[Mapping[PrecisionName, Listed[Format]], doc("input and output formats by dtype")] = field(
        default_factory=dict
    )
    refused: Annotated[Mapping[Name, Refused], doc("operators known to be unsupported")] = field(default_factory=dict)
    extends: Annotated[Name, OR_NULL, doc("rule file that holds where this one states nothing; it merges")] = ""

    def title_of(self, grounded: OperatorRule | Refused | Format | JobLimits | Unavailable) -> str:
        """Return the title of an entry's source, or its reasoning."""
        return self.sources[grounded.source].title if grounded.source else grounded.assumed

    def of_version(self, version: str = "") -> OperatorRules:
        """Return the rules for a runtime version, the file's own for none.

        Operators supported only by other versions are refused, naming them.
        """
        chosen = version or self.version
        key = version_key(chosen)
        allowed: dict[str, tuple[OperatorRule, ...]] = {}
        refused = {name: replace(entry, source=self.title_of(entry)) for name, entry in self.refused.items()}
        for name, cases in self.operators.items():
            held = tuple(replace(case, op=name, source=self.title_of(case)) for case in cases if case.holds(key))
            if held:
                allowed[name] = held
            else:
                since = sorted((case.since for case in cases if case.since), key=version_key)
                later = [one for one in since if version_key(one) > key]
                when = f"from {self.runtime} {later[0]} on" if later else f"no longer in {self.runtime}"
                refused[name] = Refused(f"{when}, {chosen} here", self.title_of(cases[0]))
        return OperatorRules(
            allowed=allowed,
            max_jobs=self.job.max_jobs,
            static_shapes=self.job.static_shapes,
            max_dim=self.job.max_dim,
            weight_bytes=self.job.weights,
            activation_bytes=self.job.activations,
            source=self.title_of(self.job),
            max_batch=self.job.max_batch,
            max_rank=self.job.max_rank,
            input_ranks=self.job.input_ranks,
            output_ranks=self.job.output_ranks,
            refused=refused,
            formats={
                dtype: tuple(replace(entry, source=self.title_of(entry)) for entry in entries)
                for dtype, entries in self.formats.items()
            },
            name=self.name,
            runtime=self.runtime,
            version=chosen,
        )

    def gap(self, version: str) -> Unavailable | None:
        """Return the unsupported version range containing a version, None when the version supports this engine."""
        key = version_key(version)
        for entry in self.unavailable:
            if key >= version_key(entry.since) and (entry.until is None or key < version_key(entry.until)):
                return entry
        return None


def version_key(version: str) -> tuple[int, ...]:
    """Return a version such as "8.6.12" as numbers that compare part by part."""
    return tuple(int(part) for part in version.split("."))


def rule_names(folder: Path | None = None) -> list[str]:
    """Return the names of all rule files that a platform in `folder` can name."""
    return sorted({path.stem for place in _folders(folder) for path in place.glob("*.yaml")})


def find_rules(name: str, folder: Path | None = None) -> Path:
    """Return a rule file by name: below the platform's own folder, then on the platform search path; else KeyError."""
    for place in _folders(folder):
        if (place / f"{name}.yaml").is_file():
            return place / f"{name}.yaml"
    raise KeyError(name)


def _folders(folder: Path | None) -> list[Path]:
    own = [folder / "rules"] if folder else []
    return [*own, *(found / "rules" for found in resources.folders("platforms"))]


def load_rules(path: Path) -> RuleFile:
    """Return a rule file; DescriptorError lists all its faults with their positions."""
    status = path.stat()
    return _load(path, (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=32)
def _load(path: Path, stamp: tuple[int, int]) -> RuleFile:
    return validate(read_extended(path, _elsewhere), RuleFile, CHECKS)


def rule_files(name: str, folder: Path | None = None) -> list[Path]:
    """Return a rule file and those that it extends."""
    file = find_rules(name, folder)
    return [file, *base_files(file, _elsewhere)]


def _elsewhere(name: str) -> Path | None:
    try:
        return find_rules(name)
    except KeyError:
        return None


def check_operators(entries: Tree) -> None:
    """Report unknown operator names: a rule for one would never apply."""
    for entry in entries.items():
        if entry.key not in OPERATORS:
            entry.unknown("operator", OPERATORS, key=True)


def check_limit(limit: Tree) -> None:
    """Report an empty range."""
    bounds = [bound.value for bound in limit.items()]
    if len(bounds) == 2 and all(isinstance(bound, (int, float)) for bound in bounds) and bounds[0] > bounds[1]:
        limit.report(f"expected [smallest, largest], got {bounds[0]} above {bounds[1]}")


def check_case(case: Tree) -> None:
    """Report unknown attributes, empty ranges and duplicate dtypes within one case of a rule."""
    for name in ("limits", "values", "below"):
        for entry in case.at(name).items():
            if entry.key not in OPERATOR_ATTRS:
                entry.unknown("operator attribute", OPERATOR_ATTRS, key=True)
    for limit in case.at("limits").items():
        check_limit(limit)
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
