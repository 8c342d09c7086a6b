"""`socsched platforms`: the available SoCs, their properties, and the operators that their accelerators support."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import argument, option
from socsched.cli.options import mode, output_file, strict
from socsched.cli.output import Output, echo, output_parameters, ready_to_write, show_all, table
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED, DescriptorError, UsageError
from socsched.files import write_file
from socsched.progress import tell
from socsched.units import parse_number

if TYPE_CHECKING:
    from socsched.descriptor.operator_rules import OperatorRule
    from socsched.descriptor.platform import Engine, Platform, PowerMode


def descriptors(name: str, short_help: str, help_text: str) -> click.Group:
    """Return the group of the verbs on one kind of descriptors, which lists them without a subcommand."""

    def listed() -> None:
        ctx = click.get_current_context()
        if ctx.invoked_subcommand is None:
            ctx.invoke(group.commands["list"])

    group = click.Group(
        name, invoke_without_command=True, params=output_parameters(), callback=listed, short_help=short_help,
        help=help_text,
    )  # fmt: skip
    return group


command = descriptors(
    "platforms",
    "List, show and check platform descriptors.",
    "List, show and check descriptors of SoCs; without a subcommand: list.",
)


class ListRequest(Request):
    """Nothing to choose."""


@verb("list", ListRequest, group=command)
def list_platforms(output: Output, _: ListRequest) -> None:
    """List all platforms: shipped, in the current folder, in $SOCSCHED_PATH; `host` is this machine."""
    from socsched.descriptor.catalog import HOST, get_platform, platform_names

    rows: list[dict[str, str]] = []
    for name in platform_names():
        if name == HOST:
            rows.append({"name": name, "title": "this machine, detected", "engines": "", "file": ""})
            continue
        try:
            platform = get_platform(name)
        except DescriptorError as error:
            rows.append({"name": name, "title": f"invalid: {error.findings[0]}", "engines": "", "file": ""})
            continue
        engines = ", ".join(engine.id for engine in platform.engines)
        rows.append({"name": name, "title": platform.title, "engines": engines, "file": platform.file})
    output.result({"platforms": rows}, lambda: listing("Platforms", ["name", "title", "engines"], rows))


def listing(title: str, columns: list[str], rows: list[dict[str, str]]) -> Any:
    """Return a list of descriptors as a table."""
    return table(title, columns, [[row[column] for column in columns] for row in rows])


class ShowRequest(Request):
    """The platform, and what to draw of it."""

    name: str = argument("platform")
    mode: str | None = mode()
    engine: str | None = option("--engine", kind="engine", help="Show only this engine, with its operating points.")
    plot: Path | None = option("--plot", kind="file", help="Draw the rooflines: FILE.svg.")
    pipeline: str = option(
        "--pipeline", kind="pipeline", default="pointpillars", shown=True,
        help="Pipeline whose stages to place on the rooflines.",
    )  # fmt: skip
    precision: str | None = option("--precision", kind=("fp32", "fp16", "int8"), help="Draw one precision only.")


@verb("show", ShowRequest, group=command)
def show_platform(output: Output, request: ShowRequest) -> None:
    """Show engines with their peaks in a power mode, the modes, rails and limits, and where the figures are from."""
    from socsched.api.planning import get_mode
    from socsched.cost.roofs import accelerator_int8_peak, peaks
    from socsched.descriptor.catalog import get_platform

    platform = get_platform(request.name)
    chosen = get_mode(platform, request.mode)
    only = None if request.engine is None else _known(platform, request.engine)
    drawn: dict[str, Any] = {}
    if request.plot:
        drawn = _plot(platform, chosen, request)
        output.note(f"wrote {request.plot}")
    total = accelerator_int8_peak(platform, chosen)
    document = {
        "platform": asdict(platform),
        "mode": chosen.name,
        "peaks": [asdict(item) for item in peaks(platform, chosen)],
        "int8_total": {"dense": total.dense, "sparse": total.sparse},
        **drawn,
    }
    output.result(document, lambda: _tables(platform, chosen, only))


def _known(platform: Platform, name: str) -> Engine:
    known = {engine.id: engine for engine in platform.engines}
    if name not in known:
        raise UsageError(f"{platform.name} has no engine {name!r}", f"its engines: {', '.join(known)}")
    return known[name]


def _tables(platform: Platform, mode: PowerMode, engine: Engine | None) -> list[Any]:
    from socsched.reporting import platform_tables as tables

    if engine is None:
        return list(tables.view(platform, mode))
    points = tables.operating_points(engine)
    alone = replace(platform, engines=(engine,))
    return [tables.engines(alone, mode), points if points is not None else "no known operating points"]


def _plot(platform: Platform, mode: PowerMode, request: ShowRequest) -> dict[str, Any]:
    """Draw the rooflines with a pipeline's stages, and return their roofs and points as plain data."""
    from socsched.cost.roofs import PRECISIONS, points, roofs
    from socsched.descriptor.catalog import get_pipeline
    from socsched.models.work import stage_work
    from socsched.reporting.roofline import draw

    assert request.plot is not None
    precision = request.precision
    shown = roofs(platform, mode, (precision,) if precision else PRECISIONS, request.engine)
    if not shown:
        raise UsageError(
            f"nothing to draw: no powered engine of {platform.name} in {mode.name} computes in {precision}"
        )
    workload = get_pipeline(request.pipeline)
    placed = points(workload, platform, mode, shown, stage_work)
    title = f"{platform.name}, mode {mode.name}: rooflines, with {workload.name}"
    notes = [
        "Flat: peak of an engine; slope: its DRAM bandwidth alone; solid fp32, dashed fp16, dotted int8.",
        "A number is a stage's predicted rate; the line from it leads to the attainable rate at its intensity.",
    ]
    if any(point.predicted > point.attainable for point in placed):
        notes += ["Above the roof: Winograd convolutions, which need fewer multiplications than counted."]
    draw(request.plot, shown, placed, title, notes)
    return {"roofs": [asdict(roof) for roof in shown], "points": [asdict(point) for point in placed]}


