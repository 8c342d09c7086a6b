"""Platform files: one SoC, every figure with its source; read into `descriptor.platform`, and checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched import resources
from socsched.descriptor.fields import NAME_PATTERN, VERSION_PATTERN, Quantity
from socsched.descriptor.operator_rules import check_case, check_limit, find_rules, load_rules, rule_names
from socsched.descriptor.platform import Platform, engine_ids
from socsched.descriptor.processors import PROCESSORS, architecture
from socsched.descriptor.source import Document, read_extended
from socsched.descriptor.source import base_files as _base_files
from socsched.descriptor.validation import Tree, check_figures, plain, suggest, validate
from socsched.errors import UsageError, unwritable
from socsched.units import format_bandwidth, format_frequency

_CLOCK = Quantity("frequency").read
_RATE = Quantity("bandwidth").read
FUNCTIONS = ("voxelise", "anchor-decode", "center-decode", "camera-preprocess", "camera-resize", "camera-normalise",
             "camera-decode")  # fmt: skip
"""Functions of the built-in models that an engine can declare (`models.model.Model.device`)."""
COUNTS = ("points", "pillars", "anchors", "cells", "candidates", "boxes", "input_pixels", "output_pixels")
"""Quantities that the built-in functions count their work in (`graph.operators.Operator.attrs`)."""
SCALES = ("scale_h", "scale_w")
"""Further attributes of functions that limits can name: output size over input size."""
_TIME = Quantity("duration").read
_SKELETON = Path(__file__).with_name("skeleton.yaml")


def load_platform(path: str | Path) -> Platform:
    """Return the platform of a YAML file; DescriptorError lists all its faults with their positions."""
    return _platform(read_platform(path))


def read_platform(path: str | Path) -> Document:
    """Return the data of a platform file, complete with what it does not state of the platform that it extends."""
    return read_extended(path, _elsewhere)


def base_files(path: str | Path) -> list[Path]:
    """Return the files of the platforms that a file extends, directly and in turn."""
    return _base_files(path, _elsewhere)


def _elsewhere(name: str) -> Path | None:
    return resources.find("platforms", name) if name in resources.names("platforms") else None


def platform_from_mapping(mapping: Mapping[str, Any], file: str) -> Platform:
    """Return a platform from data in the form of a platform file, checked the same way; `file` names it in errors."""
    return _platform(Document(file, plain(mapping)))


def _platform(document: Document) -> Platform:
    platform = validate(document, Platform, CHECKS)
    folder = Path(document.file).parent
    engines = tuple(replace(engine, operators=engine.operators.resolved(folder)) for engine in platform.engines)
    return replace(platform, engines=engines, file=document.file)


def write_skeleton(name: str, file: Path) -> Path:
    """Write the skeleton of platform `name` to `file` and return it.

    Raises UsageError for an invalid platform name and for a file that exists, MachineError or InputError if it cannot
    be written.
    """
    if not re.fullmatch(NAME_PATTERN, name) or len(name) > 64:
        raise UsageError(f"{name!r} cannot be the name of a platform", f"expected {NAME_PATTERN}, such as my-board")
    text = _SKELETON.read_text(encoding="utf-8").replace("@NAME@", name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise UsageError(f"{file} already exists", "choose another file with -o, or edit the existing one") from None
    except OSError as error:
        raise unwritable(file, error) from None
    return file


def _count(engine: Tree) -> int | None:
    """Return the readable count of an engine, None when it has none, 0 when it is malformed."""
    count = engine.at("count").value
    valid = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= 64
    return None if count is None else count if valid else 0


def _groups(root: Tree) -> dict[str, list[str]]:
    return {engine.key: engine_ids(engine.key, _count(engine)) for engine in root.at("engines").items()}


def check_engines(root: Tree) -> None:
    """Report engines with the same id, and segment preemption without a name for the segment."""
    owner: dict[str, str] = {}
    for key, ids in _groups(root).items():
        for engine_id in ids:
            if engine_id in owner:
                message = f"expected unique engine ids: {engine_id!r} is already declared by {owner[engine_id]!r}"
                root.at("engines").at(key).report(message, key=True)
            owner.setdefault(engine_id, key)
    for engine in root.at("engines").items():
        preemption = engine.at("preemption")
        if preemption.at("kind").text == "segment" and not preemption.at("segment").text:
            preemption.report("segment preemption needs segment, the name of a segment (kernel, loadable, ...)")
        _check_preemption(preemption)
        _check_capacities(engine)
        _check_points(engine)
        if isinstance(engine.value, dict) and engine.at("dynamic").value is None and not _power_known(engine):
            expected = "dynamic_coefficient and operating_points with voltage, or operating_points with power"
            engine.report(f"expected dynamic, the power at full load, or {expected}")


def check_joined(root: Tree) -> None:
    """Report fits of engines that work together where one is not an engine of this platform."""
    known = [engine_id for ids in _groups(root).values() for engine_id in ids]
    for engine in root.at("engines").items():
        for precision in engine.at("precisions").items():
            for fit in precision.at("fitted").items():
                for name in fit.at("joined").texts():
                    if name.text not in known:
                        name.unknown("engine", known)


def _check_preemption(preemption: Tree) -> None:
    """Report fields that a kind of preemption lacks, and fields that belong to another kind."""
    kind = preemption.at("kind").text
    if kind == "restart" and preemption.at("reset").value is None:
        preemption.report("restart preemption needs reset, the time until the engine can be used again")
    for key, owner in (("reset", "restart"), ("in_flight", "segment"), ("slices", "segment"), ("least", "segment")):
        if kind and kind != owner and preemption.at(key).value is not None:
            preemption.at(key).report(f"{key} belongs to kind {owner}, got kind {kind}", key=True)


def _check_capacities(engine: Tree) -> None:
    """Report capacities whose number differs from the units', or without the unit that costs refer to."""
    capacities, units = engine.at("capacities"), engine.at("units").value
    if not isinstance(capacities.value, list) or not capacities.value:
        return
    if isinstance(units, int) and len(capacities.value) != units:
        capacities.report(f"expected one capacity for each of the {units} units, got {len(capacities.value)}")
    if 1024 not in capacities.value:
        capacities.report("expected 1024 for the unit that costs refer to")
    if engine.at("shares").text == "whole":
        capacities.report("expected shares: unit as well; a job occupies this engine as a whole", key=True)


