"""End-to-end latency and data age of a cause-effect chain from the responses of its stretches.

Davare et al., "Period optimization for hard real-time distributed automotive systems", DAC 2007: where a task samples
its predecessor instead of being triggered by it, the data waits at most one period of the task, then its response time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.planning.schedulability.tasks import Response

Terms = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A data-triggered part of a chain: its period and its last task."""

    period: int
    last: str


def reaction_time(stretches: Sequence[Stretch], responses: Mapping[str, Response]) -> tuple[int, bool, Terms]:
    """Return the time (ns) from a release at the chain's head to the end of the first output that reflects it.

    R of the first stretch, then T + R of every sampling one; also whether it is a bound, and terms that add up to it.
    """
    terms: list[tuple[str, int]] = []
    for index, stretch in enumerate(stretches):
        if index:
            terms.append((f"{stretch.last}: sampling, one period at most", stretch.period))
        terms += path_terms(stretch.last, responses)
    return _sum(stretches, responses, terms)


def data_age(stretches: Sequence[Stretch], responses: Mapping[str, Response]) -> tuple[int, bool, Terms]:
    """Return the age (ns), at the end of an output, of the oldest head release it depends on.

    T + R of every stretch but the last, as its output is read until the next one is available, then R of the last.
    """
    terms: list[tuple[str, int]] = []
    for stretch in stretches[:-1]:
        terms += path_terms(stretch.last, responses)
        terms.append((f"{stretch.last}: read until the next output, one period at most", stretch.period))
    terms += path_terms(stretches[-1].last, responses)
    return _sum(stretches, responses, terms)


def path_terms(name: str, responses: Mapping[str, Response]) -> list[tuple[str, int]]:
    """Return the terms of a task's response, predecessors first; they add up to its value."""
    response = responses[name]
    before = path_terms(response.via, responses) if response.via else []
    return [*before, *((f"{name}: {term}", value) for term, value in response.terms)]


def _sum(
    stretches: Sequence[Stretch], responses: Mapping[str, Response], terms: list[tuple[str, int]]
) -> tuple[int, bool, Terms]:
    bounded = all(responses[stretch.last].bounded for stretch in stretches)
    kept = tuple(term for term in terms if term[1])
    return sum(value for _, value in kept), bounded, kept
