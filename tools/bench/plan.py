"""Measure the mapping search: whether it is optimal, and how soon, compared with Z3's Optimize in the same run.

    python -m tools.bench.plan [--z3-limit 120] [--proof-limit 120] [--time-limit 60] [--repeat 5]
                               [--only pair,large,scaling,experiments]

pair: GoogleNet and AlexNet on GPU and DLA (tools/literature/haxconn.py), one transition a network at most or any
number, without and with contention.  large: networks of random groups, three engines, contention.  scaling: up to 20
networks of 30 groups on four engines.  experiments: the artefact's pairs of networks.  Z3 (z3-solver)
serves only as a comparison; it runs in a separate process, which is killed at the limit.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from socsched.cost.contention import demand, fair_shares, stretch
from socsched.cost.cost import Segment
from socsched.planning.mapping.problem import FREE, Edge, Group, Hop, Lanes, Option, Problem, alone_ns
from socsched_literature.mapping.evaluate import evaluate
from socsched_literature.mapping.lists import list_schedule
from socsched_literature.mapping.search import TOLERANCE, Result, solve
from tools.literature.haxconn import FOLDER, Artefact

UNIT = 10_000
"""ns; the artefact gives times to the hundredth of a ms."""


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--z3-limit", type=float, default=120.0, help="seconds for each problem")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each problem")
    parser.add_argument("--proof-limit", type=float, default=120.0, help="seconds for each problem of `large`")
    parser.add_argument("--only", default="pair,large,scaling,experiments")
    parser.add_argument("--repeat", type=int, default=5, help="runs of short problems, whose median counts")
    options = parser.parse_args()
    load = os.getloadavg()
    print(f"{os.cpu_count()} cores, load {load[0]:.1f} {load[1]:.1f} {load[2]:.1f}; optimal: within {TOLERANCE:.2%}")
    for name in options.only.split(","):
        {"pair": pair, "large": large, "scaling": scaling, "experiments": experiments}[name](options)


def random_problem(seed: int, networks: int, groups: int, engines: int, bandwidth_gbps: float) -> Problem:
    """Return networks of random groups on one fast engine and several alike that are 1.6 to 2.8 times slower.

    Times as in the artefact: groups 0.08 to 0.6 ms, hand-overs 0.01 to 0.08 ms, taken by the engine that picks up.
    """
    rng, names = Random(seed), ["gpu", *(f"dla{i}" for i in range(engines - 1))]
    made: list[Group] = []
    edges: list[Edge] = []
    for network in range(networks):
        for position in range(groups):
            time_, ratio, draw = rng.randint(8, 60), rng.uniform(1.6, 2.8), rng.randint(15, 70)
            options = []
            for index, name in enumerate(names):
                units = time_ if index == 0 else round(time_ * ratio)
                gbps = draw if index == 0 else max(5, round(draw / ratio * rng.uniform(0.9, 1.3)))
                options.append(Option(name, (Segment("run", units * UNIT, 0, gbps * units * UNIT),)))
            made.append(Group(f"n{network}.{position}", tuple(options), f"n{network}"))
            if position:
                hop = Hop(pickup_ns=rng.randint(1, 8) * UNIT)
                rows = tuple(tuple(FREE if a == b else hop for b in names) for a in names)
                edges.append(Edge(made[-2].name, made[-1].name, rows))
    return Problem(
        tuple(Lanes(name) for name in names), tuple(made), tuple(edges), bandwidth=round(bandwidth_gbps * 1e9)
    )


def one_cut(problem: Problem) -> list[Problem]:
    """Return the problem with each network cut at most once, as one problem a combination of first and last engines.

    With two engines a network that starts on a and ends on b has switched once if no group goes back: hops from b to a
    are taken away.
    """
    found = [problem]
    for network in dict.fromkeys(group.network for group in problem.groups):
        found = [_one_way(p, network, way) for p in found for way in range(2)]
    return found


def _one_way(problem: Problem, network: str, way: int) -> Problem:
    edges = []
    for edge in problem.edges:
        if problem.groups[problem.index[edge.source]].network == network:
            hops = [list(row) for row in edge.hops]
            hops[way][1 - way] = None  # type: ignore[call-overload]
            edge = replace(edge, hops=tuple(map(tuple, hops)))
        edges.append(edge)
    return replace(problem, edges=tuple(edges))


# -- the peer


def z3_optimize(problem: Problem, single: bool, limit: float, result: Any) -> None:
    """Minimise the makespan with Z3's Optimize after HaX-CoNN's formulation; sends (status, makespan ns, seconds).

    Starts are reals, an engine a group's choice; consecutive groups wait for each other and pay the transition;
    groups  on one engine exclude each other.  Contention by overlap, as in the paper: in the artefact's script a
    group is slowed by its own traffic whether or not anybody else runs.
    """
    import z3

    started = time.monotonic()
    optimizer = z3.Optimize()
    optimizer.set("timeout", int(limit * 1000))
    count = len(problem.engines)
    engine = {e.id: i for i, e in enumerate(problem.engines)}
    on = [[z3.Bool(f"x{g}_{e}") for e in range(count)] for g in range(len(problem.groups))]
    start = [z3.Real(f"s{g}") for g in range(len(problem.groups))]
    length = [z3.Real(f"d{g}") for g in range(len(problem.groups))]
    alone: list[Any] = []
    for g, group in enumerate(problem.groups):
        optimizer.add(z3.PbEq([(x, 1) for x in on[g]], 1), start[g] >= 0)
        times = {engine[o.engine]: alone_ns(o, problem.bandwidth) / UNIT for o in group.options}
        work = z3.Sum([z3.If(on[g][e], z3.RealVal(str(t)), 0) for e, t in times.items()])
        for number in problem.before[g]:
            edge = problem.edges[number]
            source = problem.index[edge.source]
            for a in range(count):
                for b in range(count):
                    hop = edge.hops[a][b]
                    if hop and (hop.pickup_ns or hop.delay_ns):
                        both = z3.And(on[source][a], on[g][b])
                        work = work + z3.If(both, z3.RealVal(str(hop.pickup_ns / UNIT)), 0)
                        if hop.delay_ns:
                            optimizer.add(
                                z3.Implies(both, start[g] >= start[source] + length[source] + hop.delay_ns / UNIT)
                            )
            optimizer.add(start[g] >= start[source] + length[source])
        alone.append(work)
    slowed: list[dict[int, list[Any]]] = [{} for _ in problem.groups]
    for i, left in enumerate(problem.groups):
        for j in range(i + 1, len(problem.groups)):
            right = problem.groups[j]
            if left.network == right.network:
                continue
            apart = z3.Or(start[i] + length[i] <= start[j], start[j] + length[j] <= start[i])
            for e in range(count):
                optimizer.add(z3.Or(z3.Not(on[i][e]), z3.Not(on[j][e]), apart))
            if problem.bandwidth:
                _contention(z3, optimizer, problem, (i, j), on, start, length, slowed)
    for g, parts in enumerate(slowed):
        if not parts:
            optimizer.add(length[g] == alone[g])
        for losses in parts.values():
            optimizer.add(length[g] >= alone[g] + z3.Sum(losses))
    if single:
        for edge in problem.edges:
            _keep_side(z3, optimizer, problem, edge, on)
    top = z3.Real("top")
    for g in range(len(problem.groups)):
        if not problem.after[g]:
            optimizer.add(top >= start[g] + length[g])
    optimizer.minimize(top)
    status = str(optimizer.check())
    value = None
    if status == "sat":
        number = optimizer.model()[top]
        value = round(float(number.numerator_as_long()) / float(number.denominator_as_long()) * UNIT)
    result.put((status, value, time.monotonic() - started))


def _contention(
    z3: Any,
    optimizer: Any,
    problem: Problem,
    pair: tuple[int, int],
    on: Sequence[Sequence[Any]],
    start: Sequence[Any],
    length: Sequence[Any],
    slowed: list[dict[int, list[Any]]],
) -> None:
    i, j = pair
    overlap = z3.Real(f"o{i}_{j}")
    ends = (start[i] + length[i], start[j] + length[j])
    optimizer.add(overlap >= 0)
    low = z3.If(ends[0] <= ends[1], ends[0], ends[1])
    high = z3.If(start[i] >= start[j], start[i], start[j])
    optimizer.add(overlap >= low - high)
    for a, first in enumerate(problem.groups[i].options):
        for b, second in enumerate(problem.groups[j].options):
            if first.engine == second.engine:
                continue
            lost = _losses(first.segments[0], second.segments[0], problem.bandwidth)
            both = z3.And(on[i][a], on[j][b])
            for group, other, share in ((i, b, lost[0]), (j, a, lost[1])):
                if share:
                    slowed[group].setdefault(other, []).append(z3.If(both, overlap * z3.RealVal(str(share)), 0))


def _losses(a: Segment, b: Segment, bandwidth: int) -> list[float]:
    shares = fair_shares([demand(a), demand(b)], bandwidth)
    paces = [stretch(s, share) for s, share in zip((a, b), shares, strict=True)]
    least = [stretch(s, min(demand(s), bandwidth)) for s in (a, b)]
    return [round(1 - own / pace, 6) for own, pace in zip(least, paces, strict=True)]


def _keep_side(z3: Any, optimizer: Any, problem: Problem, edge: Edge, on: Sequence[Sequence[Any]]) -> None:
    """Once a network has changed its engine, it stays there."""
    source, sink = problem.index[edge.source], problem.index[edge.sink]
    switched, following = on[source][0] != on[sink][0], []
    while problem.after[sink]:
        sink = problem.index[problem.edges[problem.after[sink][0]].sink]
        following.append(on[sink][0] == on[problem.index[edge.sink]][0])
    optimizer.add(z3.Implies(switched, z3.And(following)))


def peer(problem: Problem, single: bool, limit: float) -> tuple[str, int | None, float]:
    """Run Z3 in a process of its own, ended at the limit."""
    context = mp.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=z3_optimize, args=(problem, single, limit, queue))
    started = time.monotonic()
    process.start()
    process.join(limit + 5)
    if process.is_alive():
        process.terminate()
        process.join()
        return "time", None, time.monotonic() - started
    return queue.get() if not queue.empty() else ("unknown", None, time.monotonic() - started)


# -- the parts


def pair(options: argparse.Namespace) -> None:
    """Compare on GoogleNet and AlexNet."""
    artefact = Artefact(FOLDER)
    networks = {"googlenet": artefact.googlenet(), "alexnet": artefact.alexnet()}
    print("\nGoogleNet (10 groups) and AlexNet (8) on GPU and DLA")
    print(f"{'problem':<26}{'Z3 ms':>9}{'Z3 s':>9}{'ours ms':>10}{'ours s':>9}  status")
    for contention in (False, True):
        problem = artefact.problem(networks, contention, UNIT)
        for single in (True, False):
            status, value, seconds = peer(problem, single, options.z3_limit)
            problems = one_cut(problem) if single else [problem]
            walls, best = [], None
            for _ in range(options.repeat):
                begun = time.monotonic()
                found = [solve(p, "auto", options.time_limit) for p in problems]
                walls.append(time.monotonic() - begun)
                best = min(found, key=lambda r: r.evaluation.makespan_ns)
            assert best is not None
            name = f"{'one cut' if single else 'any cuts'}, {'contention' if contention else 'no contention'}"
            shown = "-" if value is None else f"{value / 1e6:.4f}"
            proved = "optimal" if all(r.status == "optimal" for r in found) else "feasible"
            ours = f"{best.evaluation.makespan_ns / 1e6:>10.4f}{statistics.median(walls):>9.3f}"
            print(f"{name:<26}{shown:>9}{seconds:>9.3f}{ours}  Z3 {status}, ours {proved}", flush=True)


def large(options: argparse.Namespace) -> None:
    """Compare on 4 networks of 20 groups on 3 engines with contention."""
    print("\n4 networks x 20 groups x 3 engines, contention")
    print(f"{'GB/s':<6}{'seed':>5}{'Z3':>14}{'Z3 s':>8}{'bound ms':>10}{'ours ms':>10}{'gap':>8}{'s':>8}  status")
    for bandwidth in (137, 120):
        for seed in range(3):
            problem = random_problem(seed, 4, 20, 3, bandwidth)
            begun = time.process_time()
            result = solve(problem, "auto", options.proof_limit)
            spent = time.process_time() - begun
            status, value, seconds = peer(problem, False, options.z3_limit) if seed < 2 else ("not run", None, 0.0)
            shown = status if value is None else f"{value / 1e6:.4f}"
            line = f"{_line(result)}, {spent:.1f} s of a core"
            print(f"{bandwidth:<6}{seed:>5}{shown:>14}{seconds:>8.1f}{line}", flush=True)


def _line(result: Result) -> str:
    value, bound = result.evaluation.makespan_ns, result.bounds["makespan"]
    found = f"{result.status} ({result.solver})"
    return f"{bound / 1e6:>10.4f}{value / 1e6:>10.4f}{result.gap:>8.2%}{result.seconds:>8.2f}  {found}"


def scaling(options: argparse.Namespace) -> None:
    """Print bounds and gaps of growing problems."""
    print("\nScaling (contention, 50 GB/s an engine)")
    print(f"{'problem':<14}{'list ms':>9}{'in ms':>8}{'bound ms':>10}{'ours ms':>10}{'gap':>8}{'s':>8}  status")
    for networks, groups, engines in ((2, 10, 2), (4, 20, 3), (8, 20, 3), (10, 30, 4), (20, 30, 4)):
        for bandwidth in (50 * engines, 25 * engines):
            problem = random_problem(0, networks, groups, engines, bandwidth)
            walls = []
            for _ in range(options.repeat):
                begun = time.perf_counter()
                first = list_schedule(problem)
                walls.append((time.perf_counter() - begun) * 1e3)
            listed = f"{evaluate(problem, first).makespan_ns / 1e6:>9.2f}{statistics.median(walls):>8.1f}"
            result = solve(problem, "auto", options.time_limit)
            name = f"{networks}x{groups}x{engines} {bandwidth}"
            print(f"{name:<14}{listed}{_line(result)}", flush=True)


def experiments(options: argparse.Namespace) -> None:
    """Plan the networks of the artefact's experiments, as layer groups that may change engines."""
    artefact = Artefact(FOLDER)
    for experiment in artefact.experiments:
        found = artefact.networks(experiment)
        result = solve(artefact.problem(found), "auto", options.time_limit)
        print(
            f"\nexperiment {experiment['id']}, {' + '.join(found)}: {result.evaluation.makespan_ns / 1e6:.2f} ms "
            f"({result.status}, {result.seconds:.2f} s)"
        )


if __name__ == "__main__":
    main()