def _power_known(engine: Tree) -> bool:
    points = [point.names() for point in engine.at("operating_points").at("points").items()]
    coefficient = engine.at("dynamic_coefficient").value is not None
    return bool(points) and ("power" in points[-1] or (coefficient and "voltage" in points[-1]))


def _check_points(engine: Tree) -> None:
    """Report operating points out of order or beyond the engine's clock."""
    before, highest = 0.0, engine.at("clock").at("value").parse(_CLOCK)
    for point in engine.at("operating_points").at("points").items():
        clock = point.at("clock").parse(_CLOCK)
        if clock is None:
            continue
        if clock <= before:
            point.at("clock").report("expected operating points by clock, slowest first")
        if highest and clock > highest:
            point.at("clock").report(f"expected at most the engine's clock of {format_frequency(highest)}")
        before = clock


def check_efficiency(root: Tree) -> None:
    """Report precisions without an efficiency for operators that have none of their own."""
    for engine in root.at("engines").items():
        for precision in engine.at("precisions").items():
            efficiency = precision.at("efficiency")
            if isinstance(efficiency.value, dict) and "default" not in efficiency.value:
                efficiency.report("expected default, the efficiency of operators without one of their own")


def check_operators(root: Tree) -> None:
    """Report faults of inline rules, missing rule files, and runtime versions without the engine."""
    for engine in root.at("engines").items():
        rules = engine.at("operators")
        for rule in rules.at("allowed").items():
            check_case(rule)
            for dtype in rule.at("dtypes").texts():
                if dtype.text not in engine.at("precisions").names():
                    dtype.unknown("precision of this engine", engine.at("precisions").names())
        if rules.at("rules").text:
            _check_rule_file(rules)
        elif rules.at("version").value is not None:
            rules.at("version").report("version belongs to a rule file; expected it only together with rules", key=True)


