"""An order learned by policy gradient and masked by slack: linear softmax, with weights from `socsched study learn`.

Ours, after reinforcement learning schedulers that mask actions (Decima, SIGCOMM 2019, what cannot run; here what might
cost a deadline).  Every `period` it chooses one of `ACTIONS`: an order, and the clock.  All but the first one are
masked unless `guard` finds slack for the time to the next look, so deadlines of hard and firm tasks (of all where none
is soft) are lost no more than under that one.  Without `weights` the first one is all it does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from socsched.plan.plan import Plan
from socsched.sim.policies.control import View
from socsched.sim.policies.guard import Guard
from socsched.sim.policies.terms import Policy, Ready, Term

SAFE = (Term.BEST_EFFORT, Term.DEADLINE)
ACTIONS: tuple[tuple[tuple[Term, Term], bool], ...] = (
    (SAFE, False),
    ((Term.DEADLINE, Term.ACTIVATION), False),
    ((Term.REMAINING, Term.ACTIVATION), False),
    (SAFE, True),
)
"""Order of service, and whether at the next slower operating point; the first is always allowed."""
FEATURES = (
    "one", "busy", "slack", "ready", "best_effort_ready", "least_laxity", "least_laxity_best_effort", "lateness",
    "work", "best_effort_work",
)  # fmt: skip


def kept(plan: Plan, tasks: Sequence[int]) -> tuple[int, ...]:
    """Return the tasks whose deadlines are guarded: all that are not soft, or all."""
    firm = tuple(number for number in tasks if plan.tasks[number].criticality != "soft")
    return firm or tuple(tasks)


@dataclass(frozen=True, slots=True)
class Sight:
    """What is decided by: numbers about 0 to 1 by `FEATURES`, and which actions are allowed."""

    features: tuple[float, ...]
    mask: tuple[bool, ...]


class Watcher:
    """Makes a `Sight` of a unit; `period_ns` is how long an action holds."""

    def __init__(self, period_ns: int) -> None:
        self.period_ns = period_ns
        self._guard: Guard | None = None

    def see(self, view: View, now_ns: int) -> Sight:
        """Return what is seen now."""
        if self._guard is None:
            self._guard = Guard(view.plan, view.tasks, kept(view.plan, view.tasks))
        slack = self._guard.slack_ns(view, now_ns, 10 * self.period_ns)
        free = slack > self.period_ns + 1
        slower = len(next(e for e in view.plan.engines if e.id == view.engine).levels) > 1
        mask = tuple(place == 0 or (free and (slower or not slow)) for place, (_, slow) in enumerate(ACTIONS))
        jobs = view.ready()
        soft = [job for job in jobs if job.task.criticality == "soft"]
        firm = [job for job in jobs if job.task.criticality != "soft"]
        scale = 10 * self.period_ns
        late = sum(max(now_ns - job.deadline_ns, 0) for job in jobs)
        features = (
            1.0, view.busy, _part(slack, scale), _part(len(jobs), 8), _part(len(soft), 8), _laxity(firm, now_ns, scale),
            _laxity(soft, now_ns, scale), _part(late, scale), _part(sum(job.remaining_ns for job in firm), scale),
            _part(sum(job.remaining_ns for job in soft), scale),
        )  # fmt: skip
        return Sight(features, mask)


def _part(value: float, whole: float) -> float:
    return min(value / whole, 2.0)


def _laxity(jobs: Sequence[Ready], now_ns: int, scale: int) -> float:
    least = min((job.deadline_ns - now_ns - job.remaining_ns for job in jobs), default=2 * scale)
    return max(-2.0, min(least / scale, 2.0))


def scores(weights: Sequence[Sequence[float]], features: Sequence[float]) -> list[float]:
    """Return the score of every action."""
    return [sum(w * x for w, x in zip(row, features, strict=True)) for row in weights]


class Learned:
    """The controller of one unit: the allowed action of the highest score."""

    def __init__(self, weights: Sequence[Sequence[float]], period_ns: int) -> None:
        self.weights, self.period_ns = weights, period_ns
        self._watcher = Watcher(period_ns)

    def look(self, view: View, now_ns: int) -> tuple[tuple[Term, Term], int | None]:
        """Return the order until the next look, and the operating point."""
        sight = self._watcher.see(view, now_ns)
        found = scores(self.weights, sight.features)
        return act(view, max((i for i, allowed in enumerate(sight.mask) if allowed), key=lambda i: (found[i], -i)))


def act(view: View, action: int) -> tuple[tuple[Term, Term], int | None]:
    """Return what an action means on a unit."""
    order, slow = ACTIONS[action]
    points = len(next(e for e in view.plan.engines if e.id == view.engine).levels)
    return order, max(points - 2, 0) if slow and points else points - 1 if points else None


def make(*, weights: str = "", period_ns: int = 1_000_000) -> Policy:
    """Return the policy with the weights of a file; ValueError where they are none."""
    rows: list[list[float]] = [[0.0] * len(FEATURES) for _ in ACTIONS]
    if weights:
        try:
            data = json.loads(Path(weights).read_text(encoding="utf-8"))
            rows = [[float(value) for value in row] for row in data["weights"]]
            period_ns = int(data["period_ns"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"weights: {weights} is no file of `socsched study learn`: {error}") from None
        if data.get("features") != list(FEATURES) or len(rows) != len(ACTIONS):
            raise ValueError(f"weights: {weights} was learned with other features or actions")

    def control() -> Learned:
        return Learned(rows, period_ns)

    return Policy("learned", SAFE, dynamic=True, control=control)


POLICY = make()
