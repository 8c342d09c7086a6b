"""Checks of plans, pipelines and networks against the operator rules of a platform's accelerators.

`lint_file` reads a file and judges every stage of a pipeline, or every task of a plan; a `Diagnostic` is one broken
rule with its position and the document that states the rule.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from socsched import __version__, resources
from socsched.bounded import read_bytes
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.json_file import MAX_BYTES, positions
from socsched.descriptor.operator_rules import OPERATORS, find_rules, load_rules
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.pipeline_file import NETWORKS, pipeline_from_document
from socsched.descriptor.platform import Engine, Platform
from socsched.descriptor.source import parse, read
from socsched.descriptor.validation import suggest
from socsched.errors import CompileError, DescriptorError, InputError, OpenShape, UnknownOperator, UsageError
from socsched.graph.operators import Operator, StageWork
from socsched.graph.rules import (
    ASYMMETRIC,
    SYMMETRICALLY,
    Decision,
    as_a_whole,
    check_operators,
    decide,
    named,
    uncompiled,
    without_kernel,
)
from socsched.models.precision import settled
from socsched.models.registry import get_model
from socsched.models.sizes import sized
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.schedulability.high_level import DROPPED, Triggered, is_hard, is_mixed, loose_triggers

Level = Literal["error", "warning", "note"]
NO_ENGINE, UNKNOWN_OPERATOR, UNAVAILABLE = "no-engine", "unknown-operator", "unavailable"
RESIDENT_JOBS = "resident-jobs"
INVALID_FILE, BAD_REQUEST, OPEN_SHAPE, DROPPED_INPUT = "invalid-file", "request", "open-shape", "dropped-input"
ZERO_POINTS, WHOLE = "zero-points", "stage"
OTHER_RULES = (
    NO_ENGINE, UNKNOWN_OPERATOR, UNAVAILABLE, RESIDENT_JOBS,
    INVALID_FILE, BAD_REQUEST, OPEN_SHAPE, DROPPED_INPUT, ZERO_POINTS, WHOLE,
)  # fmt: skip
"""Names of rules that concern no operator."""
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Place:
    """A 1-based position in a file."""

    file: str
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One broken rule of one stage.

    `rule` is RULES/OPERATOR, such as nvdla-v2/softmax.  `level`: error (no engine runs the stage, or the planned one
    does not), warning (operators fall back from the accelerator to another engine), note (a condition that shapes
    do not decide).  `engines` and `precisions` have the same rules; `operators` are the names of the operators
    concerned; `sources` are the documents that state the rule; `hint` is a remedy.
    """

    rule: str
    level: Level
    message: str
    place: Place
    stage: str = ""
    engines: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    hint: str = ""


def kept(diagnostics: Iterable[Diagnostic], ignored: Sequence[str]) -> list[Diagnostic]:
    """Return the diagnostics whose rule matches none of the patterns (`nvdla-v2/*`), in file order, errors first.

    Raises UsageError for a pattern that matches no rule.
    """
    for pattern in ignored:
        name = pattern.rpartition("/")[2]
        if not any(fnmatchcase(rule, name) for rule in (*OPERATORS, *OTHER_RULES)):
            raise UsageError(f"--ignore: no rule matches {pattern!r}", suggest(name, (*OPERATORS, *OTHER_RULES)))
    left = [entry for entry in diagnostics if not any(fnmatchcase(entry.rule, pattern) for pattern in ignored)]
    return sorted(left, key=lambda e: (e.place.file, e.place.line, e.place.column, LEVELS.index(e.level)))


PRECISIONS = ("fp16", "int8", "fp32")


