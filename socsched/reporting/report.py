"""The report as one self-contained HTML page, computed from plans, traces and results alone."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.cost.roofs import Point, Roof
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.platform import Supply
from socsched.errors import SocschedError
from socsched.planning.plan import IMPORTED, ChainResult, Plan, Violation
from socsched.reporting import charts, diagram, roofplot, timeline, view_model
from socsched.reporting import pareto as front
from socsched.reporting.markup import element, table
from socsched.reporting.pareto import read_front
from socsched.reporting.timeline import ROOM, colours
from socsched.trace.columns import CLOCK
from socsched.trace.io import FILES, MADE
from socsched.trace.metrics import frame_fates
from socsched.trace.trace import Trace
from socsched.units import format_bandwidth, format_duration, format_power

if TYPE_CHECKING:
    from socsched.trace.columns import Columns


_HINT = "simulate or run again with -o, into this folder"
PARETO = "pareto.json"
"""Output of `socsched plan --pareto -o FILE.json`; if present in a result folder, it becomes part of the report."""


@dataclass(frozen=True, slots=True)
class Background:
    """Roofs of the planned mode with stages, the front's document (`reporting.pareto`), the folder's provenance.

    `supply`: carrier board and adaptor of the platform, if it states them.
    `missing` gives the reason for a missing "roofline", and the command that creates a missing "front".
    """

    roofs: tuple[Roof, ...] = ()
    points: tuple[Point, ...] = ()
    front: Mapping[str, Any] | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    supply: Supply | None = None


def gather(plan: Plan, folder: Path | None, pipeline: str | None = None, platform: str | None = None) -> Background:
    """Return the background of `plan`; `pipeline` and `platform`: files to use if the plan's names are not shipped."""
    missing: dict[str, str] = {}
    roofs, points, supply, why = _rooflines(plan, pipeline, platform)
    if why:
        missing["roofline"] = why
    front = read_front(folder / PARETO) if folder and (folder / PARETO).exists() else None
    if front is None:
        option = f" --pipeline {shlex.quote(pipeline)}" if pipeline else ""
        missing["front"] = f"socsched report {shlex.quote(str(folder or 'DIR'))} --pareto{option}"
    return Background(roofs, points, front, _made(folder / MADE) if folder else {}, missing, supply)


def _made(file: Path) -> dict[str, str]:
    """Return how a folder was made, besides its files; nothing if it does not say so."""
    if not file.exists():
        return {}
    document = JsonFile.open(file, "file", _HINT).data
    return (
        {str(key): str(value) for key, value in document.items() if key != FILES} if isinstance(document, dict) else {}
    )


def _rooflines(
    plan: Plan, pipeline: str | None, platform: str | None
) -> tuple[tuple[Roof, ...], tuple[Point, ...], Supply | None, str]:
    from socsched.cost.roofs import PRECISIONS, roofs
    from socsched.descriptor.catalog import get_pipeline, get_platform, input_hashes
    from socsched.planning.cutting.pipelines import as_planned

    if not plan.tasks:
        return (), (), None, "No stage is mapped: no rooflines to draw."
    try:
        board, workload = get_platform(platform or plan.platform), get_pipeline(pipeline or plan.pipeline)
        for name, digest in input_hashes(board, workload).items():
            if plan.inputs.get(name, digest) != digest:
                return (), (), None, f"{name} differs from the version that the plan was made from."
        mode = board.mode(plan.mode)
        precisions = [p for p in PRECISIONS if any(task.precision == p for task in plan.tasks)]
        used = {task.engine for task in plan.tasks}
        shown = tuple(roof for roof in roofs(board, mode, precisions) if used.intersection(roof.engines))
        return shown, tuple(_points(plan, as_planned(workload, plan), board, mode, shown)), board.supply, ""
    except (SocschedError, KeyError) as error:
        return (), (), None, f"No rooflines: {error}"


