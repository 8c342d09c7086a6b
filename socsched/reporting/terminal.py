"""Plans and results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, Group, RenderableType, RenderHook, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from socsched.planning.plan import IMPORTED, Plan, Violation
from socsched.reporting import view_model
from socsched.text import printable
from socsched.units import format_bandwidth, format_duration, format_power, format_size

GAP = 2
TORN = 20
"""Words longer than this may be broken."""


class Sheet:
    """Plain cells under column headings; columns in `right` align right and never wrap."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        right: Sequence[int] = (),
        below: Sequence[int] = (),
    ) -> None:
        self.columns, self.rows, self.below = list(columns), [list(row) for row in rows], list(below)
        self.right = set(right)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the table for the available width."""
        every = list(range(len(self.columns)))
        filled = [i for i in every if any(row[i] for row in self.rows)] or every
        in_row = [i for i in filled if i not in self.below]
        for chosen in (every, filled, in_row) if self.below else (every, filled):
            widths = self._widths(chosen, options.max_width)
            if widths is not None:
                yield from self._grid(chosen, widths, options.max_width)
                return
        yield from self._list()

    def _natural(self, column: int) -> int:
        return max([cell_len(self.columns[column]), *(self._longest(row[column]) for row in self.rows)])

    def _longest(self, cell: str) -> int:
        return max((cell_len(line) for line in cell.split("\n")), default=0)

    def _least(self, column: int) -> int:
        """Return the minimum width of a column: its longest word; numbers are not split."""
        if column in self.right:
            return self._natural(column)
        cells = [row[column] for row in self.rows]
        longest = max((cell_len(word) for cell in (self.columns[column], *cells) for word in cell.split()), default=0)
        # sentences are hard to read in a column one word wide
        sentence = 24 if any(cell.count(" ") > 3 for cell in cells) else 0
        return max(min(longest, TORN), min(sentence, self._natural(column)))

    def _widths(self, chosen: Sequence[int], room: int) -> list[int] | None:
        """Return the column widths: natural if they fit, else with the widest columns narrowed; None if too many."""
        widths, least = [self._natural(i) for i in chosen], [self._least(i) for i in chosen]
        spare = room - GAP * (len(chosen) - 1)
        if sum(least) > spare:
            return None
        while sum(widths) > spare:
            gives = max((i for i in range(len(chosen)) if widths[i] > least[i]), key=lambda i: widths[i])
            widths[gives] -= 1
        return widths

    def _grid(self, chosen: Sequence[int], widths: Sequence[int], room: int) -> Iterator[Table | Padding]:
        under = [i for i in self.below if i not in chosen]

        def table() -> Table:
            grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
            for index, width in zip(chosen, widths, strict=True):
                grid.add_column(justify="right" if index in self.right else "left", width=width, overflow="fold")
            return grid

        part = table()
        part.add_row(*(Text(self.columns[i], "dim") for i in chosen))
        for row in self.rows:
            part.add_row(*(Text(row[i]) for i in chosen))
            details = self._told(row, under, room - 4)
            if details:
                yield part
                yield Padding(Text(details, "dim"), (0, 0, 0, 4))
                part = table()
        if part.row_count:
            yield part

    def _told(self, row: Sequence[str], under: Sequence[int], room: int) -> str:
        """Return the text below a row: a text alone, or figures, each on one line with its name."""
        if len(under) == 1:
            return row[under[0]]
        lines: list[str] = []
        for pair in (f"{self.columns[i]} {row[i]}" for i in under if row[i]):
            if lines and cell_len(lines[-1]) + 3 + cell_len(pair) <= room:
                lines[-1] += f"   {pair}"
            else:
                lines.append(pair)
        return "\n".join(lines)

    def _list(self) -> Iterator[Table | Text]:
        for row in self.rows:
            yield Text(f"{self.columns[0]} {row[0]}")
            grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
            grid.add_column(style="dim", min_width=6)
            grid.add_column(overflow="fold")
            for name, cell in zip(self.columns[1:], row[1:], strict=True):
                if cell:
                    grid.add_row(f"  {name}", Text(cell))
            yield grid


def console(width: int) -> Console:
    """Return the console for results on stdout; colours only on a terminal and never with NO_COLOR."""
    screen = Console(width=width, highlight=False, soft_wrap=False)
    screen.push_render_hook(_Printable())
    return screen


class _Printable(RenderHook):
    """Escapes control characters: names and messages come from files, and a terminal would interpret them."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return the renderables with control characters escaped."""
        return [_Shown(each) for each in renderables]