def lint_file(
    file: str,
    platform: str | None,
    *,
    engines: Sequence[str] = (),
    version: str | None = None,
    notes: bool = False,
    text: bytes | None = None,
    sizes: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> list[Diagnostic]:
    """Return the diagnostics of a plan.json, a pipeline (by name or file) or an ONNX file.

    `platform` is needed for pipelines and networks and may be omitted for a plan, which names its own; `engines`
    selects accelerators (all that have operator rules), `version` that of their runtime.  `text` is the content of a
    pipeline file that an editor has not saved yet, `sizes` those of `models.sizes.sized`.  Faults of the file itself
    are diagnostics with their positions.
    Raises UsageError for a wrong request and MachineError if something is missing.
    """
    try:
        if file.endswith(".json"):
            return _plan(file, platform, engines, version)
        if platform is None:
            raise UsageError(f"{file}: a pipeline needs a platform", "name it: -p PLATFORM")
        if file.lower().endswith(NETWORKS):
            document = None
        else:
            document = parse(text, file) if text is not None else read(resources.find("pipelines", file))
        pipeline = sized(get_pipeline(file) if document is None else pipeline_from_document(document), *sizes)
    except DescriptorError as error:
        return [
            Diagnostic(
                INVALID_FILE, "error", f"{f.field}: {f.expected}", Place(f.file, f.line, f.column), hint=error.hint
            )
            for f in error.findings
        ]
    if document is None:  # an ONNX file: one stage, in any precision
        stages = tuple(replace(stage, precisions=PRECISIONS) for stage in pipeline.stages)
        pipeline = replace(pipeline, stages=stages)
    pipeline = settled(pipeline)
    board = get_platform(platform)
    chosen = accelerators(board, engines, version)

    def at(stage: str) -> Place:
        if document is None:
            return Place(file)
        mark = document.mark(("stages", stage) if stage else (), key=True)
        return Place(document.file, mark.line, mark.column)

    return list(check_pipeline(pipeline, board, chosen, at, notes))


def _plan(file: str, platform: str | None, engines: Sequence[str], version: str | None) -> list[Diagnostic]:
    from socsched.api.loading import load_plan, pipeline_of

    plan = load_plan(file)
    if platform is not None and platform != plan.platform and get_platform(platform).name != plan.platform:
        raise UsageError(f"{file} is a plan for {plan.platform}, not for {platform}", "omit --platform")
    board = get_platform(platform or plan.platform)
    text = read_bytes(file, "plan", "", MAX_BYTES).decode()
    marks = positions(text, [("tasks", number, "engine") for number in range(len(plan.tasks))])
    numbers = {task.name: number for number, task in enumerate(plan.tasks)}

    def at(task: str) -> Place:
        mark = marks.get(("tasks", numbers[task], "engine")) if task in numbers else None
        return Place(file, mark.line, mark.column) if mark else Place(file)

    pipeline = pipeline_of(plan, None, lambda _: None)
    return list(check_plan(plan, pipeline, accelerators(board, engines, version), at))


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Engines with equal rules and data types; `gap`: the runtime's version does not support them, for this reason."""

    engine: Engine
    names: tuple[str, ...]
    gap: str = ""
    source: str = ""

    @property
    def title(self) -> str:
        """Return the engines' names and the runtime with its version, as used in messages."""
        rules = self.engine.operators
        version = f" ({rules.runtime} {rules.version})" if rules.runtime else ""
        return ", ".join(self.names) + version

    @property
    def rules(self) -> str:
        """Return the name of the rules, the engine's own if they stand in the platform file."""
        return self.engine.operators.name or self.names[0]


def accelerators(platform: Platform, engines: Sequence[str] = (), version: str | None = None) -> list[Accelerator]:
    """Return the accelerators of `platform`: those named in `engines` (id or kind), else all that could take a network.

    An engine whose rules list no operator (an image resizer) takes declared functions alone, and is judged if named.

    `version` is that of their runtime, None: the version that the platform names.  Raises UsageError for an unknown
    engine, an engine without rules, and a version that is no version.
    """
    chosen = [engine for engine in platform.engines if not engines or {engine.id, engine.kind} & set(engines)]
    names = {name for engine in platform.engines for name in (engine.id, engine.kind)}
    for name in engines:
        if name not in names:
            raise UsageError(f"{platform.name} has no engine {name!r}", f"its engines: {', '.join(sorted(names))}")
    ruled = [e for e in chosen if e.operators.allowed or (engines and e.operators.allowed is not None)]
    if engines and not ruled:
        raise UsageError(f"{', '.join(engines)} has no operator rules", "it supports every operator")
    groups: list[Accelerator] = []
    for engine in ruled:
        accelerator = at_version(engine, platform, version)
        for place, group in enumerate(groups):
            one, other = group.engine, accelerator.engine
            same = (one.operators, one.precisions) == (other.operators, other.precisions)
            if same and group.gap == accelerator.gap:
                groups[place] = replace(group, names=(*group.names, engine.id))
                break
        else:
            groups.append(accelerator)
    return groups


def at_version(engine: Engine, platform: Platform, version: str | None) -> Accelerator:
    """Return an engine with the rules of a version of its runtime; UsageError for text that is no version."""
    if version is None or not engine.operators.name:
        return Accelerator(engine, (engine.id,))
    rules = load_rules(find_rules(engine.operators.name, Path(platform.file).parent))
    try:
        gap = rules.gap(version)
    except ValueError:
        raise UsageError(f"--runtime-version: expected numbers such as 8.6.2, got {version!r}") from None
    versioned = replace(engine, operators=rules.of_version(version))
    return Accelerator(versioned, (engine.id,), gap.note if gap else "", rules.title_of(gap) if gap else "")


PlaceOf = Callable[[str], Place]
"""Returns the position of a stage or task."""


@dataclass(slots=True)
class _Case:
    """Operators of a stage that break the same rule for the same reason."""

    operators: dict[str, None] = field(default_factory=dict)
    engines: dict[str, None] = field(default_factory=dict)
    precisions: dict[str, None] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    title: str = ""


def check_pipeline(
    pipeline: Pipeline, platform: Platform, chosen: Sequence[Accelerator], at: PlaceOf, notes: bool = False
) -> Iterator[Diagnostic]:
    """Yield what the accelerators do not run of a pipeline's networks, and hard stages that overruns leave waiting.

    An operator that falls back is a warning, and a stage that no engine runs an error, unless engines run it in parts.
    With `notes`, conditions that shapes do not decide are reported too.
    """
    yield from _gaps(chosen, at(""))
    if any(stage.high for stage in pipeline.stages):
        yield from _dropped_inputs(pipeline.stages, at)
        yield from _dropped_outputs(pipeline, at)
    for stage in pipeline.stages:
        if stage.model is None:
            continue
        try:
            works = {precision: stage_work(stage, precision) for precision in stage.precisions}
        except (CompileError, InputError) as error:
            rule = OPEN_SHAPE if isinstance(error, OpenShape) else INVALID_FILE
            rule = UNKNOWN_OPERATOR if isinstance(error, (CompileError, UnknownOperator)) else rule
            yield Diagnostic(rule, "error", str(error), at(stage.name), stage.name, hint=error.hint)
            continue
        if all(operator.kind == "function" for work in works.values() for operator in work.operators):
            continue
        usable = [accelerator for accelerator in chosen if not accelerator.gap and _may_use(stage, accelerator)]
        yield from _open_batch(stage, usable, at(stage.name))
        found = [
            (accelerator, work)
            for accelerator in usable
            for precision, work in works.items()
            if precision in accelerator.engine.precisions
        ]
        yield from _wholes(stage.name, found, at(stage.name))
        yield from _fallbacks(stage.name, found, at(stage.name), notes)
        yield from _unplaceable(stage, works, platform, chosen, at(stage.name))


def check_plan(plan: Plan, pipeline: Pipeline, chosen: Sequence[Accelerator], at: PlaceOf) -> Iterator[Diagnostic]:
    """Yield what the planned engines do not run; `pipeline` is that of the plan, with its networks cut as planned."""
    yield from _gaps(
        [accelerator for accelerator in chosen if {task.engine for task in plan.tasks} & set(accelerator.names)], at("")
    )
    if is_mixed(plan):
        yield from _dropped_inputs(plan.tasks, at)
    engines = {name: accelerator for accelerator in chosen for name in accelerator.names}
    stages = {stage.name: stage for stage in pipeline.stages}
    resident: dict[str, int] = {}
    for task in plan.tasks:
        accelerator, stage = engines.get(task.engine), stages.get(task.name)
        if accelerator is None or accelerator.gap or stage is None or stage.model is None:
            continue
        resident[task.engine] = resident.get(task.engine, 0) + 1
        work = stage_work(stage, task.precision)
        yield from _wholes(task.name, [(accelerator, work)], at(task.name), "error")
        yield from _fallbacks(task.name, [(accelerator, work)], at(task.name), notes=False, level="error")
    for name, count in resident.items():
        most = engines[name].engine.operators.max_jobs
        if most and count > most:
            yield Diagnostic(
                f"{engines[name].rules}/{RESIDENT_JOBS}",
                "error",
                f"{count} compiled jobs on {engines[name].title}, at most {most} are resident at a time",
                at(""),
                engines=(name,),
                sources=(engines[name].engine.operators.source,),
            )


def _wholes(
    stage: str, works: Sequence[tuple[Accelerator, StageWork]], place: Place, level: Level = "warning"
) -> Iterator[Diagnostic]:
    """Yield what accelerators have against a stage as a whole, by the reason."""
    cases: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for accelerator, work in works:
        falls = any(not decide(operator, accelerator.engine).runs for operator in work.operators)
        for reason in as_a_whole(work, accelerator.engine):
            if falls and reason != ASYMMETRIC:  # said of its operators
                continue
            engines, precisions = cases.setdefault(reason, ({}, {}))
            engines.update(dict.fromkeys(accelerator.names))
            precisions.setdefault(work.precision)
    for reason, (engines, precisions) in cases.items():
        rule, hint = (ZERO_POINTS, SYMMETRICALLY) if reason == ASYMMETRIC else (WHOLE, "")
        text = f"{stage} does not run on {', '.join(engines)}: {reason}"
        yield Diagnostic(rule, level, text, place, stage, tuple(engines), tuple(precisions), hint=hint)


def _dropped_inputs(stages: Iterable[Triggered], at: PlaceOf) -> Iterator[Diagnostic]:
    """Yield hard stages that wait for one that is not hard, so that no plan with two levels is proved."""
    for name, before in loose_triggers(stages):
        text = f"{name} is hard and waits for {before}, which is not: {DROPPED}"
        hint = f"make {before} hard, or sample it with reads"
        yield Diagnostic(DROPPED_INPUT, "error", text, at(name), name, hint=hint)


def _dropped_outputs(pipeline: Pipeline, at: PlaceOf) -> Iterator[Diagnostic]:
    """Yield stages that are not hard in chains that are, and so may not lose a frame."""
    stages = {stage.name: stage for stage in pipeline.stages}
    for chain in (chain for chain in pipeline.chains if chain.criticality == "hard"):
        for name in (name for name in chain.path if name in stages and not is_hard(stages[name])):
            text = f"{name} is {stages[name].criticality} and belongs to the hard chain {chain.name}: {DROPPED}"
            yield Diagnostic(DROPPED_INPUT, "error", text, at(name), name, hint=f"make {name} hard, or the chain firm")


def _gaps(chosen: Sequence[Accelerator], place: Place) -> Iterator[Diagnostic]:
    for accelerator in chosen:
        if accelerator.gap:
            yield Diagnostic(
                f"{accelerator.rules}/{UNAVAILABLE}",
                "error",
                f"{accelerator.title} is not supported: {accelerator.gap}",
                place,
                engines=accelerator.names,
                sources=(accelerator.source,),
            )


def _open_batch(stage: Stage, usable: Sequence[Accelerator], place: Place) -> Iterator[Diagnostic]:
    """Yield a warning for inputs whose batch the file leaves open, if an accelerator is compiled for fixed shapes."""
    fixed = [accelerator for accelerator in usable if accelerator.engine.operators.static_shapes]
    inputs = get_model(stage.model or "", stage.params).open_batch
    if not inputs:
        return
    names = ", ".join(accelerator.title for accelerator in fixed)
    clause = f", and {names} takes fixed shapes only" if fixed else ""
    yield Diagnostic(
        OPEN_SHAPE,
        "warning",
        f"{stage.name}: the file leaves the batch of {', '.join(inputs)} open{clause}; it is judged and planned with a "
        "batch of 1",
        place,
        stage.name,
        engines=tuple(name for accelerator in fixed for name in accelerator.names),
        sources=tuple(dict.fromkeys(a.engine.operators.source for a in fixed if a.engine.operators.source)),
        hint="export it with a fixed batch, or state the sizes: --dim NAME=1..8, --shape INPUT=1x3x384x640",
    )


def _may_use(stage: Stage, accelerator: Accelerator) -> bool:
    return not stage.engines or bool({*accelerator.names, accelerator.engine.kind} & set(stage.engines))


def _fallbacks(
    name: str, works: Sequence[tuple[Accelerator, StageWork]], place: Place, notes: bool, level: Level = "warning"
) -> Iterator[Diagnostic]:
    """Yield a diagnostic per rule and reason that operators of a stage break, with the operators concerned."""
    broken: dict[tuple[str, str], _Case] = {}
    open_: dict[tuple[str, str], _Case] = {}
    for accelerator, work in works:
        for operator in work.operators:
            decision = decide(operator, accelerator.engine)
            for reason in decision.reasons:
                _add(broken, accelerator, work, operator, decision, reason)
            for condition in decision.conditions if notes else ():
                _add(open_, accelerator, work, operator, decision, condition)
    does = ("does not run", "do not run") if level == "error" else ("falls back", "fall back")
    for cases in (broken, open_):
        for (rule, reason), case in cases.items():
            first, *more = case.operators
            who, where = f"{first} and {len(more)} more" if more else first, f"on {case.title}"
            said = (
                f"{who} {does[bool(more)]} {where}: {reason}"
                if cases is broken
                else f"{who}, {where}: provided {reason}"
            )
            text, precisions = f"{name} in {', '.join(case.precisions)}: {said}", tuple(case.precisions)
            what = tuple(case.engines), precisions, tuple(case.operators), case.sources
            yield Diagnostic(rule, level if cases is broken else "note", text, place, name, *what)


def _add(
    cases: dict[tuple[str, str], _Case],
    accelerator: Accelerator,
    work: StageWork,
    operator: Operator,
    decision: Decision,
    reason: str,
) -> None:
    case = cases.setdefault((f"{accelerator.rules}/{decision.rule}", reason), _Case())
    case.operators.setdefault(operator.name)
    case.engines.update(dict.fromkeys(accelerator.names))
    case.precisions.setdefault(work.precision)
    case.sources = tuple(dict.fromkeys((*case.sources, *decision.sources)))
    case.title = accelerator.title


def _unplaceable(
    stage: Stage, works: dict[str, StageWork], platform: Platform, chosen: Sequence[Accelerator], place: Place
) -> Iterator[Diagnostic]:
    """Yield an error if no engine of the platform runs a stage as a whole, accelerators taken at their version.

    It is a warning if every operator has an engine, because plans then cut the network.
    """
    at_version = {name: accelerator for accelerator in chosen for name in accelerator.names}
    able: list[Engine] = []
    for engine in platform.engines:
        found = at_version.get(engine.id)
        if (found and found.gap) or not _may_use(stage, found or Accelerator(engine, (engine.id,))):
            continue
        able.append(found.engine if found else engine)
        if any(_runs(work, able[-1]) for work in works.values()):
            return
    run = {
        operator.name
        for precision, work in works.items()
        for operator in work.operators
        if any(precision in engine.precisions and decide(operator, engine).runs for engine in able)
    }
    in_parts = all(operator.name in run for work in works.values() for operator in work.operators)
    allowed = f" of {', '.join(stage.engines)}" if stage.engines else ""
    lacking = "".join(
        f"; {engine.id}: {named(names)}"
        for engine in able
        if (names := without_kernel(next(iter(works.values())), engine))
    )
    more = "; plans cut it between engines" if in_parts else ""
    yield Diagnostic(
        NO_ENGINE,
        "warning" if in_parts else "error",
        f"{stage.name}: no engine{allowed} of {platform.name} runs it as a whole in {', '.join(works)}{more}{lacking}",
        place,
        stage.name,
        precisions=tuple(works),
        hint="" if in_parts else "allow another engine or precision for the operators reported",
    )


def _runs(work: StageWork, engine: Engine) -> bool:
    fits = work.precision in engine.precisions and not uncompiled(engine, work.precision)
    return fits and not check_operators(work, engine)


# Diagnostics as text, as SARIF 2.1.0 for code scanning, and as annotations of GitHub Actions.

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def text(found: Sequence[Diagnostic]) -> str:
    """Return one line per diagnostic, FILE:LINE:COLUMN: LEVEL: MESSAGE [RULE], its sources, and the counts."""
    lines = []
    for entry in found:
        at = f"{entry.place.file}:{entry.place.line}:{entry.place.column}"
        lines.append(f"{at}: {entry.level}: {entry.message} [{entry.rule}]")
        lines += [f"  source: {source}" for source in entry.sources]
        lines += [f"  hint: {entry.hint}"] if entry.hint else []
    counts = Counter(entry.level for entry in found)
    named = [f"{counts[level]} {level}{'s' * (counts[level] > 1)}" for level in LEVELS if counts[level]]
    return "\n".join([*lines, ", ".join(named) or "no objections"])


def github(found: Sequence[Diagnostic]) -> str:
    """Return workflow commands of GitHub Actions, which annotate the lines of a change."""
    return "\n".join(
        f"::{'notice' if entry.level == 'note' else entry.level} "
        f"file={_property(entry.place.file)},line={entry.place.line},col={entry.place.column},"
        f"title={_property(entry.rule)}::{_data('; '.join([entry.message, *entry.sources]))}"
        for entry in found
    )


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(found: Sequence[Diagnostic]) -> str:
    """Return a SARIF 2.1.0 log with one run; its rules cite their documents."""
    rules: dict[str, dict[str, Any]] = {}
    for entry in found:
        cited = f"Source: {'; '.join(entry.sources)}" if entry.sources else "Rule of socsched"
        rules.setdefault(
            entry.rule,
            {"id": entry.rule, "shortDescription": {"text": _described(entry.rule)}, "help": {"text": cited}},
        )
    numbers = {rule: number for number, rule in enumerate(rules)}
    driver = {"name": "socsched lint", "version": __version__, "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "results": [_result(entry, numbers[entry.rule]) for entry in found]}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _described(rule: str) -> str:
    rules, _, operator = rule.partition("/")
    return f"Operator {operator} on an engine with the rules {rules}" if operator else rule


def _result(entry: Diagnostic, number: int) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(entry.place.file)},
            "region": {"startLine": entry.place.line, "startColumn": entry.place.column},
        }
    }
    if entry.stage:
        location["logicalLocations"] = [
            {"name": name, "fullyQualifiedName": f"{entry.stage}/{name}", "kind": "member"} for name in entry.operators
        ] or [{"name": entry.stage, "fullyQualifiedName": entry.stage, "kind": "module"}]
    identity = "\0".join((entry.rule, entry.stage, *entry.engines, *entry.precisions, *entry.operators[:1]))
    return {
        "ruleId": entry.rule,
        "ruleIndex": number,
        "level": entry.level,
        "message": {"text": entry.message + (f" (to do: {entry.hint})" if entry.hint else "")},
        "locations": [location],
        "partialFingerprints": {"socsched/v1": hashlib.sha256(identity.encode()).hexdigest()},
    }


def _uri(file: str) -> str:
    path = Path(file)
    if path.is_absolute():
        try:
            return quote(path.relative_to(Path.cwd()).as_posix())
        except ValueError:
            return path.as_uri()
    return quote(path.as_posix())