def _points(plan: Plan, pipeline: Any, board: Any, mode: Any, shown: Sequence[Roof]) -> list[Point]:
    from socsched.cost.model import CostModel
    from socsched.models.work import stage_work

    model, points = CostModel(board, mode, stage_work), []
    for task in plan.tasks:
        roof = next((r for r in shown if task.engine in r.engines and task.precision == r.precision), None)
        if task.kind != "stage" or roof is None:
            continue
        try:
            work = model.work_of(pipeline.stage(task.name), task.precision)
        except (SocschedError, KeyError):
            continue
        if work is None or not work.flops or not work.bytes or not task.cost_ns:
            continue
        intensity = work.flops / work.bytes
        point = Point(task.name, task.engine, task.precision, intensity, roof.attainable(intensity), 0.0)
        points.append(replace(point, predicted=work.flops / task.cost_ns * 1e9))
    return points


Result = Mapping[str, Any]
MOST_OTHERS = 12
"""Maximum number of charts of other counters; the page refers to Perfetto for the rest."""


def power(plan: Plan, trace: Trace, result: Result, supply: Supply | None = None) -> str:
    """Return power over time against the cap, at the wall if a supply is given, and what engines used."""
    columns, cap = trace.columns, plan.power.cap_mw
    expected = plan.power.expected_mw
    budget = f"Planned: {format_power(expected or 0, 3)} on average"
    budget += f" of {format_power(cap, 3)} allowed." if cap else "; no cap is stated for this mode."
    if supply and expected:
        budget += f" {view_model.wall(supply, expected)}."
    levels = [(cap / 1000, f"cap {cap / 1000:g} W", "limit")] if cap else []
    if expected:
        levels.append((expected / 1000, f"planned mean {expected / 1000:.3g} W", "bound"))
    drawn = ""
    if "power_mw" in columns.counters:
        drawn = charts.quantity(
            columns.counters["power_mw"], trace.duration_ns, 1e-3, "power [W]", levels, "Power of the module over time"
        )
    else:
        budget += " No power was recorded" + ("." if trace.kind == "simulated" else ": no sensor could be read here.")
    rows = [
        [
            escape(name),
            f"{entry.get('utilization', 0):.1%}",
            view_model.duration(entry.get("busy_ns")),
            view_model.energy(entry.get("energy_mj")),
        ]
        for name, entry in result.get("engines", {}).items()
    ]
    return (
        element("h2", "Power and energy")
        + element("p", escape(budget))
        + element("div", element("div", drawn) + element("div", _energy(plan, result)), class_="pair")
        + table(["engine", "busy", "busy time, all lanes", "energy"], rows, [1, 2, 3])
    )


def _energy(plan: Plan, result: Result) -> str:
    colour, total = colours(plan), result.get("energy_mj")
    parts = [(name, entry.get("energy_mj") or 0.0) for name, entry in result.get("engines", {}).items()]
    if not any(value for _, value in parts):
        return ""
    rest = (total or 0.0) - sum(value for _, value in parts)
    if total and rest > 0:
        parts.append(("base, DRAM", rest))
    whole = total or sum(value for _, value in parts)
    rows = [
        (name, value, f"{view_model.energy(value)}, {value / whole:.0%}", colour.get(name, 0)) for name, value in parts
    ]
    return element("h3", "Energy by engine") + charts.bars(rows, f"Energy, {view_model.energy(whole)} in all")


def bandwidth(plan: Plan, trace: Trace, result: Result) -> str:
    """Return DRAM traffic over time against the achievable bandwidth; empty if it was not recorded."""
    columns = trace.columns
    planned, most = plan.bandwidth.expected_gbps, plan.bandwidth.cap_gbps
    sentence = ""
    if planned is not None:
        sentence = f"Planned: {format_bandwidth(planned * 1e9)} on average"
        sentence += f"; all engines together reach {format_bandwidth(most * 1e9)}." if most else "."
    levels = [(float(most), f"memory {most:.4g} GB/s", "limit")] if most else []
    if planned is not None:
        levels.append((float(planned), f"planned mean {planned:.3g} GB/s", "bound"))
    drawn = ""
    if "bandwidth_gbps" in columns.counters:
        drawn = charts.quantity(
            columns.counters["bandwidth_gbps"], trace.duration_ns, 1, "traffic [GB/s]", levels, "DRAM traffic over time"
        )
    else:
        sentence += " No traffic was recorded" + ("." if trace.kind == "simulated" else ": a run does not measure it.")
    return element("h2", "Memory bandwidth") + element("p", escape(sentence)) + drawn


