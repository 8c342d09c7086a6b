"""`socsched study`: comparisons of approaches from the literature, one subcommand per subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import PlanOptions, Real, Whole, argument, option, shared
from socsched.cli.options import mode, objective, output_folder, platform, profile
from socsched.cli.output import Output, ready_to_write
from socsched.cli.verbs import Request, output_options, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED, UsageError

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched_literature.studies.acceptance import Panel
    from socsched_literature.studies.sharing import Source


@click.group("study", short_help="Compare scheduling policies, planners, ...")
@output_options
def command() -> None:
    """Compare approaches from the literature on a custom workload and platform."""


def _names(text: str | None) -> list[str] | None:
    """Return the names of a list with commas, None where none was given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _save(output: Output, folder: Path | None, subject: str, document: Mapping[str, Any], *drawn: str) -> None:
    """Write a study's data, figure and rows into its folder."""
    from socsched_literature.studies.saved import save_study

    for path in save_study(folder, subject, document, *drawn) if folder else ():
        output.note(f"wrote {path}")


def _draws(shown: int) -> Any:
    return option("--sets", kind=Whole(1, 100_000), default=shown, shown=True, help="Task sets per load.")


def _seed() -> Any:
    return option("--seed", kind=Whole(0), default=1, shown=True, help="Seed of the task sets.")


class AcceptanceRequest(Request):
    """How many task sets are drawn."""

    sets: int = _draws(50)
    seed: int = _seed()
    folder: Path | None = output_folder()


@verb("acceptance", AcceptanceRequest, "Compare what schedulability tests accept, against utilisation.", group=command)
def acceptance(output: Output, request: AcceptanceRequest) -> int:
    """Draw task sets at rising utilisation, and show the share that each schedulability test accepts.

    Four groups of competing tests: one processor with deadlines at and before the ends of periods, four processors
    under global scheduling, and tasks that suspend themselves.  -o writes acceptance.json, .csv and .svg.  Exit code
    0: compared.
    """
    from socsched_literature.studies.acceptance import PANELS

    return _accepted(output, request, "acceptance", PANELS)


class MixedCriticalityRequest(AcceptanceRequest):
    """How task sets of two levels are drawn."""

    sets: int = _draws(100)
    tasks: int = option("--tasks", kind=Whole(1, 200), default=20, shown=True, help="Tasks of each set.")
    factor: float = option(
        "--factor", kind=Real(1), default=2.0, shown=True, help="C(HI) of a task as a multiple of C(LO)."
    )
    share: float = option(
        "--share", kind="percent", default="50%", shown=True, help="Probability that a task is of high criticality."
    )
    seed: int = _seed()
    folder: Path | None = output_folder()


@verb(
    "mixed-criticality", MixedCriticalityRequest, "Compare what schemes for two levels of criticality accept.",
    group=command,
)  # fmt: skip
def mixed_criticality(output: Output, request: MixedCriticalityRequest) -> int:
    """Draw task sets as in the papers on AMC and EDF-VD, and show the share that each scheme accepts.

    Fixed priorities are assigned by Audsley's algorithm.  UB-H&L: each level schedulable by itself, an upper bound.
    -o writes mixed-criticality.json, .csv and .svg.  Exit code 0: compared.
    """
    from socsched_literature.studies.acceptance import mixed_criticality_panel

    if request.share > 1:
        raise UsageError(f"--share must be at most 100%, got {request.share:.0%}")
    panel = mixed_criticality_panel(request.tasks, request.factor, request.share)
    return _accepted(output, request, "mixed-criticality", [panel])


def _accepted(output: Output, request: AcceptanceRequest, name: str, panels: Sequence[Panel]) -> int:
    from socsched_literature.studies import acceptance

    ready_to_write(folder=request.folder)
    found = acceptance.study(name, panels, request.sets, request.seed)
    document = acceptance.document(found)
    _save(output, request.folder, name, document, acceptance.figure(found), acceptance.lines(found))
    output.result(document, lambda: acceptance.view(found))
    return EXIT_OK


class PlannersRequest(Request):
    """What is planned, and by whom."""

    pipeline: str | None = argument(required=False)
    platform: str | None = platform(required=False)
    mode: str | None = mode()
    objective: str = objective()
    policy: str = shared(PlanOptions, "policy")
    profile: Path | None = profile()
    planners: tuple[str, ...] = option(
        "--planners", name="names", multiple=True, metavar="NAME[:OPTION=VALUE,...]",
        help="A planner to compare; repeat it for several. All planners, with socsched's own, by default.",
    )  # fmt: skip
    listing: bool = option("--list", kind="flag", help="Show the planners with their papers and options, and exit.")
    time_limit: float = option(
        "--time-limit", kind=Real(0.1), default=30.0, shown=True, help="Seconds for each planner."
    )
    folder: Path | None = output_folder()


