"""Pipelines from ROS 2 traces."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from socsched.interchange.pipeline_text import ImportedPipeline, duration, stage_name
from socsched.interchange.ros2 import Graph, Node
from socsched.interchange.ros2_result import responses
from socsched.runtime.profile import quantiles

_SOURCE = "trace"
_LONGEST_QUEUE = 1000
"""Largest `queue` of a stage."""


def pipeline_of(graph: Graph, source: Path) -> ImportedPipeline:
    """Return the pipeline of a graph: times as recorded, deadlines assumed to be the longest latencies recorded."""
    host = f"recorded host {graph.host}".strip()
    mapping: dict[str, Any] = {
        "schema_version": "1",
        "name": stage_name(source.resolve().name),
        "title": f"ROS 2 trace {source.name}"[:300],
        "sources": {_SOURCE: {"title": "trace of ros2_tracing or CARET", "where": source.name}},
    }
    if graph.sources:
        mapping["sensors"] = {
            s.name: {
                "kind": "topic",
                "period": duration(s.period_ns),
                "jitter": duration(min(s.jitter_ns, s.period_ns)),
                "source": _SOURCE,
            }
            for s in graph.sources.values()
        }
    mapping["stages"] = {node.name: _stage(node, host) for node in graph.nodes.values()}
    notes = list(graph.notes)
    if graph.paths:
        found = responses(graph)
        mapping["chains"] = {
            name: {"path": list(path), "deadline": duration(found[name].longest_ns), "assumed": _ASSUMED}
            for name, path in graph.paths.items()
            if name in found
        }
        notes.append(f"Chains: {_ASSUMED}.")
    return ImportedPipeline({key: value for key, value in mapping.items() if value}, tuple(dict.fromkeys(notes)))


_ASSUMED = "the trace states no deadline; the longest response recorded is assumed, so that the recording meets it"


def _stage(node: Node, host: str) -> dict[str, Any]:
    callback = node.callback
    what = f"timer of {callback.node}" if callback.period_ns else f"{callback.node} on {callback.topic}"
    document: dict[str, Any] = {"title": f"{callback.name}: {what}"[:300], "source": _SOURCE}
    if node.after:
        document["after"] = [node.after]
    else:
        document |= {"period": duration(node.period_ns), "jitter": duration(min(node.jitter_ns, node.period_ns))}
    if callback.queue > 0:  # a full history drops its oldest message
        document |= {"queue": min(callback.queue, _LONGEST_QUEUE), "overflow": "oldest"}
    if node.reads:
        document["reads"] = list(node.reads)
    times = sorted(max(1, i.end_ns - i.start_ns) for i in callback.instances)
    document |= {"precisions": ["fp32"], "share": 1, "output_bytes": "0 B"}
    longest = {"value": f"{times[-1]} ns", "kind": "measured", "source": _SOURCE, "note": _note(node, times)}
    cost = {"platform": host, "mode": "as recorded", "engine": "cpu", "precision": "fp32", "units": 1, "time": longest}
    return document | {
        "costs": [cost],
        "execution": {"samples": [f"{t} ns" for t in quantiles(times)], "source": _SOURCE},
    }


def _note(node: Node, times: list[int]) -> str:
    """Return the number of executions and their quantiles, in all and on each thread."""
    threads = defaultdict[int, list[int]](list)
    for instance in node.callback.instances:
        threads[instance.thread].append(instance.end_ns - instance.start_ns)
    rows = [f"longest of {len(times)}, median {duration(_at(times, 50))}, p99 {duration(_at(times, 99))}"]
    for thread, found in sorted(threads.items()):
        found.sort()
        number = thread & 0xFFFFFFFF
        rows.append(f"thread {number}: {len(found)}, median {duration(_at(found, 50))}, longest {duration(found[-1])}")
    return "; ".join(rows)


def _at(ordered: list[int], percent: int) -> int:
    return ordered[-(-len(ordered) * percent // 100) - 1]
