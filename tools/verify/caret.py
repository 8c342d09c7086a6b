"""Compare an imported CARET trace with CARET's definitions, computed independently with python3-bt2.

    python -m tools.verify.caret TRACE ARCHITECTURE [--python /usr/bin/python3]

Compared: the number of events, the latency of every callback execution, of every communication, and the start and end
of every instance of every named path.  Debian: apt-get install python3-bt2.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.interchange.ctf import read_trace
from socsched.interchange.ros2 import CallbackGraph, read_graph, responses, trace_of

PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Comparison:
    """Figures of one kind by babeltrace2 and by the import, as multisets."""

    what: str
    reference: Counter[Any]
    imported: Counter[Any]

    @property
    def equal(self) -> bool:
        return self.reference == self.imported


def label(graph: CallbackGraph, name: str) -> str:
    callback = graph.nodes[name].callback
    return f"{callback.node}@{'timer' if callback.period_ns else callback.topic}"


def reference(trace: Path, hops: list[str], python: str) -> dict[str, Any]:
    """Return the figures by babeltrace2."""
    script = Path(__file__).with_name("caret_bt2.py")
    done = subprocess.run([python, script, trace, json.dumps(hops)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def path_instances(graph: CallbackGraph, path: tuple[str, ...]) -> Counter[Any]:
    """Return (start of the first callback, end of the last one) of every instance of a path, from the import's jobs."""
    trace = trace_of(graph, responses(graph))
    jobs = {(job.task, job.frame): job for job in trace.jobs}
    found: Counter[Any] = Counter()
    for last in (job for job in trace.jobs if job.task == path[-1]):
        job = last
        for before, name in reversed(list(itertools.pairwise(path))):
            frame = job.frame if graph.nodes[name].after == before else job.sampled.get(before, -1)
            if (before, frame) not in jobs:
                break
            job = jobs[before, frame]
        else:
            found[job.start_ns + graph.start_ns, last.finish_ns + graph.start_ns] += 1
    return found


def compare(trace: Path, architecture: Path, python: str = PYTHON) -> list[Comparison]:
    """Return the comparisons of all kinds, one per named path."""
    graph, events = read_graph(trace, architecture), read_trace(trace).events
    found: list[Comparison] = []
    for name, path in graph.paths.items():
        want = reference(trace, [label(graph, stage) for stage in path], python)
        if not found:
            nodes = {label(graph, stage): node for stage, node in graph.nodes.items()}
            latencies = Counter((key, time) for key in nodes for time in want["callbacks"].get(key, ()))
            mine = Counter((key, i.end_ns - i.start_ns) for key, n in nodes.items() for i in n.callback.instances)
            topics = {node.callback.topic for node in graph.nodes.values()} - {""}
            sent = Counter((topic, time) for topic, time in want["communications"] if topic in topics)
            took = [i for node in graph.nodes.values() for i in node.callback.instances if i.taken]
            got = Counter((i.taken.topic, i.start_ns - i.taken.time_ns) for i in took if i.taken)
            found = [
                Comparison("events", Counter({"events": want["count"]}), Counter({"events": len(events)})),
                Comparison("callback latencies", latencies, mine),
                Comparison("communication latencies", sent, got),
            ]
        paths = Counter((start, end) for start, end in want["paths"])
        found.append(Comparison(f"instances of path {name}", paths, path_instances(graph, path)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("architecture", type=Path)
    parser.add_argument("--python", default=PYTHON, help="interpreter with bt2 (default: %(default)s)")
    options = parser.parse_args()
    rows = compare(options.trace, options.architecture, options.python)
    for row in rows:
        verdict = "equal" if row.equal else f"DIFFERENT: {list((row.reference - row.imported).items())[:3]}"
        print(f"{row.what}: {sum(row.reference.values())} by babeltrace2, {sum(row.imported.values())} here: {verdict}")
    return 0 if all(row.equal for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
