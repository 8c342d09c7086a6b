"""Pipeline files: workload, rates and end-to-end deadlines; read into `descriptor.pipeline`, and checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from socsched.descriptor.fields import Cycle, Quantity
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.source import Document, read
from socsched.descriptor.validation import Tree, check_figures, plain, validate
from socsched.errors import UsageError
from socsched.units import format_duration

_PERIOD = Cycle("duration", positive=True).read
_TIME = Quantity("duration").read
NETWORKS = (".onnx", ".onnx.xz")
"""Endings of files that are a network."""
Value = TypeVar("Value")


def load_pipeline(path: str | Path) -> Pipeline:
    """Return the pipeline of a YAML file; DescriptorError lists all its faults with their positions."""
    return pipeline_from_document(read(path))


def pipeline_from_mapping(mapping: Mapping[str, Any], file: str) -> Pipeline:
    """Return a pipeline from data in the form of a pipeline file, checked the same way; `file` names it in errors."""
    return pipeline_from_document(Document(file, plain(mapping)))


def pipeline_from_document(document: Document) -> Pipeline:
    """Return the pipeline of a parsed file; DescriptorError as `load_pipeline`.

    The path of a network is relative to the file's folder.
    """
    pipeline = validate(document, Pipeline, CHECKS)
    folder = Path(document.file).parent.absolute()
    stages = [
        replace(one, params={**one.params, "file": str(folder / network)})
        if isinstance(network := one.params.get("file"), Path)
        else one
        for one in pipeline.stages
    ]
    return replace(pipeline, stages=tuple(stages), file=document.file)


def onnx_pipeline(path: Path, period_ms: int = 100) -> Pipeline:
    """Return the pipeline of an ONNX file: a frame every period, due before the next; UsageError if it is missing."""
    if not path.is_file():
        raise UsageError(f"{path}: does not exist", "expected an ONNX file, or the name of a pipeline")
    stem = path.name.removesuffix(".xz").removesuffix(".onnx")
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", stem).lstrip("_.-")[:64] or "network"
    why = f"no rate given: assuming a frame every {period_ms} ms, each done before the next"
    mapping = {
        "schema_version": "1",
        "name": name,
        "title": f"{path.name} on its own",
        "sensors": {"frames": {"kind": "frames", "period": f"{period_ms} ms", "assumed": why}},
        "stages": {
            "network": {
                "title": path.name,
                "onnx": path.name,
                "after": ["frames"],
                "precisions": ["fp32", "fp16"],
            }
        },
        "chains": {"frame": {"path": ["frames", "network"], "deadline": f"{period_ms} ms", "assumed": why}},
    }
    return pipeline_from_mapping(mapping, str(path))


def check_names(root: Tree) -> None:
    """Report stages that share a name with a sensor."""
    sensors = root.at("sensors").names()
    for stage in root.at("stages").items():
        if stage.key in sensors:
            stage.report("expected a name that no sensor has", key=True)


def check_triggers(root: Tree) -> None:
    """Report stages with no trigger or two."""
    for stage in root.at("stages").items():
        after, timer = bool(stage.at("after").value), stage.at("period").value is not None
        if after and timer:
            stage.at("period").report("expected one trigger, after or period; got both", key=True)
        if not after and not timer and isinstance(stage.value, dict):
            stage.report("expected a trigger: after (sensors or stages) or period (a timer)")
        for key in ("offset", "jitter"):
            if not timer and stage.at(key).value is not None:
                stage.at(key).report(f"{key} belongs to a timer; expected it only together with period", key=True)


def check_late(root: Tree) -> None:
    """Report stages that degrade without a cheaper variant, or have a variant that never runs."""
    for stage in root.at("stages").items():
        degrades, variant = stage.at("on_late").text == "degrade", stage.at("degraded")
        if degrades and variant.value is None:
            stage.at("on_late").report("expected degraded as well: what a late job runs instead")
        if not degrades and variant.value is not None:
            variant.report("expected on_late: degrade as well, else it never runs", key=True)


def check_high(root: Tree) -> None:
    """Report times at the high level of criticality of stages that are not hard, or that shorten a time."""
    for stage in root.at("stages").items():
        high = stage.at("high")
        if high.value is None:
            continue
        if stage.at("criticality").text != "hard":
            high.report("expected criticality: hard as well; other stages are dropped at the high level", key=True)
        if isinstance(high.value, (int, float)) and high.value < 1:
            high.report("expected a factor of at least 1 on the planned cost")


def check_references(root: Tree) -> None:
    """Report names under after, reads and path that do not exist."""
    known = {*root.at("sensors").names(), *root.at("stages").names()}
    lists = [stage.at(key) for stage in root.at("stages").items() for key in ("after", "reads")]
    for names in [*lists, *(chain.at("path") for chain in root.at("chains").items())]:
        earlier: set[str] = set()
        for name in names.texts():
            if name.text not in known:
                name.unknown("sensor or stage", known)
            elif name.text in earlier:
                name.report(f"{name.text!r} is listed twice")
            earlier.add(name.text)


def check_costs(root: Tree) -> None:
    """Report stages without an execution time, from network or costs, or without one in an accepted dtype."""
    for stage in root.at("stages").items():
        model, onnx, costs = (stage.at(key) for key in ("model", "onnx", "costs"))
        if isinstance(stage.value, dict) and not (model.value or onnx.value or costs.value):
            stage.report("expected model, onnx or costs: a stage without network needs known execution times")
        if model.value and onnx.value:
            onnx.report("expected one network, model or onnx; got both", key=True)
        accepted = [precision.text for precision in stage.at("precisions").texts()]
        _check_precisions(stage, accepted or ["fp32"], bool(model.value or onnx.value))


def _check_precisions(stage: Tree, accepted: list[str], network: bool) -> None:
    earlier: set[str] = set()
    for precision in stage.at("precisions").texts():
        if precision.text in earlier:
            precision.report(f"{precision.text!r} is listed twice")
        earlier.add(precision.text)
    stated = [text for cost in stage.at("costs").items() if (text := cost.at("precision").text)]
    if stated and not network and not set(stated) & set(accepted):
        types, got = ", ".join(accepted), ", ".join(dict.fromkeys(stated))
        stage.at("costs").report(f"no engine can run this stage: expected a time in {types}, got only {got}")


def check_accuracy(root: Tree) -> None:
    """Report losses of data types a stage does not accept, and a budget that no stage uses."""
    stated = False
    for stage in root.at("stages").items():
        accepted = {precision.text for precision in stage.at("precisions").texts()} or {"fp32"}
        for loss in stage.at("accuracy_loss").items():
            stated = True
            if loss.key not in accepted:
                loss.report(f"expected one of the accepted data types, {', '.join(sorted(accepted))}", key=True)
    budget = root.at("accuracy_budget")
    if budget.value is not None and not stated:
        budget.report("expected accuracy_loss in at least one stage, else the budget has no effect", key=True)


def check_cycles(root: Tree) -> None:
    """Report stages that wait for themselves through after; only one of cycles that share stages."""
    stages = root.at("stages")
    done: set[str] = set()
    for start in stages.names():
        trail = _cycle(stages, start, done)
        if trail:
            where = stages.at(trail[0]).at("after")
            where.report(f"cycle: {' waits for '.join([*trail, trail[0]])}; read the latest output with reads instead")


def _cycle(stages: Tree, start: str, done: set[str]) -> list[str]:
    """Return the stages of a cycle reached from `start`, first in file order first; mark visited stages done."""
    trail: list[str] = []
    pending = [(start, 0)]
    while pending:
        name, depth = pending.pop()
        del trail[depth:]
        if name in trail:
            return trail[trail.index(name) :]
        if name in done:
            continue
        done.add(name)
        trail.append(name)
        pending += [(item.text, depth + 1) for item in stages.at(name).at("after").texts()]
    return []


def check_rates(root: Tree) -> None:
    """Report joins of different rates: a stage waits for frame k of everything under after, so periods must agree."""
    periods = _periods(root, root)
    for _, first, name in _mismatched(root, periods):
        expected = f"the period of {first.text!r} ({format_duration(float(periods[first.text]))})"
        rate = format_duration(float(periods[name.text]))
        name.report(f"expected {expected}, got {rate}; sample the other rate with reads")
    for condition in root.at("conditions").items():
        for stage, first, name in _mismatched(root, _periods(root, condition)):
            if periods.get(first.text) == periods.get(name.text):
                joined = f"{first.text!r} and {name.text!r}, which {stage!r} joins"
                condition.report(f"expected equal periods of {joined}", key=True)


def _mismatched(root: Tree, periods: Mapping[str, float]) -> Iterator[tuple[str, Tree, Tree]]:
    """Yield every stage that joins different rates, with its first input and one of another rate."""
    for stage in root.at("stages").items():
        names = [name for name in stage.at("after").texts() if name.text in periods]
        for name in names[1:]:
            if periods[names[0].text] != periods[name.text]:
                yield stage.key, names[0], name


def _periods(root: Tree, changed: Tree) -> dict[str, float]:
    """Return the period (ns) of every sensor and stage with a readable one, propagated along after.

    `changed`: an operating condition whose periods replace the file's own, or the file itself.
    """
    timers = [timer for tree in (root, changed) for key in ("sensors", "stages") for timer in tree.at(key).items()]
    periods = {timer.key: timer.at("period").parse(_PERIOD) for timer in timers if timer.at("period").value is not None}
    known_periods = {name: period for name, period in periods.items() if period}
    _hand_on(root, known_periods)
    return known_periods


def _hand_on(root: Tree, found: dict[str, Value]) -> None:
    """Propagate values along after: each stage takes that of its first source with one."""
    consumers: dict[str, list[str]] = {}
    for stage in root.at("stages").items():
        for name in stage.at("after").texts():
            consumers.setdefault(name.text, []).append(stage.key)
    pending = list(found)
    for producer in pending:
        fresh = [consumer for consumer in consumers.get(producer, ()) if consumer not in found]
        found.update(dict.fromkeys(fresh, found[producer]))
        pending += fresh


def check_sporadic(root: Tree) -> None:
    """Report joins of a sporadic sensor with other inputs: frame k may arrive any time after the other's frame k."""
    sporadic = {s.key: s.key for s in root.at("sensors").items() if s.at("sporadic").parse(_TIME)}
    if not sporadic:
        return
    owner: dict[str, str] = dict(sporadic)
    _hand_on(root, owner)
    for stage in root.at("stages").items():
        names = stage.at("after").texts()
        mixed = [name for name in names if owner.get(name.text) != owner.get(names[0].text)]
        if mixed:
            which = owner.get(mixed[0].text) or owner.get(names[0].text)
            mixed[0].report(f"frames of the sporadic {which!r} cannot be joined with others; sample them with reads")


