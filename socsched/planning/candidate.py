"""A mapping, deployed and judged: its verdict, its objective values, and the comparison of two mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from socsched.cost.cost import Cost
from socsched.descriptor.limits import Objective
from socsched.errors import UsageError
from socsched.planning.assess import Assessment, assess
from socsched.planning.clock import THOROUGH, count
from socsched.planning.deployment import Deployment, deploy, outlined, placed
from socsched.planning.expected import expected_latencies
from socsched.planning.mapping.mapper import Beats, Score
from socsched.planning.plan import Task, Violation
from socsched.planning.verdict import Balance, Judgement, balance, overrun, utilisations, verdict, violations
from socsched.planning.workload import Unconnectable, Workload

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_UNBOUNDED = 1e6


def objectives(text: str) -> tuple[Objective, ...]:
    """Return the objectives in a list such as "energy,latency", most important first; UsageError for a bad list."""
    names = tuple(name.strip() for name in text.split(","))
    known = {str(goal): goal for goal in OBJECTIVES}
    for name in names:
        if name not in known:
            raise UsageError(
                f"unknown objective {name!r}", f"one of {', '.join(OBJECTIVES)}, or several: energy,latency"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"objectives {text!r}: one appears twice", "a second objective breaks ties in the first")
    return tuple(known[name] for name in names)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mapping, deployed and judged."""

    deployment: Deployment
    assessment: Assessment
    balance: Balance
    violations: tuple[Violation, ...]

    @property
    def verdict(self) -> Judgement:
        """Return the verdict of the analysis: feasible or undecided; whether none is feasible is no matter of one."""
        return verdict(self.violations, self.assessment)


def judge(workload: Workload, mapping: Mapping[str, Cost], thorough: bool = True) -> Candidate:
    """Deploy a mapping and check every requirement; Unconnectable if no engine can run a needed conversion."""
    return assess_deployment(deploy(workload, mapping), thorough)


def assess_deployment(deployment: Deployment, thorough: bool = True) -> Candidate:
    """Check every requirement of a deployment."""
    count(THOROUGH if thorough else 1)
    assessment = assess(deployment, thorough)
    deployment = replace(deployment, tasks=assessment.tasks)
    sums = balance(deployment)
    return Candidate(deployment, assessment, sums, tuple(violations(deployment, assessment, sums)))


def objective_value(candidate: Candidate, objective: str) -> float:
    """Return the value that an objective minimises.

    latency: sum of expected chain latencies (ns); longest: the longest of them; energy: mean power (mW), since rates
    are given; throughput: highest lane utilisation; slack: share of the tightest chain deadline used by its bound.
    """
    chains = candidate.assessment.chains
    if objective == "energy":
        return float(candidate.balance.power_mw)
    if objective == "throughput":
        return max(utilisations(candidate.assessment.tasks).values(), default=0.0)
    if objective == "slack":
        return max(
            (chain.bound_ns / chain.deadline_ns if chain.bound_ns else _UNBOUNDED for chain in chains), default=0.0
        )
    if objective == "longest":
        return float(max((chain.expected_ns for chain in chains), default=0))
    return float(sum(chain.expected_ns for chain in chains))


def score(candidate: Candidate, goals: Sequence[str]) -> Score:
    """Return the key that orders candidates.

    The excess over lane capacities comes first: otherwise a hopeless stage could hide on an engine without other work.
    Then unbounded chains are counted, not tasks: a mapping is no worse for one more conversion without a bound.
    """
    lost = sum(chain.bound_ns is None for chain in candidate.assessment.chains)
    requirements = overrun(candidate.violations) + _UNBOUNDED * lost
    return _excess(candidate.deployment) + requirements, *(objective_value(candidate, goal) for goal in goals)


def least_score(deployment: Deployment, goals: Sequence[str]) -> Score:
    """Return a lower bound on a deployment's score without any analysis, up to the first objective that needs one."""
    found: list[float] = [_excess(deployment)]
    for goal in goals:
        if goal in ("latency", "longest"):
            found.append(_latency(deployment.workload, deployment.tasks, goal))
        elif goal == "energy":
            found.append(float(balance(deployment).power_mw))
        elif goal == "throughput":
            found.append(max(utilisations(deployment.tasks).values(), default=0.0))
        else:
            break
    return tuple(found)


def _latency(workload: Workload, tasks: Sequence[Task], goal: str) -> float:
    each = expected_latencies(workload.graph, tasks, workload.observed).values()
    return float(sum(each) if goal == "latency" else max(each, default=0))


def _excess(deployment: Deployment) -> float:
    most = max(utilisations(deployment.tasks).values(), default=0.0)
    return float(max(0.0, most - 1.0) * _UNBOUNDED**2)


def better(
    workload: Workload, mapping: Mapping[str, Cost], goals: Sequence[str], best: Score, thorough: bool = False
) -> Candidate | None:
    """Return the candidate of a mapping if it beats `best`; Unconnectable if no engine can run a needed conversion.

    The analysis takes most of the time, by far the most on overloaded lanes; it is skipped if the score cannot win.
    """
    outline = outlined(workload, mapping)
    if goals[0] in ("latency", "longest") and _loses((0.0, _latency(workload, outline.tasks, goals[0])), best):
        return None
    deployment = placed(outline)
    if _loses(least_score(deployment, goals), best):
        return None
    candidate = assess_deployment(deployment, thorough)
    return candidate if score(candidate, goals) < best else None


def _loses(least: Score, best: Score) -> bool:
    """Return whether no score that starts with at least `least` is below `best`."""
    return least >= best[: len(least)] and (len(least) == len(best) or least > best[: len(least)])


def make_improvement_test(workload: Workload, goals: Sequence[str], thorough: bool = False) -> Beats:
    """Return the test that `improve` applies to a mapping of a workload: its score if below the given one."""

    def beats(mapping: Mapping[str, Cost], best: Score) -> Score | None:
        try:
            found = better(workload, mapping, goals, best, thorough)
        except Unconnectable:
            return None
        return score(found, goals) if found else None

    return beats
