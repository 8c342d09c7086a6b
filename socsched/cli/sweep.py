"""`socsched sweep`: every configuration of a study, on all cores of this machine or on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import NameOrPath, Output, folder_option, output_options, terminal_width
from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED

if TYPE_CHECKING:
    from socsched.study.sweep import Answers, Sweep


@click.command("sweep", short_help="Plan and simulate every configuration of a study.")
@click.argument("study", type=NameOrPath("studies"), metavar="STUDY.yaml")
@folder_option
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Execution back end: this machine's cores, or a Ray cluster.",
)
@click.option("--workers", type=click.IntRange(1), help="Number of cores to use; default: all.")
@click.option(
    "--address", metavar="HOST:PORT|auto", help="Ray cluster; default: $RAY_ADDRESS, else one on this machine."
)
@click.option("--resume", is_flag=True, help="Resume from the output folder; finished rows are skipped.")
@click.option(
    "--measure", metavar="HOST:PORT", help="Then measure selected configurations on the boards of this RPC tracker."
)
@click.option(
    "--input", "input_path", type=click.Path(path_type=Path), help="With --measure: a scan or a folder of scans."
)
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    study: str,
    folder: Path | None,
    engine: str,
    workers: int | None,
    address: str | None,
    resume: bool,
    measure: str | None,
    input_path: Path | None,
) -> int:
    """Plan and simulate every configuration of a study; the table is the same for any back end and number of workers.

    The folder (default: the study's name) gets table.parquet, report.html, and in best/ the plans of the best
    configurations.  Ctrl-C, a killed process or a full disk lose no finished row: continue with --resume.

    Exit code 0: a configuration meets every requirement, 1: none does, 4: none so far, but some are open.
    """
    from socsched.descriptor.study import load_study
    from socsched.study import store as table
    from socsched.study.engines import engine as chosen_engine
    from socsched.study.inputs import gather
    from socsched.study.store import create
    from socsched.study.sweep import answers, configurations, sweep

    output: Output = ctx.obj
    table.require()
    specification = load_study(study)
    if measure:
        _check(measure, input_path)
    points = configurations(specification)
    inputs = gather(specification)
    target = folder or Path(specification.name)
    team = chosen_engine(engine, inputs, target / "inputs", workers, address)
    store = create(target, inputs.digest(), resume)
    if store.rows:
        output.note(f"{len(store.rows)} finished rows found")
    if store.damaged:
        output.warn(f"{store.damaged} damaged lines found; their results are computed again")
    done = sweep(inputs, points, target, store, team, None if output.quiet else output.note)
    if measure:
        from socsched.study.measure import measure_selected

        done = measure_selected(done, measure, input_path, output.note)
    result = answers(specification, done.rows)
    _write(done, result, engine)
    plans = len({row["plan"] for row in done.rows})
    again = f", {done.restarts} workers replaced" if done.restarts else ""
    output.note(f"{done.found} rows in {done.seconds:.1f} s, {plans} plans{again}")
    output.note(f"wrote {target}/ (table.parquet, report.html, best/)")
    output.result(_document(done, result, target), lambda: _show(done, result))
    if result.holding:
        return EXIT_OK
    return EXIT_UNDECIDED if result.open else EXIT_VIOLATED


def _check(tracker: str, scans: Path | None) -> None:
    """Raise UsageError before the sweep for problems that would prevent measurement on boards after it."""
    from socsched.errors import UsageError
    from socsched.study.measure import tracker_address

    tracker_address(tracker)
    if scans is not None and not scans.exists():
        raise UsageError(f"{scans}: does not exist", "give a scan or a folder of scans with --input")


def _write(done: Sweep, result: Answers, engine: str) -> None:
    from socsched import __version__
    from socsched.api.loading import save_plan
    from socsched.study import columns, report
    from socsched.study import store as table
    from socsched.study.store import replace_file

    study, digest = done.study, done.inputs.digest()
    about = {"study": study.name, "inputs": digest, "socsched": __version__}
    table.write(done.folder / "table.parquet", columns.columns(study), done.rows, about)
    made_by = {"command": f"socsched sweep {Path(study.file).name} --engine {engine}", **about}
    page = report.page(study, done.rows, result, made_by)
    replace_file(done.folder / "report.html", page.encode())
    chosen = result.best or ({"nearest": result.nearest} if result.nearest else {})
    for name, row in chosen.items():
        if row["verdict"] != "error":
            save_plan(done.planned(row["plan"]).plan, done.folder / "best" / f"{name.replace(' ', '-')}.plan.json")


def _document(done: Sweep, result: Answers, folder: Path) -> dict[str, Any]:
    return {
        "study": done.study.name,
        "folder": str(folder),
        "configurations": len(done.rows),
        "holding": result.holding,
        "open": result.open,
        "failed": result.failed,
        "best": {name: dict(row) for name, row in result.best.items()},
        "nearest": dict(result.nearest) if result.nearest else None,
    }


def _show(done: Sweep, result: Answers) -> None:
    from socsched.reporting.terminal import console, table
    from socsched.study import columns, report
    from socsched.study.sweep import rank

    study, rows = done.study, done.rows
    screen = console(terminal_width())
    screen.print(report.headline(study, rows, result))
    for name, row in result.best.items():
        screen.print(f"  {name}: {report.answer(study, row)}")
    if result.nearest:
        screen.print(f"  nearest: {report.answer(study, result.nearest)}")
    own = [name for name in columns.varying(study, rows) if name not in ("platform", "mode", "seed")]
    names = ["platform", "mode", *own, "holds", "slack", "latency_ns", "planned_power_mw", "tdp_mw"]
    names += ["misses_per_million", "runs"]
    lines = [
        [str(row["config"]), *(report.format_cell(name, row[name]) for name in names)]
        for row in sorted(rows, key=lambda row: rank(study, row))[:12]
    ]
    screen.print(table("best", ["config", *names], lines, (0, *range(4 + len(own), len(names) + 1))))
    for text in dict.fromkeys(row["error"] for row in rows if row["error"]):
        screen.print(f"no result: {text}")
