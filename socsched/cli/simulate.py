"""`socsched simulate`: simulate a plan on a clock of integer nanoseconds; or a task set, or a book through a drive."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.options import PlanOptions, SimulateOptions, Whole, argument, option, shared
from socsched.cli import results
from socsched.cli.options import mode, objective, output_folder, platform, profile, source, weights
from socsched.cli.output import Output, ready_to_write, show_all
from socsched.cli.results import CONSTANT, given, scenario
from socsched.cli.verbs import Request, verb
from socsched.errors import UsageError, writing
from socsched.files import is_same_file, write_file
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.api.simulation import Simulation
    from socsched.planning.plan import Plan


def _list_policies(output: Output) -> None:
    """Print every policy of the simulator."""
    from socsched.sim.policies import describe_policies

    policies = describe_policies()
    if output.json:
        output.document({"policies": policies})
        return
    from socsched.reporting.terminal import Sheet

    rows = [*policies.items(), ("np-NAME", "Any of them without preemption.")]
    show_all(Sheet(["policy", "description"], rows))


class SimulateRequest(Request):
    """What is simulated, under which conditions, and where the results go."""

    plan: str = argument(metavar="PLAN.json|PIPELINE|TASKSET.json|BOOK")
    platform: str | None = platform(required=False)
    mode: str | None = mode()
    objective: str = objective()
    policy: str = option(
        "--policy", kind="policy", default="edf", shown=True, help="Scheduling policy, see --policies."
    )
    profile: Path | None = profile()
    duration: int = option(
        "--duration", kind="duration", default="60s", shown="60s; a task set's horizon, else until it repeats",
        help="Simulated time.",
    )  # fmt: skip
    seed: int = shared(SimulateOptions, "seed")
    faults: Path | None = shared(SimulateOptions, "faults")
    governor: str = shared(SimulateOptions, "governor")
    policies: bool = option(
        "--policies", kind="flag", act=_list_policies, help="List the policies of --policy and exit."
    )
    drive: Path | None = option(
        "--drive", name="drive_file", kind="file",
        help="For a book: YAML file with changes of mode, temperature, units and conditions.",
    )  # fmt: skip
    switches: int = option("--switches", kind=Whole(0), default=0, help="For a book: number of random changes.")
    jobs: int = option("--jobs", kind=Whole(0), default=0, help="For a task set: also list the first N jobs.")
    execution: str = option(
        "--execution", kind=("wcet", "bcet", "random"), default="wcet",
        help="For a task set: execution times of jobs; random: between bcet and wcet.",
    )  # fmt: skip
    functional: bool = option(
        "--functional", kind="flag", help="Also compute the frames on this machine, as the board's engines would."
    )
    inputs: Path | None = option(
        "--input", name="input_path", kind="path", help="With --functional: scans, images or .npz."
    )
    frames: int | None = option(
        "--frames", kind=Whole(1), help="With --functional: number of frames to compute; default: all scans, or 1."
    )
    weights: Path | None = weights("With --functional: .npz file with weights.")
    scales: Path | None = option("--scales", kind="path", help="With --functional: int8 scales from `calibrate`.")
    vendor_sim: bool = option(
        "--vendor-sim", kind="flag", help="With --functional: run accelerators in their vendor's simulator."
    )
    scenario: str | None = scenario(CONSTANT)
    source: str | None = source()
    folder: Path | None = output_folder()


@verb("simulate", SimulateRequest, "Run a plan or a pipeline on a simulated board.")
def command(output: Output, request: SimulateRequest) -> int:
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
    from socsched.cli import tasksets
    from socsched.modebook.book import is_book

    book = is_book(request.plan)
    taskset = not book and tasksets.is_taskset(Path(request.plan))
    if request.scenario and taskset:
        raise UsageError("--scenario measures chains of a pipeline", "leave it out for a task set")
    if request.vendor_sim and not request.functional:
        raise UsageError("--vendor-sim computes frames", "add --functional")
    if book:
        ready_to_write(folder=request.folder)
        return _simulate_book(output, request)
    if request.drive or request.switches:
        raise UsageError("--drive and --switches belong to the simulation of a book", "name a book's folder")
    ready_to_write(folder=request.folder)
    policy = request.policy if given("policy") else None
    if taskset:
        return tasksets.simulate(output, request, request.duration if given("duration") else None, policy)
    return _simulate_plan(output, request, policy)


def _simulate_plan(output: Output, request: SimulateRequest, policy: str | None) -> int:
    from socsched.api import folders, simulation
    from socsched.sim.policies import name_of

    folder = request.folder
    planned_with = "auto" if policy is None else simulation.policy_to_plan_with(name_of(request.policy))
    options = PlanOptions(request.objective, planned_with, request.profile)
    given_plan = results.plan_from(request.plan, request.platform, request.mode, options)
    if not given_plan.tasks:
        return results.show_refusal(output, given_plan)
    plan = simulation.apply_policy(given_plan, policy, request.governor)
    if request.governor != "static":
        served = [engine.id for engine in plan.engines if engine.governor == request.governor]
        output.note(f"{request.governor} sets the clock of {', '.join(served)}")
    if folder and plan != given_plan and is_same_file(request.plan, folder / folders.PLAN):
        problem = f"{request.plan}: is an input of this command and would be overwritten"
        raise UsageError(problem, "choose another folder with -o")
    kept = True if folder or request.functional or request.scenario else None
    done = simulation.simulate_plan(plan, request.duration, seed=request.seed, faults=request.faults, record=kept)
    trace = done.trace
    if request.scenario and trace is not None:
        done = replace(done, figures=results.measure(done.figures, trace, plan, request.scenario))
    result = done.figures
    if done.interrupted:
        output.note(f"interrupted: the result covers the first {format_duration(result['duration_ns'])}")
    if request.functional:
        _compute(output, request, plan, done)
    if folder:
        done.save(folder)
        output.note(folders.describe_files(folder, ", frames.jsonl" if request.functional else ""))

    def show() -> list[Any]:
        from socsched.reporting import terminal

        shown: list[Any] = [
            terminal.observed(result),
            terminal.planned(plan),
            terminal.outcome(result),
            terminal.engines(result),
            terminal.power_line(plan, result),
        ]
        if "given_up" in result:
            shown.append(terminal.abandoned_jobs(result["given_up"]))
        if "scenario" in result:
            shown.append(results.scenario_table(result["scenario"]))
        if request.functional and trace is not None:
            shown.append(terminal.count_detections(trace.details))
        return shown

    output.result(result, show)
    if request.functional and trace is not None:
        results.require_frames(trace.details)
    return results.outcome_code(result)


def _compute(output: Output, request: SimulateRequest, plan: Plan, done: Simulation) -> None:
    """Compute the frames of a simulation into its trace."""
    from socsched.api import loading
    from socsched.api.execution import compute, list_inputs

    if done.trace is None:
        return
    output.note("computing frames as the board's engines would; their times stay the model's")
    source = request.source or (None if request.plan.endswith(".json") else request.plan)
    pipeline, scans = loading.pipeline_of(plan, source, output.warn), list_inputs(request.inputs)
    frames = request.frames or (None if scans else 1)
    weights, scales = request.weights, request.scales
    computed = compute(plan, pipeline, frames, scans, weights, scales, request.seed, request.vendor_sim)
    done.trace.details.update(computed)


def _simulate_book(output: Output, request: SimulateRequest) -> int:
    """Simulate the book in a folder through a drive, or through random switches."""
    from socsched.faults.file import load_faults
    from socsched.modebook.book import load_book, random_drive, read_drive

    if request.drive and request.switches:
        raise UsageError("--drive and --switches exclude each other", "omit one of them")
    book = load_book(Path(request.plan))
    drive = (
        read_drive(request.drive, book)
        if request.drive
        else random_drive(book, request.switches, request.duration, request.seed)
    )
    faults = load_faults(request.faults, book.plan(drive.start)) if request.faults else None
    done = book.simulate(drive, request.duration, request.seed, faults)
    document, folder = done.document(), request.folder
    if folder:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / "result.json", json.dumps(document, indent=2, sort_keys=True) + "\n")
        output.note(f"wrote {folder}/ (result.json)")

    def show() -> Any:
        from socsched.modebook.view import simulated

        return simulated(done)

    output.result(document, show)
    return int(not done.met)
