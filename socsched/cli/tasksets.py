"""Task-set files on the command line: their recognition and their simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.interchange import taskset_form
from socsched.bounded import decode, read_head
from socsched.cli.options import Output, terminal_width
from socsched.descriptor import source
from socsched.errors import SocschedError

if TYPE_CHECKING:
    from socsched.descriptor.taskset import TaskSet


def is_taskset(file: Path) -> bool:
    """Return whether a file is a task set: by its name, or because it has tasks but no field that every plan has."""
    if ".taskset." in file.name:
        return True
    from socsched.descriptor.json_file import JsonFile

    if taskset_form(file):
        return True
    if file.suffix != ".json":
        return file.suffix in (".yaml", ".yml") and _has_tasks(file)
    try:
        data = JsonFile.open(file, "plan").data
    except SocschedError:
        return False  # loading it as a plan then reports the fault
    return isinstance(data, dict) and "tasks" in data and not {"engines", "pipeline", "platform"} & set(data)


def _has_tasks(file: Path) -> bool:
    """Return whether a YAML file has tasks at its top level, where a pipeline has stages."""
    try:
        return any(row.startswith("tasks:") for row in decode(source.read_bytes(file), "replace").split("\n"))
    except SocschedError:
        return False


def may_be_plan(file: Path) -> bool:
    """Return whether a file begins as JSON does, as plans do."""
    try:
        return decode(read_head(file, "file", "", 64), "replace").lstrip().startswith("{")
    except SocschedError:
        return True


def load(output: Output, file: Path, processors: int = 0) -> TaskSet:
    """Return the task set of a file, of ours or of another tool; what that one left open is said as notes."""
    from socsched.api.interchange import import_taskset
    from socsched.api.loading import load_taskset
    from socsched.errors import UsageError

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
    from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, UsageError
    from socsched.reporting.terminal import console

    codes = {"feasible": EXIT_OK, "infeasible": EXIT_VIOLATED, "undecided": EXIT_UNDECIDED}
    if taskset_form(file) == "nptest":
        from socsched.api.analysis import analyze_jobs
        from socsched.reporting.analysis import jobs_view

        found = analyze_jobs(file, processors or 1, precedence)
        beside = file.with_name(f"{file.stem}.prec.csv")
        if precedence is None and beside.exists():
            output.note(f"jobs are independent: {beside.name} is not read; add --precedence {beside.name}")
        output.result(found.document, lambda: console(terminal_width()).print(jobs_view(found.document)))
        return codes[found.verdict]
    if precedence is not None:
        raise UsageError("--precedence is for a job set of nptest (CSV)", "leave it out")
    from socsched.api.analysis import analyze as bounds_of
    from socsched.reporting.analysis import taskset_document, taskset_view

    analysis = bounds_of(load(output, file, processors))
    document = taskset_document(analysis)
    output.result(document, lambda: console(terminal_width()).print(taskset_view(analysis, document)))
    return codes[analysis.verdict]


def simulate(
    output: Output,
    file: Path,
    duration: int | None,
    policy: str | None,
    execution: str,
    seed: int,
    jobs: int,
    folder: Path | None = None,
) -> int:
    """Simulate a task-set file, show the result and write `folder`; exit code 1 if a job was late or unfinished."""
    from socsched.api import folders
    from socsched.api.results import Result
    from socsched.api.tasksets import simulate as run
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.sim.tasksets import choose_horizon
    from socsched.trace.metrics import result
    from socsched.units import format_duration

    tasks = load(output, file)
    if any(task.sporadic for task in tasks.tasks):
        output.note("sporadic tasks arrive as often as they may")
    if any(task.level or task.degraded_ns for task in tasks.tasks):
        return _mixed(output, tasks, duration, policy, execution, seed, jobs > 0 or folder is not None)
    if duration is None and tasks.horizon_ns is None:
        duration, repeats = choose_horizon(tasks)
        if duration < repeats:
            output.warn(
                f"the schedule repeats after {format_duration(repeats)} only: simulating {format_duration(duration)}; "
                "set another time with --duration"
            )
    kept = folder is not None
    done = run(tasks, duration, policy=policy, execution=execution, seed=seed, record=kept or jobs > 0, reported=kept)
    document = done.document(jobs)

    def show() -> None:
        from socsched.reporting.terminal import console

        screen = console(terminal_width())
        screen.print(_table(document))
        if jobs:
            screen.print(_jobs_table(document))

    if done.interrupted:
        output.note(f"interrupted: the figures cover the first {format_duration(done.simulated.duration_ns)}")
    trace = done.simulated.trace
    if folder is not None and trace is not None:
        plan = done.simulated.lowered.plan
        Result(plan, trace, result(trace, plan)).save(folder)
        output.note(folders.describe_files(folder))
    output.result(document, show)
    return EXIT_OK if done.met else EXIT_VIOLATED


def _mixed(
    output: Output, tasks: TaskSet, duration: int | None, policy: str | None, execution: str, seed: int, recorded: bool
) -> int:
    """Simulate a task set with criticality levels under the rules of AMC or EDF-VD."""
    from socsched.errors import EXIT_OK, EXIT_VIOLATED, UsageError
    from socsched.sim import mixed_criticality
    from socsched.sim.tasksets import choose_horizon

    if policy or recorded:
        raise UsageError(
            f"task set {tasks.name!r}: with criticality levels, neither --policy nor single jobs are available",
            hint="the file's policy decides: EDF gives EDF-VD; FP, RM and DM give AMC",
        )
    length = duration if duration is not None else tasks.horizon_ns
    done = mixed_criticality.simulate(
        tasks, choose_horizon(tasks)[0] if length is None else length, mixed_criticality.draw_times(execution, seed)
    )
    document = mixed_criticality.document(tasks, done)

    def show() -> None:
        from socsched.reporting.terminal import console, table

        unit = _unit(document)
        heads = ["task", "level", "jobs", "done", "aborted", "dropped", "late", f"response max [{unit}]"]
        keys = ("name", "level", "jobs_released", "jobs_completed", "jobs_aborted", "jobs_dropped", "deadline_misses")
        rows = [[*(str(row[key]) for key in keys), str(row["response_max"] or "-")] for row in document["tasks"]]
        count = sum(level > 0 for switches in document["switches"] for _, level in switches)
        title = f"{tasks.name} under {document['policy']} for {document['duration']} {unit}, {count} mode switches"
        console(terminal_width()).print(table(title, heads, rows, tuple(range(1, 8))))

    output.result(document, show)
    return EXIT_OK if done.met else EXIT_VIOLATED


def _table(document: dict[str, Any]) -> Any:
    from rich.table import Table

    unit = _unit(document)
    title = f"{document['taskset']} under {document['policy']} for {document['duration']} {unit}"
    table = Table(title=title, title_justify="left")
    heads = ("task", "jobs", "done", f"response max [{unit}]", "mean", "missed", "preempted", "migrated")
    for head in heads:
        table.add_column(head, justify="left" if head == "task" else "right")
    for row in document["tasks"]:
        mean = row["response_mean"]
        cells = [row["id"], row["jobs_released"], row["jobs_completed"], row["response_max"]]
        missed = row["deadline_misses"] + row["unfinished_misses"]
        cells += ["-" if mean is None else f"{mean:.6g}", missed, row["preemptions"], row["migrations"]]
        table.add_row(*("-" if cell is None else str(cell) for cell in cells))
    return table


def _jobs_table(document: dict[str, Any]) -> Any:
    from rich.table import Table

    unit = _unit(document)
    table = Table(title=f"the first {len(document['jobs'])} jobs [{unit}]", title_justify="left")
    for head in ("task", "activation", "first execution", "end"):
        table.add_column(head, justify="left" if head == "task" else "right")
    for job in document["jobs"]:
        cells = (job["task"], job["activation"], job["first_execution"], job["end"])
        table.add_row(*("-" if cell is None else str(cell) for cell in cells))
    return table


def _unit(document: dict[str, Any]) -> str:
    return {1: "ns", 1000: "us", 1_000_000: "ms", 1_000_000_000: "s"}.get(document["unit_ns"], "units")
