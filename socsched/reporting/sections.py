"""The sections of the HTML report, each a function from plan, trace and result to markup."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from socsched.planning.plan import ChainResult, Plan, Violation
from socsched.planning.search_report import IMPORTED
from socsched.reporting import charts, diagram, front, roofplot, view_model
from socsched.reporting.background import Background
from socsched.reporting.gantt_data import colours
from socsched.reporting.svg import element, table
from socsched.trace.metrics import frame_fates
from socsched.trace.trace import Trace
from socsched.units import format_duration

Result = Mapping[str, Any]


def _mark(good: bool, text: str) -> str:
    return element("span", ("✓ " if good else "✗ ") + escape(text), class_="ok" if good else "bad")


def _firm(text: str) -> str:
    """Return text that must not wrap."""
    return element("span", escape(text), class_="firm")


def verdict(plan: Plan, result: Result) -> str:
    """Return the headline: planned verdict and outcome."""
    seen = view_model.totals(result)
    recorded = plan.solver.name == IMPORTED
    good = (plan.verdict == "feasible" or recorded) and seen.met
    kind = "measured" if result.get("kind") == "measured" else "simulated"
    words = {
        "feasible": "The plan meets every requirement",
        "infeasible": "No plan meets every requirement",
        "undecided": "Neither a plan that meets every requirement nor a proof that there is none was found",
    }[plan.verdict]
    if recorded:
        words = "A recording, neither planned nor proved"
    outcome = f"{kind}: {seen.told()}"
    joint = ", but" if (plan.verdict == "feasible" or recorded) != seen.met else ";"
    head = element("strong", _mark(good, f"{words}{joint} {outcome}."))
    lines = "".join(element("li", escape(line)) for line in view_model.chain_lines(plan, result))
    where = f"{plan.pipeline} on {plan.platform}, mode {plan.mode}, policy {plan.policy}"
    lead = f"{where}; {kind} for {format_duration(result.get('duration_ns', 0))}."
    return element(
        "div",
        head
        + element("div", escape(lead), class_="lead")
        + element(
            "ul",
            lines
            + "".join(
                element("li", escape(line))
                for line in (
                    *view_model.cut_off(plan),
                    *view_model.conditions(plan),
                    *view_model.proof(plan),
                    *view_model.undecided(plan),
                )
            ),
        ),
        class_=f"verdict {'good' if good else 'no'}",
    )


def tiles(plan: Plan, trace: Trace, result: Result) -> str:
    """Return the key figures as tiles."""
    cells = "".join(
        element("div", element("b", escape(value)) + element("span", escape(name)), class_="tile")
        for name, value in view_model.key_figures(plan, trace, result)
    )
    return element("div", cells, class_="tiles")


def violations(plan: Plan) -> str:
    """Return every unmet requirement with the terms that add up to its demand and the levers that would close it."""
    if not plan.violations:
        return ""
    return element("h2", "Unmet requirements") + "".join(_violation(v, not i) for i, v in enumerate(plan.violations))


def _violation(item: Violation, unfolded: bool) -> str:
    show = view_model.formatter(item.unit)
    head = f"{item.requirement}: demand {show(item.demand)}, bound {show(item.bound)}, gap {show(item.gap)}"
    rows = [[escape(name), show(value)] for name, value in item.terms]
    rows.append([element("strong", "sum"), element("strong", show(sum(value for _, value in item.terms)))])
    levers = "".join(element("li", escape(lever)) for lever in item.levers)
    body = table(["term", "demand"], rows, [1])
    if levers:
        body += element("p", "Levers that close the gap:") + element("ul", levers)
    summary = element("summary", "✗ " + escape(head), class_="bad")
    return element("details", summary + body, open="open" if unfolded else None)


def mapping(plan: Plan) -> str:
    """Return the mapping diagram and the stage table."""
    rows = [
        [
            escape(task.name),
            escape(task.engine),
            escape(task.precision),
            _firm(view_model.lanes(plan, task)),
            format_duration(task.cost_ns),
            format_duration(task.wcet_ns),
            _firm(view_model.evidence(task)),
            escape(task.why),
        ]
        for task in plan.tasks
    ]
    header = ["stage", "engine", "precision", "lanes", "alone", "WCET", "evidence", "reason"]
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
            view_model.size(t.bytes),
            escape(t.engine),
            format_duration(t.cost_ns),
        ]
        for t in plan.transitions
    ]
    if not rows:
        return ""
    listing = table(["transition", "from", "to", "size", "engine", "cost"], rows, [3, 5])
    return element("details", element("summary", f"{len(rows)} transitions between engines and formats") + listing)


def chains(plan: Plan, trace: Trace, result: Result) -> str:
    """Return the chain table, and each chain's response times as distribution and over time."""
    rows, figures = [], []
    for chain in plan.chains:
        entry = result.get("chains", {}).get(chain.name, {})
        times = entry.get("response_time_ns", {})
        aged = f"; {entry['stale']} outputs too old" if entry.get("stale") else ""
        good = not entry.get("missed") and not entry.get("dropped") and not aged
        rows.append(
            [
                escape(chain.name),
                format_duration(chain.deadline_ns),
                format_duration(chain.expected_ns),
                format_duration(chain.bound_ns) if chain.bound_ns is not None else "none",
                *(view_model.duration(times.get(key)) for key in ("p50", "p99", "p99_9", "max")),
                view_model.duration(entry.get("data_age_ns", {}).get("max")),
                _mark(
                    good,
                    f"{entry.get('missed', 0)} late, {entry.get('dropped', 0)} dropped of "
                    f"{entry.get('released', 0)}{aged}",
                ),
            ]
        )
        figures.append(_responses(plan, trace, chain, times.get("p99_9")))
    header = ["chain", "deadline", "expected", "bound", "p50", "p99", "p99.9", "max", "max reduced data age", "outcome"]
    return (
        element("h2", "Chains: response times against deadlines") + table(header, rows, range(1, 9)) + "".join(figures)
    )