class RulesRequest(Request):
    """The engine whose rules are shown, one operator to decide, or the vendor's compiler to ask."""

    name: str = argument("platform")
    operator: str | None = argument(required=False)
    attributes: tuple[str, ...] = argument(multiple=True, required=False, metavar="[ATTRIBUTE=NUMBER]...")
    engine: str | None = option("--engine", kind="engine", help="Engine; default: the first with operator rules.")
    version: str | None = option("--runtime-version", help="Version of the runtime, such as TensorRT 8.5.2.")
    dtype: str = option("--dtype", kind=("fp32", "fp16", "int8"), default="fp16", shown=True, help=None)
    against_vendor: bool = option(
        "--against-vendor", kind="flag", help="Ask the vendor's compiler about every rule, and compare."
    )
    record: Path | None = option(
        "--record", kind="file", help="With --against-vendor: JSON file for the compiler's answers."
    )


@verb("rules", RulesRequest, "Show which operators an engine supports, or check one operator.", group=command)
def rules(output: Output, request: RulesRequest) -> int:
    """Show which operators an engine supports, with limits, conditions and sources.

    With OPERATOR and its attributes (conv2d kernel_h=3 kernel_w=3 pad=1) show whether it runs there or falls back, and
    why; exit code 0: runs, 1: falls back.

    With --against-vendor ask the vendor's compiler, operator by operator at and around each limit, and print
    agreements, contradictions and what stayed unknown; exit code 0: no contradiction, 1: some.
    """
    from socsched.descriptor.catalog import get_platform

    if request.against_vendor:
        if request.operator is not None or request.version is not None:
            raise UsageError("--against-vendor asks about every operator, for the version that is installed")
        return _audit(output, request.name, request.engine, request.record)
    if request.record is not None:
        raise UsageError("--record keeps the compiler's answers", "add --against-vendor")
    engine = ruled_engine(get_platform(request.name), request.engine, request.version)
    if request.operator is not None:
        return _decide(output, engine, request.operator, _numbers(request.attributes), request.dtype)
    output.result({"engine": engine.id, "rules": asdict(engine.operators)}, lambda: _rule_tables(engine))
    return EXIT_OK


