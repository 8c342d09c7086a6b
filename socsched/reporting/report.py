"""The report as one self-contained HTML page, computed from plans, traces and results alone.

Charts and diagrams are SVG written here, not by a chart library: uPlot draws lines only, plotly is 4.8 MB.  Nothing is
conveyed by colour alone.  Modes other than the planned one are planned by `--pareto` only, not for every report.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.cost.roofs import Point, Roof
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.platform import Supply
from socsched.errors import SocschedError
from socsched.planning.plan import IMPORTED, ChainResult, Plan, Violation
from socsched.reporting import charts, diagram, pareto, timeline, view_model
from socsched.reporting.markup import Markup, element, facts, listed, markup, page, table, tiles, verdict_box
from socsched.reporting.roofline import rooflines
from socsched.reporting.timeline import ROOM
from socsched.trace.columns import CLOCK
from socsched.trace.io import FILES, MADE
from socsched.trace.metrics import frame_fates
from socsched.trace.trace import Trace
from socsched.units import format_bandwidth, format_duration, format_power

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
    front = pareto.read_front(folder / PARETO) if folder and (folder / PARETO).exists() else None
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


def power(plan: Plan, trace: Trace, result: Result, supply: Supply | None = None) -> Markup:
    """Return power over time against the cap, at the wall if a supply is given, and what engines used."""
    cap, expected = plan.power.cap_mw, plan.power.expected_mw
    budget = f"Planned: {format_power(expected or 0, 3)} on average"
    budget += f" of {format_power(cap, 3)} allowed." if cap else "; no cap is stated for this mode."
    if supply and expected:
        budget += f" {view_model.wall(supply, expected)}."
    levels = [(cap / 1000, f"cap {cap / 1000:g} W", "limit")] if cap else []
    if expected:
        levels.append((expected / 1000, f"planned mean {expected / 1000:.3g} W", "bound"))
    drawn = _over_time(trace, "power_mw", 1e-3, "power [W]", levels, "Power of the module over time")
    if drawn is None:
        budget += " No power was recorded" + ("." if trace.kind == "simulated" else ": no sensor could be read here.")
    return markup(
        element("p", budget),
        element("div", element("div", drawn), element("div", _energy(plan, result)), class_="pair"),
        table(["engine", "busy", "busy time, all lanes", "energy"], view_model.engine_rows(result), [1, 2, 3]),
    )


def _over_time(
    trace: Trace, counter: str, scale: float, label: str, levels: Sequence[tuple[float, str, str]], name: str
) -> Markup | None:
    """Return a counter over time, None if it was not recorded."""
    if counter not in trace.columns.counters:
        return None
    return charts.quantity(trace.columns.steps(counter), trace.duration_ns, scale, label, levels, name)


def _energy(plan: Plan, result: Result) -> Markup | None:
    colour, total = timeline.colours(plan), result.get("energy_mj")
    parts = [(name, entry.get("energy_mj") or 0.0) for name, entry in result.get("engines", {}).items()]
    if not any(value for _, value in parts):
        return None
    rest = (total or 0.0) - sum(value for _, value in parts)
    if total and rest > 0:
        parts.append(("base, DRAM", rest))
    whole = total or sum(value for _, value in parts)
    rows = [
        (name, value, f"{view_model.energy(value)}, {value / whole:.0%}", colour.get(name, 0)) for name, value in parts
    ]
    return element("h3", "Energy by engine") + charts.bars(rows, f"Energy, {view_model.energy(whole)} in all")


def bandwidth(plan: Plan, trace: Trace) -> Markup:
    """Return DRAM traffic over time against the achievable bandwidth."""
    planned, most = plan.bandwidth.expected_gbps, plan.bandwidth.cap_gbps
    sentence = ""
    levels = [(float(most), f"memory {most:.4g} GB/s", "limit")] if most else []
    if planned is not None:
        sentence = f"Planned: {format_bandwidth(planned * 1e9)} on average"
        sentence += f"; all engines together reach {format_bandwidth(most * 1e9)}." if most else "."
        levels.append((float(planned), f"planned mean {planned:.3g} GB/s", "bound"))
    drawn = _over_time(trace, "bandwidth_gbps", 1, "traffic [GB/s]", levels, "DRAM traffic over time")
    if drawn is None:
        sentence += " No traffic was recorded" + ("." if trace.kind == "simulated" else ": a run does not measure it.")
    return markup(element("p", sentence), drawn)


def draw_counters(trace: Trace) -> Markup:
    """Return charts of the other recorded counters that change: clocks, temperatures, rails, queues."""
    own, columns = ("power_mw", "bandwidth_gbps"), trace.columns
    changing = [name for name in columns.counters if name not in own and columns.varies(name)]
    drawn = []
    for name, steps in columns.steps_of(changing[:MOST_OTHERS]).items():
        scale, unit = unit_of(name)
        label = f"{name} [{unit}]" if unit else name
        drawn.append(element("div", charts.quantity(steps, trace.duration_ns, scale, label, [], f"{name} over time")))
    if not drawn:
        return Markup()
    rest = len(changing) - MOST_OTHERS
    more = _dim(f" {rest} more are in the Perfetto trace.") if rest > 0 else None
    summary = f"{len(changing)} more counters over time: clocks, temperatures, queues"
    return element("details", element("summary", summary), element("div", drawn, class_="pair"), more)


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


def _mark(good: bool, text: str) -> Markup:
    return element("span", "✓ " if good else "✗ ", text, class_="ok" if good else "bad")


def verdict(plan: Plan, result: Result) -> Markup:
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
    joint = ", but" if (plan.verdict == "feasible" or recorded) != seen.met else ";"
    where = f"{plan.pipeline} on {plan.platform}, mode {plan.mode}, policy {plan.policy}"
    lead = f"{where}; {kind} for {format_duration(result.get('duration_ns', 0))}."
    lines = [*view_model.chain_lines(plan, result), *view_model.cut_off(plan), *view_model.conditions(plan)]
    lines += [*view_model.proof(plan), *view_model.undecided(plan)]
    head = _mark(good, f"{words}{joint} {kind}: {seen.told()}.")
    return verdict_box(good, head, element("div", lead, class_="lead"), listed(lines))


# -- sections, each without its heading; nothing where there is nothing to show


def violations(plan: Plan) -> Markup:
    """Return every unmet requirement with the terms that add up to its demand and the levers that would close it."""
    return markup(_violation(item, not number) for number, item in enumerate(plan.violations))


def _violation(item: Violation, unfolded: bool) -> Markup:
    show = view_model.formatter(item.unit)
    head = f"✗ {item.requirement}: demand {show(item.demand)}, bound {show(item.bound)}, gap {show(item.gap)}"
    rows: list[list[object]] = [[name, show(value)] for name, value in item.terms]
    rows.append([element("strong", "sum"), element("strong", show(sum(value for _, value in item.terms)))])
    levers = [element("p", "Levers that close the gap:"), listed(item.levers)] if item.levers else None
    summary, terms = element("summary", head, class_="bad"), table(["term", "demand"], rows, [1])
    return element("details", summary, terms, levers, open="open" if unfolded else None)


def mapping(plan: Plan) -> Markup:
    """Return the mapping diagram, the stage table and the transitions between engines and formats."""
    rows = [
        [
            f"{t.source} → {t.sink}", f"{t.layout_from} {t.dtype_from}", f"{t.layout_to} {t.dtype_to}",
            view_model.size(t.bytes), t.engine, format_duration(t.cost_ns),
        ]
        for t in plan.transitions
    ]  # fmt: skip
    header = ["transition", "from", "to", "size", "engine", "cost"]
    folded = _folded(f"{len(rows)} transitions between engines and formats", table(header, rows, [3, 5]))
    stages = table([*view_model.STAGES, "reason"], view_model.stage_rows(plan), [4, 5], firm=(3, 6))
    return markup(diagram.mapping(plan), stages, folded if rows else None)


def _folded(summary: str, content: Markup) -> Markup:
    return element("details", element("summary", summary), content)


def chains(plan: Plan, trace: Trace, result: Result) -> Markup:
    """Return the chain table, and each chain's response times as distribution and over time."""
    rows, figures = [], []
    for chain in plan.chains:
        entry = result.get("chains", {}).get(chain.name, {})
        times = entry.get("response_time_ns", {})
        aged = f"; {entry['stale']} outputs too old" if entry.get("stale") else ""
        good = not entry.get("missed") and not entry.get("dropped") and not aged
        late, dropped, released = (entry.get(key, 0) for key in ("missed", "dropped", "released"))
        rows.append(
            [
                chain.name,
                *(format_duration(time_ns) for time_ns in (chain.deadline_ns, chain.expected_ns)),
                "none" if chain.bound_ns is None else format_duration(chain.bound_ns),
                *(view_model.duration(times.get(key)) for key in ("p50", "p99", "p99_9", "max")),
                view_model.duration(entry.get("data_age_ns", {}).get("max")),
                _mark(good, f"{late} late, {dropped} dropped of {released}{aged}"),
            ]
        )
        figures.append(_responses(plan, trace, chain, times.get("p99_9")))
    header = ["chain", "deadline", "expected", "bound", "p50", "p99", "p99.9", "max", "max reduced data age", "outcome"]
    beyond = [element("p", line) for line in view_model.beyond_bounds(plan, result)]
    return markup(table(header, rows, range(1, 9)), beyond, figures)


