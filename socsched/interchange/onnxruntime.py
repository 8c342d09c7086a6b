"""Profiles of ONNX Runtime (SessionOptions.enable_profiling): a JSON list of node and session events, in microseconds.

Every "model_run" is a job.  Its nodes, in the order of execution, form one section per change of execution provider.  A
session that did not end leaves a list without its "]"; what is whole is read, and a run without its own event is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.interchange.profile_model import Recording, Section, number

KINDS = {
    "CPUExecutionProvider": "cpu",
    "XnnpackExecutionProvider": "cpu",
    "CUDAExecutionProvider": "gpu",
    "TensorrtExecutionProvider": "gpu",
    "NvTensorRTRTXExecutionProvider": "gpu",
    "ROCMExecutionProvider": "gpu",
    "MIGraphXExecutionProvider": "gpu",
}
"""Execution provider -> kind of engine; others keep their own name (`--engine QNN=htp`)."""
_SUFFIX = "_kernel_time"
_TYPES = {"float": "fp32", "float16": "fp16", "int8": "int8", "uint8": "int8"}
_NATIVE = ("CPUExecutionProvider", "CUDAExecutionProvider", "XnnpackExecutionProvider", "ROCMExecutionProvider")
"""Providers that compute in the types of the tensors; others may convert a whole subgraph."""


def accepts(data: Any) -> bool:
    """Return whether parsed JSON is a list of events of categories Session and Node."""
    return isinstance(data, list) and any(isinstance(e, Mapping) and e.get("cat") in ("Session", "Node") for e in data)


def recording(path: Path, events: Sequence[Any], cut: bool = False) -> Recording:
    """Return the recording of a file, `cut`: of the whole events of one; InputError if it has no complete run."""
    types = dict[str, float]()
    runs, nodes = list[tuple[float, float]](), list[tuple[float, float, str, str]]()
    closed = False
    for event in events:
        if not isinstance(event, Mapping):
            continue
        start, length, name = number(event, "ts"), number(event, "dur"), str(event.get("name", ""))
        if start is None or length is None:
            continue
        if event.get("cat") == "Session" and name == "model_run":
            runs.append((start, start + length))
            closed = True
        elif event.get("cat") == "Node" and name.endswith(_SUFFIX):
            arguments = event.get("args")
            provider = str(arguments.get("provider", "")) if isinstance(arguments, Mapping) else ""
            kind = KINDS.get(provider, provider.removesuffix("ExecutionProvider")) or "cpu"
            nodes.append((start, length, name.removesuffix(_SUFFIX), kind))
            closed = False
            stated = _type(arguments) if provider in _NATIVE else ""
            types |= {stated: types.get(stated, 0.0) + length} if stated else {}
    runs.sort()
    nodes.sort()
    jobs, at = list[list[tuple[float, float, str, str]]](), 0
    for start, end in runs:
        while at < len(nodes) and nodes[at][0] < start:
            at += 1
        first = at
        while at < len(nodes) and nodes[at][0] <= end:
            at += 1
        if at > first:
            jobs.append(nodes[first:at])
    if cut and jobs and not closed and (len(jobs) == 1 or len(jobs[-1]) < len(jobs[0])):
        jobs.pop()  # its event came first, and nodes of it may be missing
    if not jobs:
        raise InputError(
            f"{path}: expected at least one model_run with nodes", "end the session before reading its profile"
        )
    notes = []
    if cut:
        left = len(nodes) - sum(len(job) for job in jobs)
        notes.append(f"{path.name} is cut off: {len(jobs)} whole runs are read, {left} nodes of no whole run left out")
    stated_types = tuple(sorted(types, key=lambda name: -types[name]))
    sections = _sections(path, jobs)
    return Recording(
        str(path), "ONNX Runtime profile", sections, len(jobs), precisions=stated_types, notes=tuple(notes)
    )


def _type(arguments: Any) -> str:
    """Return the data type of a node's first tensor with one that networks compute in, empty if none is stated."""
    listed = arguments.get("input_type_shape") if isinstance(arguments, Mapping) else None
    names = (
        [name for entry in listed if isinstance(entry, Mapping) for name in entry] if isinstance(listed, list) else []
    )
    return next((_TYPES[name] for name in names if name in _TYPES), "")


def _sections(path: Path, jobs: Sequence[Sequence[tuple[float, float, str, str]]]) -> tuple[Section, ...]:
    shape = [kind for kind, _ in groupby(jobs[0], key=lambda node: node[3])]
    times: list[list[int]] = [[] for _ in shape]
    spans: list[list[tuple[int, int, int]]] = [[] for _ in shape]
    layers: list[tuple[str, ...]] = []
    for number_, job in enumerate(jobs):
        groups = [(kind, list(found)) for kind, found in groupby(job, key=lambda node: node[3])]
        if [kind for kind, _ in groups] != shape:
            problem = f"{path}: run {number_}: its providers differ from those of the first run"
            raise InputError(problem, "profile runs of one model with inputs of one shape")
        for place, (_, found) in enumerate(groups):
            times[place].append(round(sum(node[1] for node in found) * 1000))
            start, end = round(found[0][0] * 1000), round(max(node[0] + node[1] for node in found) * 1000)
            spans[place].append((start if place == 0 else spans[place - 1][-1][2], start, end))
            if number_ == 0:
                layers.append(tuple(node[2] for node in found))
    found_sections = []
    for i, kind in enumerate(shape):
        mean, whole = sum(times[i]) / len(times[i]), 0 if len(shape) == 1 else i + 1
        found_sections.append(Section("", whole, kind, layers[i], mean, tuple(times[i]), spans_ns=tuple(spans[i])))
    return tuple(found_sections)
