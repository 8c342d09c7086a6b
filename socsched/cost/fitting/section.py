"""The section `fitted` of platform files, as text: one for each engine and precision of a fit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from socsched.cost.fitting.families import Program
from socsched.cost.fitting.nominal import rate
from socsched.cost.fitting.recipe import Section
from socsched.cost.timing import NAMES
from socsched.descriptor.source import parse
from socsched.errors import UsageError
from socsched.units import format_bandwidth, format_duration, format_size


def lines(section: Section, source: str, date: str) -> list[str]:
    """Return the lines of a section, an item of a list, without indentation; `source` is a key of `sources`."""
    engine, family, use = section.nominal, section.family, section.use
    stated = use.engine.precisions.get(use.precision)
    figure = rate(use, family)
    found = [
        f"- source: {source}",
        f"  networks: {len(section.networks)}",
        f"  date: {json.dumps(date)}",
        f"  error: {section.error:.3g}",
        f"  interval: {section.interval:.3g}",
        f"  classes: [{', '.join(section.classes)}]",
        f"  block: {engine.block}",
        f"  launch: {format_duration(round(engine.launch_us * 1e3))}",
        f"  submit: {format_duration(round(engine.submit_us * 1e3))}",
        f"  sram: {format_size(engine.sram) if engine.sram else '0 B'}",
    ]
    if stated is None or stated.ops_per_cycle.value != figure.value:
        found.append(f"  ops_per_cycle: {figure.value:g}  # {figure.note}")
    if family.memory == "engine":
        found.append(f"  memory: {format_bandwidth(engine.dram * 1e6 / engine.units)}")
    if use.engine.shares == "unit" and use.engine.kind == "cpu":
        found.append(f"  units: {engine.units}")
    if len(use.clusters) > 1:
        found.append(f"  joined: [{', '.join(one.id for one in use.clusters)}]")
    if section.runtimes:
        found.append(f"  runtimes: {json.dumps(section.runtimes)}")
    if section.hosts:
        found += ["  hosts:", *(f"    - {_host(one)}" for one in section.hosts)]
    if family.varied:
        found.append(f"  varied: {json.dumps(family.varied)}")
    if engine.taps != 1:
        found.append(f"  taps: {engine.taps:g}")
    if engine.copies:
        found.append("  copies: true")
    found += [f"  note: {json.dumps(note(section), ensure_ascii=False)}", "  parameters:"]
    return [*found, *(f"    {name}: {getattr(section.parameters, name):.3g}" for name in NAMES)]


def _host(one: Program) -> str:
    costs = (format_duration(round(us * 1e3)) for us in (one.launch, one.submit))
    launch, submit = costs
    return f"{{runtimes: {json.dumps(one.runtimes)}, launch: {launch}, submit: {submit}}}  # {one.note}"


def note(section: Section) -> str:
    """Return what the parameters rest on."""
    family = f"family {section.family.name}"
    if not section.networks:
        return f"{family}, no measurement of this engine in this precision"
    design = (
        "" if section.error_design is None else f"; error with designs of networks left out {section.error_design:.3g}"
    )
    return f"{family}{design}"


def document(sections: Sequence[Section], source: str, date: str) -> str:
    """Return all sections as YAML, nested as in a platform file."""
    text = [
        f"# {sections[0].use.platform.name}: paste each `fitted` into its precision; `{source}` is a key of sources"
    ]
    text.append("engines:")
    engine = ""
    for (name, precision), own in grouped(sections).items():
        if name != engine:
            text += [f"  {name}:", "    precisions:"]
        engine = name
        text += [f"      {precision}:", *(f"        {line}" for line in _block(own, source, date))]
    return "\n".join(text) + "\n"


def grouped(sections: Sequence[Section]) -> dict[tuple[str, str], list[Section]]:
    """Return the sections of every engine and precision."""
    found: dict[tuple[str, str], list[Section]] = {}
    for section in sections:
        found.setdefault((section.use.engine.id, section.use.precision), []).append(section)
    return found


def _block(sections: Sequence[Section], source: str, date: str) -> list[str]:
    return ["fitted:", *(f"  {line}" for section in sections for line in lines(section, source, date))]


def _key(engines: Mapping[str, object], engine: str) -> str:
    """Return the key of an engine in a file, which declares equal ones as one with a count."""
    counted = (key for key in engines if re.fullmatch(re.escape(key) + r"\d+", engine))
    return engine if engine in engines else next(counted, engine)


def rewritten(raw: bytes, file: str, sections: Sequence[Section], source: str, date: str) -> str:
    """Return a platform file with the sections put in or replaced, all else as it stands; UsageError where it cannot.

    A precision that the file lacks, or one written on a single line, is refused.  The source is added when missing.
    """
    text = raw.decode("utf-8")
    for (engine, precision), own in grouped(sections).items():
        path = ("engines", _key(parse(raw, file).data["engines"], engine), "precisions", precision)
        text = _placed(text, file, path, _block(own, source, date))
    if source not in parse(text.encode(), file).data.get("sources", {}):
        entry = [f"{source}:", '  title: "measured times of networks, fitted with `socsched fit`"']
        text = _placed(text, file, ("sources",), entry)
    parse(text.encode(), file)
    return text


def _placed(text: str, file: str, path: tuple[str, ...], block: Sequence[str]) -> str:
    """Return YAML text with a block at the end of the mapping at `path`, in place of one with the same key."""
    found = parse(text.encode(), file)
    rows = text.splitlines()
    where = ".".join(path)
    if path not in found.keys or not isinstance(_value(found.data, path), dict):
        raise UsageError(f"{file}: has no {where}", "add it first; a fit does not state layout and efficiency")
    key, first = found.keys[path], found.values[path]
    if first.line <= key.line or rows[key.line - 1].rstrip().endswith("{"):
        raise UsageError(f"{file}:{key.line}: {where}: is written on one line", "write it as a block")
    head = (*path, block[0].split(":")[0])
    child = (*path, next(iter(_value(found.data, path))))
    indent = found.keys[child].column - 1
    new = [" " * indent + row for row in block]
    if head in found.keys:
        start = found.keys[head].line
        rows[start - 1 : _end(rows, start, indent)] = new
    else:
        end = _end(rows, key.line, key.column - 1)
        rows[end:end] = new
    return "\n".join(rows) + "\n"


def _value(data: Mapping[str, object], path: Sequence[str]) -> Mapping[str, object]:
    for name in path:
        data = data[name]  # type: ignore[assignment]
    return data


def _end(rows: Sequence[str], line: int, indent: int) -> int:
    """Return the index after the last row of the block whose key stands on `line` at `indent`."""
    end = line
    for index in range(line, len(rows)):
        row = rows[index]
        if not row.strip():
            continue
        if len(row) - len(row.lstrip(" ")) <= indent:
            break
        end = index + 1
    return end