def _responses(plan: Plan, trace: Trace, chain: ChainResult, tail_ns: int | None) -> Markup | None:
    fates = frame_fates(trace, plan, chain)
    responses = fates.response_ns
    if not len(fates.release_ns):
        return None
    lost = fates.release_ns[~fates.completed & (fates.missed | fates.dropped)].tolist()
    releases = fates.release_ns[fates.completed]
    left = charts.distribution(responses, chain.deadline_ns, chain.bound_ns, tail_ns, chain.name)
    right = charts.draw_responses(releases, responses, chain.deadline_ns, lost, trace.duration_ns, chain.name)
    pair = element("div", element("div", left), element("div", right), class_="pair")
    terms = table(["term", "time"], [[name, format_duration(value)] for name, value in chain.terms], [1])
    return markup(element("h3", chain.name), pair, _folded("Terms of the bound", terms) if chain.terms else None)


def measured_section(plan: Plan, trace: Trace, result: Result, simulated: Result | None) -> Markup:
    """Return planned, simulated (if `simulated` is given) and measured times; nothing for a simulation."""
    if trace.kind != "measured":
        return Markup()
    show, rows, marks = view_model.duration, list[list[object]](), []
    before = {row.stage: row for row in view_model.predicted_against_measured(plan, simulated)} if simulated else {}
    errors = {task.name: task.error for task in plan.tasks}
    for row in view_model.predicted_against_measured(plan, result):
        own = [show(before[row.stage].p50_ns)] if simulated else []
        figures = (row.p50_ns, row.predicted_p99_ns, row.p99_ns, row.max_ns)
        rows.append([row.stage, show(row.predicted_p50_ns), row.evidence, *own, *map(show, figures), row.mark])
        if row.ratio and row.max_ns and row.predicted_p50_ns:
            marks.append((row.stage, row.ratio, row.max_ns / row.predicted_p50_ns, errors[row.stage] or None))
    for chain in plan.chains:
        times, earlier = (
            one.get("chains", {}).get(chain.name, {}).get("response_time_ns", {}) for one in (result, simulated or {})
        )
        own = [show(earlier.get("p50"))] if simulated else []
        shown = [show(times.get("p50")), "–", *(show(times.get(key)) for key in ("p99", "max"))]
        ratio = f"{times['p50'] / chain.expected_ns:.2f}" if times.get("p50") and chain.expected_ns else "–"
        name = element("strong", f"chain {chain.name}")
        rows.append([name, format_duration(chain.expected_ns), "expected alone", *own, *shown, ratio])
    caption = "Dot: median; bar: longest; band: stated error of the prediction; 1×: as predicted."
    drawn = charts.draw_prediction_errors(marks, "Measured over predicted time of every stage") if marks else None
    header = ["stage", "predicted p50", "evidence", *(["simulated p50"] if simulated else [])]
    header += ["measured p50", "predicted p99", "measured p99", "max", "measured / predicted p50"]
    kept = view_model.intervals_line(plan, result)
    body = table(header, rows, [1, *range(3, len(header))])
    return markup(drawn, _dim(caption) if marks else None, body, element("p", kept) if kept else None)