@dataclass(frozen=True, slots=True)
class _Shown:
    inner: RenderableType

    def __rich_console__(self, made: Console, options: ConsoleOptions) -> RenderResult:
        for segment in made.render(self.inner, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Iterable[int] = (),
    below: Iterable[int] = (),
) -> RenderableType:
    """Return a plain table under its title; columns in `right` align right, those in `below` may go under the row."""
    return Group(Text(title, "bold"), Sheet(columns, list(rows), tuple(right), tuple(below)))


def verdict(plan: Plan) -> Text:
    """Return one line stating whether the plan meets every requirement."""
    style = {"feasible": "bold green", "infeasible": "bold red"}.get(plan.verdict, "bold yellow")
    mark = {"feasible": "✓", "infeasible": "✗"}.get(plan.verdict, "?")
    rest = f"  {plan.pipeline} on {plan.platform}, mode {plan.mode}, policy {plan.policy}"
    return Text.assemble((f"{mark} {plan.verdict}", style), rest)


def observed(result: Mapping[str, Any], paced: bool = True) -> Text:
    """Return one line with the outcome of a simulation or run: the frames late or dropped, and other failures."""
    seen = view_model.totals(result, paced)
    mark, style = ("✓", "bold green") if seen.met else ("✗", "bold red")
    mark, style = (mark, style) if seen.released else ("?", "bold yellow")
    text = seen.told() + ("" if paced else "; frames not released at a rate cannot be late")
    return Text(f"{mark} {result.get('kind', 'result')}: {text}", style)


def planned(plan: Plan) -> Text:
    """Return one line with the verdict of the plan that was simulated or run, which is not its outcome."""
    if plan.solver.name == IMPORTED:
        return Text(f"plan: a recording of {plan.pipeline} on {plan.platform}, neither planned nor proved")
    text = f"plan: {plan.verdict} under {plan.policy}, {plan.pipeline} on {plan.platform}, mode {plan.mode}"
    other = sorted({engine.policy for engine in plan.engines if engine.policy and engine.policy != plan.policy})
    return Text(text + (f"; engines under {', '.join(other)}, for which it was not proved" if other else ""))


def stages(plan: Plan) -> RenderableType:
    """Return the engine, cost and reason of each stage and conversion."""
    return table("Where each stage runs", [*view_model.STAGES, "why"], view_model.stage_rows(plan), (4, 5), (7,))


def chains(plan: Plan) -> RenderableType:
    """Return every chain's deadline, expected time, bound and slack."""
    rows = []
    for chain in plan.chains:
        slack = None if chain.bound_ns is None else chain.deadline_ns - chain.bound_ns
        rows.append(
            [
                chain.name,
                format_duration(chain.deadline_ns),
                format_duration(chain.expected_ns),
                "none" if chain.bound_ns is None else format_duration(chain.bound_ns),
                "–" if slack is None else format_duration(slack),
                " → ".join(chain.path),
            ]
        )
    return table("Chains", ["chain", "deadline", "expected", "bound", "slack", "path"], rows, (1, 2, 3, 4), (5,))


def budget(plan: Plan) -> str:
    """Return power and bandwidth against their caps in one line."""
    power, bandwidth = plan.power, plan.bandwidth
    text = f"Power {format_power(power.expected_mw or 0)}"
    text += f" of {format_power(power.cap_mw)} cap" if power.cap_mw else " (no cap stated for this mode)"
    if bandwidth.expected_gbps is not None:
        text += f"   DRAM {format_bandwidth(bandwidth.expected_gbps * 1e9)}"
        text += f" of {format_bandwidth((bandwidth.cap_gbps or 0) * 1e9)}"
    if plan.memory.capacity_bytes:
        text += f"   memory {format_size(plan.memory.needed_bytes or 0)} of {format_size(plan.memory.capacity_bytes)}"
    shares = ", ".join(f"{kind} {share:.0%}" for kind, share in view_model.provenance_shares(plan).items())
    return f"{text}   evidence: {shares}"


