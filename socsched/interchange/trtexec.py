"""JSON of trtexec: --exportProfile (mean times of layers), --exportTimes (inferences), --exportLayerInfo (engines).

A subgraph of the DLA is started without waiting for it.  Its own row holds only the submission; the DLA's time appears
in the rows that wait for its result: its output reformatter, a copy "from nvm", the input reformatter of the next GPU
layer, and markers "... finish".  All rows from the block up to the next GPU layer are therefore the DLA's time
(HaX-CoNN's profiles, PPoPP 2024: 1.84 of 2.74 ms are in one "output reformatter"; TensorRT issue 3143).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.interchange.layers import RowName, is_list, is_range, layers_of, parse_row
from socsched.interchange.recording import Recording, Section, number, read_json

_PRECISIONS = (("int8", "int8"), ("half", "fp16"), ("fp16", "fp16"), ("float", "fp32"), ("fp32", "fp32"))


def accepts(data: Any) -> bool:
    """Return whether parsed JSON has the form of one of the three files."""
    if isinstance(data, Mapping):
        return isinstance(data.get("Layers"), Sequence) and not isinstance(data["Layers"], str)
    if not isinstance(data, list) or not data or not isinstance(data[0], Mapping):
        return False
    return "count" in data[0] or "averageMs" in data[0] or "computeMs" in data[0]


def recording(path: Path, data: Any | None = None) -> Recording:
    """Return the recording of a file; InputError names the entry that is not as expected."""
    content = read_json(path) if data is None else data
    if isinstance(content, Mapping):
        return _layer_info(path, content["Layers"])
    if "computeMs" in content[0]:
        times = tuple(round(_need(path, i, row, "computeMs") * 1e6) for i, row in enumerate(content))
        return Recording(str(path), "trtexec --exportTimes", samples=len(times), whole_ns=times)
    return profile(path, content, frozenset())


def profile(path: Path, rows: Sequence[Any], on_dla: frozenset[str], order: Sequence[str] = ()) -> Recording:
    """Return the sections of an --exportProfile file; `on_dla`: blocks that --exportLayerInfo places on the DLA."""
    count, timed = 0, list[tuple[RowName, float, float]]()
    for index, row in enumerate(rows):
        if isinstance(row, Mapping) and "count" in row:
            count = round(_need(path, index, row, "count"))
            continue
        if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
            raise InputError(f"{path}: [{index}]: expected an object with name and averageMs", _AGAIN)
        mean = _need(path, index, row, "averageMs") * 1e6
        timed.append((parse_row(row["name"]), mean, (number(row, "medianMs") or 0) * 1e6))
    if not timed or not sum(mean for _, mean, _ in timed):
        raise InputError(f"{path}: expected rows with times", _AGAIN)
    blocks = _dla_blocks([name for name, _, _ in timed], on_dla)
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
    sections = tuple(part.section(0 if whole else index) for index, part in enumerate(parts, 1))
    return Recording(str(path), "trtexec --exportProfile", sections, count, handover)


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

    def section(self, index: int) -> Section:
        return Section(
            "", index, self.kind, tuple(self.layers), self.mean, (), round(self.median), self.hidden,
            f"{self.hidden / self.mean:.0%} of it in rows that wait for the DLA" if self.hidden else "",
        )  # fmt: skip


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
    blocks, precisions = set[str](), dict[str, int]()
    for layer in layers:
        if isinstance(layer, str):
            continue  # without --profilingVerbosity=detailed only names are listed
        if not isinstance(layer, Mapping) or not isinstance(layer.get("Name"), str):
            raise InputError(
                f"{path}: Layers: expected names, or objects with Name", "record it with --exportLayerInfo"
            )
        if "DLA" in str(layer.get("LayerType", "")).upper():
            blocks.add(layer["Name"])
        outputs = layer.get("Outputs")
        for tensor in outputs if isinstance(outputs, list) else ():
            text = str(tensor.get("Format/Datatype", "")).lower() if isinstance(tensor, Mapping) else ""
            for word, precision in _PRECISIONS:
                if word in text:
                    precisions[precision] = precisions.get(precision, 0) + 1
                    break
    most = max(precisions, key=lambda name: precisions[name]) if precisions else ""
    return Recording(str(path), "trtexec --exportLayerInfo", precision=most, accelerated=frozenset(blocks))


def _need(path: Path, index: int, row: Any, key: str) -> float:
    value = number(row, key) if isinstance(row, Mapping) else None
    if value is None:
        raise InputError(f"{path}: [{index}].{key}: expected a number of at least 0", _AGAIN)
    return value
