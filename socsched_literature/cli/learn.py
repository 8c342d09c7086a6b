"""`socsched study learn`: train the weights of the policy `learned` on a plan."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.api.options import PlanOptions, SimulateOptions, shared
from socsched.cli.options import Number, Quantity, mode, objective, platform, profile
from socsched.cli.output import Output, echo, ready_to_write
from socsched.cli.verbs import decorated, output_options

WEIGHTS = "weights.json"


@click.command("learn", short_help="Train the policy `learned` on a plan.")
@click.argument("plan", metavar="PLAN.json|PIPELINE")
@decorated(platform=platform(required=False))
@decorated(mode=mode())
@decorated(objective=objective(), policy=shared(PlanOptions, "policy"), profile=profile())
@decorated(seed=shared(SimulateOptions, "seed"))
@click.option("--batches", type=click.IntRange(1), default=40, show_default=True, help="Steps of training.")
@click.option("--duration", type=Quantity("duration"), default="500ms", show_default=True, help="Length of an episode.")
@click.option(
    "--period", type=Quantity("duration"), default="1ms", show_default=True, help="Interval between decisions."
)
@click.option(
    "--unit", type=click.IntRange(0), help="Number of the lane set to learn for; by default that with most tasks."
)
@click.option(
    "--energy-cost", type=Number(0), default=0.0, show_default=True, help="Cost of 1 mJ; a late job costs 10."
)
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path, file_okay=False), default="learned",
    show_default=True, help="Folder for the result files.",
)  # fmt: skip
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    plan: str,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
    seed: int,
    batches: int,
    duration: int,
    period: int,
    unit: int | None,
    energy_cost: float,
    folder: Path,
) -> int:
    """Train by policy gradient on simulations of a plan, for `--policy learned:weights=FOLDER/weights.json`.

    -o names the folder for weights.json, and learn.json with the outcome and the history of the training.
    The weights written are never worse in misses on validation seeds than the safe order used as fallback.  Exit code
    0: trained.
    """
    from socsched.cli import results
    from socsched.cli.results import plan_from
    from socsched.errors import EXIT_OK
    from socsched_literature.studies import learning
    from socsched_literature.studies.learning import Costs, Environment
    from socsched_literature.studies.saved import save_study

    output: Output = ctx.obj
    ready_to_write(folder=folder)
    loaded = plan_from(plan, platform, mode, PlanOptions(objective, policy, profile_file))
    if not loaded.tasks:
        return results.show_refusal(output, loaded)
    environment = Environment(loaded, duration, period, costs=Costs(energy=energy_cost), unit=unit)
    trained = learning.train(environment, batches, seed=seed, progress=output.note)
    subject = f"{loaded.pipeline} on {loaded.platform}, {environment.engine}, unit {environment.unit}"
    outcome = {
        "kind": "weights", "trained_on": subject, "file": WEIGHTS, "reward": trained.reward,
        "misses": list(trained.misses), "safe_reward": trained.safe_reward,
        "safe_misses": list(trained.safe_misses), "history": list(trained.history),
    }  # fmt: skip
    paths = save_study(folder, "learn", outcome)
    learning.save(folder / WEIGHTS, trained, subject)
    for path in (folder / WEIGHTS, *paths):
        output.note(f"wrote {path}")

    def show() -> None:
        echo(f"trained on {subject}; on validation seeds, this and the safe order alone:")
        echo(f"reward {trained.reward:.3f} and {trained.safe_reward:.3f}")
        echo(f"misses, guarded and others: {trained.misses} and {trained.safe_misses}")

    output.result({**outcome, "file": str(folder / WEIGHTS)}, show)
    return EXIT_OK