def check_chains(root: Tree) -> None:
    """Report chains that do not start at a sensor or timer, or whose neighbours are not linked."""
    sensors, stages = root.at("sensors").names(), root.at("stages")
    for chain in root.at("chains").items():
        path = chain.at("path").texts()
        if not path:
            continue
        first = stages.at(path[0].text)
        if first.value is not None and path[0].text not in sensors and first.at("period").value is None:
            path[0].report(f"expected a sensor or a stage with a period, got {path[0].text!r}, which is triggered")
        for before, name in pairwise(path):
            _check_link(before, name, sensors, stages)
        if path[-1].text in sensors:
            path[-1].report(f"expected a stage at the end, got the sensor {path[-1].text!r}")


def _check_link(before: Tree, name: Tree, sensors: list[str], stages: Tree) -> None:
    stage = stages.at(name.text)
    ends = [*sensors, *stages.names()]
    if before.text not in ends or name.text not in ends or not isinstance(stage.value, (dict, type(None))):
        return
    if name.text in sensors:
        name.report(f"expected a stage, got the sensor {name.text!r}; a sensor can only start a chain")
        return
    linked = [item.text for key in ("after", "reads") for item in stage.at(key).texts()]
    if before.text not in linked:
        takes = ", ".join(linked) or "nothing"
        name.report(f"{name.text!r} neither waits for nor reads {before.text!r}; its inputs are {takes}")


def check_conditions(root: Tree) -> None:
    """Report conditions that name sensors, stages or chains the file lacks, or change what these do not have."""
    stages = root.at("stages")
    for condition in root.at("conditions").items():
        if condition.key == "base":
            condition.report("expected another name: base is the file without changes", key=True)
        for part in ("sensors", "stages", "chains"):
            names = root.at(part).names()
            for item in condition.at(part).items():
                if item.key not in names:
                    item.unknown(part[:-1], names, key=True)
        for change in condition.at("stages").items():
            stage = stages.at(change.key)
            network = stage.at("model").value or stage.at("onnx").value
            if stage.value is None:
                continue
            if change.at("load").value is not None and network:
                change.at("load").report("expected params instead: the model of this stage determines its time")
            if change.at("params").value and not network:
                change.at("params").report("expected load instead: this stage has no model", key=True)
            if change.at("period").value is not None and stage.at("period").value is None:
                change.at("period").report("expected no period: the stage has no timer", key=True)


CHECKS = (
    check_names,
    check_triggers,
    check_references,
    check_costs,
    check_accuracy,
    check_cycles,
    check_rates,
    check_late,
    check_high,
    check_sporadic,
    check_chains,
    check_figures,
    check_conditions,
)