def _dim(*text: object) -> Markup:
    return element("p", *text, class_="dim")


def roofline(plan: Plan, background: Background) -> Markup:
    """Return the rooflines of the engines in use with their stages, or the reason they are missing."""
    if not background.roofs:
        return _dim(background.missing.get("roofline", "No engine states a peak."))
    caption = (
        "Attainable rates of engines (flat: arithmetic, slope: memory; solid fp32, dashed fp16, dotted int8), and the "
        "rates the plan assumes. The line from a stage leads to its roof. Stages without operations are omitted."
    )
    above = any(point.predicted > point.attainable for point in background.points)
    caption += " Above the roof: Winograd convolutions need fewer multiplications than counted." if above else ""
    return markup(_dim(caption), rooflines(background.roofs, background.points, timeline.colours(plan)))


def modes(plan: Plan, background: Background) -> Markup:
    """Return the Pareto front over power modes, or the command that creates it."""
    if background.front is None:
        command = element("code", background.missing.get("front", "socsched report DIR --pareto"))
        return _dim("Other power modes were not planned; to add them: ", command)
    return pareto.front(background.front, plan.mode)


def evidence(plan: Plan) -> Markup:
    """Return the shares of the planned time based on measured, published, fitted, derived and assumed figures."""
    shares = view_model.provenance_shares(plan)
    rows = [[t.name, t.provenance, f"±{t.error:.0%}" if t.error else "not stated", t.source] for t in plan.tasks]
    return markup(
        _dim("Share of the time on the critical paths of the chains, by kind of evidence."),
        charts.shares(shares, "Evidence: " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items())),
        _folded("Source of every stage time", table(["stage", "kind", "error", "source"], rows)),
    )