def draw_counters(plan: Plan, trace: Trace) -> str:
    """Return charts of the other recorded counters: clocks, temperatures, rails, queues."""
    columns = trace.columns
    known = [name for name in columns.counters if name not in ("power_mw", "bandwidth_gbps") and _moves(columns, name)]
    if not known:
        return ""
    drawn = "".join(_other(columns, name, trace.duration_ns) for name in known[:MOST_OTHERS])
    more = f" {len(known) - MOST_OTHERS} more are in the Perfetto trace." if len(known) > MOST_OTHERS else ""
    head = element("summary", f"{len(known)} more counters over time: clocks, temperatures, queues")
    note = element("p", more, class_="dim") if more else ""
    return element("details", head + element("div", drawn, class_="pair") + note)


def _moves(columns: Columns, name: str) -> bool:
    _, values = columns.counters[name]
    return bool(len(values)) and bool((values != values[0]).any())


def _other(columns: Columns, name: str, end_ns: int) -> str:
    scale, unit = unit_of(name)
    title = f"{name} over time"
    drawn = charts.quantity(columns.counters[name], end_ns, scale, f"{name} [{unit}]" if unit else name, [], title)
    return element("div", drawn)


def unit_of(counter: str) -> tuple[float, str]:
    """Return the display factor of a counter, and its unit."""
    if counter.startswith(CLOCK) or counter.endswith("_hz"):
        return 1e-6, "MHz"
    if counter.startswith(("rail_mw.", "engine_mw.")) or counter.endswith("_mw"):
        return 1e-3, "W"
    if counter.startswith(("celsius.", "temperature_c")):
        return 1, "°C"
    if counter.startswith("release_late_ns."):
        return 1e-6, "ms"
    return (1, "frames") if counter.startswith("queue.") else (1, "")


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


@dataclass(frozen=True, slots=True)
class Part:
    """One simulation or run to show: its plan, trace, result document, and an optional picture (PNG bytes).

    `simulated`: the result of a simulation of the same plan, to compare a run with.
    """

    title: str
    plan: Plan
    trace: Trace
    result: Mapping[str, Any]
    picture: bytes | None = None
    picture_note: str = ""
    notes: tuple[str, ...] = field(default=())
    background: Background = field(default_factory=Background)
    simulated: Mapping[str, Any] | None = None


MOST_BYTES = 1_000_000
"""Target size of a page: timelines are thinned until it is no larger."""


def render(parts: Sequence[Part], title: str, made_by: Mapping[str, str]) -> str:
    """Return the page for `parts`, most important first; `made_by` gives command line and versions.

    Timelines are thinned until the page is no larger than `MOST_BYTES`, if that suffices.
    """
    room = ROOM
    while True:
        page = _page(parts, title, made_by, room)
        if len(page.encode()) <= MOST_BYTES or room < 100:
            return page
        room //= 2


def _page(parts: Sequence[Part], title: str, made_by: Mapping[str, str], room: int) -> str:
    several = len(parts) > 1
    body = element("h1", escape(title))
    if several:
        links = "".join(
            element("li", element("a", escape(part.title), href=f"#part{i}")) for i, part in enumerate(parts)
        )
        body += element("nav", element("ul", links), aria_label="parts")
    body += "".join(_part(part, number, several, room) for number, part in enumerate(parts))
    body += _made_by(parts, made_by)
    return _document(title, body)