def _audit(output: Output, name: str, engine: str | None, record: Path | None) -> int:
    """Print and return the comparison of an engine's rules with its vendor's compiler."""
    from socsched.compiler.toolchains import audit
    from socsched.compiler.toolchains.hand_over import vendor_compiler
    from socsched.descriptor.catalog import get_platform

    platform = get_platform(name)
    chosen = ruled_engine(platform, engine)
    compiler = vendor_compiler(chosen)
    if compiler is None:
        runtime = chosen.operators.runtime or "it"
        raise UsageError(
            f"{chosen.id} of {platform.name}: {runtime} has no compiler that runs here",
            "engines with rules for QNN or RKNN can be compared",
        )
    if record is not None:
        ready_to_write(file=record)
    answers, versions = audit.ask(
        compiler, chosen, lambda at, total, what: tell("asking", at, total, "operators", what)
    )
    if record is not None:
        write_file(record, json.dumps(audit.recorded(answers, versions), indent=1) + "\n")
    rows = audit.compare(answers, ruled_engine(platform, chosen.id, versions.get(chosen.operators.runtime)))
    counts = Counter(row.outcome for row in rows)
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())

    words = {None: "unknown", True: "runs", False: "falls back"}

    def attributes(attrs: dict[str, float]) -> str:
        return " ".join(f"{name}={value:g}" for name, value in attrs.items())

    def show() -> None:
        for outcome in (audit.CONTRADICT, audit.UNKNOWN):
            cells = [
                [row.kind, row.dtype, attributes(row.attrs), words[row.runs], words[row.accepted], row.reason]
                for row in rows
                if row.outcome == outcome
            ]
            if cells:
                columns = ["operator", "dtype", "attributes", "rule", "compiler", "reason"]
                show_all(table(outcome.capitalize(), columns, cells))
        totals = ", ".join(f"{outcome} {counts[outcome]}" for outcome in (audit.AGREE, audit.CONTRADICT, audit.UNKNOWN))
        echo(f"{chosen.id} of {platform.name}, {len(rows)} operators asked of {listed}: {totals}")

    document = {
        "engine": chosen.id,
        "versions": versions,
        "counts": dict(counts),
        "rows": [asdict(row) for row in rows],
    }
    output.result(document, show)
    return EXIT_VIOLATED if counts[audit.CONTRADICT] else EXIT_OK


def ruled_engine(platform: Platform, name: str | None, version: str | None = None) -> Engine:
    """Return an engine, the first with operator rules for no name, with the rules of a version of its runtime."""
    from socsched.lint.check import at_version

    ruled = [engine for engine in platform.engines if engine.operators.allowed is not None]
    if name is None and not ruled:
        raise UsageError(f"no engine of {platform.name} has operator rules", "CPUs and GPUs support every operator")
    engine = _known(platform, name) if name is not None else ruled[0]
    if version is None:
        return engine
    if not engine.operators.name:
        raise UsageError(f"{engine.id} has no rules that depend on a version")
    ruled_by = at_version(engine, platform, version)
    if ruled_by.gap:
        raise UsageError(f"{ruled_by.engine.operators.runtime} {version} does not support {engine.id}: {ruled_by.gap}")
    return ruled_by.engine


def _numbers(attributes: tuple[str, ...]) -> dict[str, float]:
    from socsched.descriptor.operator_rules import OPERATOR_ATTRS
    from socsched.descriptor.validation import suggest

    values: dict[str, float] = {}
    for text in attributes:
        key, _, value = text.partition("=")
        if key not in OPERATOR_ATTRS:
            raise UsageError(f"unknown operator attribute {key!r}", suggest(key, OPERATOR_ATTRS))
        try:
            values[key] = parse_number(value)
        except ValueError:
            raise UsageError(f"expected {key}=NUMBER, got {text!r}") from None
    return values


def _decide(output: Output, engine: Engine, kind: str, attrs: dict[str, float], dtype: str) -> int:
    from socsched.graph.operators import Operator
    from socsched.graph.rules import decide

    decision = decide(Operator(kind, kind, dtype, (), (), 0, 0, 0, attrs=attrs), engine)

    def show() -> None:
        promoted = f" as {decision.dtype}" if decision.runs and decision.dtype != dtype else ""
        echo(f"{kind} {dtype} on {engine.id}: {decision.outcome}{promoted}")
        for reason in decision.reasons:
            echo(f"  because {reason}")
        for condition in decision.conditions:
            echo(f"  provided: {condition}")
        for source in decision.sources:
            echo(f"  source: {source}")

    output.result({"engine": engine.id, "operator": kind, **asdict(decision)}, show)
    return EXIT_OK if decision.runs else EXIT_VIOLATED


