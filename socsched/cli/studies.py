"""`socsched sweep` and `fleet`: every configuration of a study, and many vehicles with the same one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched import __version__
from socsched.api.options import Whole, argument, option
from socsched.cli.options import output_folder
from socsched.cli.output import Output, table
from socsched.cli.results import outcome_code
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, UsageError

if TYPE_CHECKING:
    from socsched.study.design import Point
    from socsched.study.fleet import Driven
    from socsched.study.inputs import Inputs
    from socsched.study.sweep import Answers, Sweep


def _study() -> Any:
    return argument("study", metavar="STUDY.yaml")


def _engine(text: str) -> Any:
    return option("--engine", kind=("local", "ray"), default="local", shown=True, help=text)


def _workers() -> Any:
    return option("--workers", kind=Whole(1), help="Number of cores to use; default: all.")


def _address() -> Any:
    text = "Ray cluster; default: $RAY_ADDRESS, else one on this machine."
    return option("--address", metavar="HOST:PORT|auto", help=text)


class SweepRequest(Request):
    """The study, what executes it, and where its table goes."""

    study: str = _study()
    folder: Path | None = output_folder()
    engine: str = _engine("Execution back end: this machine's cores, or a Ray cluster.")
    workers: int | None = _workers()
    address: str | None = _address()
    resume: bool = option("--resume", kind="flag", help="Resume from the output folder; finished rows are skipped.")


@verb("sweep", SweepRequest, "Plan and simulate every configuration of a study.")
def sweep(output: Output, request: SweepRequest) -> int:
    """Plan and simulate every configuration of a study; the table is the same for any back end and number of workers.

    The folder (default: the study's name) gets table.parquet, report.html, and in best/ the plans of the best
    configurations.  Ctrl-C, a killed process or a full disk lose no finished row: continue with --resume.

    Exit code 0: a configuration meets every requirement, 1: none does, 4: none so far, but some are open.
    """
    from socsched.descriptor.study import load_study
    from socsched.study import store
    from socsched.study.engines import engine
    from socsched.study.inputs import gather
    from socsched.study.sweep import answers, configurations
    from socsched.study.sweep import sweep as run

    store.require()
    study = load_study(request.study)
    points = configurations(study)
    inputs = gather(study)
    target = request.folder or Path(study.name)
    team = engine(request.engine, inputs, target / "inputs", request.workers, request.address)
    rows = store.create(target, inputs.digest(), request.resume)
    if rows.rows:
        output.note(f"{len(rows.rows)} finished rows found")
    if rows.damaged:
        output.warn(f"{rows.damaged} damaged lines found; their results are computed again")
    done = run(inputs, points, target, rows, team, None if output.quiet else output.note)
    result = answers(study, done.rows)
    _write_sweep(done, result, request.engine)
    plans = len({row["plan"] for row in done.rows})
    again = f", {done.restarts} workers replaced" if done.restarts else ""
    output.note(f"{done.found} rows in {done.seconds:.1f} s, {plans} plans{again}")
    output.note(f"wrote {target}/ (table.parquet, report.html, best/)")
    document = {
        "study": study.name,
        "folder": str(target),
        "configurations": len(done.rows),
        "holding": result.holding,
        "open": result.open,
        "failed": result.failed,
        "best": {name: dict(row) for name, row in result.best.items()},
        "nearest": dict(result.nearest) if result.nearest else None,
    }
    output.result(document, lambda: _sweep_lines(done, result))
    if result.holding:
        return EXIT_OK
    return EXIT_UNDECIDED if result.open else EXIT_VIOLATED


def _write_sweep(done: Sweep, result: Answers, engine: str) -> None:
    from socsched.api.loading import save_plan
    from socsched.study import columns, report, store

    study = done.study
    about = {"study": study.name, "inputs": done.inputs.digest(), "socsched": __version__}
    store.write(done.folder / "table.parquet", columns.columns(study), done.rows, about)
    made_by = {"command": f"socsched sweep {Path(study.file).name} --engine {engine}", **about}
    page = report.page(study, done.rows, result, made_by)
    store.replace_file(done.folder / "report.html", page.encode())
    best = result.best or ({"nearest": result.nearest} if result.nearest else {})
    for name, row in best.items():
        if row["verdict"] != "error":
            save_plan(done.planned(row["plan"]).plan, done.folder / "best" / f"{name.replace(' ', '-')}.plan.json")


def _sweep_lines(done: Sweep, result: Answers) -> list[Any]:
    from socsched.study import columns, report
    from socsched.study.sweep import rank

    study, rows = done.study, done.rows
    shown: list[Any] = [report.headline(study, rows, result)]
    shown += [f"  {name}: {report.answer(study, row)}" for name, row in result.best.items()]
    if result.nearest:
        shown.append(f"  nearest: {report.answer(study, result.nearest)}")
    own = [name for name in columns.varying(study, rows) if name not in ("platform", "mode", "seed")]
    names = ["platform", "mode", *own, "holds", "slack", "latency_ns", "planned_power_mw", "tdp_mw"]
    names += ["misses_per_million", "runs"]
    lines = [
        [str(row["config"]), *(report.format_cell(name, row[name]) for name in names)]
        for row in sorted(rows, key=lambda row: rank(study, row))[:12]
    ]
    shown.append(table("best", ["config", *names], lines, (0, *range(4 + len(own), len(names) + 1))))
    return [*shown, *(f"no result: {text}" for text in dict.fromkeys(row["error"] for row in rows if row["error"]))]


class FleetRequest(Request):
    """The study whose fleet drives, what executes it, and where its table goes; or one vehicle to replay."""

    study: str = _study()
    folder: Path | None = output_folder()
    engine: str = _engine("Local cores or Ray.")
    workers: int | None = _workers()
    address: str | None = _address()
    resume: bool = option("--resume", kind="flag", help="Resume from the output folder; finished vehicles are skipped.")
    vehicle: int | None = option(
        "--vehicle", kind=Whole(0), metavar="SEED", help="Replay one vehicle, with trace and report."
    )
    config: int = option("--config", kind=Whole(0), default=0, help="With --vehicle: its configuration.")


@verb("fleet", FleetRequest, "Simulate vehicles that differ in load, temperature and faults.")
def fleet(output: Output, request: FleetRequest) -> int:
    """Simulate every vehicle of a study's fleet: misses per million frames, worst vehicles, cost of larger fleets.

    The folder (default: NAME-fleet) gets fleet.parquet and report.html.

    Exit code 0: no frame of any vehicle late or dropped, 1: some were.
    """
    from socsched.descriptor.study import load_study
    from socsched.study import fleet as fleets
    from socsched.study import store
    from socsched.study.engines import engine
    from socsched.study.inputs import gather
    from socsched.study.sweep import configurations
    from socsched.study.work import fleet_of

    study, argument = load_study(request.study), request.study
    fleet_of(study)
    points, inputs = configurations(study), gather(study)
    if request.vehicle is not None:
        point = next((point for point in points if point.config == request.config), None)
        if point is None:
            raise UsageError(f"the study has no configuration {request.config}", f"0 to {len(points) - 1}")
        return _replay(output, inputs, point, request.vehicle, request.folder)
    store.require()
    target = request.folder or Path(f"{study.name}-fleet")
    team = engine(request.engine, inputs, target / "inputs", request.workers, request.address)
    rows = store.create(target, f"fleet {inputs.digest()}", request.resume)
    done = fleets.drive(inputs, points, target, rows, team, None if output.quiet else output.note)
    about = {"study": study.name, "inputs": inputs.digest(), "socsched": __version__}
    store.write(target / "fleet.parquet", fleets.COLUMNS, done.rows, about)
    made_by = {"command": f"socsched fleet {argument} --engine {request.engine}", **about}
    store.replace_file(target / "report.html", fleets.page(done, argument, made_by).encode())
    output.note(f"{done.fresh} vehicles in {done.seconds:.1f} s; wrote {target}/ (fleet.parquet, report.html)")
    output.result(_fleet_document(done, argument), lambda: _fleet_lines(done, argument))
    return EXIT_VIOLATED if any(group.misses for group in done.groups) else EXIT_OK


def _fleet_document(done: Driven, argument: str) -> dict[str, Any]:
    from socsched.study.fleet import extrapolation, replay

    groups = [
        {
            "config": group.point.config,
            "platform": group.rows[0]["platform"],
            "mode": group.rows[0]["mode"],
            "vehicles": len(group.rows),
            "frames": group.frames,
            "misses": group.misses,
            "misses_per_million": group.per_million,
            "misses_low_per_million": group.low,
            "misses_high_per_million": group.high,
            "design_effect": group.effect,
            "vehicles_with_misses": group.hit,
            "worst": [{**row, "replay": replay(done, row, argument)} for row in group.worst],
        }
        for group in done.groups
    ]
    return {"study": done.study.name, "groups": groups, "extrapolation": dict(extrapolation(done))}


def _fleet_lines(done: Driven, argument: str) -> list[Any]:
    from socsched.study import fleet as fleets

    shown: list[Any] = []
    names = ["seed", "load", "ambient C", "faults/min", "missed", "dropped", "frames", "worst response", "of"]
    for group in done.groups:
        shown.append(f"{fleets.configuration_name(group)}: {fleets.misses(group, done)}")
        if rows := [fleets.cells(row) for row in group.worst]:
            shown.append(table("worst vehicles", names, rows, range(7)))
            shown.append(f"replay the worst: {fleets.replay(done, group.worst[0], argument)}")
    return [*shown, *(f"{name}: {value}" for name, value in fleets.extrapolation(done))]


def _replay(output: Output, inputs: Inputs, point: Point, seed: int, folder: Path | None) -> int:
    """Simulate one vehicle again, with a trace; its figures equal those of its row."""
    from socsched.api import folders
    from socsched.api.simulation import figures
    from socsched.reporting import terminal
    from socsched.sim.simulate import run
    from socsched.study.runs import override
    from socsched.study.work import fleet_of, make, open_inputs, pack, unpack, vehicle

    opened = open_inputs(inputs)
    planned = unpack(pack(make(opened, point), opened.folder), opened.folder)
    one = vehicle(inputs.study, planned, seed)
    output.note(
        f"vehicle {seed}: load {one.load / 1e6:g}"
        + ("" if one.ambient_mc is None else f", {one.ambient_mc / 1000:g} C ambient")
        + f", {float(one.faults_per_minute):g} faults a minute"
    )
    duration_ns = fleet_of(inputs.study).duration_ns
    done = run(one.plan, duration_ns, seed, override(point.policy), one.faults, record=True)
    assert done.trace is not None
    result = figures(done)
    if folder:
        folders.save(folder, one.plan, done.trace, result)
        output.note(folders.describe_files(folder))
    shown = terminal.outcome(result), terminal.engines(result), terminal.power_line(one.plan, result)
    output.result(result, lambda: shown)
    return outcome_code(result)
