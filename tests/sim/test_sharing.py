"""Bandwidth sharing against exact rational arithmetic: completion times for any overlap of memory-bound jobs."""

from __future__ import annotations

from fractions import Fraction

from builders import engine, plan, task
from hypothesis import given
from hypothesis import strategies as st

from socsched.cost.contention import demand, fair_shares, stretch
from socsched.cost.cost import Segment
from socsched.sim.simulate import simulate

CAPACITY = 10**9
Row = tuple[int, int, int, int]

jobs = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 200), st.integers(0, 50), st.integers(1, 500)), min_size=1, max_size=5
)


def exact_finishes(rows: list[Row]) -> list[Fraction]:
    """Return when each (start, time, fixed, bytes) job ends if time were continuous."""
    segments = [Segment("x", time + fixed, fixed, size) for _, time, fixed, size in rows]
    left = [Fraction(1)] * len(rows)
    ends: list[Fraction | None] = [None] * len(rows)
    now = Fraction(0)
    while None in ends:
        active = [i for i, row in enumerate(rows) if row[0] <= now and ends[i] is None]
        shares = fair_shares([demand(segments[i]) for i in active], CAPACITY)
        pace = {i: stretch(segments[i], share) for i, share in zip(active, shares, strict=True)}
        events = [Fraction(row[0]) for row in rows if row[0] > now] + [now + left[i] * pace[i] for i in active]
        following = min(events)
        for i in active:
            left[i] -= (following - now) / pace[i]
            if left[i] == 0:
                ends[i] = following
        now = following
    return [end for end in ends if end is not None]


@given(jobs)
def test_one_overlap_ends_when_it_must(rows: list[Row]) -> None:
    """Ends are exact rounded up; each one rounded up delays, by under 1 ns, when the share of the others grows."""
    tasks = [
        task(
            f"t{i}",
            segments=(Segment("x", time + fixed, fixed, size),),
            offset_ns=start,
            period_ns=10**6,
            lanes=(i,),
        )
        for i, (start, time, fixed, size) in enumerate(rows)
    ]
    trace = simulate(plan(tasks, [engine(lanes=5)], dram_bandwidth=CAPACITY), 10**6)
    found = {job.task: job.finish_ns for job in trace.jobs}
    for i, end in enumerate(exact_finishes(rows)):
        assert end <= found[f"t{i}"] < end + len(rows), (i, end)
