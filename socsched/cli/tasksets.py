"""Task-set files on the command line: their recognition and their simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.cli.options import Output, terminal_width

if TYPE_CHECKING:
    from socsched.descriptor.taskset_model import TaskSet


def is_taskset(file: Path) -> bool:
    """Return whether a file is a task set: by its name, or because it has tasks but no field that every plan has."""
    if ".taskset." in file.name:
        return True
    import json

    if file.suffix != ".json":
        return file.suffix in (".yaml", ".yml") and _has_tasks(file)
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False  # loading it as a plan then reports the fault
    return isinstance(data, dict) and "tasks" in data and not {"engines", "pipeline", "platform"} & set(data)


def _has_tasks(file: Path) -> bool:
    """Return whether a YAML file has tasks at its top level, where a pipeline has stages."""
    try:
        return any(row.startswith("tasks:") for row in file.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return False


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
    from socsched.api.loading import load_taskset
    from socsched.api.results import Result
    from socsched.api.tasksets import simulate as run
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.sim.tasksets import choose_horizon
    from socsched.trace.metrics import result
    from socsched.units import format_duration

    tasks = load_taskset(file)
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
