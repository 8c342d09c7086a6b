"""Report content computed from plan, trace and result, shared by the terminal and HTML reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from socsched.cost.cost import is_within
from socsched.cost.power import Watts, at_wall
from socsched.descriptor.distribution import nearest_rank
from socsched.descriptor.platform import NATIVE, OWN, Supply
from socsched.planning.plan import BOUND, SEARCH, Plan, Task
from socsched.reporting.timeline import worst_frames
from socsched.trace.trace import Trace
from socsched.units import format_bandwidth, format_duration, format_power, format_size

SHOWN = 5
"""Necessary conditions named of an infeasible plan."""
PROVENANCE_ORDER = ("measured", "published", "fitted", "vendor model", "derived", "assumed")


def duration(ns: float | None) -> str:
    """Return a human-readable duration; a dash for None."""
    return "–" if ns is None else format_duration(ns)


def size(count: float | None) -> str:
    """Return a human-readable size; a dash for None."""
    return "–" if count is None else format_size(count)


def energy(mj: float | None) -> str:
    """Return millijoules as human-readable text; a dash for None."""
    if mj is None:
        return "–"
    return f"{mj / 1000:.3g} J" if abs(mj) >= 1000 else f"{mj:.3g} mJ"


def formatter(unit: str) -> Callable[[float], str]:
    """Return the function that formats a figure of `unit` ("ns", "mW", "B", ...) as human-readable text."""
    functions: dict[str, Callable[[float], str]] = {
        "ns": format_duration,
        "mW": format_power,
        "B": format_size,
        "B/s": format_bandwidth,
        "1e-3 points": lambda value: f"{value / 1000:g} points",
        "ns/s": lambda value: f"{value / 1e7:.3g} %",
    }
    return functions.get(unit, lambda value: f"{value:,} {unit}".replace(",", "\u202f"))


def lanes(plan: Plan, task: Task) -> str:
    """Return the lanes a task occupies, counted from 0, such as ``#0-3 of 8``."""
    total = next((engine.lanes for engine in plan.engines if engine.id == task.engine), 0)
    if total <= 1:
        return "whole"
    numbers = sorted(task.lanes)
    run = (
        f"{numbers[0]}-{numbers[-1]}"
        if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1
        else ", ".join(map(str, numbers))
    )
    return f"#{run} of {total}"


def evidence(task: Task) -> str:
    """Return the kind of evidence for a task's time, with its error."""
    return f"{task.provenance} ±{task.error:.0%}" if task.error else task.provenance


STAGES = ("stage", "engine", "precision", "lanes", "alone", "WCET", "evidence")


def stage_rows(plan: Plan) -> list[list[str]]:
    """Return every stage and conversion as the cells of `STAGES`, and why it is placed there."""
    return [
        [
            task.name, task.engine, task.precision, lanes(plan, task), format_duration(task.cost_ns),
            format_duration(task.wcet_ns), evidence(task), task.why,
        ]
        for task in plan.tasks
    ]  # fmt: skip


def engine_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return the name, utilisation, busy time and energy of every engine."""
    return [
        [name, f"{entry.get('utilization', 0):.1%}", duration(entry.get("busy_ns")), energy(entry.get("energy_mj"))]
        for name, entry in result.get("engines", {}).items()
    ]


def runtimes(plan: Plan) -> str:
    """Return the programs that compute the networks, each with its stages; empty where all are compiled by socsched."""
    groups: dict[str, list[str]] = {}
    for task in plan.tasks:
        if task.runtime not in ("", NATIVE):
            groups.setdefault(task.runtime, []).append(task.name)
    return "; ".join(f"{name}: {', '.join(tasks)}" for name, tasks in groups.items()) if set(groups) - {OWN} else ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Frames of a result, summed over its chains; a frame of several chains counts once for each.

    `late`: completed late, or not by their deadline; `dropped`: lost on the way, which are not counted as late.
    `stale`: outputs with data above the largest age; `aborted`: frames of sources that a run gave up.
    """

    released: int
    late: int
    dropped: int
    stale: int = 0
    aborted: int = 0
    chains: int = 1

    @property
    def met(self) -> bool:
        """Return whether no frame was late, dropped or aborted, and no output too old."""
        return not (self.late or self.dropped or self.stale or self.aborted)

    def told(self) -> str:
        """Return the counts in words."""
        if not self.released:
            return "no frame was released"
        lost = (
            f"{self.late} late, {self.dropped} dropped of" if self.late or self.dropped else "none late or dropped of"
        )
        text = f"{lost} {self.released} frames" + (f" of {self.chains} chains" if self.chains > 1 else "")
        text += f"; {self.stale} outputs with data that are too old" if self.stale else ""
        return text + (f"; {self.aborted} frames aborted" if self.aborted else "")


