"""The sections of the HTML report, each a function from plan, trace and result to markup."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from socsched.plan.plan import Plan, Violation
from socsched.report import charts, diagram, facts
from socsched.report import gantt as gantt_chart
from socsched.report.svg import element, table
from socsched.trace.trace import Trace
from socsched.units import format_bandwidth, format_duration, format_power

Result = Mapping[str, Any]
HOW_TO_READ = (
    "A click on a slice shows its frame on every engine. Odd frames are paler; a late one has a dashed edge and ✗."
)


def _mark(good: bool, text: str) -> str:
    return element("span", ("✓ " if good else "✗ ") + escape(text), class_="ok" if good else "bad")


def _firm(text: str) -> str:
    """Return text that is not to be broken over lines."""
    return element("span", escape(text), class_="firm")


def verdict(plan: Plan, trace: Trace, result: Result) -> str:
    """Return the headline: planned verdict and what came of it."""
    missed, released = facts.totals(result)
    good = plan.verdict == "feasible" and missed == 0
    did = "simulated" if trace.kind == "simulated" else "measured"
    words = {
        "feasible": "The plan meets every requirement",
        "infeasible": "The plan violates a requirement",
        "undecided": "No verdict within the time limit",
    }[plan.verdict]
    outcome = f"all {released} {did} frames met their deadline"
    if missed:
        outcome = f"{missed} of {released} {did} frames were late or dropped"
    joint = ", but" if (plan.verdict == "feasible") != (missed == 0) else ";"
    head = element("strong", _mark(good, f"{words}{joint} {outcome}."))
    lines = "".join(element("li", escape(line)) for line in facts.chain_lines(plan, result))
    where = f"{plan.pipeline} on {plan.platform}, mode {plan.mode}, policy {plan.policy}"
    lead = f"{where}; {did} for {format_duration(trace.duration_ns)}."
    return element(
        "div",
        head + element("div", escape(lead), class_="lead") + element("ul", lines),
        class_=f"verdict {'good' if good else 'no'}",
    )


def tiles(plan: Plan, trace: Trace, result: Result) -> str:
    """Return the key figures as tiles."""
    cells = "".join(
        element("div", element("b", escape(value)) + element("span", escape(name)), class_="tile")
        for name, value in facts.key_figures(plan, trace, result)
    )
    return element("div", cells, class_="tiles")


def violations(plan: Plan) -> str:
    """Return every unmet requirement with the terms that add up to its demand and the levers that would close it."""
    if not plan.violations:
        return ""
    return element("h2", "Unmet requirements") + "".join(_violation(v, not i) for i, v in enumerate(plan.violations))


def _violation(item: Violation, unfolded: bool) -> str:
    show = facts.formatter(item.unit)
    head = f"{item.requirement}: {show(item.demand)} demanded, {show(item.bound)} allowed, {show(item.gap)} too much"
    rows = [[escape(name), show(value)] for name, value in item.terms]
    rows.append([element("strong", "sum"), element("strong", show(sum(value for _, value in item.terms)))])
    levers = "".join(element("li", escape(lever)) for lever in item.levers)
    body = table(["term", "demand"], rows, [1])
    if levers:
        body += element("p", "What would close the gap:") + element("ul", levers)
    summary = element("summary", "✗ " + escape(head), class_="bad")
    return element("details", summary + body, open="open" if unfolded else None)


def mapping(plan: Plan) -> str:
    """Return the mapping diagram and the stage table."""
    rows = [
        [
            escape(task.name),
            escape(task.engine),
            escape(task.precision),
            _firm(facts.lanes(plan, task)),
            format_duration(task.cost_ns),
            format_duration(task.wcet_ns),
            _firm(facts.evidence(task)),
            escape(task.why),
        ]
        for task in plan.tasks
    ]
    header = ["stage", "engine", "precision", "lanes", "alone", "under contention", "evidence", "why there"]
    return (
        element("h2", "Where each stage runs, and why")
        + diagram.mapping(plan)
        + table(header, rows, [4, 5])
        + _transitions(plan)
    )


def _transitions(plan: Plan) -> str:
    rows = [
        [
            escape(f"{t.source} → {t.sink}"),
            escape(f"{t.layout_from} {t.dtype_from}"),
            escape(f"{t.layout_to} {t.dtype_to}"),
            facts.size(t.bytes),
            escape(t.engine),
            format_duration(t.cost_ns),
        ]
        for t in plan.transitions
    ]
    if not rows:
        return ""
    listing = table(["hand-over", "from", "to", "size", "converted by", "costs"], rows, [3, 5])
    return element("details", element("summary", f"{len(rows)} hand-overs between engines and formats") + listing)


def timeline(plan: Plan, trace: Trace) -> str:
    """Return the Gantt charts of one hyperperiod and of the window around the worst frame."""
    usual = gantt_chart.steady_window(plan, trace)
    length, hyper = usual[1] - usual[0], gantt_chart.hyperperiod_ns(plan)
    title = f"One hyperperiod ({format_duration(length)})"
    if length != hyper:
        title = f"{format_duration(length)} of steady state (the hyperperiod is {format_duration(hyper)})"
    parts = [
        element("h2", "Timeline"),
        element("p", HOW_TO_READ, class_="dim"),
        element("h3", escape(title)),
        gantt_chart.gantt(plan, trace, usual, title),
    ]
    worst = facts.worst_window(plan, trace)
    if worst:
        name, frame, response, window = worst
        parts.append(element("h3", escape(f"Worst frame: {name} frame {frame}, {format_duration(response)}")))
        parts.append(gantt_chart.gantt(plan, trace, window, "Worst frame"))
    return "".join(parts)


def chains(plan: Plan, trace: Trace, result: Result) -> str:
    """Return the chain table and each chain's response-time distribution."""
    rows, figures = [], []
    for chain in plan.chains:
        entry = result.get("chains", {}).get(chain.name, {})
        times = entry.get("response_time_ns", {})
        good = not entry.get("missed") and not entry.get("dropped")
        rows.append(
            [
                escape(chain.name),
                format_duration(chain.deadline_ns),
                format_duration(chain.expected_ns),
                format_duration(chain.bound_ns) if chain.bound_ns is not None else "none",
                *(facts.duration(times.get(key)) for key in ("p50", "p99", "max")),
                facts.duration(entry.get("data_age_ns", {}).get("max")),
                _mark(
                    good,
                    f"{entry.get('missed', 0)} late, {entry.get('dropped', 0)} dropped of {entry.get('released', 0)}",
                ),
            ]
        )
        samples = facts.responses(plan, trace, chain)
        if samples:
            figures.append(
                element("h3", escape(chain.name))
                + charts.distribution(samples, chain.deadline_ns, chain.bound_ns, chain.name)
            )
            figures.append(_bound_terms(chain.terms))
    header = ["chain", "deadline", "expected", "bound", "p50", "p99", "max", "oldest data", "outcome"]
    return (
        element("h2", "Chains: response times against deadlines") + table(header, rows, range(1, 8)) + "".join(figures)
    )