def _responses(plan: Plan, trace: Trace, chain: ChainResult, tail_ns: int | None) -> str:
    fates = frame_fates(trace, plan, chain)
    responses = fates.response_ns
    if not len(fates.release_ns):
        return ""
    lost = fates.release_ns[~fates.completed & (fates.missed | fates.dropped)].tolist()
    releases = fates.release_ns[fates.completed]
    left = charts.distribution(responses.tolist(), chain.deadline_ns, chain.bound_ns, tail_ns, chain.name)
    right = charts.draw_responses(releases, responses, chain.deadline_ns, lost, trace.duration_ns, chain.name)
    return (
        element("h3", escape(chain.name))
        + element("div", element("div", left) + element("div", right), class_="pair")
        + _bound_terms(chain.terms)
    )


def _bound_terms(terms: tuple[tuple[str, int], ...]) -> str:
    if not terms:
        return ""
    rows = [[escape(name), format_duration(value)] for name, value in terms]
    return element("details", element("summary", "Terms of the bound") + table(["term", "time"], rows, [1]))


def measured_section(plan: Plan, trace: Trace, result: Result, simulated: Result | None) -> str:
    """Return planned, simulated (if `simulated` is given) and measured times; empty for a simulation."""
    if trace.kind != "measured":
        return ""
    rows, marks = [], []
    simulated_rows = (
        {row.stage: row for row in view_model.predicted_against_measured(plan, simulated)} if simulated else {}
    )
    errors = {task.name: task.error for task in plan.tasks}
    for row in view_model.predicted_against_measured(plan, result):
        rows.append(
            [
                escape(row.stage),
                view_model.duration(row.predicted_p50_ns),
                escape(row.evidence),
                *([view_model.duration(simulated_rows[row.stage].p50_ns)] if simulated else []),
                view_model.duration(row.p50_ns),
                *(view_model.duration(value) for value in (row.predicted_p99_ns, row.p99_ns, row.max_ns)),
                f"{row.ratio:.2f}" if row.ratio else "–",
            ]
        )
        if row.ratio and row.max_ns and row.predicted_p50_ns:
            marks.append((row.stage, row.ratio, row.max_ns / row.predicted_p50_ns, errors[row.stage] or None))
    for chain in plan.chains:
        rows.append(_measured_chain(chain, result, simulated))
    name = "Measured over predicted time of every stage"
    caption = "Dot: median; bar: longest; band: stated error of the prediction; 1×: as predicted."
    drawn = charts.draw_prediction_errors(marks, name) + element("p", caption, class_="dim") if marks else ""
    header = ["stage", "predicted p50", "evidence", *(["simulated p50"] if simulated else [])]
    header += ["measured p50", "predicted p99", "measured p99", "max", "measured / predicted p50"]
    numeric = [1, *range(3, len(header))]
    return element("h2", "Predicted against measured") + drawn + table(header, rows, numeric)


