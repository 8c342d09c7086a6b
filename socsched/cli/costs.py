"""Times of stages: `profile` measures or imports them, `fit` fits the cost model to them, `validate` compares."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from socsched.api import interchange
from socsched.api.options import FitOptions, ProfileOptions, Whole, argument, option, requested
from socsched.cli.options import output_file, output_folder, pipeline, platform
from socsched.cli.output import Output, ready_to_write, table
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED, UsageError
from socsched.files import write_file
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.cost.fitting.recipe import Report
    from socsched.cost.profile import Profile
    from socsched.validation.power import PowerValidation
    from socsched.validation.validate import Validation


class ProfileVerb(click.Command):
    """`profile PIPELINE` measures; `profile import FILE...` is a command of its own."""

    @property
    def subcommands(self) -> dict[str, click.Command]:
        """Return the commands that their first word selects."""
        return {"import": import_profile}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == ["import"]:
            return import_profile.make_context(f"{info_name} import", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


class ProfileRequest(Request):
    """What is measured, how often, and where the times go."""

    pipeline: str = pipeline()
    platform: str = platform()
    file: Path = output_file("Output file: the profile.", "profile.json")
    options: ProfileOptions = requested(ProfileOptions)


@verb("profile", ProfileRequest, "Measure the execution time of each stage on this machine.", cls=ProfileVerb)
def profile(output: Output, request: ProfileRequest) -> None:
    """Run every stage of PIPELINE alone on this machine and write its times for `socsched plan --profile`.

    With --vendor-model nothing runs: the times are those that the compiler of an NPU's vendor states for its networks
    on PLATFORM, and plans treat them as less certain than measured, published or fitted ones.

    `socsched profile import FILE...` reads the times from profiles of other tools instead.
    """
    from socsched.api import profiling

    how = request.options
    ready_to_write(file=request.file)
    if how.vendor_model and (how.contention or how.conversions or how.inputs or how.until is not None):
        raise click.UsageError("--vendor-model measures nothing: omit --contention, --conversions, --input and --until")
    times = profiling.profile(request.pipeline, request.platform, how, note=output.note)
    _save(output, times, request.file)
    title = "Expected by the vendor's compiler for" if how.vendor_model else "Measured on"
    output.result(_profile_document(times), lambda: _times(f"{title} {times.platform}", times))


def _save(output: Output, times: Profile, file: Path) -> None:
    from socsched.cost.profile import save_profile

    file.parent.mkdir(parents=True, exist_ok=True)
    save_profile(times, file)
    output.note(f"wrote {file}")


def _profile_document(times: Profile) -> dict[str, Any]:
    """Return the profile as plain data, the costs without fields that only imported ones have."""
    document = asdict(times)
    for cost in document["costs"]:
        for name in ("source", "state"):
            if not cost[name]:
                del cost[name]
    return document


def _times(title: str, times: Profile) -> Any:
    rows = [
        [
            c.stage,
            c.engine,
            c.precision,
            str(c.share or "all"),
            format_duration(c.time_ns),
            f"±{c.error:.0%}",
            str(c.samples),
        ]
        for c in times.costs
    ]
    return table(title, ["stage", "engine", "precision", "units", "time", "error", "samples"], rows, (4, 5, 6))


class ImportProfileRequest(Request):
    """The files to read, what they leave open, and where the times go."""

    files: tuple[Path, ...] = argument("path", multiple=True, metavar="FILE...")
    platform: str = platform()
    mode: str | None = option("-m", "--mode", help="Power mode of the recording, if the files do not state it.")
    precision: str | None = option(
        "--precision", kind=("fp32", "fp16", "int8"), help="Data type, if the files do not state it."
    )
    engines: tuple[tuple[str, str], ...] = option(
        "--engine", kind="pair", multiple=True, metavar="KIND=ENGINE", help="Engine of a kind: dla=dla1."
    )
    stages: tuple[tuple[str, str], ...] = option(
        "--stage", kind="pair", multiple=True, metavar="SOURCE=NAME", help="Stage of a file or range."
    )
    pipeline: str | None = option("--pipeline", kind="pipeline", help="Pipeline whose networks' layers the files name.")
    results: Path | None = option("--results", kind="folder", help="Result folder with the jobs recorded.")
    skip: int = option("--skip", kind=Whole(0), default=0, shown=True, help="First jobs to leave out: warm-up.")
    file: Path = output_file("Output file: the profile.", "profile.json")


@verb("import", ImportProfileRequest, "Read the execution times from profiles of other tools.")
def import_profile(output: Output, request: ImportProfileRequest) -> None:
    """Read execution times from profiles of other tools and write them for `socsched plan --profile`.

    FILE: trtexec --exportProfile, --exportTimes, --exportLayerInfo, or its console text; an SQLite export of Nsight
    Systems, or the tables of nsys stats; profiles of ONNX Runtime, PyTorch and QNN (CSV); RKNN's tables; scheduler
    events of ftrace and perf; a log of tegrastats or jtop, which states the board's condition and power mode.

    What the files state holds: a --mode that contradicts them is an error, a --precision is not used.
    """
    ready_to_write(file=request.file)
    imported = interchange.import_profile(
        request.files,
        request.platform,
        pipeline=request.pipeline,
        mode=request.mode or "",
        precision=request.precision or "",
        engines=dict(request.engines),
        stages=dict(request.stages),
        skip=request.skip,
    )
    for note in imported.notes:
        output.note(note)
    _save(output, imported.profile, request.file)
    if request.results:
        interchange.save_recording(imported, request.platform, request.results)
        output.note(f"wrote {request.results}/ (plan.json, result.json, trace.bin)")
    recordings: list[Mapping[str, Any]] = [
        {"file": one.file, "tool": one.tool, "total_ns": round(one.total_ns), "handover_ns": round(one.handover_ns)}
        | ({"lost_events": one.lost, "discarded_jobs": one.discarded} if one.lost or one.discarded else {})
        for one in imported.recordings
        if one.sections
    ]
    document = {
        **_profile_document(imported.profile),
        "recordings": recordings,
        "layers": {name: list(layers) for name, layers in imported.layers.items()},
        "cuts": dict(imported.cuts),
        "notes": list(imported.notes),
    }
    output.result(document, lambda: _times(f"Imported for {imported.profile.platform}", imported.profile))
    if output.json or output.quiet:
        return
    for row in recordings:
        if row["handover_ns"]:
            output.note(
                f"{row['file']}: {format_duration(row['total_ns'])} in all, of it hand-overs between engines "
                f"{format_duration(row['handover_ns'])}, which no stage includes"
            )


class FitRequest(Request):
    """What is fitted to what, and where the sections go."""

    platform: str = argument("platform")
    options: FitOptions = requested(FitOptions)
    source: str = option(
        "--source", default="measurements", shown=True, help="Key of the descriptor's sources to state."
    )
    date: datetime.datetime | None = option("--date", kind="date", help="Day to state; default: today.")
    file: Path | None = output_file("Write the sections to paste into the descriptor.", kind="path")
    write: bool = option("--write", kind="flag", help="Put the sections into PLATFORM, which must be a file.")


@verb("fit", FitRequest, "Fit a platform's cost model to measured times.")
def fit(output: Output, request: FitRequest) -> None:
    """Fit the cost model of PLATFORM's engines to measured times of networks, on it and on boards of its families.

    Without measurements of the board the parameters are those of its engines' families.
    """
    from socsched.api import fitting
    from socsched.cost.fitting import recipe
    from socsched.cost.measurements import STEM
    from socsched.descriptor.source import read_bytes

    platform, source = request.platform, request.source
    if not STEM.fullmatch(source):
        raise UsageError(f"--source {source[:50]!r}: expected a key such as boards-2026")
    if request.write and not Path(platform).is_file():
        raise UsageError(
            f"--write: {platform} is not a file", "socsched platforms new copies a descriptor; use -o otherwise"
        )
    if request.file is not None:
        ready_to_write(file=request.file)
    report = fitting.fit(platform, request.options)
    day = (request.date.date() if request.date else datetime.date.today()).isoformat()
    if request.file is not None:
        write_file(request.file, recipe.document(report.sections, source, day))
        output.note(f"wrote {request.file}")
    if request.write:
        write_file(platform, recipe.rewritten(read_bytes(platform), platform, report.sections, source, day))
        output.note(f"wrote {platform}")
    output.result(_fit_document(report), lambda: _fit_tables(report))


def _fit_document(report: Report) -> dict[str, Any]:
    sections = [
        {
            "engine": one.use.engine.id,
            "precision": one.use.precision,
            "family": one.family.name,
            "nominal": asdict(one.nominal),
            "parameters": asdict(one.parameters),
            "networks": list(one.networks),
            "error": one.error,
            "error_design": one.error_design,
            "interval": one.interval,
            "classes": list(one.classes),
        }
        for one in report.sections
    ]
    return {
        "platform": report.platform.name,
        "sections": sections,
        "cells": [{"family": each.family.name, **asdict(row)} for each in report.families for row in each.rows],
        "refused": [asdict(one) for one in report.refused],
    }


def _fit_tables(report: Report) -> list[Any]:
    shown = []
    for family in report.families:
        if family.rows:
            rows = [
                [
                    row.name,
                    str(len(row.networks)),
                    *(f"{100 * v:.1f}" for v in (row.fitted, row.network, row.design, row.board)),
                ]
                for row in family.rows
            ]
            columns = ["cell", "networks", "fit %", "network out %", "design out %", "board out %"]
            shown.append(table(f"Mean error, {family.family.title}", columns, rows, (1, 2, 3, 4, 5)))
    sections = [
        [
            one.name.removeprefix(f"{report.platform.name}."),
            one.family.name,
            str(len(one.networks)),
            f"{100 * one.error:.1f}",
            "" if one.error_design is None else f"{100 * one.error_design:.1f}",
            f"±{100 * one.interval:.0f}",
        ]
        for one in report.sections
    ]
    columns = ["engine, precision", "family", "networks", "error %", "design out %", "interval %"]
    shown.append(table(f"Fitted: {report.platform.name}", columns, sections, (2, 3, 4, 5)))
    for one in report.sections:
        values = "  ".join(f"{name} {value:.3g}" for name, value in asdict(one.parameters).items())
        shown.append(f"{one.name}: {values}")
        if one.networks:
            shown.append(f"  networks: {', '.join(one.networks)}")
    if reasons := Counter(one.reason for one in report.refused):
        rows = [[str(n), reason] for reason, n in reasons.most_common()]
        shown.append(table("Not used", ["rows", "reason"], rows, (0,)))
    return shown


class ValidateRequest(Request):
    """Which measurements are predicted, the bar to keep, and where the files go."""

    pairs: Path = argument("file", metavar="PAIRS.csv")
    networks: Path = option(
        "--networks", kind="folder", required=True, help="Folder of the networks, NAME.onnx or NAME.onnx.xz."
    )
    bar: Path | None = option("--bar", kind="file", help="Limits on the scores (YAML); exit code 1 beyond them.")
    platforms: tuple[str, ...] = option(
        "-p", "--platform", kind="platform", multiple=True,
        help="Own descriptor file for the rows of its platform; several may be given.",
    )  # fmt: skip
    exclude: tuple[str, ...] = option(
        "--exclude", multiple=True, metavar="PATTERN",
        help="Predict rows without scoring them, e.g. 'network=bert*,engine=gpu'; several may be given.",
    )  # fmt: skip
    leave_out: tuple[str, ...] = option(
        "--leave-out", multiple=True, metavar="FAMILY",
        help="Also fit this engine family (such as htp, or all) anew without networks, boards or both, and score that.",
    )  # fmt: skip
    folder: Path | None = output_folder()


@verb("validate", ValidateRequest, "Compare predicted with measured execution times, or power, of networks.")
def validate(output: Output, request: ValidateRequest) -> int:
    """Predict every row of PAIRS.csv (or .csv.gz) as `plan` does, and score the predictions.

    Columns: id, platform, engine, precision, mode, share (units used; empty: all), network (file stem), measured_ms,
    statistic, flag (empty: usable), source; others are kept.  Rows that agree in platform, engine, precision, mode,
    share and network are one cell, and the fastest unflagged one is its measurement.  Per engine and precision, and
    overall: cells, median ratio of predicted to measured, MAPE (mean of |ratio - 1|), P90 (what 90 % keep within),
    Spearman's rank correlation, and the share measured inside the interval, time / (1 + error) to time x (1 + error).

    A table with the column measured_w instead of measured_ms is one of power: meter (wall, module or rail NAME) says
    where it was measured, and engine may name several that run the network at the same time (gpu+dla0).

    With a column runtime, a row of a program whose speed a fit states is predicted for that program, and rows of others
    are kept apart: predicted, counted, and scored in a line of their own.

    The folder gets rows.csv (the input and predicted_ms, lo_ms, hi_ms, inside, provenance, refused), summary.json and
    index.html.  Exit code 0: the bar is kept, or none is given, 1: it is not.
    """
    from socsched.cost.measurements import is_power_table
    from socsched.validation.page import save
    from socsched.validation.power import validate_power
    from socsched.validation.validate import validate as validate_times

    ready_to_write(folder=request.folder)
    pairs, networks, bar, platforms = request.pairs, request.networks, request.bar, request.platforms
    done: Validation | PowerValidation = (
        validate_power(pairs, networks, bar, platforms)
        if is_power_table(pairs)
        else validate_times(pairs, networks, bar, platforms, request.exclude, request.leave_out)
    )
    if request.folder:
        save(done, request.folder)
        output.note(f"wrote {request.folder}/ (rows.csv, summary.json, index.html)")
    output.result(done.document, lambda: _scores(done))
    held = done.document["bar"]
    return EXIT_VIOLATED if held and not held["held"] else EXIT_OK


def _scores(done: Validation | PowerValidation) -> list[Any]:
    from rich.text import Text

    from socsched.validation.page import LEFT_OUT, SCORES, headline, left_out_cells, score_cells, units_line

    document = done.document
    names = [
        name for name in ("platform", "meter", "engine", "precision") if any(name in g for g in document["groups"])
    ]
    names = names or ["platform", "engine"]
    rows = [[*(str(dict(group)[name]) for name in names), *score_cells(group)] for group in document["groups"]]
    rows.append(["overall", *("" for _ in names[1:]), *score_cells(document["overall"])])
    every = cast("Mapping[str, Any]", document)
    apart = every.get("apart", ())
    if apart:
        rows.append(["with cells apart", *("" for _ in names[1:]), *score_cells(every["everything"])])
    heads = ["" if name == "precision" else name for name in names]
    right = range(len(names), len(names) + len(SCORES))
    lines = [headline(document), *filter(None, [units_line(document)])]
    lines += [f"refused {item['rows']} rows: {item['reason']}" for item in document["refusals"][:5]]
    lines += [f"apart {item['cells']} cells: {item['reason']}" for item in apart[:5]]
    if bar := document["bar"]:
        lines.append(f"✓ {bar['file']} is kept" if bar["held"] else f"✗ {bar['file']} is not kept")
        lines += [f"  {failure}" for failure in bar["failures"]]
    below = (len(names) + 1, len(names) + 5)
    shown = table("Predicted against measured", [*heads, *SCORES], rows, right, below)
    unseen = left_out_cells(every.get("left_out", ()))
    more = [table("Left out of the fit", LEFT_OUT, unseen, range(2, 7))] if unseen else []
    return [shown, *more, *map(Text, lines)]
