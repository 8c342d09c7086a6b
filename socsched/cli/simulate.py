"""`socsched simulate`: simulate a plan on a clock of integer nanoseconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from socsched.cli.options import (
    Output,
    Quantity,
    folder_option,
    mode_option,
    output_options,
    planning_options,
    platform_option,
    ready_to_write,
    seed_option,
    source_option,
    terminal_width,
)
from socsched.cli.scenario import CONSTANT, measure, save_logs, scenario_code, scenario_option, scenario_table


def _list_policies(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print every policy of the simulator, and exit."""
    if not value:
        return
    from socsched.sim.policies import describe_policies

    policies = describe_policies()
    if ctx.ensure_object(Output).json:
        ctx.obj.document({"policies": policies})
    else:
        from socsched.reporting.terminal import Sheet, console

        rows = [*policies.items(), ("np-NAME", "Any of them without preemption.")]
        console(terminal_width()).print(Sheet(["policy", "description"], rows))
    ctx.exit(0)


@click.command("simulate", short_help="Run a plan or a pipeline on a simulated board.")
@click.argument("plan", metavar="PLAN.json|PIPELINE|TASKSET.json|BOOK")
@platform_option(required=False)
@mode_option
@partial(planning_options, simulated=True)
@click.option(
    "--duration",
    type=Quantity("duration"),
    default="60s",
    show_default="60s; a task set's horizon, else until it repeats",
    help="Simulated time.",
)
@seed_option
@click.option(
    "--faults",
    "faults_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with sensor faults, slow, stalled or dead engines, overruns, foreign traffic.",
)
@click.option(
    "--governor",
    type=click.Choice(["static", "ccedf"]),
    default="static",
    show_default=True,
    help="Clock governor for engines with one lane: none, or cycle-conserving EDF up to the planned clock.",
)
@click.option(
    "--policies",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_policies,
    help="List the policies of --policy and exit.",
)
@click.option(
    "--drive",
    "drive_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="For a book: YAML file with changes of mode, temperature, units and conditions.",
)
@click.option("--switches", type=click.IntRange(0), default=0, help="For a book: number of random changes.")
@click.option("--jobs", type=click.IntRange(0), default=0, help="For a task set: also list the first N jobs.")
@click.option(
    "--execution",
    type=click.Choice(["wcet", "bcet", "random"]),
    default="wcet",
    help="For a task set: execution times of jobs; random: between bcet and wcet.",
)
@click.option(
    "--functional", is_flag=True, help="Also compute the frames on this machine, as the board's engines would."
)
@click.option(
    "--input", "input_path", type=click.Path(path_type=Path), help="With --functional: scans, images or .npz."
)
@click.option(
    "--frames", type=click.IntRange(1), help="With --functional: number of frames to compute; default: all scans, or 1."
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    envvar="SOCSCHED_WEIGHTS",
    help="With --functional: .npz file with weights.",
)
@click.option("--scales", type=click.Path(path_type=Path), help="With --functional: int8 scales from `calibrate`.")
@click.option("--vendor-sim", is_flag=True, help="With --functional: run accelerators in their vendor's simulator.")
@scenario_option(CONSTANT)
@source_option
@folder_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    plan: str,
    source: str | None,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
    duration: int,
    seed: int,
    faults_file: Path | None,
    functional: bool,
    input_path: Path | None,
    frames: int | None,
    weights: Path | None,
    scales: Path | None,
    vendor_sim: bool,
    scenario: str | None,
    folder: Path | None,
    jobs: int,
    execution: str,
    governor: str,
    drive_file: Path | None,
    switches: int,
) -> int:
    """Simulate a plan, or plan a pipeline first and simulate that; the same seed gives the same bytes.

    A task-set file (JSON or YAML with periodic tasks, as SimSo and others read them) is simulated for its horizon, or
    until it repeats (a minute or a million jobs at most), and reported per task, in the file's own unit of time.

    The folder of a book (`socsched book`) is simulated through a drive, plan after plan.

    With --functional its stages also compute frames on this machine, each with the precision and layout of the engine
    it is planned on; times stay the model's.  With --vendor-sim, stages of an NPU are compiled by its vendor's compiler
    and run in its simulator (`socsched doctor` names the command that installs it).

    Ctrl-C ends a simulation early: its result covers what was simulated, and so does the exit code; a second one
    discards it.  Exit code 0: every frame in time and no output too old, with --scenario a valid result; 1: otherwise,
    whatever the plan's verdict is.
    """
    from dataclasses import replace

    from socsched.api import folders, loading, simulation
    from socsched.api.execution import compute, list_inputs
    from socsched.cli import books, outcomes, tasksets
    from socsched.cli.plan_argument import plan_from
    from socsched.errors import UsageError
    from socsched.files import is_same_file
    from socsched.modebook.book import is_book
    from socsched.sim.policies import name_of
    from socsched.units import format_duration

    output: Output = ctx.obj
    if scenario and tasksets.is_taskset(Path(plan)):
        raise UsageError("--scenario measures chains of a pipeline", "leave it out for a task set")
    if vendor_sim and not functional:
        raise UsageError("--vendor-sim computes frames", "add --functional")
    if is_book(plan):
        ready_to_write(folder=folder)
        return books.simulate(output, Path(plan), drive_file, switches, duration, seed, faults_file, folder)
    if drive_file or switches:
        raise UsageError("--drive and --switches belong to the simulation of a book", "name a book's folder")
    chosen = policy if _given(ctx, "policy") else None
    if tasksets.is_taskset(Path(plan)):
        length = duration if _given(ctx, "duration") else None
        ready_to_write(folder=folder)
        return tasksets.simulate(output, Path(plan), length, chosen, execution, seed, jobs, folder)
    ready_to_write(folder=folder)
    planned_with = "auto" if chosen is None else simulation.policy_to_plan_with(name_of(policy))
    policy = name_of(policy)
    plan_to_run = plan_from(ctx, plan, platform, mode, objective, planned_with, profile_file)
    if not plan_to_run.tasks:
        return outcomes.show_refusal(output, plan_to_run)
    file_plan = plan_to_run
    plan_to_run = simulation.apply_policy(plan_to_run, chosen, governor)
    if governor != "static":
        served = [engine.id for engine in plan_to_run.engines if engine.governor == governor]
        output.note(f"{governor} sets the clock of {', '.join(served)}")
    if folder and plan_to_run != file_plan and is_same_file(plan, folder / folders.PLAN):
        raise UsageError(
            f"{plan}: is an input of this command and would be overwritten", "choose another folder with -o"
        )
    kept = True if folder or functional or scenario else None
    done = simulation.simulate_plan(plan_to_run, duration, seed=seed, faults=faults_file, record=kept)
    trace = done.trace
    if scenario and trace is not None:
        done = replace(done, figures=measure(done.figures, trace, plan_to_run, scenario))
    result = done.figures
    if done.interrupted:
        output.note(f"interrupted: the result covers the first {format_duration(result['duration_ns'])}")
    if functional and trace is not None:
        output.note("computing frames as the board's engines would; their times stay the model's")
        pipeline = loading.pipeline_of(plan_to_run, source or (None if plan.endswith(".json") else plan), output.warn)
        scans = list_inputs(input_path)
        trace.details.update(
            compute(plan_to_run, pipeline, frames or (None if scans else 1), scans, weights, scales, seed, vendor_sim)
        )
    if folder:
        done.save(folder)
        also = ", frames.jsonl" if functional else ""
        output.note(folders.describe_files(folder, also))
        if trace is not None:
            save_logs(output, trace, plan_to_run, scenario, folder)

    def show() -> None:
        from socsched.reporting import terminal

        screen = terminal.console(terminal_width())
        for item in (
            terminal.observed(result),
            terminal.planned(plan_to_run),
            terminal.outcome(result),
            terminal.engines(result),
            terminal.power_line(plan_to_run, result),
        ):
            screen.print(item)
        if "given_up" in result:
            screen.print(terminal.abandoned_jobs(result["given_up"]))
        if "scenario" in result:
            screen.print(scenario_table(result["scenario"]))
        if functional and trace is not None:
            screen.print(terminal.count_detections(trace.details))

    output.result(result, show)
    if functional and trace is not None:
        outcomes.require_frames(trace.details)
    return scenario_code(result["scenario"]) if "scenario" in result else outcomes.outcome_code(result)


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
