"""Plans, simulations and results as plain calls; every verb goes through here, so that all do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, UsageError

if TYPE_CHECKING:
    from socsched.cli.options import Output
    from socsched.descriptor.pipeline import Pipeline
    from socsched.planning.plan import Plan
    from socsched.sim.engine import Simulated
    from socsched.trace.trace import Trace

Note = Callable[[str], None]


def load_plan(file: Path) -> Plan:
    """Read plan.json; errors name the field."""
    from socsched.planning import io

    return io.load(file)


def save_plan(plan: Plan, file: Path) -> None:
    """Write plan.json, making its folder if needed."""
    from socsched.planning import io

    file.parent.mkdir(parents=True, exist_ok=True)
    io.save(plan, file)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plan.json holds it."""
    from socsched.planning import io

    return dict(io.to_document(plan))


def exit_code(plan: Plan) -> int:
    """Return what a command that plans ends with."""
    return {"feasible": EXIT_OK, "infeasible": EXIT_VIOLATED}.get(plan.verdict, EXIT_UNDECIDED)


def refused(output: Output, plan: Plan) -> int:
    """Show a plan without tasks, for which there is nothing to simulate or run, and return its exit code."""

    def show() -> None:
        from socsched.cli.options import terminal_width
        from socsched.reporting.terminal import console, plan_view

        console(terminal_width()).print(plan_view(plan))

    output.result(plan_document(plan), show)
    output.note("nothing to do: a stage has no engine")
    return exit_code(plan)


def outcome_code(result: Mapping[str, Any], paced: bool = True) -> int:
    """Return what a command that simulates or runs ends with: 1 when a frame was late or dropped.

    Frames that no sensor's rate releases (not `paced`) cannot be late.
    """
    lost = sum(chain["missed"] * paced + chain["dropped"] for chain in result["chains"].values())
    return EXIT_VIOLATED if lost else EXIT_OK


def known_policy(name: str) -> None:
    """Raise UsageError unless the simulator knows this policy."""
    if name not in ("edf", "fp"):
        from socsched.sim.policies import policy

        policy(name)


def with_policy(plan: Plan, policy: str) -> Plan:
    """Return the plan with every engine under a policy, as it is then simulated and kept."""
    from socsched.sim.lower import with_policy as changed

    return changed(plan, policy)


def planned_policy(name: str) -> str:
    """Return the policy to plan with when `name` is simulated: itself if bounds exist for it."""
    return name if name in ("edf", "fp") else "edf"


def simulate(plan: Plan, duration_ns: int, seed: int, policy: str | None = None, faults: Path | None = None) -> Trace:
    """Simulate a plan; `policy` replaces the planned one."""
    trace = simulated(plan, duration_ns, seed, policy, faults).trace
    assert trace is not None
    return trace


def simulated(
    plan: Plan,
    duration_ns: int,
    seed: int,
    policy: str | None = None,
    faults: Path | None = None,
    record: bool = True,
) -> Simulated:
    """Simulate a plan, with a trace or without; `policy` replaces the planned one."""
    from socsched.sim.engine import run
    from socsched.sim.faults import load_faults

    harm = load_faults(faults, plan) if faults else None
    return run(plan, duration_ns, seed, policy, harm, record=record)


TRACED_JOBS = 500_000
"""Jobs up to which a simulation is traced even if nobody keeps the trace: its percentiles are then exact."""


def many_jobs(plan: Plan, duration_ns: int) -> bool:
    """Say whether a simulation is long enough to go without a trace where nobody keeps it."""
    return sum(duration_ns // max(task.period_ns, 1) for task in plan.tasks) > TRACED_JOBS


def summed_up(done: Simulated) -> dict[str, Any]:
    """Return the figures of a simulation without trace."""
    from socsched.sim.totals import totals
    from socsched.trace.summary import result

    return result(totals(done), done.lowered.plan)


def pipeline_of(plan: Plan, given: str | None, warn: Note) -> Pipeline:
    """Return the pipeline a plan was made of, `given` or found by its name, its networks cut as the plan has them.

    Warns when the file has changed since.
    """
    from socsched.descriptor.catalog import get_pipeline, get_platform, input_hashes
    from socsched.planning.cutting.restore import as_planned

    try:
        pipeline = get_pipeline(given or plan.pipeline)
    except UsageError as error:
        if given:
            raise
        raise UsageError(str(error), f"say where the plan's pipeline is: --pipeline FILE ({error.hint})") from None
    hashes = input_hashes(get_platform("host"), pipeline)
    for name, digest in hashes.items():
        if name.startswith("pipelines/") and plan.inputs.get(name, digest) != digest:
            warn(f"{name} has changed since the plan was made")
    return as_planned(pipeline, plan)


def result(plan: Plan, trace: Trace) -> dict[str, Any]:
    """Return what a trace amounts to, as result.json holds it."""
    from socsched.trace.metrics import result as figures

    return figures(trace, plan)


def given_up(trace: Trace) -> dict[str, dict[str, int]]:
    """Return how many jobs each stage gave up, by reason; only stages that did."""
    from socsched.trace.given_up import given_up as counts

    return counts(trace)


def governed(plan: Plan, governor: str) -> Plan:
    """Return the plan with a governor on every engine that has a choice of clocks."""
    from socsched.planning.engine_levels import governed as changed

    return changed(plan, governor)
