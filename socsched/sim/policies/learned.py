"""An order learned by policy gradient and masked by slack: linear softmax, with weights from `socsched study learn`.

Our own design, after reinforcement learning schedulers that mask actions (Decima, SIGCOMM 2019, masks what cannot run;
here, what might cost a deadline).  Every `period` it chooses one of `ACTIONS`: an order, and the clock.  All but the
first are masked unless `slack_stealing` finds slack until the next sample, so deadlines of hard and firm tasks (of all
tasks if none is soft) are lost no more than under the first.  While at most one job is present and there is no clock to
set, the last choice holds and the others are masked.  Without `weights` it always uses the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.errors import UsageError
from socsched.planning.plan import Plan
from socsched.sim.policies.controllers import Choosing, View
from socsched.sim.policies.slack_stealing import SlackStealer
from socsched.sim.policies.terms import Policy, ReadyJob, Term

SAFE = (Term.BEST_EFFORT, Term.DEADLINE)
ACTIONS: tuple[tuple[tuple[Term, Term], bool], ...] = (
    (SAFE, False),
    ((Term.DEADLINE, Term.ACTIVATION), False),
    ((Term.REMAINING, Term.ACTIVATION), False),
    (SAFE, True),
)
"""Order of service, and whether at the next slower operating point; the first applies if no other is allowed."""
FEATURES = (
    "one", "busy", "known_slack", "ready", "best_effort_ready", "least_laxity", "least_laxity_best_effort", "lateness",
    "work", "best_effort_work",
)  # fmt: skip
REACH = 10
"""Periods that serve as the unit of times, and over which slack is computed."""


def select_guarded(plan: Plan, tasks: Sequence[int]) -> tuple[int, ...]:
    """Return the tasks whose deadlines are guarded: all non-soft ones, or all if every task is soft."""
    firm = tuple(number for number in tasks if plan.tasks[number].criticality != "soft")
    return firm or tuple(tasks)


def count_points(plan: Plan, engine: str, tasks: Sequence[int]) -> int:
    """Return the number of operating points the unit of these tasks can choose from.

    It is 0 if other tasks share the engine, since they have no say, or if the board or a governor sets the clock.
    """
    found = next(e for e in plan.engines if e.id == engine)
    shared = any(task.engine == engine for number, task in enumerate(plan.tasks) if number not in tasks)
    return 0 if shared or plan.throttle or found.governor != "static" or len(found.levels) < 2 else len(found.levels)


@dataclass(frozen=True, slots=True)
class MaskedFeatures:
    """Basis of a decision: `FEATURES` as numbers of about 0 to 1, and the allowed actions."""

    features: tuple[float, ...]
    mask: tuple[bool, ...]


class Observer:
    """Observes a unit as `MaskedFeatures`; `period_ns` is the duration of an action."""

    def __init__(self, period_ns: int) -> None:
        self.period_ns = period_ns
        self._stealer: SlackStealer | None = None
        self._points = 0

    def observe(self, view: View, now_ns: int, held: int = 0) -> MaskedFeatures:
        """Return the present features and mask; `held` is the last chosen action."""
        if self._stealer is None:
            self._stealer = SlackStealer(view.plan, view.tasks, select_guarded(view.plan, view.tasks))
            self._points = count_points(view.plan, view.engine, view.tasks)
        jobs = view.ready()
        scale = REACH * self.period_ns
        few = len(jobs) < 2 and not self._points
        # an action may be chosen now and take effect from the next nanosecond on (the learning environment)
        need = self.period_ns + 1
        free = not (few and held == 0) and self._stealer.get_slack_ns(view, now_ns, need, scale) > need
        if few or not free:
            mask = tuple(action == (held if free else 0) for action in range(len(ACTIONS)))
        else:
            mask = tuple(self._points > 0 or not slow for _, slow in ACTIONS)
        known = max(self._stealer.slack_until_ns - now_ns, 0)
        soft = [job for job in jobs if job.task.criticality == "soft"]
        firm = [job for job in jobs if job.task.criticality != "soft"]
        late = sum(max(now_ns - job.deadline_ns, 0) for job in jobs)
        unit = 1 / scale
        features = (
            1.0, view.busy, _part(known, unit), _part(len(jobs), 1 / 8), _part(len(soft), 1 / 8),
            _laxity(firm, now_ns, scale), _laxity(soft, now_ns, scale), _part(late, unit),
            _part(sum(job.remaining_ns for job in firm), unit), _part(sum(job.remaining_ns for job in soft), unit),
        )  # fmt: skip
        return MaskedFeatures(features, mask)


def _part(value: int, unit: float) -> float:
    return max(-2.0, min(value * unit, 2.0))


def _laxity(jobs: Sequence[ReadyJob], now_ns: int, scale: int) -> float:
    least = min((job.deadline_ns - now_ns - job.remaining_ns for job in jobs), default=2 * scale)
    return _part(least, 1 / scale)


def compute_scores(weights: Sequence[Sequence[float]], features: Sequence[float]) -> list[float]:
    """Return the score of every action, summed from left to right (`sum` rounds differently from Python 3.12 on)."""
    found = []
    for row in weights:
        score = 0.0
        for weight, value in zip(row, features, strict=True):
            score += weight * value
        found.append(score)
    return found


class Learned:
    """`Choosing` for `ACTIONS` as a controller in Python: the allowed action with the highest score."""

    def __init__(self, weights: Sequence[Sequence[float]], period_ns: int) -> None:
        self.weights, self.period_ns = weights, period_ns
        self._observer = Observer(period_ns)
        self._held = 0

    def decide(self, view: View, now_ns: int) -> tuple[tuple[Term, Term], int | None]:
        """Return the order until the next sample, and the operating point."""
        observed = self._observer.observe(view, now_ns, self._held)
        found = compute_scores(self.weights, observed.features)
        self._held = max((i for i, allowed in enumerate(observed.mask) if allowed), key=lambda i: (found[i], -i))
        return act(view, self._held)


def act(view: View, action: int) -> tuple[tuple[Term, Term], int | None]:
    """Return the order and the operating point of an action on a unit."""
    order, slow = ACTIONS[action]
    count = count_points(view.plan, view.engine, view.tasks)
    return order, (count - 2 if slow else count - 1) if count else None


def make(*, weights: str = "", period_ns: int = 1_000_000) -> Policy:
    """Return the policy with the weights of a file; raise ValueError if the file is invalid."""
    if not weights:
        return Policy("learned", SAFE)
    try:
        from socsched.descriptor.json_file import JsonFile  # YAML with it, which a simulation need not load

        data = JsonFile.open(weights, "file of weights").data
        rows = tuple(tuple(float(value) for value in row) for row in data["weights"])
        period_ns = int(data["period_ns"])
    except (UsageError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"weights: {weights} was not written by `socsched study learn`: {error}") from None
    if data.get("features") != list(FEATURES) or [len(row) for row in rows] != [len(FEATURES)] * len(ACTIONS):
        raise ValueError(f"weights: {weights} was learned with other features or actions")
    if period_ns < 1:
        raise ValueError(f"weights: {weights} was learned for a period of {period_ns} ns")
    # the result of training that found nothing better than the first action
    if rows[0][0] >= 0 and not any((*rows[0][1:], *(value for row in rows[1:] for value in row))):
        return Policy("learned", SAFE)
    return Policy("learned", SAFE, controller=Choosing(ACTIONS, rows, period_ns))


POLICY = make()