def totals(result: Mapping[str, Any], paced: bool = True) -> Totals:
    """Return the outcomes of all frames; those not released at a sensor's rate (not `paced`) cannot be late."""
    entries = result.get("chains", {}).values()
    keys = ("released", "missed", "dropped", "stale")
    released, late, dropped, stale = (sum(entry.get(key, 0) for entry in entries) for key in keys)
    aborted = sum(account["aborted"] for account in result.get("run", {}).get("accounts", {}).values())
    return Totals(released, late * paced, dropped, stale * paced, aborted, len(entries))


def chain_lines(plan: Plan, result: Mapping[str, Any]) -> list[str]:
    """Return one sentence per chain: deadline, bound, slack and outcome."""
    lines = []
    for chain in plan.chains:
        if chain.bound_ns is None:
            promise = "no bound exists"
        elif chain.bound_ns <= chain.deadline_ns:
            promise = (
                f"bound {format_duration(chain.bound_ns)}, slack {format_duration(chain.deadline_ns - chain.bound_ns)}"
            )
        else:
            excess = format_duration(chain.bound_ns - chain.deadline_ns)
            promise = f"bound {format_duration(chain.bound_ns)}, {excess} over the deadline"
        times = result.get("chains", {}).get(chain.name, {}).get("response_time_ns", {})
        worst = f"; worst observed {format_duration(times['max'])}" if times.get("max") is not None else ""
        lines.append(f"{chain.name}: deadline {format_duration(chain.deadline_ns)}, {promise}{worst}")
    return lines