@verb("planners", PlannersRequest, "Compare planners from the literature with socsched's.", group=command)
def planners(output: Output, request: PlannersRequest) -> int:
    """Plan PIPELINE with every planner, simulate the plans, and show latency, bounds, energy and planning time.

    -o writes planners.json and planners.svg.

    Exit code 0: some plan is feasible, 1: none is.
    """
    from socsched.api import comparison
    from socsched.api.planning import get_mode, plan_with
    from socsched.cost.profile import load_profile
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.reporting.pareto import figure
    from socsched_literature.studies import planners as study

    if request.listing:
        output.result(study.listing_document(), study.listing)
        return EXIT_OK
    pipeline, board, mode = request.pipeline, request.platform, request.mode
    if not pipeline or not board:
        raise click.UsageError("name a pipeline and a platform: socsched study planners PIPELINE -p PLATFORM")
    # invalid inputs are errors before the first planner runs
    get_pipeline(pipeline)
    get_mode(get_platform(board), None if mode == "auto" else mode)
    if request.profile is not None:
        load_profile(request.profile)
    ready_to_write(folder=request.folder)
    options = PlanOptions(
        request.objective, request.policy, request.profile, time_limit=request.time_limit, explain=False
    )

    def make(name: str, settings: Mapping[str, str]) -> Plan:
        if name == comparison.OURS:
            return plan_with(pipeline, board, mode, options)
        # proposals of other planners are simulated below, refined or not
        return plan_with(pipeline, board, mode, replace(options, planner=name, settings=settings, refine=False))

    outcomes = comparison.compare_planners(comparison.select_planners(request.planners), make)
    document = study.document(outcomes)
    _save(output, request.folder, "planners", document, figure(comparison.points(outcomes)) if request.folder else "")
    output.result(document, lambda: study.view(outcomes))
    return EXIT_OK if any(o.plan and o.plan.verdict == "feasible" for o in outcomes) else EXIT_VIOLATED


class PoliciesRequest(Request):
    """The plan, the policies, and what varies."""

    plan: str = argument(metavar="PLAN.json|PIPELINE")
    platform: str | None = platform(required=False)
    mode: str | None = mode()
    objective: str = objective()
    policy: str = shared(PlanOptions, "policy")
    profile: Path | None = profile()
    policies: str | None = option(
        "--policies", name="names", metavar="NAME[,...]",
        help="Policies to compare; by default all that apply (see simulate).",
    )  # fmt: skip
    loads: tuple[float, ...] = option(
        "--loads", kind="numbers", default="1", shown=True, help="Factors on the rates of sources; 1 is as planned."
    )
    seeds: int = option("--seeds", kind=Whole(1), default=20, shown=True, help="Simulations of each policy and load.")
    duration: int = option("--duration", kind="duration", default="10s", shown=True, help="Simulated time of each.")
    spread: float = option(
        "--spread", kind="percent", default="30%", shown=True, help="Largest reduction of a job's time below its cost."
    )
    sla: float = option(
        "--sla", kind=Real(1), default=4.0, shown=True, help="Agreed response as a multiple of that alone."
    )
    folder: Path | None = output_folder()


@verb("policies", PoliciesRequest, "Compare scheduling policies over loads and seeds.", group=command)
def policies(output: Output, request: PoliciesRequest) -> int:
    """Simulate one plan under many policies and show misses, tails, turnaround, fairness and energy.

    Each policy is applied to every engine; the row "as planned" keeps the plan's policies.  A seed draws the phases of
    sensors and timers, and the execution times of jobs.  -o writes policies.json and policies.svg.  Exit code 0:
    compared.
    """
    from socsched.cli.results import plan_from, show_refusal
    from socsched_literature.studies import policies as studied

    if request.spread >= 1:
        raise UsageError(f"--spread must be below 100%, got {request.spread:.0%}")
    names = _names(request.policies)
    if names is not None:
        studied.needs(names)
    ready_to_write(folder=request.folder)
    options = PlanOptions(request.objective, request.policy, request.profile)
    plan = plan_from(request.plan, request.platform, request.mode, options)
    if not plan.tasks:
        return show_refusal(output, plan)
    found = studied.study(
        plan, names, request.loads, request.seeds, request.duration, request.spread, request.sla, output.note
    )
    _save(output, request.folder, "policies", studied.document(found), studied.figure(found))
    output.result(studied.document(found), lambda: studied.view(found))
    return EXIT_OK