def violations(plan: Plan) -> RenderableType:
    """Return every unmet requirement with its terms and levers."""
    return Group(*(_violation(item, plan.verdict == "infeasible") for item in plan.violations))


def open_questions(plan: Plan) -> list[str]:
    """Return the questions that cost errors leave open: ties, and the stages to measure first."""
    uncertainty, lines = plan.uncertainty, []
    unit = {"latency": "ns", "longest": "ns", "energy": "mW"}.get(uncertainty.objective or "", "")
    show = view_model.formatter(unit) if unit else lambda value: f"{value:.3g}"
    for tie in uncertainty.ties[:3]:
        lines.append(
            f"Tie: {tie.stage} on {tie.instead} differs by {show(round(tie.difference, 6))} "
            f"in {uncertainty.objective}, within an error of ±{show(round(tie.error, 6))}"
        )
    more = len(uncertainty.ties) - 3
    lines += [f"     and {more} more ties"] if more > 0 else []
    candidate = uncertainty.measure
    if candidate:
        span = f"{format_duration(candidate.low_ns)} to {format_duration(candidate.high_ns)}"
        lines.append(
            f"Measure first: {candidate.stage} on {candidate.engine} {candidate.precision} ({span}): {candidate.why}"
        )
    elif uncertainty.unchanged:
        what = {"verdict": "its verdict", "choice": "this plan"}
        changed = " or ".join(what[name] for name in ("choice", "verdict") if name in uncertainty.unchanged)
        lines.append(f"No single cost, measured anywhere within its interval, would change {changed}.")
    elif uncertainty.objective:
        lines.append("Not every cost was examined: a measurement may change the plan or its verdict.")
    return lines


def conflicts(plan: Plan) -> RenderableType:
    """Return the sets of requirements that cannot be met together."""
    lines = []
    for conflict in plan.conflicts:
        searched = f"no mapping found in {conflict.tried} tries" if conflict.tried else "no time was left to search"
        sure = "proved" if conflict.proved else searched
        least = "" if conflict.minimal else "; maybe not minimal"
        lines.append(Text(f"Conflicting requirements ({sure}{least}):", "bold"))
        for item in conflict.requirements:
            show = view_model.formatter(item.unit)
            lines.append(
                Text(f"    {item.requirement}: {show(item.demand)} > {show(item.bound)}, gap {show(item.gap)}")
            )
            lines += [Text(f"        {show(value)}  {name}") for name, value in item.terms if conflict.proved]
    return Group(*lines)


def _violation(item: Violation, proved: bool) -> RenderableType:
    show = view_model.formatter(item.unit)
    mark, style = ("✗", "bold red") if proved else ("?", "bold yellow")
    head = f"{mark} {item.requirement}: demand {show(item.demand)} > bound {show(item.bound)}, gap {show(item.gap)}"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", min_width=14)
    grid.add_column()
    for name, value in item.terms:
        grid.add_row(show(value), escape(name))
    if len(item.terms) > 1:
        grid.add_row(f"= {show(sum(value for _, value in item.terms))}", "sum")
    return Group(Text(head, style), grid, *(Text(f"    lever: {lever}") for lever in item.levers))


def plan_view(plan: Plan) -> RenderableType:
    """Return everything that `socsched plan` prints."""
    undecided = [*view_model.cut_off(plan), *view_model.undecided(plan)]
    if not plan.tasks:
        rests = (Text(f"  {line}") for line in (*view_model.proof(plan), *undecided))
        return Group(verdict(plan), *rests, Text(""), violations(plan), conflicts(plan))
    parts: list[RenderableType] = [
        verdict(plan),
        *(Text(f"  {line}") for line in (*view_model.conditions(plan), *view_model.proof(plan), *undecided)),
        Text(""),
        stages(plan),
        Text(""),
        chains(plan),
        Text(""),
        budget(plan),
    ]
    if programs := view_model.runtimes(plan):
        parts.append(Text(f"Runtimes: {programs}"))
    parts += [Text(line) for line in open_questions(plan)]
    if plan.violations:
        parts += [Text(""), violations(plan)]
    if plan.conflicts:
        parts += [Text(""), conflicts(plan)]
    return Group(*parts)