def _measured_chain(chain: ChainResult, result: Result, simulated: Result | None) -> list[str]:
    times = result.get("chains", {}).get(chain.name, {}).get("response_time_ns", {})
    simulated_times = (simulated or {}).get("chains", {}).get(chain.name, {}).get("response_time_ns", {})
    ratio = times["p50"] / chain.expected_ns if times.get("p50") and chain.expected_ns else None
    return [
        element("strong", escape(f"chain {chain.name}")),
        format_duration(chain.expected_ns),
        "expected alone",
        *([view_model.duration(simulated_times.get("p50"))] if simulated else []),
        view_model.duration(times.get("p50")),
        "–",
        *(view_model.duration(times.get(key)) for key in ("p99", "max")),
        f"{ratio:.2f}" if ratio else "–",
    ]


def roofline(plan: Plan, background: Background) -> str:
    """Return the rooflines of the engines in use with their stages, or the reason they are missing."""
    head = element("h2", "Roofline")
    if not background.roofs:
        return head + element("p", escape(background.missing.get("roofline", "No engine states a peak.")), class_="dim")
    caption = (
        "Attainable rates of engines (flat: arithmetic, slope: memory; solid fp32, dashed fp16, dotted int8), and the "
        "rates the plan assumes. The line from a stage leads to its roof. Stages without operations are omitted."
    )
    above = any(point.predicted > point.attainable for point in background.points)
    caption += " Above the roof: Winograd convolutions need fewer multiplications than counted." if above else ""
    drawn = roofplot.rooflines(background.roofs, background.points, colours(plan))
    return head + element("p", caption, class_="dim") + drawn


def modes(plan: Plan, background: Background) -> str:
    """Return the Pareto front over power modes, or the command that creates it."""
    head = element("h2", "Power modes")
    if background.front is None:
        command = element("code", escape(background.missing.get("front", "socsched report DIR --pareto")))
        return head + element("p", f"Other power modes were not planned; to add them: {command}", class_="dim")
    return head + front.front(background.front, plan.mode)


def evidence(plan: Plan) -> str:
    """Return the shares of the planned time based on measured, published, fitted, derived and assumed figures."""
    shares = view_model.provenance_shares(plan)
    rows = [
        [escape(t.name), escape(t.provenance), f"±{t.error:.0%}" if t.error else "not stated", escape(t.source)]
        for t in plan.tasks
    ]
    listing = table(["stage", "kind", "error", "source"], rows)
    return (
        element("h2", "Evidence for the figures")
        + element("p", "Share of the time on the critical paths of the chains, by kind of evidence.", class_="dim")
        + charts.shares(shares, "Evidence: " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items()))
        + element("details", element("summary", "Source of every stage time") + listing)
    )
