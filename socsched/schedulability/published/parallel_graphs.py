"""Tasks that are parallel graphs: alone on processors, or several graphs under a global scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from socsched.descriptor.taskset import Graph, Node, PeriodicTask
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    Row,
    Scope,
    highest_first,
    published,
    responses,
    with_jitter,
)
from socsched.schedulability.published.several_processors import settle
from socsched.schedulability.tasks import Terms


def _graph(task: PeriodicTask) -> Graph:
    """Return the graph of a task; one node for a sequential task."""
    return task.graph or Graph((Node(task.wcet_ns, ""),), ())


def _longest_path(graph: Graph, weights: Sequence[int | Fraction]) -> Fraction:
    best: list[Fraction] = []
    for index in range(len(graph.nodes)):  # edges lead to later positions
        before = (best[a] for a, b in graph.edges if b == index)
        best.append(max(before, default=Fraction(0)) + weights[index])
    return max(best)


def length(task: PeriodicTask) -> int:
    """Return the longest path of a task (ns)."""
    graph = _graph(task)
    return int(_longest_path(graph, [node.wcet_ns for node in graph.nodes]))


def _alone(problem: Problem) -> str:
    return "" if len(problem.tasks) == 1 else "the graph shares the processors with other tasks"


_ALONE = Scope(
    ("edf", "fp", "rm", "dm", "fifo"),
    preemption=("full", "none"),
    processors="any",
    takes=frozenset({"jitter"}),
    needs=frozenset({"graph"}),
)


@published("graph alone (Graham)", "Graham, SIAM J. Appl. Math. 17(2) 1969", _ALONE, also=_alone, rank=21)
def graham(problem: Problem) -> Answer:
    """One graph alone on m processors: R <= L + (V - L) / m; no bound for one that does not end within its period.

    Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on Applied Mathematics 17(2) 1969, whose theorems
    state ratios of makespans; in this form it is used throughout the literature on parallel graphs.
    """
    (task,) = problem.tasks
    path = length(task)
    # Whenever no node of the longest path runs, all m processors run others.
    rest = (task.wcet_ns - path) // problem.processors
    value = task.jitter_ns + path + rest
    terms = with_jitter(task, (("longest path", path), (f"the rest on {problem.processors} processors", rest)))
    return responses([(task, value if value <= task.period_ns else None, terms)])


@published(
    "typed graph alone (Han)",
    "Han et al., IEEE TPDS 2019, theorem 3.1",
    replace(_ALONE, needs=frozenset({"graph", "types"})),
    also=_alone,
    rank=23,
)
def han_typed(problem: Problem) -> Answer:
    """One graph alone, its nodes bound to types of processors: longest path of c (1 - 1/M), and volume / M by type.

    Han, Guan, Sun, He, Deng, Liu, "Response time bounds for typed DAG parallel tasks on heterogeneous multi-cores",
    IEEE TPDS 2019, theorem 3.1.
    """
    (task,) = problem.tasks
    graph, count = _graph(task), dict(problem.taskset.types)
    total = _longest_path(graph, [node.wcet_ns * (1 - Fraction(1, count[node.type])) for node in graph.nodes])
    terms, whole = [("longest path, its nodes less their even share", ceil(total))], ceil(total)
    for kind, number in count.items():
        total += Fraction(sum(node.wcet_ns for node in graph.nodes if node.type == kind), number)
        terms.append((f"volume on {kind}, evenly shared", ceil(total) - whole))
        whole = ceil(total)
    value = task.jitter_ns + whole
    kept = with_jitter(task, tuple(term for term in terms if term[1]))
    return responses([(task, value if value <= task.period_ns else None, kept)])


def _most_executed(task: PeriodicTask, window: int, response: int, m: int) -> Fraction:
    """Return the most a graph executes in a window, its first job spread over all m processors just before its end."""
    shifted = window + response - Fraction(task.wcet_ns, m)
    whole = shifted // task.period_ns
    return whole * task.wcet_ns + min(Fraction(task.wcet_ns), m * (shifted - whole * task.period_ns))


def _respond(
    task: PeriodicTask, others: Sequence[PeriodicTask], known: Mapping[str, int], m: int
) -> tuple[int | None, Terms]:
    path = length(task)
    within = Fraction(task.wcet_ns - path, m)

    def need(window: int) -> int:
        between = sum((_most_executed(other, window, known[other.name], m) for other in others), Fraction(0)) / m
        return path + int(within + between)

    window = settle(need, path + int(within), min(task.deadline_ns, task.period_ns))
    if window is None:
        return None, ()
    terms = (("longest path", path), (f"the rest on {m} processors", int(within)))
    rest = ("other graphs, on all processors", window - path - int(within))
    return window, tuple(term for term in (*terms, rest) if term[1])


@published(
    "global graphs (Melani)",
    "Melani et al., ECRTS 2015",
    Scope(("edf", "fp", "rm", "dm"), processors="any", deadlines="constrained", needs=frozenset({"graph"})),
    rank=22,
)
def melani(problem: Problem) -> Answer:
    """Interference within a graph and between graphs; under EDF of all or none.

    Melani, Bertogna, Bonifaci, Marchetti-Spaccamela, Buttazzo, "Response-time analysis of conditional DAG tasks in
    multiprocessor systems", ECRTS 2015, without conditional branches and, under EDF, without their second,
    deadline-based bound on interference.
    """
    m = problem.processors
    if problem.policy.rule != "edf":
        return responses(highest_first(problem, lambda task, higher, _, known: _respond(task, higher, known, m)))
    known = {task.name: task.deadline_ns for task in problem.tasks}
    while True:
        rows: list[Row] = [(t, *_respond(t, [o for o in problem.tasks if o is not t], known, m)) for t in problem.tasks]
        better = {t.name: min(value, known[t.name]) if value else known[t.name] for t, value, _ in rows}
        if better != known:
            known = better
        elif all(value for _, value, _ in rows):
            return responses(rows)
        else:  # the first miss would have no valid premise
            return responses([(task, None, ()) for task in problem.tasks])