def outcome(result: Mapping[str, Any], paced: bool = True) -> RenderableType:
    """Return every chain's frames, misses and response times as simulated or measured.

    For a run that is not `paced` by its sensors, frames per second replace the late frames.
    """
    rows, seconds = [], result.get("duration_ns", 0) / 1e9
    aged = paced and view_model.totals(result).stale > 0
    for name, entry in result.get("chains", {}).items():
        times = entry.get("response_time_ns", {})
        rate = f"{entry.get('completed', 0) / seconds:.1f}" if seconds else "–"
        rows.append(
            [
                name,
                *(str(entry.get(key, 0)) for key in ("released", "completed")),
                str(entry.get("missed", 0)) if paced else rate,
                str(entry.get("dropped", 0)),
                *([str(entry.get("stale", 0))] if aged else []),
                *(view_model.duration(times.get(key)) for key in ("mean", "p50", "p99", "p99_9", "max")),
            ]
        )
    late = "late" if paced else "frames/s"
    counts = ["chain", "released", "completed", late, "dropped", *(["too old"] if aged else [])]
    columns = [*counts, "mean", "p50", "p99", "p99.9", "max"]
    places = range(len(counts), len(columns))
    return table(f"Chains, {result.get('kind', '')}", columns, rows, range(1, len(columns)), places)


def abandoned_jobs(counts: Mapping[str, Mapping[str, int]]) -> RenderableType:
    """Return the number of jobs abandoned by each stage, by reason."""
    reasons = list(next(iter(counts.values()), {}))
    rows = [[name, *(str(entry[reason]) for reason in reasons)] for name, entry in counts.items()]
    return table("Abandoned jobs", ["stage", *(r.replace("_", " ") for r in reasons)], rows, range(1, len(reasons) + 1))


def count_detections(details: Mapping[int, Mapping[str, Any]]) -> RenderableType:
    """Return the detections of the stages in each frame, counted by class."""
    rows = []
    for frame in sorted(details):
        for key in ("detections", "image_detections"):
            for_class: dict[str, int] = {}
            for hit in details[frame].get(key, ()):
                for_class[hit["class"]] = for_class.get(hit["class"], 0) + 1
            if key in details[frame]:
                rows.append([str(frame), key.replace("_", " "), ", ".join(f"{n} {c}" for c, n in for_class.items())])
    return table("Computed on this machine as by the board's engines", ["frame", "what", "found"], rows, (0,))


def engines(result: Mapping[str, Any]) -> RenderableType:
    """Return utilisation and energy of every engine."""
    return table("Engines", ["engine", "busy", "busy time", "energy"], view_model.engine_rows(result), (1, 2, 3))


def power_line(plan: Plan, result: Mapping[str, Any]) -> str:
    """Return observed power against the cap in one line; empty if no power was observed."""
    power = result.get("power_mw") or {}
    if not power.get("mean"):
        return (
            "Power: not observed (no readable power counter on this machine)"
            if result.get("kind") == "measured"
            else ""
        )
    cap = plan.power.cap_mw
    against = f" of {format_power(cap)} cap" if cap else " (no cap stated for this mode)"
    return f"Power mean {format_power(power['mean'])}{against}, peak {format_power(power.get('peak') or 0)}"


def predicted_against_measured(plan: Plan, result: Mapping[str, Any]) -> RenderableType:
    """Return predicted and measured median and 99th percentile of every stage, side by side, and how many agree."""
    rows = [
        [
            row.stage,
            view_model.duration(row.predicted_p50_ns),
            view_model.duration(row.p50_ns),
            row.mark,
            view_model.duration(row.predicted_p99_ns),
            view_model.duration(row.p99_ns),
            row.evidence,
        ]
        for row in view_model.predicted_against_measured(plan, result)
    ]
    columns = ["stage", "predicted p50", "measured p50", "measured/predicted", "predicted p99", "measured p99"]
    shown = table("Predicted against measured, on this machine", [*columns, "evidence"], rows, range(1, 6))
    line = view_model.intervals_line(plan, result)
    return Group(shown, Text(line)) if line else shown


