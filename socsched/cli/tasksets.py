"""Task-set files on the command line: their recognition, their analysis and their simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.loading import taskset_form
from socsched.bounded import decode, read_head
from socsched.cli.output import Output
from socsched.descriptor import source
from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, SocschedError, UsageError

if TYPE_CHECKING:
    from socsched.cli.simulate import SimulateRequest
    from socsched.descriptor.taskset import TaskSet


def is_taskset(file: Path) -> bool:
    """Return whether a file is a task set: by its name, or because it has tasks but no field that every plan has."""
    if ".taskset." in file.name:
        return True
    from socsched.descriptor.json_file import JsonFile

    if taskset_form(file):
        return True
    try:
        if file.suffix in (".yaml", ".yml"):  # tasks at its top level, where a pipeline has stages
            return any(row.startswith("tasks:") for row in decode(source.read_bytes(file), "replace").split("\n"))
        data = JsonFile.open(file, "plan").data if file.suffix == ".json" else None
    except SocschedError:
        return False  # loading it as a plan then reports the fault
    return isinstance(data, dict) and "tasks" in data and not {"engines", "pipeline", "platform"} & set(data)


def may_be_plan(file: Path) -> bool:
    """Return whether a file begins as JSON does, as plans do."""
    try:
        return decode(read_head(file, "file", "", 64), "replace").lstrip().startswith("{")
    except SocschedError:
        return True


def load(output: Output, file: Path, processors: int = 0) -> TaskSet:
    """Return the task set of a file, of ours or of another tool; what that one left open is said as notes."""
    from socsched.api.loading import import_taskset, load_taskset

    form = taskset_form(file)
    if form == "nptest":
        raise UsageError(f"{file}: a job set, which has no periods", "socsched analyze decides it")
    if not form:
        if processors:
            raise UsageError("--processors is for files that do not state them", "the task set states its processors")
        return load_taskset(file)
    tasks, notes = import_taskset(file, processors)
    for note in notes:
        output.note(note)
    return tasks


def analyze(output: Output, file: Path, processors: int, precedence: Path | None) -> int:
    """Analyse a task set or a job set; exit code 0, 1 or 4 for feasible, infeasible and undecided."""
    from socsched.api import analysis
    from socsched.reporting.analysis import jobs_view, taskset_document, taskset_view

    codes = {"feasible": EXIT_OK, "infeasible": EXIT_VIOLATED, "undecided": EXIT_UNDECIDED}
    if taskset_form(file) == "nptest":
        jobs = analysis.analyze_jobs(file, processors or 1, precedence)
        beside = file.with_name(f"{file.stem}.prec.csv")
        if precedence is None and beside.exists():
            output.note(f"jobs are independent: {beside.name} is not read; add --precedence {beside.name}")
        output.result(jobs.document, lambda: jobs_view(jobs.document))
        return codes[jobs.verdict]
    if precedence is not None:
        raise UsageError("--precedence is for a job set of nptest (CSV)", "leave it out")
    bounds = analysis.analyze(load(output, file, processors))
    document = taskset_document(bounds)
    output.result(document, lambda: taskset_view(bounds, document))
    return codes[bounds.verdict]


def simulate(output: Output, request: SimulateRequest, duration: int | None, policy: str | None) -> int:
    """Simulate a task-set file, show the result and write the folder; exit code 1 if a job was late or unfinished.

    `duration` and `policy`: those given, in place of the file's.
    """
    from socsched.api import folders
    from socsched.api.results import Result
    from socsched.api.simulation import simulate_set as run
    from socsched.sim.tasksets import choose_horizon
    from socsched.trace.metrics import result
    from socsched.units import format_duration

    tasks, folder = load(output, Path(request.plan)), request.folder
    if any(task.sporadic for task in tasks.tasks):
        output.note("sporadic tasks arrive as often as they may")
    if duration is None and tasks.horizon_ns is None:
        duration, repeats = choose_horizon(tasks)
        if duration < repeats:
            output.warn(
                f"the schedule repeats after {format_duration(repeats)} only: simulating {format_duration(duration)}; "
                "set another time with --duration"
            )
    kept, recorded = folder is not None, folder is not None or request.jobs > 0
    done = run(
        tasks, duration, policy=policy, execution=request.execution, seed=request.seed, record=recorded, reported=kept
    )
    document = done.document(request.jobs)
    if done.interrupted:
        output.note(f"interrupted: the figures cover the first {format_duration(done.simulated.duration_ns)}")
    trace = done.simulated.trace
    if folder is not None and trace is not None:
        plan = done.simulated.lowered.plan
        Result(plan, trace, result(trace, plan)).save(folder)
        output.note(folders.describe_files(folder))
    output.result(document, lambda: _tables(document))
    return EXIT_OK if done.met else EXIT_VIOLATED


def _tables(document: dict[str, Any]) -> list[Any]:
    """Return the tasks and, where they are listed, the first jobs."""
    unit = {1: "ns", 1000: "us", 1_000_000: "ms", 1_000_000_000: "s"}.get(document["unit_ns"], "units")
    title = f"{document['taskset']} under {document['policy']} for {document['duration']} {unit}"
    heads = ("task", "jobs", "done", f"response max [{unit}]", "mean", "missed", "preempted", "migrated")
    rows = []
    for row in document["tasks"]:
        mean, missed = row["response_mean"], row["deadline_misses"] + row["unfinished_misses"]
        cells = [row["id"], row["jobs_released"], row["jobs_completed"], row["response_max"]]
        rows.append([*cells, None if mean is None else f"{mean:.6g}", missed, row["preemptions"], row["migrations"]])
    tables = [_boxed(title, heads, rows)]
    if (jobs := document.get("jobs")) is not None:
        keys = ("task", "activation", "first_execution", "end")
        title = f"the first {len(jobs)} jobs [{unit}]"
        named = ("task", "activation", "first execution", "end")
        tables.append(_boxed(title, named, [[job[key] for key in keys] for job in jobs]))
    return tables


def _boxed(title: str, heads: tuple[str, ...], rows: list[list[Any]]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head == "task" else "right")
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    return table
