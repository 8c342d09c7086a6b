"""Declared controllers (`policies.control`) as kernel tables: guarded tasks, choices and weights."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Any

from socsched.errors import UsageError
from socsched.planning.plan import Plan
from socsched.sim.mechanisms import as_taken
from socsched.sim.policies import Policy, Term
from socsched.sim.policies.adaptive import REACH
from socsched.sim.policies.control import Choosing, Switching
from socsched.sim.policies.guard import Guard, Load
from socsched.sim.policies.learned import FEATURES, kept, points

NOTHING, SWITCHING, CHOOSING = range(3)
_HOLDS = {
    Term.NOTHING, Term.PRIORITY, Term.DEADLINE, Term.ACTIVATION, Term.PERIOD, Term.RELATIVE_DEADLINE, Term.CRITICALITY,
    Term.COST, Term.BEST_EFFORT,
}  # fmt: skip
_MOVES = {Term.REMAINING, Term.LAXITY}
"""Terms that change only for running jobs."""


def control_tables(
    plan: Plan, engines: Sequence[int], tasks: Sequence[Sequence[int]], rules: Sequence[Policy], sources: Sequence[str]
) -> dict[str, Any]:
    """Return the columns of units (given by their engines and tasks), guarded tasks and choices, and the weights.

    A unit whose slack cannot be bounded has no controller: its first order always applies.  Raises UsageError if a
    policy combines a declared controller with a mechanism that excludes one.
    """
    made = as_taken(plan, rules)
    units: dict[str, array[int]] = {name: array("q") for name in _UNIT}
    loads: dict[str, array[int]] = {name: array("q") for name in _LOAD}
    choices: dict[str, array[int]] = {name: array("q") for name in _CHOICE}
    reals = array("d")
    longest = 0
    for engine, own in zip(engines, tasks, strict=True):
        control = rules[engine].control
        row = dict.fromkeys(_UNIT, 0)
        if isinstance(control, (Switching, Choosing)):
            _check(rules[engine])
            choosing = isinstance(control, Choosing)
            guard = Guard(made, own, kept(plan, own) if choosing else own)
            if guard.possible:
                row.update(
                    steer=CHOOSING if choosing else SWITCHING, look=control.period_ns, load0=len(loads["task"]),
                    loads=len(guard.loads), region=guard.region_ns, choice0=len(choices["term0"]), real0=len(reals),
                    reach=REACH * control.period_ns, clock=choosing and points(plan, plan.engines[engine].id, own) > 0,
                )  # fmt: skip
                _add(loads, [_load_row(load, sources) for load in guard.loads])
                listed = _choices(control)
                _add(choices, [_choice_row(rules[engine], order, slow) for order, slow in listed])
                reals.extend([1 / (control.period_ns * max(plan.engines[engine].lanes, 1)), *_reals(control)])
                longest = max(longest, len(own) + sum(map(_most_points, guard.loads)))
        _add(units, [row])
    return {
        **{f"u_{name}": column for name, column in units.items()},
        **{f"l_{name}": column for name, column in loads.items()},
        **{f"c_{name}": column for name, column in choices.items()},
        "reals": reals,
        "points": longest,
    }


_UNIT = ("steer", "look", "load0", "loads", "region", "choice0", "clock", "reach", "real0")
_LOAD = ("task", "worst", "share", "cost", "source", "timer", "period", "deadline", "jitter", "gap")
_CHOICE = ("term0", "term1", "moves", "slow")


def _add(columns: dict[str, array[int]], rows: Collection[dict[str, int]]) -> None:
    for row in rows:
        for name, column in columns.items():
            column.append(int(row[name]))


def _most_points(load: Load) -> int:
    """Return the most deadlines of frames in transit that may have to be checked."""
    return 0 if load.timer else (load.deadline_ns + 2 * load.jitter_ns + load.gap_ns) // load.period_ns + 2


def _load_row(load: Load, sources: Sequence[str]) -> dict[str, int]:
    return {
        "task": load.number, "worst": load.worst_ns, "share": load.share, "cost": load.cost_ns,
        "source": sources.index(load.source), "timer": load.timer, "period": load.period_ns,
        "deadline": load.deadline_ns, "jitter": load.jitter_ns, "gap": load.gap_ns,
    }  # fmt: skip


def _choice_row(rule: Policy, order: tuple[Term, Term], slow: bool) -> dict[str, int]:
    if not {*order} <= _HOLDS | _MOVES:
        raise UsageError(f"policy {rule.name!r}: no declared controller can choose to order by {order}")
    return {"term0": order[0], "term1": order[1], "moves": bool({*order} & _MOVES), "slow": slow}


def _choices(control: Switching | Choosing) -> tuple[tuple[tuple[Term, Term], bool], ...]:
    if isinstance(control, Switching):
        return (control.safe, False), (control.calm, False)
    return control.choices


def _reals(control: Switching | Choosing) -> list[float]:
    if isinstance(control, Switching):
        return [control.low, control.high, 1 / control.window]
    if [len(row) for row in control.weights] != [len(FEATURES)] * len(control.choices):
        raise UsageError(f"{len(FEATURES)} weights are needed for each of {len(control.choices)} choices")
    if [slow for _, slow in control.choices] != [False, False, False, True]:
        raise UsageError("choices are three orders, and the last one at a slower operating point")
    # ordered by feature, as the kernel reads them
    return [*(row[k] for k in range(len(FEATURES)) for row in control.weights), 1 / (REACH * control.period_ns)]


def _check(rule: Policy) -> None:
    control = rule.control
    assert isinstance(control, (Switching, Choosing))
    first = control.safe if isinstance(control, Switching) else control.choices[0][0]
    other = (rule.sliced, rule.serves, rule.across, rule.tick_ns, rule.tokens, rule.beside, rule.batch, rule.taking)
    if any(other) or rule.order != first or not {*first} <= _HOLDS or control.period_ns < 1:
        raise UsageError(f"policy {rule.name!r}: a declared controller has the policy's order first, and nothing else")
