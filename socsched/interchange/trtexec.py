"""JSON of trtexec: --exportProfile (mean times of layers), --exportTimes (inferences), --exportLayerInfo (engines).

A subgraph of the DLA is started without waiting for it.  Its own row holds only the submission; the DLA's time appears
in the rows that wait for its result: its output reformatter, a copy "from nvm", the input reformatter of the next GPU
layer, and markers "... finish".  All rows from the block up to the next GPU layer are therefore the DLA's time
(HaX-CoNN's profiles, PPoPP 2024: 1.84 of 2.74 ms are in one "output reformatter"; TensorRT issue 3143).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.interchange.layers import RowName, is_list, is_range, layers_of, parse_row
from socsched.interchange.recording import Recording, Row, Section, number

_PRECISIONS = (("int8", "int8"), ("half", "fp16"), ("fp16", "fp16"), ("float", "fp32"), ("fp32", "fp32"))


def accepts(data: Any) -> bool:
    """Return whether parsed JSON has the form of one of the three files."""
    if isinstance(data, Mapping):
        return isinstance(data.get("Layers"), Sequence) and not isinstance(data["Layers"], str)
    if not isinstance(data, list) or not data or not isinstance(data[0], Mapping):
        return False
    return any(key in data[0] for key in ("count", "averageMs", "computeMs"))


def recording(path: Path, data: Any) -> Recording:
    """Return the recording of a file; InputError names the entry that is not as expected."""
    if isinstance(data, Mapping):
        return _layer_info(path, data["Layers"])
    if "computeMs" in data[0]:
        times = tuple(round(_need(path, i, row, "computeMs") * 1e6) for i, row in enumerate(data))
        return Recording(str(path), "trtexec --exportTimes", samples=len(times), whole_ns=times)
    count, rows = 0, list[Row]()
    for index, row in enumerate(data):
        if isinstance(row, Mapping) and "count" in row:
            count = round(_need(path, index, row, "count"))
            continue
        if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
            raise InputError(f"{path}: [{index}]: expected an object with name and averageMs", _AGAIN)
        mean = _need(path, index, row, "averageMs") * 1e6
        rows.append(Row(row["name"], mean, (number(row, "medianMs") or 0) * 1e6))
    if not rows:
        raise InputError(f"{path}: expected rows with times", _AGAIN)
    return Recording(str(path), "trtexec --exportProfile", samples=count, rows=tuple(rows))


def sectioned(one: Recording, on_dla: frozenset[str], order: Sequence[str] = ()) -> Recording:
    """Return a recording with the sections of its rows; `on_dla`: blocks that other files place on the DLA.

    `order`: layers of the network, to expand ranges.  Raises InputError if the rows state no time.
    """
    timed = [(parse_row(row.name), row.mean_ns, row.median_ns) for row in one.rows]
    if not sum(mean for _, mean, _ in timed):
        raise InputError(f"{one.file}: expected rows with times", _AGAIN)
    blocks = _dla_blocks([name for name, _, _ in timed], on_dla | one.accelerated)
    parts, handover, waiting = list[_Part](), 0.0, False
    for name, mean, median in timed:
        if name.base in blocks and not name.role:
            parts.append(_Part("dla"))
            waiting = True
        elif (name.base in blocks and name.role == "input") or name.role == "to":
            handover += mean
            continue
        elif not (waiting and name.role):
            waiting = False
            if not parts or parts[-1].kind != "gpu":
                parts.append(_Part("gpu"))
        parts[-1].add(name, mean, median, order)
    whole = len(parts) == 1
    sections = tuple(part.section(0 if whole else index, one.core) for index, part in enumerate(parts, 1))
    return replace(one, sections=sections, handover_ns=handover)


_AGAIN = "record it again with trtexec --exportProfile"


class _Part:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.mean = self.median = self.hidden = 0.0
        self.layers: dict[str, None] = {}

    def add(self, name: RowName, mean: float, median: float, order: Sequence[str]) -> None:
        self.mean += mean
        self.median += median
        if self.kind == "dla" and name.role:
            self.hidden += mean
        elif not name.role:
            self.layers |= dict.fromkeys(layers_of(name.base, order))

    def section(self, index: int, core: int | None) -> Section:
        note = f"{self.hidden / self.mean:.0%} of it in rows that wait for the DLA" if self.hidden else ""
        layers, median = tuple(self.layers), round(self.median)
        core = core if self.kind == "dla" else None
        return Section("", index, self.kind, layers, self.mean, (), median, self.hidden, note, core=core)


def _dla_blocks(names: Sequence[RowName], on_dla: frozenset[str]) -> frozenset[str]:
    """Return the blocks that run on the DLA: listed, stated, or a range before DLA copies or markers."""
    found = {name.base for name in names if is_list(name.base)} | (on_dla & {name.base for name in names})
    for index, name in enumerate(names):
        if is_range(name.base) and not name.role:
            for later in names[index + 1 :]:
                if later.role in ("finish", "from"):
                    found.add(name.base)
                if not later.role:
                    break
    return frozenset(found)


def _layer_info(path: Path, layers: Sequence[Any]) -> Recording:
    blocks, precisions, elsewhere = set[str](), dict[str, int](), 0
    for layer in layers:
        if isinstance(layer, str):
            continue  # without --profilingVerbosity=detailed only names are listed
        if not isinstance(layer, Mapping) or not isinstance(layer.get("Name"), str):
            raise InputError(
                f"{path}: Layers: expected names, or objects with Name", "record it with --exportLayerInfo"
            )
        if "DLA" in str(layer.get("LayerType", "")).upper():
            blocks.add(layer["Name"])
        elif "reformat" not in str(layer.get("LayerType", "")).lower():
            elsewhere += 1
        outputs = layer.get("Outputs")
        for tensor in outputs if isinstance(outputs, list) else ():
            text = str(tensor.get("Format/Datatype", "")).lower() if isinstance(tensor, Mapping) else ""
            for word, precision in _PRECISIONS:
                if word in text:
                    precisions[precision] = precisions.get(precision, 0) + 1
                    break
    kind = "dla" if blocks and not elsewhere else ""
    stated = tuple(sorted(precisions, key=lambda name: -precisions[name]))
    return Recording(
        str(path), "trtexec --exportLayerInfo", precisions=stated, accelerated=frozenset(blocks), kind=kind
    )


def _need(path: Path, index: int, row: Any, key: str) -> float:
    value = number(row, key) if isinstance(row, Mapping) else None
    if value is None:
        raise InputError(f"{path}: [{index}].{key}: expected a number of at least 0", _AGAIN)
    return value
