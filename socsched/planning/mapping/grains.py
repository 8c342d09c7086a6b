"""Times and contention losses as the whole numbers that a constraint program counts in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from socsched.cost.contention import demand, fair_shares, stretch
from socsched.cost.cost import Segment
from socsched.planning.mapping.problem import Group, Option, Problem

GRAINS = 100_000
SCALE = 1 << 12
"""Losses are multiples of 1 / SCALE, rounded down."""


def successors(problem: Problem) -> list[set[int]]:
    """Return for every group all groups that follow it."""
    after: list[set[int]] = [set() for _ in problem.groups]
    for index in reversed(problem.order):
        for number in problem.after[index]:
            sink = problem.index[problem.edges[number].sink]
            after[index] |= {sink} | after[sink]
    return after


def losses(first: Option, second: Option, bandwidth: int) -> tuple[int, int]:
    """Return the least loss of two options to each other while they overlap, whatever segments they are in."""
    pairs = [(a, b) for a in first.segments if a.time_ns for b in second.segments if b.time_ns]
    lost = [_lost(a, b, bandwidth) for a, b in pairs]
    return min((a for a, _ in lost), default=0), min((b for _, b in lost), default=0)


def _lost(a: Segment, b: Segment, bandwidth: int) -> tuple[int, int]:
    if not a.bytes or not b.bytes:
        return 0, 0
    shares = fair_shares([demand(a), demand(b)], bandwidth)
    paces = [stretch(segment, share) for segment, share in zip((a, b), shares, strict=True)]
    alone = [stretch(segment, min(demand(segment), bandwidth)) for segment in (a, b)]
    lost = [(pace - least) * SCALE // pace for pace, least in zip(paces, alone, strict=True)]
    return lost[0], lost[1]


def times(problem: Problem) -> list[int]:
    """Return all times that a program has to represent."""
    groups: Sequence[Group] = problem.groups
    times = [option.time_ns for group in groups for option in group.options]
    times += [value for group in groups for value in (group.release_ns, group.period_ns if group.frames > 1 else 0)]
    for edge in problem.edges:
        for hop in (hop for row in edge.hops for hop in row if hop):
            times += [hop.handoff_ns, hop.pickup_ns, hop.time_ns, hop.delay_ns]
    return times


def samplings(problem: Problem) -> list[int]:
    """Return the sampling time of each requirement."""
    return [need.sampling_ns for need in problem.requirements]


def grain(problem: Problem) -> int:
    """Return the time unit (ns) of a program."""
    common = math.gcd(*times(problem), *samplings(problem)) or 1
    fine = max(horizon(problem) // GRAINS, 1)
    return fine if problem.bandwidth else max(common, fine)


def horizon(problem: Problem) -> int:
    """Return a time by which all jobs are done, run one after the other at the worst slowdown."""
    total = 0
    for group in problem.groups:
        slowest = max(_worst(option.segments, problem.bandwidth) for option in group.options)
        total += group.frames * slowest
    for edge in problem.edges:
        hops = [hop for row in edge.hops for hop in row if hop]
        frames = problem.groups[problem.index[edge.source]].frames
        extra = (h.way_ns + _worst(h.segments, problem.bandwidth) for h in hops)
        total += frames * max(extra, default=0)
    return total + max(group.release_ns + (group.frames - 1) * group.period_ns for group in problem.groups)


def _worst(segments: Sequence[Segment], bandwidth: int) -> int:
    return 2 * sum(segment.time_ns for segment in segments) + (
        sum(segment.bytes for segment in segments) * 10**9 // bandwidth if bandwidth else 0
    )
