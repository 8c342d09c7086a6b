"""Declared controllers (`policies.controllers`) as kernel tables: guarded tasks, choices and weights."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Any

from socsched.errors import UsageError
from socsched.planning.plan import Plan
from socsched.sim.mechanisms import apply_policies
from socsched.sim.policies import Policy, Term
from socsched.sim.policies.adaptive import REACH
from socsched.sim.policies.controllers import Choosing, Switching
from socsched.sim.policies.learned import FEATURES, count_points, select_guarded
from socsched.sim.policies.slack_stealing import GuardedTask, SlackStealer

NOTHING, SWITCHING, CHOOSING = range(3)
_CONSTANT = {
    Term.NOTHING, Term.PRIORITY, Term.DEADLINE, Term.ACTIVATION, Term.PERIOD, Term.RELATIVE_DEADLINE, Term.CRITICALITY,
    Term.COST, Term.BEST_EFFORT,
}  # fmt: skip
_CHANGING = {Term.REMAINING, Term.LAXITY}
"""Terms that change only for running jobs."""


def make_control_tables(
    plan: Plan, engines: Sequence[int], tasks: Sequence[Sequence[int]], rules: Sequence[Policy], sources: Sequence[str]
) -> dict[str, Any]:
    """Return the columns of units (given by their engines and tasks), guarded tasks and choices, and the weights.

    A unit whose slack cannot be bounded has no controller: its first order always applies.  Raises UsageError if a
    policy combines a declared controller with a mechanism that excludes one.
    """
    preempted = apply_policies(plan, rules)
    units: dict[str, array[int]] = {name: array("q") for name in _UNIT}
    guarded: dict[str, array[int]] = {name: array("q") for name in _GUARDED}
    choices: dict[str, array[int]] = {name: array("q") for name in _CHOICE}
    weights = array("d")
    longest = 0
    for engine, own in zip(engines, tasks, strict=True):
        control = rules[engine].controller
        row = dict.fromkeys(_UNIT, 0)
        if isinstance(control, (Switching, Choosing)):
            _check(rules[engine])
            choosing = isinstance(control, Choosing)
            stealer = SlackStealer(preempted, own, select_guarded(plan, own) if choosing else own)
            if stealer.bounded:
                row.update(
                    controller=CHOOSING if choosing else SWITCHING, sampling=control.period_ns,
                    guarded0=len(guarded["task"]), guarded=len(stealer.guarded), region=stealer.region_ns,
                    choice0=len(choices["term0"]), weights0=len(weights), slack_horizon=REACH * control.period_ns,
                    sets_clock=choosing and count_points(plan, plan.engines[engine].id, own) > 0,
                )  # fmt: skip
                _add(guarded, [_guarded_row(task, sources) for task in stealer.guarded])
                listed = _choices(control)
                _add(choices, [_choice_row(rules[engine], order, slow) for order, slow in listed])
                weights.extend([1 / (control.period_ns * max(plan.engines[engine].lanes, 1)), *_weights(control)])
                longest = max(longest, len(own) + sum(map(_most_points, stealer.guarded)))
        _add(units, [row])
    return {
        **{f"u_{name}": column for name, column in units.items()},
        **{f"d_{name}": column for name, column in guarded.items()},
        **{f"c_{name}": column for name, column in choices.items()},
        "control_weights": weights,
        "points": longest,
    }


_UNIT = (
    "controller", "sampling", "guarded0", "guarded", "region", "choice0", "sets_clock", "slack_horizon", "weights0",
)  # fmt: skip
_GUARDED = ("task", "worst", "share", "cost", "source", "timer", "period", "deadline", "jitter", "gap")
_CHOICE = ("term0", "term1", "dynamic", "slow")


def _add(columns: dict[str, array[int]], rows: Collection[dict[str, int]]) -> None:
    for row in rows:
        for name, column in columns.items():
            column.append(int(row[name]))


def _most_points(task: GuardedTask) -> int:
    """Return the most deadlines of frames in transit that may have to be checked."""
    return 0 if task.timer else (task.deadline_ns + 2 * task.jitter_ns + task.gap_ns) // task.period_ns + 2


def _guarded_row(task: GuardedTask, sources: Sequence[str]) -> dict[str, int]:
    return {
        "task": task.number, "worst": task.worst_ns, "share": task.share, "cost": task.cost_ns,
        "source": sources.index(task.source), "timer": task.timer, "period": task.period_ns,
        "deadline": task.deadline_ns, "jitter": task.jitter_ns, "gap": task.gap_ns,
    }  # fmt: skip


def _choice_row(rule: Policy, order: tuple[Term, Term], slow: bool) -> dict[str, int]:
    if not {*order} <= _CONSTANT | _CHANGING:
        raise UsageError(f"policy {rule.name!r}: a declared controller cannot order by {order}")
    return {"term0": order[0], "term1": order[1], "dynamic": bool({*order} & _CHANGING), "slow": slow}


def _choices(control: Switching | Choosing) -> tuple[tuple[tuple[Term, Term], bool], ...]:
    if isinstance(control, Switching):
        return (control.safe, False), (control.calm, False)
    return control.choices


def _weights(control: Switching | Choosing) -> list[float]:
    if isinstance(control, Switching):
        return [control.low, control.high, 1 / control.window]
    if [len(row) for row in control.weights] != [len(FEATURES)] * len(control.choices):
        raise UsageError(f"expected {len(FEATURES)} weights for each of {len(control.choices)} choices")
    if [slow for _, slow in control.choices] != [False, False, False, True]:
        raise UsageError("expected four choices, the last one alone at a slower operating point")
    # ordered by feature, as the kernel reads them
    return [*(row[k] for k in range(len(FEATURES)) for row in control.weights), 1 / (REACH * control.period_ns)]


def _check(rule: Policy) -> None:
    control = rule.controller
    assert isinstance(control, (Switching, Choosing))
    first = control.safe if isinstance(control, Switching) else control.choices[0][0]
    other = (rule.sliced, rule.serves, rule.across, rule.tick_ns, rule.tokens, rule.corun, rule.batch, rule.preemption)
    if any(other) or rule.order != first or not {*first} <= _CONSTANT or control.period_ns < 1:
        raise UsageError(
            f"policy {rule.name!r}: a declared controller needs the policy's order first and excludes other mechanisms"
        )
