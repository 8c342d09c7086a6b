"""Operator rules in files: written into a platform file, or in a rule file that several platforms share."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from socsched import resources
from socsched.descriptor.fields import (
    LAYOUT_PATTERN,
    VERSION_PATTERN,
    Count,
    FileModel,
    Grounded,
    Name,
    PrecisionName,
    Size,
    SourceFile,
    Title,
)
from socsched.descriptor.operator_rules import Format, OperatorRule, OperatorRules, Refused, version_key
from socsched.descriptor.rule_checks import CHECKS
from socsched.descriptor.source import read
from socsched.descriptor.validation import validate

Limit = Annotated[list[float], Field(min_length=2, max_length=2)]
Version = Annotated[str, Field(pattern=VERSION_PATTERN)]


class OperatorRuleFile(Grounded):
    """A case in which an engine takes an operator."""

    limits: dict[Name, Limit] = Field(default_factory=dict, description="attribute: [smallest, largest] value taken")
    values: dict[Name, list[float]] = Field(default_factory=dict, description="attribute: values taken")
    below: dict[Name, Name] = Field(default_factory=dict, description="attribute: attribute it must stay below")
    dtypes: list[PrecisionName] = Field(default_factory=list, description="data types taken, empty = all of the engine")
    since: Version | None = Field(None, description="first version of the runtime where this holds")
    until: Version | None = Field(None, description="first version where this no longer holds")
    runs_as: PrecisionName | None = Field(None, description="data type the operator is promoted to")
    conditions: list[str] = Field(default_factory=list, description="conditions that numbers cannot express")
    note: str = Field("", description="remarks")

    def lower(self, name: str, source: str = "") -> OperatorRule:
        """Return the internal `OperatorRule`; `source` is the title of its source."""
        return OperatorRule(
            op=name,
            limits={attribute: (limit[0], limit[1]) for attribute, limit in self.limits.items()},
            dtypes=tuple(self.dtypes),
            note=self.note,
            values={attribute: tuple(values) for attribute, values in self.values.items()},
            below=dict(self.below),
            conditions=tuple(self.conditions),
            runs_as=self.runs_as or "",
            source=source or self.source,
        )

    def holds(self, version: tuple[int, ...]) -> bool:
        """Return whether the case applies to a version of the runtime."""
        early = self.since is not None and version < version_key(self.since)
        late = self.until is not None and version >= version_key(self.until)
        return not early and not late


class OperatorRulesFile(Grounded):
    """What an engine can compute: a rule file by name, or rules written out."""

    rules: Name | None = Field(None, description="rule file: platforms/rules/NAME.yaml")
    version: Version | None = Field(None, description="version of the runtime, such as TensorRT's")
    host_code: bool = Field(False, description="whether arbitrary host functions can run")
    allowed: dict[Name, OperatorRuleFile] | None = Field(None, description="rule by operator; absent: everything")
    static_shapes: bool = Field(False, description="no dimension may vary from frame to frame")
    max_jobs: Count = Field(0, description="compiled jobs resident at a time, 0 = unlimited")
    max_dim: Count = Field(0, description="largest non-batch dimension, 0 = unlimited")
    weights: Size = Field(0, description="largest size of the weights of one job, 0 B = unlimited")
    activations: Size = Field(0, description="largest size of the inner tensors of one job, 0 B = unlimited")

    def lower(self, folder: Path | None = None) -> OperatorRules:
        """Return the internal `OperatorRules`; a rule file is searched for below `folder` first."""
        if self.rules is not None:
            return load_rules(find_rules(self.rules, folder)).lower(self.version)
        allowed = None
        if self.allowed is not None:
            allowed = {name: (rule.lower(name),) for name, rule in self.allowed.items()}
        return OperatorRules(
            allowed=allowed,
            max_jobs=self.max_jobs,
            static_shapes=self.static_shapes,
            max_dim=self.max_dim,
            weight_bytes=self.weights,
            activation_bytes=self.activations,
            host_code=self.host_code,
            source=self.source,
        )


class UnavailableFile(Grounded):
    """Versions of the runtime that do not support the engine."""

    since: Version = Field(description="first such version")
    until: Version | None = Field(None, description="first version that supports it again")
    note: str = Field(min_length=1, description="remarks")


class JobFile(Grounded):
    """Limits of a whole job."""

    static_shapes: bool = Field(False, description="no dimension may vary from frame to frame")
    max_jobs: Count = Field(0, description="compiled jobs resident at a time, 0 = unlimited")
    max_batch: Count = Field(0, description="largest batch, 0 = unlimited")
    max_dim: Count = Field(0, description="largest non-batch dimension, 0 = unlimited")
    weights: Size = Field(0, description="largest size of the weights of one job, 0 B = unlimited")
    activations: Size = Field(0, description="largest size of the inner tensors of one job, 0 B = unlimited")
    note: str = Field("", description="remarks")


class FormatFile(Grounded):
    """How a tensor may lie in memory at the engine's border."""

    layout: str = Field(pattern=LAYOUT_PATTERN, description="NCHW, NHWC, NCHW32c, NHWC8h8w32c, ...")
    use: Literal["in", "out", "both"] = Field("both", description="as input, output or both")
    note: str = Field("", description="alignment and other conditions")