def analysis_view(plan: Plan, document: Mapping[str, Any]) -> RenderableType:
    """Return everything that `socsched analyze` prints."""
    parts: list[RenderableType] = [verdict(plan)]
    if document["stated_verdict"] != plan.verdict:
        parts.append(Text(f"The file states {document['stated_verdict']}."))
    parts += [Text(f"No analysis covers {line}.") for line in document["outside"]]
    parts += [Text(f"Computed anew: {line}.") for line in document["changed"]]
    parts += [Text(rests_on(document)), Text(f"Not checked: {document['unchecked']}."), Text("")]
    for chain in document["chains"]:
        bound = "no bound exists" if chain["bound_ns"] is None else f"bound {format_duration(chain['bound_ns'])}"
        title = f"{chain['name']}: {bound}, deadline {format_duration(chain['deadline_ns'])}"
        if chain["test"]:
            title += f", by {chain['test']}"
        tight = chain["tightest"]
        if tight["bound_ns"] is not None and chain["bound_ns"] is not None and tight["bound_ns"] < chain["bound_ns"]:
            title += f"; {format_duration(tight['bound_ns'])} by {' and '.join(tight['tests'])}"
        parts.append(Text(title, "bold"))
        rows = [[_bound(way["bound_ns"]), way["test"], way["reason"]] for way in chain["ways"]]
        parts += [table("", ["bound", "analysis", "reason"], rows, (0,))]
        rows = [[format_duration(term["ns"]), term["name"]] for term in chain["terms"]]
        parts += [table("", ["time", "term"], rows, (0,)), Text("")]
    rows = [
        [lane["engine"], str(lane["lane"]), f"{lane['utilization']:.1%}", ", ".join(lane["tasks"])]
        for lane in document["lanes"]
    ]
    parts += [table("Utilisation (worst case)", ["engine", "lane", "busy", "tasks"], rows, (2,)), Text("")]
    rows = [
        [test["name"], ", ".join(test["bounds"]) or "-", test["reason"], test["source"]] for test in document["tests"]
    ]
    parts += [table("Coverage of the tests", ["test", "bounds", "limitation", "source"], rows), Text("")]
    rows = [
        [task["name"], _bound(task["own_bound_ns"]), _bound(task["bound_ns"]), task["test"] or "-", task["reason"]]
        for task in document["tasks"]
    ]
    columns = ["task", "the plan's own", "tightest", "by", "other tests not applied because"]
    parts += [table("Bounds of tasks, from the nominal release", columns, rows, (1, 2)), Text("")]
    parts += _margins(document)
    if plan.violations:
        parts += [Text(""), violations(plan)]
    return Group(*parts)


def rests_on(shown: Mapping[str, Any]) -> str:
    """Return the line that names the sections of the assumptions page behind a verdict."""
    proofs = shown["proofs"]
    if not proofs["sections"]:
        return "It rests on no bound."
    return f"It rests on {proofs['page']}: {'; '.join(proofs['sections'])}."


def _bound(value: int | None) -> str:
    return "none" if value is None else format_duration(value)


def _margins(document: Mapping[str, Any]) -> list[RenderableType]:
    """Return the margin for growth of each quantity, and the requirement that fails first beyond it."""
    margins = document["sensitivity"]
    if margins is None:
        return [Text("No margin: the deadlines are not proved for the present execution times.")]
    rows = [
        [name, format_duration(row["spare_ns"]), f"{row['factor']:.2f}", _lost(row)]
        for name, row in {"all together": margins["all"], **margins["stages"]}.items()
    ]
    heads = ["task", "margin", "factor", "violated first beyond it"]
    title = "Margins of execution times with every deadline still proved (worst case, 1 % accurate)"
    traffic = margins["co_runner"]
    line = f"A new co-runner may draw {format_bandwidth(traffic['bytes_per_s'])} of DRAM bandwidth all the time"
    line += f"; violated first beyond it: {_lost(traffic)}" if traffic["first"] else " (all of it)"
    if margins["left_out"]:
        line += f"\nMargins of {margins['left_out']} single tasks were left out, which take long to compute: --margins"
    return [table(title, heads, rows, (1, 2)), Text(""), Text(line)]


def _lost(row: Mapping[str, Any]) -> str:
    first: Sequence[str] = row["first"]
    if not first:
        return "nothing, up to the largest value tried"
    return first[0] + (f" and {len(first) - 1} more" if len(first) > 1 else "")