def _check_rule_file(rules: Tree) -> None:
    written = [name for name in rules.names() if name not in ("rules", "version")]
    if written:
        rules.at(written[0]).report("expected a rule file or rules written out, not both", key=True)
    folder = Path(rules.document.file).parent
    try:
        rule_file = load_rules(find_rules(rules.at("rules").text, folder))
    except KeyError:
        rules.at("rules").unknown("rule file", rule_names(folder))
        return
    version = rules.at("version").text
    if re.fullmatch(VERSION_PATTERN, version):
        gap = rule_file.gap(version)
        if gap:
            rules.at("version").report(f"{rule_file.runtime} {version} does not support this engine: {gap.note}")


def check_modes(root: Tree) -> None:
    """Report modes with the same name or number, and any number of default modes other than one."""
    names: set[str] = set()
    numbers: set[tuple[str, object]] = set()
    for mode in root.at("modes").items():
        for name in [mode.at("name"), *mode.at("aliases").texts()]:
            if name.text and name.text.lower() in names:
                name.report(f"expected a unique mode name, {name.text!r} is taken (case is ignored)")
            names.add(name.text.lower())
        number = mode.at("id")
        if isinstance(number.value, int):
            key = (mode.at("family").text, number.value)
            if key in numbers:
                number.report(f"expected a unique mode number, {number.value} is taken")
            numbers.add(key)
    defaults = [mode.at("default") for mode in root.at("modes").items() if mode.at("default").value is True]
    for extra in defaults[1:]:
        extra.report("expected one default mode, another one is marked above")
    if not defaults and isinstance(root.at("modes").value, list):
        root.at("modes").report("expected default: true in exactly one mode")


def check_mode_engines(root: Tree) -> None:
    """Report unknown and missing engines of modes, and settings beyond what the engine has."""
    groups = _groups(root)
    if not all(groups.values()):
        return  # ids of engines with a malformed count are unknown
    names = [*groups, *(engine_id for ids in groups.values() for engine_id in ids)]
    for mode in root.at("modes").items():
        engines = mode.at("engines")
        for setting in engines.items():
            if setting.key not in names:
                setting.unknown("engine", names, key=True)
        if not isinstance(engines.value, dict):
            continue
        for key, ids in groups.items():
            missing = [engine_id for engine_id in ids if engine_id not in engines.value and key not in engines.value]
            if missing:
                engines.report(f"expected every engine of the platform, missing: {', '.join(missing)}")
            for setting in [engines.at(name) for name in dict.fromkeys([key, *ids]) if name in engines.value]:
                _check_setting(setting, root.at("engines").at(key))


def _check_setting(setting: Tree, engine: Tree) -> None:
    units, most, mask = setting.at("units").value, engine.at("units").value, setting.at("mask").value
    if isinstance(setting.value, dict) and (units is None) == (mask is None):
        got = "neither" if units is None else "both"
        setting.report(f"expected units or mask, got {got}")
    if mask is not None and engine.at("gating").value is None:
        setting.at("mask").report("expected units: the engine declares no gating that a mask could act on")
    if isinstance(units, int) and isinstance(most, int) and units > most:
        setting.at("units").report(f"expected at most the {most} units of the engine, got {units}")
    if (units if isinstance(units, int) else mask) and setting.at("clock").value is None:
        setting.report("an engine with units online needs clock")
    clock, highest = setting.at("clock").parse(_CLOCK), engine.at("clock").at("value").parse(_CLOCK)
    if clock and highest and clock > highest:
        setting.at("clock").report(f"expected at most the engine's clock of {format_frequency(highest)}")


