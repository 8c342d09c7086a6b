"""HaX-CoNN: layer groups of concurrent networks on shared-memory accelerators, contention in the constraint program.

Dagli, Belviranli, "Shared Memory-contention-aware Concurrent DNN Execution for Diversely Heterogeneous SoCs", PPoPP
2024 (arXiv 2308.05869), sections "layer grouping", "transition characterisation", "shared memory contention" and the
problem formulation: layer groups start once their inputs are available, slow down while they overlap with the traffic
of others, and the end of the last one is minimised (the paper's objective of least latency).  The authors use Z3 and at
most one transition per network in their artefact (`transitions`).  Here `mapping.search` solves the program with
CP-SAT, as for our own planner, and the result is judged by the same contention model as everything else, not PCCS.

One frame of every network starts together, whatever their rates: the paper has no periods.  Stages that are not
networks are mapped by our search.
"""

from __future__ import annotations

from socsched.planning.planners import Ask, Option, Planner, Proposal, cut_proposal
from socsched_literature.mapping.search import solve
from socsched_literature.planners.line import choices_of, line_of, problem_of


def propose(ask: Ask) -> Proposal:
    """Map all networks together; MachineError without OR-Tools."""
    options = ask.options
    lines = [line_of(ask, name, options["groups"]) for name in ask.some_networks("haxconn")]
    bandwidth = round(ask.workload.model.dram) if options["contention"] else 0
    problem = problem_of(lines, bandwidth, transitions=options["transitions"])
    result = solve(problem, "cpsat", min(options["seconds"], ask.seconds))
    places = choices_of(problem, lines, result.schedule.choice)
    facts = {
        "makespan_ns": result.evaluation.makespan_ns,
        "status": result.status,
        "bound_ns": result.bounds["makespan"],
        "latencies_ns": dict(result.evaluation.latencies),
    }
    return cut_proposal(ask, ask.rest(), {line.name: line.legs(places[line.name]) for line in lines}, **facts)


PLANNER = Planner(
    "haxconn",
    "layer groups of concurrent networks, contention for memory in the constraint program",
    propose,
    "Dagli, Belviranli, PPoPP 2024",
    {
        "groups": Option(10, "layer groups a network"),
        "transitions": Option(1, "changes of engine a network may make"),
        "contention": Option(True, "whether memory traffic of co-running networks counts"),
        "seconds": Option(10.0, "time limit of the solver"),
    },
)
