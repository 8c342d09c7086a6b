"""Semantic checks of a task-set file; every check tolerates any structure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any

from socsched.descriptor.validation import Tree, suggest
from socsched.limits import HORIZON_NS, LONGEST_NS

UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
"""Time unit of a file -> ns; the default unit is ns."""
RULES = {"EDF": "edf", "FP": "fp", "RM": "rm", "DM": "dm", "FIFO": "fifo"}
POLICY = re.compile(
    r"(?:(?P<scheme>P|G|partitioned|global)[_ ])?(?P<np>NP[-_ ])?(?P<rule>EDF|FP|RM|DM|FIFO)"
    r"(?P<last>[-_ ]NP|-P|_mono)?",
    re.IGNORECASE,
)
TIMES = (
    *(
        "period",
        "deadline",
        "wcet",
        "bcet",
        "offset",
        "phase",
        "jitter",
        "blocking",
        "longest_region",
        "suspension",
        "distance",
    ),
    *("suspension", "time", "handling", "overhead", "latency", "contention", "horizon"),
)
_POSITIVE = ("period", "deadline", "wcet", "time")


def _number(item: Tree) -> Fraction | None:
    """Return the value as a number, None when it is not one (which is reported elsewhere)."""
    value = item.value
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not isfinite(value):
        return None
    return Fraction(str(value))


def _times(tree: Tree) -> Iterator[Tree]:
    """Yield every time of a file."""
    for item in tree.items():
        if item.key in TIMES and not isinstance(item.value, (dict, list)):
            yield item
        elif item.key in ("regions", "wcets"):
            yield from item.items()
        else:
            yield from _times(item)


def _check_times(root: Tree) -> None:
    unit = root.at("time_unit").text or "ns"
    scale = UNITS.get(unit, 1)
    for item in _times(root):
        value = _number(item)
        if value is None:
            continue
        positive = item.key in _POSITIVE or "regions" in item.path or "wcets" in item.path
        if value < 0 or (value == 0 and positive):
            item.report(f"expected {'a positive' if positive else 'no negative'} time, got {item.value}")
        elif (value * scale).denominator != 1:
            item.report(f"expected a whole number of ns, got {item.value} {unit}; nothing is rounded")
        elif value * scale > (most := HORIZON_NS if item.key == "horizon" else LONGEST_NS):
            item.report(f"expected at most {most // scale} {unit}, got {item.value}")


def _check_tasks(root: Tree) -> None:
    seen: dict[str, set[Any]] = {"id": set(), "name": set()}
    for index, task in enumerate(root.at("tasks").items()):
        number = task.at("id").value if task.at("id").value is not None else index
        for key, value in (("id", number), ("name", task.at("name").text or f"t{number}")):
            if isinstance(value, (int, str)) and value in seen[key]:
                task.at(key).report(f"expected every {key} once, got {value!r} again")
            else:
                seen[key].add(value if isinstance(value, (int, str)) else None)
        wcet, bcet = _number(task.at("wcet")), _number(task.at("bcet"))
        if wcet is not None and bcet is not None and bcet > wcet:
            task.at("bcet").report(f"expected at most the wcet of {task.at('wcet').value}, got {task.at('bcet').value}")
        period, distance = _number(task.at("period")), _number(task.at("distance"))
        if period is not None and distance is not None and distance > period:
            task.at("distance").report(f"expected at most the period of {task.at('period').value}")
        for one, other in (("offset", "phase"), ("prio", "rm_rank")):
            if task.at(one).value is not None and task.at(other).value is not None:
                task.at(other).report(f"expected {one} or {other}, which mean the same, not both")


def _check_policy(root: Tree) -> None:
    policy, tasks = root.at("policy"), list(root.at("tasks").items())
    processors = root.at("processors").value if isinstance(root.at("processors").value, int) else 1
    match = POLICY.fullmatch(policy.text) if policy.text else None
    if policy.text and match is None:
        policy.report(f"unknown policy {policy.text!r}; {suggest(policy.text, [*RULES, 'P_RM', 'NP-FP', 'EDF_mono'])}")
        return
    rule = match["rule"].upper() if match else ""
    stated = (match["scheme"] or "").lower()[:1] if match else ""
    placed = [task for task in tasks if isinstance(task.at("cpu").value, int)]
    for task in tasks:
        cpu = task.at("cpu")
        if processors > 1 and cpu.value is None and (stated == "p" or placed):
            task.report("expected cpu, as the policy or the other tasks are partitioned")
        if isinstance(cpu.value, int) and cpu.value >= processors:
            cpu.report(f"expected a processor below {processors}, got {cpu.value}")
        if isinstance(cpu.value, int) and stated == "g":
            cpu.report("expected no cpu under a global policy")
        if rule == "FP" and task.at("prio").value is None and task.at("rm_rank").value is None:
            task.report("expected prio, as the policy is FP (lower number first)")
    if match and (match["last"] or "").lower() == "_mono" and processors != 1:
        root.at("processors").report(f"expected 1 processor under {policy.text}, got {processors}")


def _check_parts(root: Tree) -> None:
    """Check features beyond plain tasks: that parts add up, and that references resolve."""
    types = root.at("types").names()
    for task in root.at("tasks").items():
        wcet = _number(task.at("wcet"))
        nodes = list(task.at("graph").at("nodes").items())
        for part, times in (("regions", list(task.at("regions").items())), ("graph", [n.at("wcet") for n in nodes])):
            total = sum((_number(time) or Fraction(0) for time in times), Fraction(0))
            if times and wcet is not None and total != wcet:
                task.at(part).report(f"expected times that add up to the wcet of {task.at('wcet').value}")
        for node in nodes:
            if node.at("type").text not in types and (types or node.at("type").text):
                node.at("type").unknown("type", types)
        for edge in task.at("graph").at("edges").items():
            ends = edge.value if isinstance(edge.value, list) else []
            good = len(ends) == 2 and all(isinstance(end, int) and 0 <= end < len(nodes) for end in ends)
            if not good or ends[0] >= ends[1]:
                edge.report("expected [earlier, later], positions of nodes in ascending order, which rules out cycles")
        if task.at("requests").value and root.at("accelerator").value is None:
            task.at("requests").report("expected accelerator next to tasks: how tasks wait for requests")
    processors, cpu = root.at("processors").value, root.at("accelerator").at("cpu")
    count = processors if isinstance(processors, int) else 1
    if isinstance(cpu.value, int) and cpu.value >= count:
        cpu.report(f"expected a processor below {count}, got {cpu.value}")
    budgets = root.at("memguard").at("budgets")
    if isinstance(budgets.value, list) and len(budgets.value) != count:
        budgets.report(f"expected a budget for each of {count} processors, got {len(budgets.value)}")


def _check_chain(root: Tree) -> None:
    tasks = list(root.at("tasks").items())
    names = [
        task.at("name").text or f"t{index if task.at('id').value is None else task.at('id').value}"
        for index, task in enumerate(tasks)
    ]
    for entry in root.at("chain").items():
        if isinstance(entry.value, str) and entry.value not in names:
            entry.unknown("task", names)
        elif isinstance(entry.value, int) and not 0 <= entry.value < len(tasks):
            entry.report(f"expected a position from 0 to {len(tasks) - 1}, got {entry.value}")


def _check_levels(root: Tree) -> None:
    """Check that bounds grow with criticality up to the wcet, and that degraded service is less than full service."""
    for task in root.at("tasks").items():
        wcet, period = _number(task.at("wcet")), _number(task.at("period"))
        levels = [_number(item) for item in task.at("wcets").items()]
        known = [value for value in levels if value is not None]
        if known and (known != sorted(known) or known[-1] != wcet):
            task.at("wcets").report(f"expected ascending times, the last being the wcet of {task.at('wcet').value}")
        degraded = task.at("degraded")
        least, most = _number(degraded.at("wcet")), _number(degraded.at("period"))
        if least is not None and wcet is not None and least > wcet:
            degraded.at("wcet").report(f"expected at most the wcet of {task.at('wcet').value}")
        if most is not None and period is not None and most < period:
            degraded.at("period").report(f"expected at least the period of {task.at('period').value}")


CHECKS = (_check_times, _check_tasks, _check_policy, _check_parts, _check_chain, _check_levels)