def _bound_terms(terms: tuple[tuple[str, int], ...]) -> str:
    if not terms:
        return ""
    rows = [[escape(name), format_duration(value)] for name, value in terms]
    return element("details", element("summary", "What the bound is made of") + table(["term", "time"], rows, [1]))


def measured(plan: Plan, trace: Trace, result: Result) -> str:
    """Return planned against measured times of every stage; nothing for a simulation."""
    if trace.kind != "measured":
        return ""
    rows = [
        [
            escape(row.stage),
            format_duration(row.predicted_ns),
            escape(row.evidence),
            *(facts.duration(value) for value in (row.p50_ns, row.p99_ns, row.max_ns)),
            f"{row.ratio:.2f}" if row.ratio else "–",
        ]
        for row in facts.predicted_against_measured(plan, result)
    ]
    header = ["stage", "predicted", "evidence", "measured p50", "p99", "max", "measured / predicted"]
    return element("h2", "Predicted against measured") + table(header, rows, [1, 3, 4, 5, 6])


def power(plan: Plan, trace: Trace, result: Result) -> str:
    """Return power over time against the cap, and utilisation and energy per engine."""
    rows = [
        [
            escape(name),
            f"{entry.get('utilization', 0):.1%}",
            facts.duration(entry.get("busy_ns")),
            facts.energy(entry.get("energy_mj")),
        ]
        for name, entry in result.get("engines", {}).items()
    ]
    steps = trace.counters.get("power_mw", [])
    cap = plan.power.get("cap_mw")
    chart = charts.power(steps, trace.duration_ns, cap, "Power over time") if steps else ""
    budget = f"Planned {format_power(plan.power.get('expected_mw') or 0)}"
    budget += f" of {format_power(cap)} allowed" if cap else ", no cap stated for this mode"
    planned, most = plan.bandwidth.get("expected_gbps"), plan.bandwidth.get("cap_gbps")
    if planned is not None:
        budget += f"; DRAM traffic {format_bandwidth(planned * 1e9)} of {format_bandwidth((most or 0) * 1e9)}"
    return (
        element("h2", "Power, bandwidth, utilisation")
        + element("p", escape(budget + "."))
        + chart
        + table(["engine", "busy", "busy time", "energy"], rows, [1, 2, 3])
    )


def evidence(plan: Plan) -> str:
    """Return how much of the planned time rests on measured, published, derived and assumed figures."""
    shares = facts.provenance_shares(plan)
    rows = [
        [escape(t.name), escape(t.provenance), f"±{t.error:.0%}" if t.error else "not stated", escape(t.source)]
        for t in plan.tasks
    ]
    listing = table(["stage", "kind", "error", "source"], rows)
    return (
        element("h2", "What the numbers rest on")
        + element("p", "Share of the time on the critical paths of the chains, by kind of evidence.", class_="dim")
        + charts.shares(shares, "Evidence: " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items()))
        + element("details", element("summary", "Source of every stage time") + listing)
    )