def check_bandwidth(root: Tree) -> None:
    """Report bandwidths above the theoretical peak of the memory."""
    peak = root.at("dram").at("peak").at("value").parse(_RATE)
    figures = [root.at("dram").at("achievable")]
    for engine in root.at("engines").items():  # behind a link, an engine has memory of its own
        link = engine.at("link")
        figures.append(link.at("bandwidth") if isinstance(link.value, dict) else engine.at("bandwidth"))
    figures += [mode.at("dram") for mode in root.at("modes").items()]
    for figure in figures:
        value = figure.at("value").parse(_RATE)
        if peak and value and value > peak:
            figure.at("value").report(f"expected at most the memory's peak of {format_bandwidth(peak)}")


def check_functions(root: Tree) -> None:
    """Report quantities that no function counts, and growth with work that exceeds the stated time."""
    for engine in root.at("engines").items():
        for function in engine.at("functions").items():
            _check_function(function)


def _check_function(function: Tree) -> None:
    if function.key not in FUNCTIONS:
        function.unknown("function", FUNCTIONS, key=True)
    for quantity in function.at("work").items():
        if quantity.key not in COUNTS:
            quantity.unknown("quantity of work", COUNTS, key=True)
    for limit in function.at("limits").items():
        if limit.key not in (*COUNTS, *SCALES):
            limit.unknown("quantity", (*COUNTS, *SCALES), key=True)
        check_limit(limit)
    held = 0.0
    for growth in function.at("per_million").items():
        if growth.key not in function.at("work").names():
            growth.report(f"expected {growth.key} under work too: the size that the time holds for", key=True)
        amount, slope = function.at("work").at(growth.key).value, growth.at("value").parse(_TIME)
        if isinstance(amount, (int, float)) and slope:
            held += amount / 1e6 * slope
    whole = function.at("time").at("value").parse(_TIME)
    if whole and held > whole:
        function.at("per_million").report(f"expected at most the time: the stated work alone takes {held / 1e6:.3g} ms")


def check_runtimes(root: Tree) -> None:
    """Report costs of the first runtime, which the engine's stand for, and a later one without costs, or with two."""
    for engine in root.at("engines").items():
        for number, runtime in enumerate(engine.at("runtimes").items()):
            stated, own = (runtime.at(name).value is not None for name in ("ratio", "efficiency"))
            for name in ("ratio", "efficiency"):
                if not number and runtime.at(name).value is not None:
                    text = f"expected no {name}: the engine's costs are those of its first runtime"
                    runtime.at(name).report(text, key=True)
            if number and stated and own:
                runtime.at("ratio").report("expected ratio or efficiency, not both", key=True)
            if number and not stated and not own:
                text = "expected ratio, the time over that of the engine's first runtime, or efficiency"
                runtime.report(text)
            if not stated and runtime.at("general").value is not None:
                runtime.at("general").report("general belongs to a runtime with ratio", key=True)


def check_targets(root: Tree) -> None:
    """Report processors unknown to LLVM, which would silently compile for a generic one."""
    for engine in root.at("engines").items():
        for target in (engine.at("target"), engine.at("target").at("host")):
            name = target.at("mcpu").text
            try:
                processors = PROCESSORS[architecture(target.at("mtriple").text)]
            except KeyError:  # reported with the triple
                continue
            if name and name != "native" and name not in processors:
                target.at("mcpu").report(f"unknown processor {name!r}; {suggest(name, processors)}")


CHECKS = (
    check_engines,
    check_joined,
    check_runtimes,
    check_efficiency,
    check_operators,
    check_functions,
    check_modes,
    check_mode_engines,
    check_bandwidth,
    check_figures,
    check_targets,
)
