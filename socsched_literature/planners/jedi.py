"""Jedi: frames pipelined through engines, with cut points that minimise the time of the slowest stage.

Jeong, Kim, Tan, Lee, Ha, "Deep Learning Inference Parallelization on Heterogeneous Processors With TensorRT" (IEEE
Embedded Systems Letters 14(1) 2022) and Jeong, Kim, Ha, "TensorRT-Based Framework and Optimization Methodology for Deep
Learning Inference on Jetson Boards" (ACM TECS 21(5) 2022), whose tool is Jedi: a network is cut into stages,
consecutive stages go to different processing elements (GPU, DLAs), several frames are in flight, and cut points are
searched for maximum throughput, the reciprocal of the slowest stage.

Reconstructed: the papers search cut points by a heuristic and a genetic algorithm; with at most one stretch per engine,
the best cuts are found exactly here by dynamic programming over (layers done, engines used).  The papers' duplicate
stages that process frames in turn are left out, as a plan runs every frame of a stage in one place.  Among equal
intervals the shorter latency wins.
"""

from __future__ import annotations

from functools import cache

from socsched.errors import UsageError
from socsched.planning.planners import Ask, Option, Planner, Proposal, cut_proposal
from socsched_literature.planners.axonn import select_network
from socsched_literature.planners.line import Line, line_of

Value = tuple[int, int]
"""Interval of frames (the busiest engine's time) and latency (ns)."""


def find_pipeline(line: Line, stages: int) -> tuple[Value, tuple[int, ...]] | None:
    """Return interval, latency and places of the best pipeline of at most `stages` stages, one engine each.

    None if the engines cannot run the network.
    """
    total = len(line)

    def searched(limit: float, by_latency: bool) -> tuple[Value, tuple[int, ...]] | None:
        """Return the pipeline of the shortest interval, or latency, whose stages each take at most `limit`."""

        @cache
        def best(start: int, used: int, before: int) -> tuple[Value, tuple[int, ...]] | None:
            """Return the best mapping of the groups from `start` on, without engines `used`, after place `before`."""
            if start == total:
                return (0, 0), ()
            if bin(used).count("1") == stages:
                return None
            found: tuple[Value, tuple[int, ...]] | None = None
            for place in range(len(line.places)):
                step = (0, 0) if before < 0 else line.change(start - 1, before, place)
                if used >> place & 1 or step is None:
                    continue
                own = line.entry[place][0]
                for end in range(start + 1, total + 1):
                    time = line.time[end - 1][place]
                    if time is None or own + time > limit:
                        break
                    own += time
                    rest = best(end, used | 1 << place, place)
                    if rest is None:
                        continue
                    (interval, latency), way = rest
                    value = max(interval, own), latency + own + step[0]
                    key = 1 if by_latency else 0
                    if found is None or value[key] < found[0][key]:
                        found = value, (*(place for _ in range(start, end)), *way)
            return found

        return best(0, 0, -1)

    # Two passes: find the shortest interval, then the shortest latency among pipelines with that interval.
    first = searched(float("inf"), False)
    return searched(first[0][0], True) if first else None


def propose(ask: Ask) -> Proposal:
    """Pipeline one network over the engines; the other stages are mapped by our search."""
    name = select_network(ask, "jedi", ask.options["stage"])
    line = line_of(ask, name, ask.options["groups"])
    found = find_pipeline(line, ask.options["stages"])
    if found is None:
        raise UsageError(
            f"stage {name!r}: no pipeline of {ask.options['stages']} stages", "allow more with -O stages=N"
        )
    (interval, latency), way = found
    alone = line.cost((line.whole(),) * len(line))
    assert alone is not None
    facts = {"stage": name, "interval_ns": interval, "latency_ns": latency, "alone_ns": alone[0]}
    return cut_proposal(ask, ask.rest(), {name: line.legs(way)}, **facts)


PLANNER = Planner(
    "jedi",
    "frames of one network pipelined through engines for the highest throughput",
    propose,
    "Jeong et al., ACM TECS 2022",
    {
        "stage": Option("", "the network to cut, needed if there are several"),
        "stages": Option(3, "engines at most"),
        "groups": Option(0, "layer groups; 0: every unit of layers"),
    },
)
