"""`socsched platforms rules`: the operators that an accelerator supports, and a check of a single operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.names import ENGINE
from socsched.cli.options import NameOrPath, Output, echo, output_options, terminal_width

if TYPE_CHECKING:
    from socsched.descriptor.operator_rules import OperatorRule
    from socsched.descriptor.platform import Engine, Platform


@click.command("rules", short_help="Show which operators an engine supports, or check one operator.")
@click.argument("name", type=NameOrPath("platforms"))
@click.argument("operator", required=False)
@click.argument("attributes", nargs=-1, metavar="[ATTRIBUTE=NUMBER]...")
@click.option("--engine", type=ENGINE, help="Engine; default: the first with operator rules.")
@click.option("--runtime-version", "version", help="Version of the runtime, such as TensorRT 8.5.2.")
@click.option("--dtype", default="fp16", type=click.Choice(["fp32", "fp16", "int8"]), show_default=True)
@click.option("--against-vendor", is_flag=True, help="Ask the vendor's compiler about every rule, and compare.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --against-vendor: JSON file for the compiler's answers.",
)
@output_options
@click.pass_obj
def command(
    output: Output,
    name: str,
    operator: str | None,
    attributes: tuple[str, ...],
    engine: str | None,
    version: str | None,
    dtype: str,
    against_vendor: bool,
    record: Path | None,
) -> int:
    """Show which operators an engine supports, with limits, conditions and sources.

    With OPERATOR and its attributes (conv2d kernel_h=3 kernel_w=3 pad=1) show whether it runs there or falls back, and
    why; exit code 0: runs, 1: falls back.

    With --against-vendor ask the vendor's compiler, operator by operator at and around each limit, and print
    agreements, contradictions and what stayed unknown; exit code 0: no contradiction, 1: some.
    """
    from socsched.descriptor.catalog import get_platform
    from socsched.errors import UsageError

    if against_vendor:
        if operator is not None or version is not None:
            raise UsageError("--against-vendor asks about every operator, for the version that is installed")
        return _audit(output, name, engine, record)
    if record is not None:
        raise UsageError("--record keeps the compiler's answers", "add --against-vendor")
    chosen = _engine(get_platform(name), engine, version)
    if operator is None:
        output.result(_document(chosen), lambda: _show(chosen))
        return 0
    return _decide(output, chosen, operator, _numbers(attributes), dtype)


def _audit(output: Output, name: str, engine: str | None, record: Path | None) -> int:
    """Print and return the comparison of an engine's rules with its vendor's compiler."""
    from collections import Counter
    from dataclasses import asdict

    from socsched.cli.options import ready_to_write
    from socsched.compiler.toolchains import audit
    from socsched.compiler.toolchains.hand_over import vendor_compiler
    from socsched.descriptor.catalog import get_platform
    from socsched.errors import EXIT_OK, EXIT_VIOLATED, UsageError
    from socsched.files import write_file
    from socsched.progress import tell

    platform = get_platform(name)
    chosen = _engine(platform, engine, None)
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
        import json

        write_file(record, json.dumps(audit.recorded(answers, versions), indent=1) + "\n")
    rows = audit.compare(answers, _engine(platform, chosen.id, versions.get(chosen.operators.runtime)))
    counts = Counter(row.outcome for row in rows)
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())

    def show() -> None:
        from socsched.reporting.terminal import console, table

        screen = console(terminal_width())
        for outcome in (audit.CONTRADICT, audit.UNKNOWN):
            cells = [
                [row.kind, row.dtype, _attributes(row.attrs), _yes(row.runs), _yes(row.accepted), row.reason]
                for row in rows
                if row.outcome == outcome
            ]
            if cells:
                columns = ["operator", "dtype", "attributes", "rule", "compiler", "reason"]
                screen.print(table(outcome.capitalize(), columns, cells))
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


def _attributes(attrs: dict[str, float]) -> str:
    return " ".join(f"{name}={value:g}" for name, value in attrs.items())


def _yes(runs: bool | None) -> str:
    return "unknown" if runs is None else "runs" if runs else "falls back"


def _engine(platform: Platform, name: str | None, version: str | None) -> Engine:
    from dataclasses import replace

    from socsched.descriptor.operator_rules import find_rules, load_rules
    from socsched.errors import UsageError

    known = {engine.id: engine for engine in platform.engines}
    ruled = [engine for engine in platform.engines if engine.operators.allowed is not None]
    if name is not None and name not in known:
        raise UsageError(f"{platform.name} has no engine {name!r}", f"its engines: {', '.join(known)}")
    if name is None and not ruled:
        raise UsageError(f"no engine of {platform.name} has operator rules", "CPUs and GPUs support every operator")
    engine = known[name] if name else ruled[0]
    if version is None:
        return engine
    if not engine.operators.name:
        raise UsageError(f"{engine.id} has no rules that depend on a version")
    rules = load_rules(find_rules(engine.operators.name, Path(platform.file).parent))
    try:
        gap = rules.gap(version)
    except ValueError:
        raise UsageError(f"--runtime-version: expected numbers such as 8.6.2, got {version!r}") from None
    if gap is not None:
        raise UsageError(f"{rules.runtime} {version} does not support {engine.id}: {gap.note}")
    return replace(engine, operators=rules.of_version(version))


def _numbers(attributes: tuple[str, ...]) -> dict[str, float]:
    from socsched.descriptor.operator_rules import OPERATOR_ATTRS
    from socsched.descriptor.validation import suggest
    from socsched.errors import UsageError
    from socsched.units import parse_number

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
    from dataclasses import asdict

    from socsched.errors import EXIT_OK, EXIT_VIOLATED
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


def _document(engine: Engine) -> dict[str, Any]:
    from dataclasses import asdict

    return {"engine": engine.id, "rules": asdict(engine.operators)}


def _show(engine: Engine) -> None:
    from socsched.reporting.terminal import console, table

    rules, screen = engine.operators, console(terminal_width())
    version = f", {rules.runtime} {rules.version}" if rules.runtime else ""
    screen.print(f"[bold]{engine.id}[/bold]: {engine.title} ({rules.name or 'rules of the platform file'}{version})")
    if rules.allowed is None:
        screen.print("supports every operator" + (" and host code" if rules.host_code else ""))
        return
    limits = {
        "static shapes": "yes" if rules.static_shapes else "",
        "jobs resident": rules.max_jobs or "",
        "batch": rules.max_batch or "",
        "dimension": rules.max_dim or "",
        "bytes of weights": rules.weight_bytes or "",
        "bytes of a tensor": rules.activation_bytes or "",
    }
    screen.print("limits of a job: " + ", ".join(f"{key} {value}" for key, value in limits.items() if value))
    rows = [
        [name, ", ".join(case.dtypes) or "all", _limits(case), _remarks(case), case.source]
        for name, cases in rules.allowed.items()
        for case in cases
    ]
    screen.print(table("Supported operators", ["operator", "dtypes", "limits", "provided", "source"], rows))
    refused = [[name, entry.note, entry.source] for name, entry in rules.refused.items()]
    if refused:
        screen.print(table("Unsupported operators", ["operator", "why", "source"], refused))
    formats = [
        [dtype, entry.layout, entry.use, entry.note, entry.source]
        for dtype, entries in rules.formats.items()
        for entry in entries
    ]
    if formats:
        screen.print(table("Input and output formats", ["dtype", "layout", "use", "", "source"], formats))


def _limits(case: OperatorRule) -> str:
    parts = [f"{name} {low:g}..{high:g}" for name, (low, high) in case.limits.items()]
    parts += [f"{name} {'|'.join(f'{v:g}' for v in values)}" for name, values in case.values.items()]
    parts += [f"{name} < {other}" for name, other in case.below.items()]
    if case.runs_as:
        parts.append(f"runs as {case.runs_as}")
    return ", ".join(parts)


def _remarks(case: OperatorRule) -> str:
    return "; ".join(part for part in (*case.conditions, case.note) if part)