def _rule_tables(engine: Engine) -> list[Any]:
    rules = engine.operators
    version = f", {rules.runtime} {rules.version}" if rules.runtime else ""
    shown: list[Any] = [
        f"[bold]{engine.id}[/bold]: {engine.title} ({rules.name or 'rules of the platform file'}{version})"
    ]
    if rules.allowed is None:
        return [*shown, "supports every operator" + (" and host code" if rules.host_code else "")]
    limits = {
        "static shapes": "yes" if rules.static_shapes else "",
        "jobs resident": rules.max_jobs or "",
        "batch": rules.max_batch or "",
        "dimension": rules.max_dim or "",
        "dimensions": rules.max_rank or "",
        "bytes of weights": rules.weight_bytes or "",
        "bytes of a tensor": rules.activation_bytes or "",
    }
    shown.append("limits of a job: " + ", ".join(f"{key} {value}" for key, value in limits.items() if value))

    def provided(case: OperatorRule) -> str:
        return "; ".join(part for part in (*case.conditions, case.note) if part)

    rows = [
        [name, ", ".join(case.dtypes) or "all", _limits(case), provided(case), case.source]
        for name, cases in rules.allowed.items()
        for case in cases
    ]
    shown.append(table("Supported operators", ["operator", "dtypes", "limits", "provided", "source"], rows))
    refused = [[name, entry.note, entry.source] for name, entry in rules.refused.items()]
    if refused:
        shown.append(table("Unsupported operators", ["operator", "why", "source"], refused))
    formats = [
        [dtype, entry.layout, entry.use, entry.note, entry.source]
        for dtype, entries in rules.formats.items()
        for entry in entries
    ]
    if formats:
        shown.append(table("Input and output formats", ["dtype", "layout", "use", "", "source"], formats))
    return shown


def _limits(case: OperatorRule) -> str:
    parts = [f"{name} {low:g}..{high:g}" for name, (low, high) in case.limits.items()]
    parts += [f"{name} {'|'.join(f'{v:g}' for v in values)}" for name, values in case.values.items()]
    parts += [f"{name} < {other}" for name, other in case.below.items()]
    if case.runs_as:
        parts.append(f"runs as {case.runs_as}")
    return ", ".join(parts)


class NewRequest(Request):
    """The name of a new platform, and where its file goes."""

    name: str = argument()
    file: Path | None = output_file("Output file; default: platforms/NAME.yaml.  An existing file is not overwritten.")


@verb("new", NewRequest, group=command)
def new_platform(output: Output, request: NewRequest) -> None:
    """Write a commented platform file to fill in; it passes `check --strict`, its figures are placeholders."""
    from socsched.descriptor.platform_file import write_skeleton

    written = write_skeleton(request.name, request.file or Path("platforms") / f"{request.name}.yaml")
    show = f"wrote {written}: replace the placeholders, then: socsched platforms check {written} --strict"
    output.result({"file": str(written)}, lambda: click.echo(show))


class CheckRequest(Request):
    """The file to check."""

    file: str = argument("platform")
    strict: bool = strict()


@verb("check", CheckRequest, group=command)
def check_platform(output: Output, request: CheckRequest) -> None:
    """Check a platform file; all faults at once as file:line:col, exit code 2."""
    from rich.text import Text

    from socsched.descriptor.catalog import get_platform

    platform = get_platform(request.file)
    text = (
        f"{request.file}: a valid platform with {len(platform.engines)} engines and {len(platform.modes)} power modes"
    )
    covered, remark = grounds(platform.file, request.strict)
    output.result({"valid": True, "name": platform.name, "numbers": covered}, lambda: Text(text + remark))


def grounds(file: str, strict: bool) -> tuple[dict[str, Any], str]:
    """Return the provenance of the numbers in a file, as counts and in words.

    With `strict`, raise DescriptorError listing every number without a source.
    """
    from socsched.descriptor.source import read
    from socsched.descriptor.validation import coverage, require_grounds

    counted = (require_grounds if strict else coverage)(read(file))
    counts = {
        "sourced": counted.sourced,
        "derived": counted.derived,
        "assumed": counted.assumed,
        "uncovered": len(counted.uncovered),
        "kinds": dict(counted.kinds),
    }
    derived = f"{counted.derived} are derived from others, " if counted.derived else ""
    remark = f"; of {counted.total} numbers {counted.sourced} have a source, {derived}{counted.assumed} are assumed"
    remark += f", {len(counted.uncovered)} have neither (--strict lists them)" if counted.uncovered else ""
    return counts, remark