class RefusedFile(Grounded):
    """An operator known not to run."""

    note: str = Field(min_length=1, description="reason, and what to do instead")


class RulesFile(FileModel):
    """What an accelerator takes, by operator, data type and version of its runtime."""

    schema_version: Literal["1"] = Field(description='version of this format, "1"')
    name: Name = Field(description="name of the rules, as in the file's name")
    title: Title = Field(description="one-line description")
    runtime: str = Field(min_length=1, description="runtime that the versions refer to, such as TensorRT")
    version: Version = Field(description="version used if a platform names none")
    sources: dict[Name, SourceFile] = Field(min_length=1, description="sources of the rules, by key")
    unavailable: list[UnavailableFile] = Field(default_factory=list, description="versions without this engine")
    job: JobFile = Field(description="limits of a whole job")
    formats: dict[PrecisionName, list[FormatFile]] = Field(
        default_factory=dict, description="input and output formats by dtype"
    )
    operators: dict[Name, list[OperatorRuleFile]] = Field(min_length=1, description="cases by operator")
    refused: dict[Name, RefusedFile] = Field(default_factory=dict, description="operators known to be unsupported")

    def title_of(self, grounded: Grounded) -> str:
        """Return the title of a mapping's source, or its reasoning."""
        return self.sources[grounded.source].title if grounded.source else grounded.assumed

    def lower(self, version: str | None = None) -> OperatorRules:
        """Return the rules for a runtime version; operators supported only by other versions are refused, naming
        them."""
        chosen = version or self.version
        key = version_key(chosen)
        allowed: dict[str, tuple[OperatorRule, ...]] = {}
        refused = {name: Refused(entry.note, self.title_of(entry)) for name, entry in self.refused.items()}
        for name, cases in self.operators.items():
            held = tuple(case.lower(name, self.title_of(case)) for case in cases if case.holds(key))
            if held:
                allowed[name] = held
            else:
                refused[name] = Refused(self._elsewhere(cases, chosen), self.title_of(cases[0]))
        return OperatorRules(
            allowed=allowed,
            max_jobs=self.job.max_jobs,
            static_shapes=self.job.static_shapes,
            max_dim=self.job.max_dim,
            weight_bytes=self.job.weights,
            activation_bytes=self.job.activations,
            source=self.title_of(self.job),
            max_batch=self.job.max_batch,
            refused=refused,
            formats={
                dtype: tuple(Format(entry.layout, entry.use, entry.note, self.title_of(entry)) for entry in entries)
                for dtype, entries in self.formats.items()
            },
            name=self.name,
            runtime=self.runtime,
            version=chosen,
        )

    def _elsewhere(self, cases: list[OperatorRuleFile], version: str) -> str:
        since = sorted((case.since for case in cases if case.since), key=version_key)
        later = [s for s in since if version_key(s) > version_key(version)]
        when = f"from {self.runtime} {later[0]} on" if later else f"no longer in {self.runtime}"
        return f"{when}, {version} here"

    def gap(self, version: str) -> UnavailableFile | None:
        """Return the unsupported version range containing a version, None when the version supports this engine."""
        key = version_key(version)
        for entry in self.unavailable:
            if key >= version_key(entry.since) and (entry.until is None or key < version_key(entry.until)):
                return entry
        return None


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


def load_rules(path: Path) -> RulesFile:
    """Return a rule file; DescriptorError lists all its faults with their positions."""
    status = path.stat()
    return _load(path, (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=32)
def _load(path: Path, stamp: tuple[int, int]) -> RulesFile:
    return validate(read(path), RulesFile, CHECKS)