class SharingRequest(Request):
    """The networks, the ways to share, and what they serve."""

    pipeline: str | None = argument("pipeline", required=False)
    platform: str | None = platform(required=False)
    mode: str | None = mode()
    engine: str = option("--engine", default="gpu", shown=True, help="The engine of the platform that is shared.")
    profiles: Path | None = option("--profiles", kind="file", help="Instead of PIPELINE: CSV of measured networks.")
    constants: Path | None = option("--constants", kind="file", help="CSV of interference constants.")
    rates: tuple[str, ...] = option(
        "--rate", name="rates", multiple=True, metavar="NETWORK=1/S", help="With --profiles: requests a second."
    )
    law: Any = option(
        "--law", kind=("amdahl", "fixed", "fill"), default="fixed", shown=True,
        help="With --profiles: how latency grows on a share.",
    )  # fmt: skip
    systems: str | None = option("--systems", metavar="NAME[,...]", help="Ways to share; all of them by default.")
    loads: tuple[float, ...] = option(
        "--loads", kind="numbers", default="0.5,1,2", shown=True, help="Factors on the request rates."
    )
    seeds: int = option("--seeds", kind=Whole(1), default=3, shown=True, help="Runs of each system and load.")
    duration: int = option("--duration", kind="duration", default="10s", shown=True, help="Length of each run.")
    devices: int = option(
        "--devices", kind=Whole(1, 1000), default=1, shown=True, help="Number of identical accelerators."
    )
    mechanism: str = option(
        "--mechanism", default="mps", shown=True,
        help="Mechanism that partitions the accelerator: mps or green-contexts.",
    )  # fmt: skip
    mig: str = option(
        "--mig", default="", metavar="GPU", help="Geometry for MIG-Serving, such as a100-40gb or h100-80gb."
    )
    folder: Path | None = output_folder()


@verb("sharing", SharingRequest, "Compare ways to share an accelerator.", group=command)
def sharing(output: Output, request: SharingRequest) -> int:
    """Serve a workload on accelerators shared in several ways and show the requests answered in time.

    The stages of PIPELINE that --engine of a platform can run are requested, and due, once per period, in --mode or the
    default one; with --profiles, networks of a CSV file at given rates.  Load 2 doubles the request rates.  -o
    writes sharing.json and sharing.svg.  Exit code 0: compared.
    """
    from socsched_literature.sharing.deployment import mechanism
    from socsched_literature.sharing.mig_serving import geometry
    from socsched_literature.studies import sharing

    if (request.pipeline is None) == (request.profiles is None):
        raise UsageError("expected PIPELINE with -p PLATFORM, or --profiles", "see socsched study sharing --help")
    if mechanism(request.mechanism).partition != "logical":
        problem = f"{request.mechanism} cannot make parts of arbitrary size"
        raise UsageError(problem, "use mps or green-contexts; --mig names a geometry")
    if request.mig:
        geometry(request.mig)
    if request.profiles is None and (request.constants or request.rates):
        raise UsageError("--constants and --rate go with --profiles", "the rates of a pipeline follow from its periods")
    ready_to_write(folder=request.folder)
    source = _source(request)
    setting = sharing.Setting(request.devices, request.mechanism, request.mig)
    systems = _names(request.systems) or sharing.SYSTEMS
    rows = sharing.study(source, systems, request.loads, request.seeds, request.duration, setting, output.note)
    document = sharing.document(source, rows)
    _save(output, request.folder, "sharing", document, sharing.figure(source, rows))
    output.result(document, lambda: sharing.view(source, rows))
    return EXIT_OK


def _source(request: SharingRequest) -> Source:
    from socsched.api.planning import get_mode
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.units import parse_number
    from socsched_literature.studies import sharing

    if request.profiles is None:
        if request.platform is None:
            raise UsageError("a pipeline needs a platform", "name one with -p")
        board = get_platform(request.platform)
        mode = get_mode(board, None if request.mode == "auto" else request.mode)
        return sharing.from_pipeline(get_pipeline(str(request.pipeline)), board, mode, request.engine)
    rates: dict[str, float] = {}
    for text in request.rates:
        name, _, number = text.partition("=")
        try:
            rates[name] = parse_number(number)
        except ValueError:
            raise UsageError(f"--rate {text}: expected NETWORK=1/S, such as resnet50=60") from None
    return sharing.from_profiles(request.profiles, request.constants, rates, request.law)