def _document(title: str, body: str) -> str:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_asset('report.css')}</style>"
    )
    page = f"<head>{head}</head><body><main>{body}</main><script>{_asset('gantt.js')}</script></body>"
    return f'<!doctype html>\n<html lang="en">{page}</html>\n'


def frame(plan: Plan, trace: Trace | None, result: Mapping[str, Any]) -> str:
    """Return verdict, mapping, chains and, of a recorded trace, the timeline as a frame for a notebook."""
    body = verdict(plan, result) + mapping(plan)
    if trace is not None:
        body += chains(plan, trace, result) + timeline.timeline(plan, trace, "frame", ROOM // 4)
    page = escape(_document(plan.pipeline, body), quote=True)
    return f'<iframe srcdoc="{page}" style="width:100%;height:44em;border:0" title="{escape(plan.pipeline)}"></iframe>'


def _asset(name: str) -> str:
    return (files("socsched.reporting") / "assets" / name).read_text(encoding="utf-8")


def _part(part: Part, number: int, several: bool, room: int) -> str:
    plan, trace, result, name = part.plan, part.trace, part.result, f"part{number}"
    # a run's record consists of lists, which every section would otherwise convert to columns again
    trace = Trace.from_columns(trace.kind, trace.duration_ns, trace.seed, trace.columns, trace.details)
    blocks = [
        violations(plan),
        mapping(plan),
        measured_section(plan, trace, result, part.simulated),
        _picture(part),
        timeline.timeline(plan, trace, name, room),
        chains(plan, trace, result),
        power(plan, trace, result, part.background.supply if part.background else None),
        bandwidth(plan, trace, result) + draw_counters(plan, trace),
        roofline(plan, part.background),
        modes(plan, part.background),
        evidence(plan),
    ]
    links: list[str] = []
    marked: list[str] = []
    for block in filter(None, blocks):
        place = f"{name}-s{len(links)}"
        marked.append(block.replace("<h2>", f'<h2 id="{place}">', 1))
        match = re.search(r"<h2>(.*?)</h2>", block)
        links.append(element("li", element("a", match[1] if match else "", href=f"#{place}")))
    contents = element("nav", element("ul", "".join(links)), aria_label=f"sections of {part.title}")
    heading = element("h2", escape(part.title), class_="part-title", id=name) if several else ""
    head = verdict(plan, result) + _notes(part.notes) + tiles(plan, trace, result)
    return element("section", heading + head + contents + "".join(marked))


def _notes(notes: Sequence[str]) -> str:
    items = "".join(element("li", escape(note)) for note in notes)
    return element("div", element("ul", items), class_="note") if notes else ""


def _picture(part: Part) -> str:
    if part.picture is None:
        return ""
    data = base64.b64encode(part.picture).decode("ascii")
    image = element("img", src=f"data:image/png;base64,{data}", alt="The scan from above with the detected boxes")
    caption = element("figcaption", escape(part.picture_note))
    return element("h2", "Detections") + element("figure", image + caption, class_="scan", style="margin:0")


def _made_by(parts: Sequence[Part], made_by: Mapping[str, str]) -> str:
    """Return exact command lines, versions and the digests of inputs, of this page and of every part."""
    rows = [[escape(key), element("code", escape(value))] for key, value in made_by.items()]
    body = element("h3", "This page") + table(["what", "value"], rows)
    for part in parts:
        rows = [[escape(key), element("code", escape(value))] for key, value in part.background.made.items()]
        rows += [[escape(f"plan: {key}"), element("code", escape(str(value)))] for key, value in part.plan.tool.items()]
        rows += [[escape(f"sha256 of {key}"), element("code", escape(str(v)))] for key, v in part.plan.inputs.items()]
        rows.append(["seed", element("code", escape(str(part.trace.seed)))])
        body += element("h3", escape(part.title)) + table(["what", "value"], rows)
    return element("h2", "How this was made", id="made") + body
