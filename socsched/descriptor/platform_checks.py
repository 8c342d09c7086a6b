"""What must hold between the parts of a platform file: engines and modes agree, limits are limits."""

from __future__ import annotations

from socsched.descriptor.fields import Quantity
from socsched.descriptor.validation import Tree, check_figures
from socsched.units import format_bandwidth, format_frequency

_CLOCK = Quantity("frequency").read
_RATE = Quantity("bandwidth").read

OPERATOR_ATTRS = frozenset(
    (
        *(
            "kernel_h",
            "kernel_w",
            "stride_h",
            "stride_w",
            "pad",
            "pad_h",
            "pad_w",
            "dilation",
            "dilation_h",
            "dilation_w",
        ),
        *("groups", "in_channels", "out_channels", "window", "axis", "axis_dim", "scale", "scale_h", "scale_w"),
    )
)
"""Attributes of operators that limits can name (`graph.operators.Operator.attrs`)."""


def engine_ids(key: str, count: int | None) -> list[str]:
    """Return the ids of the engines declared under `key`."""
    return [key] if count is None else [f"{key}{index}" for index in range(count)]


def _count(engine: Tree) -> int | None:
    """Return the readable count of an engine, None when it has none, 0 when it is malformed."""
    count = engine.at("count").value
    valid = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= 64
    return None if count is None else count if valid else 0


def _groups(root: Tree) -> dict[str, list[str]]:
    return {engine.key: engine_ids(engine.key, _count(engine)) for engine in root.at("engines").items()}


def check_engines(root: Tree) -> None:
    """Report engines that end up with the same id, and segment preemption without a name for the segment."""
    owner: dict[str, str] = {}
    for key, ids in _groups(root).items():
        for engine_id in ids:
            if engine_id in owner:
                message = f"expected engine ids of its own, {engine_id!r} is already declared by {owner[engine_id]!r}"
                root.at("engines").at(key).report(message, key=True)
            owner.setdefault(engine_id, key)
    for engine in root.at("engines").items():
        preemption = engine.at("preemption")
        if preemption.at("kind").text == "segment" and not preemption.at("segment").text:
            preemption.report("segment preemption needs segment, what a segment is called (kernel, loadable, ...)")


def check_efficiency(root: Tree) -> None:
    """Report precisions without an efficiency for operators that have none of their own."""
    for engine in root.at("engines").items():
        for precision in engine.at("precisions").items():
            efficiency = precision.at("efficiency")
            if isinstance(efficiency.value, dict) and "default" not in efficiency.value:
                efficiency.report("expected default, the efficiency of operators without one of their own")


def check_operators(root: Tree) -> None:
    """Report limits of attributes no operator has, empty ranges, data types and sources that are not declared."""
    for engine in root.at("engines").items():
        rules = engine.at("operators")
        if rules.at("source").text and rules.at("source").text not in root.at("sources").names():
            rules.at("source").unknown("source", root.at("sources").names())
        for rule in rules.at("allowed").items():
            for limit in rule.at("limits").items():
                _check_limit(limit)
            for dtype in rule.at("dtypes").texts():
                if dtype.text not in engine.at("precisions").names():
                    dtype.unknown("precision of this engine", engine.at("precisions").names())


def _check_limit(limit: Tree) -> None:
    if limit.key not in OPERATOR_ATTRS:
        limit.unknown("operator attribute", OPERATOR_ATTRS, key=True)
    bounds = [bound.value for bound in limit.items()]
    if len(bounds) == 2 and all(isinstance(bound, (int, float)) for bound in bounds) and bounds[0] > bounds[1]:
        limit.report(f"expected [smallest, largest], got {bounds[0]} above {bounds[1]}")


def check_modes(root: Tree) -> None:
    """Report modes of the same name or number, and anything but one default mode."""
    names: set[str] = set()
    numbers: set[object] = set()
    for mode in root.at("modes").items():
        for name in [mode.at("name"), *mode.at("aliases").texts()]:
            if name.text and name.text.lower() in names:
                name.report(f"expected a name no other mode has, {name.text!r} is taken (case does not count)")
            names.add(name.text.lower())
        number = mode.at("id")
        if isinstance(number.value, int):
            if number.value in numbers:
                number.report(f"expected a number no other mode has, {number.value} is taken")
            numbers.add(number.value)
    defaults = [mode.at("default") for mode in root.at("modes").items() if mode.at("default").value is True]
    for extra in defaults[1:]:
        extra.report("expected one default mode, another one is marked above")
    if not defaults and isinstance(root.at("modes").value, list):
        root.at("modes").report("expected default: true in exactly one mode")


def check_mode_engines(root: Tree) -> None:
    """Report unknown and missing engines of modes, and settings beyond what the engine has."""
    groups = _groups(root)
    if not all(groups.values()):
        return  # ids of engines with a malformed count are anyone's guess
    known = [*groups, *(engine_id for ids in groups.values() for engine_id in ids)]
    for mode in root.at("modes").items():
        engines = mode.at("engines")
        for setting in engines.items():
            if setting.key not in known:
                setting.unknown("engine", known, key=True)
        if not isinstance(engines.value, dict):
            continue
        for key, ids in groups.items():
            missing = [engine_id for engine_id in ids if engine_id not in engines.value and key not in engines.value]
            if missing:
                engines.report(f"expected every engine of the platform, missing: {', '.join(missing)}")
            for setting in [engines.at(name) for name in dict.fromkeys([key, *ids]) if name in engines.value]:
                _check_setting(setting, root.at("engines").at(key))


def _check_setting(setting: Tree, engine: Tree) -> None:
    units, most = setting.at("units").value, engine.at("units").value
    if isinstance(units, int) and isinstance(most, int) and units > most:
        setting.at("units").report(f"expected at most the {most} units of the engine, got {units}")
    if isinstance(units, int) and units > 0:
        for name in ("clock", "dynamic"):
            if setting.at(name).value is None:
                setting.report(f"an engine with units online needs {name}")
    clock, highest = setting.at("clock").parse(_CLOCK), engine.at("clock").at("value").parse(_CLOCK)
    if clock and highest and clock > highest:
        setting.at("clock").report(f"expected at most the engine's clock of {format_frequency(highest)}")


def check_bandwidth(root: Tree) -> None:
    """Report bandwidths above the theoretical peak of the memory."""
    peak = root.at("dram").at("peak").at("value").parse(_RATE)
    figures = [root.at("dram").at("achievable")]
    figures += [engine.at("bandwidth") for engine in root.at("engines").items()]
    figures += [mode.at("dram") for mode in root.at("modes").items()]
    for figure in figures:
        value = figure.at("value").parse(_RATE)
        if peak and value and value > peak:
            figure.at("value").report(f"expected at most the memory's peak of {format_bandwidth(peak)}")


CHECKS = (
    check_engines,
    check_efficiency,
    check_operators,
    check_modes,
    check_mode_engines,
    check_bandwidth,
    check_figures,
)
