"""A result as Markdown, for pull requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from socsched.planning.plan import ChainResult, Plan
from socsched.reporting import view_model
from socsched.reporting.junit import lateness, violation_text
from socsched.reporting.plan_diff import Slack
from socsched.reporting.why import headline, main_cause
from socsched.trace.trace import Trace
from socsched.trace.why import Why
from socsched.units import format_duration, format_power


def render(plan: Plan, trace: Trace | None, result: Mapping[str, Any], slacks: Sequence[Slack] = ()) -> str:
    """Return the verdict, the outcome of every chain, the reason the worst frame was late, and the mapping of stages.

    `slacks`: those that a guard asks for, of which the short ones are listed.  `trace` is None and `result` empty for
    a plan that could not be simulated because a stage has no engine.
    """
    seen = view_model.totals(result)
    good = plan.verdict == "feasible" and seen.met
    mark = "✅" if good else "❌" if not seen.met or plan.verdict == "infeasible" else "❔"
    lines = [f"## {mark} {plan.pipeline} on {plan.platform}, mode {plan.mode}", ""]
    simulated = f"{trace.kind.capitalize()}: {seen.told()}." if trace else ""
    lines.append(f"Plan: **{plan.verdict}**. {simulated or 'Nothing to simulate: a stage has no engine.'}")
    if rests := [*view_model.cut_off(plan), *view_model.proof(plan), *view_model.undecided(plan)]:
        lines += ["", *(f"- {plain(line)}" for line in rests)]
    if short := [one.told() for one in slacks if one.short]:
        lines += ["", *(f"- ❌ {plain(line)}" for line in short)]
    lines += ["", *table(_CHAIN, (_chain_row(chain, result) for chain in plan.chains))]
    power = (result.get("power_mw") or {}).get("mean")
    if power is not None:
        cap = plan.power.cap_mw
        lines += ["", f"Mean power {format_power(power)}" + (f" of {format_power(cap)} cap." if cap else ".")]
    if not seen.met and trace:
        worst = Why(trace, plan).worst()
        sentences = [headline(worst), *filter(None, [main_cause(worst)])]
        lines += ["", f"Worst: {plain('. '.join(sentences))}"]
    for violation in plan.violations:
        lines += ["", "```text", violation_text(violation), "```"]
    rows = ([task.name, task.engine, task.precision, format_duration(task.cost_ns)] for task in plan.tasks)
    lines += ["", "<details><summary>Where each stage runs</summary>", ""]
    lines += [*table(("stage", "engine", "precision", "alone"), rows), "", "</details>", ""]
    return "\n".join(lines)


def error_summary(name: str, message: str, hint: str) -> str:
    """Return the summary of a guard that ended without a verdict, with its error message."""
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", message + hint)), default=0))
    lines = [f"## ❌ {plain(name)}: no verdict", "", f"{fence}text", message, *([hint] if hint else []), fence, ""]
    return "\n".join(lines)


_CHAIN = ("chain", "deadline", "bound", "p50", "p99.9", "worst", "late", "dropped")


def _chain_row(chain: ChainResult, result: Mapping[str, Any]) -> list[str]:
    entry = result.get("chains", {}).get(chain.name, {})
    times = entry.get("response_time_ns") or {}
    figures = [view_model.duration(times.get(name)) for name in ("p50", "p99_9", "max")]
    late, dropped = (str(entry.get(name, 0)) for name in ("missed", "dropped"))
    name = f"❌ {chain.name}" if lateness(entry, chain) else chain.name
    return [name, format_duration(chain.deadline_ns), view_model.duration(chain.bound_ns), *figures, late, dropped]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; characters that would end a cell are escaped."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(map(plain, row)) + " |" for row in rows]


def plain(text: str) -> str:
    """Return text escaped so that Markdown shows it literally."""
    for sign in "\\`*_|<[":
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())