# -- the page


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
    notes: tuple[str, ...] = ()
    background: Background = field(default_factory=Background)
    simulated: Mapping[str, Any] | None = None

    def sections(self, name: str) -> Iterator[tuple[str, Markup | Callable[[int], Markup]]]:
        """Yield the titles and contents of the sections; `name` is unique on the page.

        The content of one whose size can be chosen is a function of the number of bars.
        """
        plan, result, background = self.plan, self.result, self.background
        # a run's record consists of lists, which every section would otherwise convert to columns again
        own = self.trace
        trace = Trace.from_columns(own.kind, own.duration_ns, own.seed, own.columns, own.details)
        yield "Unmet requirements", violations(plan)
        yield "Where each stage runs, and why", mapping(plan)
        yield "Predicted against measured", measured_section(plan, trace, result, self.simulated)
        yield "Detections", self._detections()
        yield "Timeline", lambda room: timeline.timeline(plan, trace, name, room)
        yield "Chains: response times against deadlines", chains(plan, trace, result)
        yield "Power and energy", power(plan, trace, result, background.supply)
        yield "Memory bandwidth", bandwidth(plan, trace) + draw_counters(trace)
        yield "Roofline", roofline(plan, background)
        yield "Power modes", modes(plan, background)
        yield "Evidence for the figures", evidence(plan)

    def _detections(self) -> Markup:
        if self.picture is None:
            return Markup()
        data = base64.b64encode(self.picture).decode("ascii")
        image = element("img", src=f"data:image/png;base64,{data}", alt="The scan from above with the detected boxes")
        return element("figure", image, element("figcaption", self.picture_note), class_="scan", style="margin:0")


MOST_BYTES = 1_000_000
"""Target size of a page: timelines are thinned until it is no larger."""


def render(parts: Sequence[Part], title: str, made_by: Mapping[str, str]) -> str:
    """Return the page for `parts`, most important first; `made_by` gives command line and versions.

    Timelines are thinned until the page is no larger than `MOST_BYTES`, if that suffices.
    """
    several = len(parts) > 1
    links = listed(element("a", part.title, href=f"#part{number}") for number, part in enumerate(parts))
    room = ROOM
    sections = [list(part.sections(f"part{number}")) for number, part in enumerate(parts)]
    while True:
        shown = page(
            title,
            element("h1", title),
            element("nav", links, aria_label="parts") if several else None,
            (
                _part(part, f"part{number}", several, [(t, c(room) if callable(c) else c) for t, c in sections[number]])
                for number, part in enumerate(parts)
            ),
            _made_by(parts, made_by),
            script="gantt.js",
        )
        if len(shown.encode()) <= MOST_BYTES or room < 100:
            return shown
        room //= 2


def frame(plan: Plan, trace: Trace | None, result: Mapping[str, Any]) -> str:
    """Return verdict, mapping, chains and, of a recorded trace, the timeline as a frame for a notebook."""
    part = [("Where each stage runs, and why", mapping(plan))]
    if trace is not None:
        part.append(("Chains: response times against deadlines", chains(plan, trace, result)))
        part.append(("Timeline", timeline.timeline(plan, trace, "frame", ROOM // 4)))
    sections = ([element("h2", title), content] for title, content in part)
    shown = page(plan.pipeline, verdict(plan, result), sections, script="gantt.js")
    style = "width:100%;height:44em;border:0"
    return element("iframe", srcdoc=shown, style=style, title=plan.pipeline)


def _part(part: Part, name: str, several: bool, sections: Sequence[tuple[str, Markup]]) -> Markup:
    links, blocks = list[Markup](), list[Markup]()
    for title, content in sections:
        if content:
            place = f"{name}-s{len(links)}"
            links.append(element("a", title, href=f"#{place}"))
            blocks += [element("h2", title, id=place), content]
    return element(
        "section",
        element("h2", part.title, class_="part-title", id=name) if several else None,
        verdict(part.plan, part.result),
        element("div", listed(part.notes), class_="note") if part.notes else None,
        tiles(view_model.key_figures(part.plan, part.trace, part.result)),
        element("nav", listed(links), aria_label=f"sections of {part.title}"),
        blocks,
    )


def _made_by(parts: Sequence[Part], made_by: Mapping[str, str]) -> Markup:
    """Return exact command lines, versions and the digests of inputs, of this page and of every part."""
    shown = [element("h2", "How this was made", id="made"), element("h3", "This page"), facts(made_by)]
    for part in parts:
        about: dict[str, object] = {**part.background.made}
        about |= {f"plan: {key}": value for key, value in part.plan.tool.items()}
        about |= {f"sha256 of {key}": value for key, value in part.plan.inputs.items()}
        shown += [element("h3", part.title), facts({**about, "seed": part.trace.seed})]
    return markup(shown)