def key_figures(plan: Plan, trace: Trace, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the main figures as (name, value) pairs."""
    frames = totals(result)
    figures = [(f"frames late, dropped, of {frames.released}", f"{frames.late}, {frames.dropped}")]
    figures += [("outputs with data that are too old", str(frames.stale))] if frames.stale else []
    arrived = [worst for worst in worst_frames(plan, trace) if worst.response_ns is not None]
    if arrived and arrived[0].response_ns is not None:
        chain = arrived[0].chain
        name = f"worst response, deadline {format_duration(chain.deadline_ns)} ({chain.name})"
        figures.append((name, format_duration(arrived[0].response_ns)))
    power = result.get("power_mw") or {}
    cap = plan.power.cap_mw
    if power.get("mean"):
        allowed = f", cap {format_power(cap, 3)}" if cap else ""
        figures.append(
            (f"mean power (peak {format_power(power.get('peak', 0), 3)}{allowed})", format_power(power["mean"], 3))
        )
    busiest = max(result.get("engines", {}).items(), key=lambda kv: kv[1].get("utilization", 0), default=None)
    if busiest:
        figures.append((f"busiest engine ({busiest[0]})", f"{busiest[1].get('utilization', 0):.0%}"))
    return figures


def provenance_shares(plan: Plan) -> dict[str, float]:
    """Return kind of evidence -> share of the time on the chains' critical paths based on it."""
    recorded: Mapping[str, float] = plan.provenance.critical_path or {}
    if sum(recorded.values()) > 0:
        return {kind: share for kind, share in recorded.items() if share > 0}
    total = sum(task.cost_ns for task in plan.tasks) or 1
    by_kind = {kind: sum(t.cost_ns for t in plan.tasks if t.provenance == kind) / total for kind in PROVENANCE_ORDER}
    return {kind: share for kind, share in by_kind.items() if share > 0}


def planned_quantile(task: Task, percent: int) -> int | None:
    """Return a percentile of the expected isolated execution time of a task's jobs (ns), None if unknown.

    It is taken from the task's execution times if known; otherwise the cost serves as the median, and other percentiles
    are unknown.
    """
    if task.times is None:
        return task.cost_ns if percent == 50 else None
    return nearest_rank(sorted(task.times.values_ns), percent)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Predicted and measured percentiles of a stage's execution time (ns); None if not available.

    `error`: stated relative error of the predicted median, 0 for none.
    """

    stage: str
    evidence: str
    predicted_p50_ns: int | None
    predicted_p99_ns: int | None
    p50_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    error: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Return the measured median over the predicted median."""
        return self.p50_ns / self.predicted_p50_ns if self.p50_ns is not None and self.predicted_p50_ns else None

    @property
    def outside(self) -> bool | None:
        """Return whether the measured median is outside the interval that was predicted, None where none was stated."""
        return not is_within(self.ratio, self.error) if self.ratio is not None and self.error else None

    @property
    def mark(self) -> str:
        """Return the ratio as text, marked where it is outside the interval."""
        return "–" if self.ratio is None else f"{self.ratio:.2f}" + (" ✗" if self.outside else "")


def predicted_against_measured(plan: Plan, result: Mapping[str, Any]) -> list[StageTimes]:
    """Return the predicted and measured percentiles of every stage."""
    rows = []
    for task in plan.tasks:
        times = result.get("stages", {}).get(task.name, {}).get("exec_ns", {})
        p50, p99 = planned_quantile(task, 50), planned_quantile(task, 99)
        middle, high, most = (times.get(name) for name in ("p50", "p99", "max"))
        rows.append(StageTimes(task.name, evidence(task), p50, p99, middle, high, most, task.error))
    return rows


def kept_intervals(plan: Plan, result: Mapping[str, Any]) -> tuple[int, int, list[str]]:
    """Return how many measured medians are inside their intervals, of how many, and the stages that are outside."""
    judged = [row for row in predicted_against_measured(plan, result) if row.outside is not None]
    missed = [row.stage for row in judged if row.outside]
    return len(judged) - len(missed), len(judged), missed


def intervals_line(plan: Plan, result: Mapping[str, Any]) -> str:
    """Return how many stages kept their intervals, and what would mend the others; "" where none states one."""
    inside, judged, missed = kept_intervals(plan, result)
    if not judged:
        return ""
    line = f"{inside} of {judged} stages inside their intervals"
    if not missed:
        return f"{line}."
    here = plan.platform == "host"
    board = "" if here else " here, or `start.sh --profile FILE` of its bundle on the board,"
    later = ", `run --learn` for later plans of this machine" if here else ""
    profile = f"`socsched profile {plan.pipeline} -p {plan.platform} -o FILE`{board}"
    return f"{line}; outside (✗): {', '.join(missed)}. {profile} measures them for `plan --profile FILE`{later}."


def beyond_bounds(plan: Plan, result: Mapping[str, Any]) -> list[str]:
    """Return a line for every chain whose longest response is above its bound, with the jobs that were above theirs.

    A bound holds while no job takes longer than its planned WCET; WCETs that are estimates can be exceeded.
    """
    longest = {row.stage: row.max_ns or 0 for row in predicted_against_measured(plan, result)}
    over = [
        f"{task.name} took up to {format_duration(longest[task.name])} of {format_duration(task.wcet_ns)}"
        for task in plan.tasks
        if longest[task.name] > task.wcet_ns
    ]
    cause = ", ".join(over) if over else "none did: what lies between jobs took longer, or an engine was lost"
    lines = []
    for chain in plan.chains:
        times = result.get("chains", {}).get(chain.name, {}).get("response_time_ns", {})
        if chain.bound_ns is not None and (times.get("max") or 0) > chain.bound_ns:
            bound = f"{duration(times['max'])} is above its bound of {format_duration(chain.bound_ns)}"
            lines.append(f"{chain.name}: {bound}, which holds while jobs keep their planned WCETs: {cause}.")
    return lines


def wall(supply: Supply, module_mw: float) -> str:
    """Return the power at the wall of a module on the carrier board and the adaptor that its platform states."""
    power = at_wall(supply, Watts(module_mw, 0.0))
    parts = f"{format_power(supply.carrier_mw.value, 3)} carrier, adaptor {supply.efficiency.value:.0%}"
    return f"At the wall: {format_power(power.mw, 3)} ({supply.title}: {parts})"


def condition(plan: Plan, chain: str) -> str:
    """Return how far the proof of a chain holds, "" if that is not known."""
    proof = next((c for c in plan.uncertainty.conditions if c.chain == chain), None)
    if proof is None:
        return ""
    holds = f"feasible up to × {proof.factor:.2f} of {proof.stage}'s time"
    return f"{chain}: {holds}, its interval ends at × {proof.interval:.2f}"


def proof(plan: Plan) -> list[str]:
    """Return what an infeasible verdict rests on, a line for each necessary condition; nothing for other plans."""
    if plan.verdict != "infeasible" or plan.solver.proof is None:
        return []
    words = {BOUND: "every mapping needs", SEARCH: "mappings are excluded that need at least"}
    every = words.get(plan.solver.proof.method, "this plan needs")
    lines = []
    for one in plan.solver.proof.necessities[:SHOWN]:
        show = formatter(one.unit)
        need = f"{every} {show(one.demand)}, allowed {show(one.bound)}"
        lines.append(f"{one.requirement}: {need} ({one.section})")
    more = len(plan.solver.proof.necessities) - SHOWN
    return [*lines, *([f"and {more} more necessary conditions: solver.proof in plan.json"] if more > 0 else [])]


def cut_off(plan: Plan) -> list[str]:
    """Return that a limit on time ended the search for a plan, a line; nothing for other plans."""
    if not plan.solver.cut_short:
        return []
    return ["a limit on time cut the search off: another run may give another plan, and no figure is a regression"]


def undecided(plan: Plan) -> list[str]:
    """Return the gaps of an undecided plan and what would decide it, a line each; nothing for other plans."""
    lines = []
    for one in plan.solver.open or ():
        show = formatter(one.unit)
        least = "no lower bound known" if one.least is None else f"no mapping below {show(one.least)}"
        # A time is an upper bound, which a better analysis may lower; sums of power, bytes and jobs are exact.
        what = "proved of the best mapping" if one.unit == "ns" else "of the best mapping"
        over = show(one.demand - one.bound)
        lines.append(f"{one.requirement}: {show(one.demand)} {what}, {over} more than {show(one.bound)}; {least}")
    return [*lines, *(f"would decide it: {line}" for line in plan.solver.decide or ())]


def conditions(plan: Plan) -> list[str]:
    """Return the conditions of a proof, one line for every chain, and the verdict at the upper ends of all costs."""
    lines = [text for chain in plan.chains if (text := condition(plan, chain.name))]
    if plan.uncertainty.upper:
        lines.append(f"all costs at the upper ends of their intervals: {plan.uncertainty.upper}")
    found_by = plan.solver.found_by
    lines += [f"found by {found_by}"] if found_by else []
    queues = [f"{name} {found['queue']}" for name, found in (plan.solver.chosen or {}).items() if "queue" in found]
    lines += [f"chosen: frames that may wait: {', '.join(queues)}"] if queues else []
    slices = [
        f"{name} {format_duration(found['slice_ns'])}"
        for name, found in (plan.solver.chosen or {}).items()
        if "slice_ns" in found
    ]
    return [*lines, *([f"chosen: time slices: {', '.join(slices)}"] if slices else [])]
