"""Write pipelines/autoware-universe.yaml, every callback of a recorded Autoware, from the sample of tier4/caret_report.

    git clone https://github.com/tier4/caret_report && git -C caret_report checkout 50f8539
    python -m tools.generate.autoware_universe caret_report

The report has CARET's architecture file (nodes, callbacks, topics, callback groups) and, for each callback, its
rate and the distribution of its execution times in the recording.  What it does not state is assumed, and marked.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

COMPONENTS = ("control", "localization", "perception", "planning", "sensing", "system", "vehicle")
PERIODS_MS = (10, 20, 25, 30, 40, 50, 100, 200, 500, 1000)
"""Rates that recorded ones are rounded to."""
IDLE_US = 10
GPU = ("lidar_centerpoint", "traffic_light_classifier", "traffic_light_ssd")
"""Nodes that compute with TensorRT."""
HEAD = """\
# yaml-language-server: $schema=../schemas/pipeline.schema.json
#
# A recorded Autoware Universe (April 2023), written by tools/generate/autoware_universe.py: every callback is a stage.
# Names, topics, callback groups, periods, rates and execution times are those of the sample of tier4/caret_report.
#
# Interpretation:
# - A subscription waits for the callback that publishes its topic. Where CARET does not know which callback of a node
#   publishes, it is the one whose recorded rate is nearest to the subscriber's. A topic that no recorded node publishes
#   is a sensor.
# - A timer reads the latest results of its node's subscriptions. Along the sample's paths, a callback also reads what
#   its node, or the node before it, heard on the path.
# - A trigger that would close a cycle is read by a timer of the recorded rate.
# - Up to ten messages wait at a subscription, as by default in rclcpp.
# - Callbacks of one mutually exclusive group (the title names it) may run at once here.
# - Times are the median of the recording, on a desktop that the sample does not name; they include waiting for other
#   threads, and stand for a core of AGX Orin. Callbacks without a message in the recording take 10 us.
# - Chains are the sample's paths, and their deadlines the slowest messages of the recording.
schema_version: "1"
name: autoware-universe
title: "Autoware Universe as recorded: 282 callbacks of 105 nodes"
sources:
  caret:
    title: "CARET's sample report of Autoware: architecture, and statistics of callbacks and paths"
    where: "github.com/tier4/caret_report at 50f8539, analyze_node and analyze_path"
"""


@dataclass
class Callback:
    """A callback of the recording: what triggers it, and how often and how long it ran (period ns, time us)."""

    name: str
    node: str
    group: str
    topic: str
    period: int
    rate: float | None
    time: float | None
    after: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)


def main() -> None:
    """Write the pipeline."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path, help="checkout of caret_report")
    parser.add_argument("-o", "--output", type=Path, default=Path("pipelines/autoware-universe.yaml"))
    given = parser.parse_args()
    architecture = _read(given.report / "analyze_path" / "architecture_path.yaml")
    nodes = architecture["nodes"]
    callbacks = {callback.name: callback for callback in _callbacks(nodes, given.report)}
    sensors = _connect(nodes, callbacks)
    worst = {row["target_path_name"]: row["worst_max"] for row in _read(given.report / "analyze_path/stats_path.yaml")}
    chains = list(_chains(architecture["named_paths"], callbacks, sensors, worst))
    given.output.write_text(_text(callbacks, sensors, chains), encoding="utf-8")


def _read(file: Path) -> Any:
    return yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _short(names: Iterable[str]) -> dict[str, str]:
    """Return short names of nodes' callbacks or topics: as few of the last components as are unique."""
    parts = {
        name: re.sub(r"_dpc\d+_\d+", "", name.replace("/callback_", "-"))
        .lower()
        .replace("_", "-")
        .strip("/")
        .split("/")
        for name in names
    }
    found: dict[str, str] = {}
    for name, mine in parts.items():
        for count in range(1, len(mine) + 1):
            end = mine[-count:]
            if sum(other[-count:] == end for other in parts.values()) == 1:
                break
        found[name] = "-".join(end)
    return found


def _callbacks(nodes: list[Any], report: Path) -> Iterator[Callback]:
    stats: dict[str, Any] = {}
    for component in COMPONENTS:
        for node in (_read(report / "analyze_node" / component / "stats_node.yaml") or {}).values():
            stats.update(node["callbacks"])
    for node in nodes:
        groups = {
            name: group["callback_group_name"].rpartition("/")[2].removeprefix("callback_group_")
            for group in node.get("callback_groups") or []
            for name in group["callback_names"]
        }
        for row in node.get("callbacks") or []:
            name, found = row["callback_name"], stats.get(row["callback_name"], {})
            rate, time = (found.get(what, {}) for what in ("Frequency", "Latency"))
            yield Callback(
                name, node["node_name"], groups.get(name, ""), row.get("topic_name", ""), row.get("period_ns", 0),
                None if rate.get("avg", "---") == "---" else float(rate["avg"]),
                None if time.get("p50", "---") == "---" else float(time["p50"]) * 1000,
            )  # fmt: skip


def _connect(nodes: list[Any], callbacks: dict[str, Callback]) -> dict[str, float | None]:
    """Fill in the triggers of callbacks; return the topics that no node publishes, with their rates."""
    publishers: dict[str, list[tuple[str, str]]] = {}
    for node in nodes:
        for row in node.get("publishes") or []:
            for name in row.get("callback_names") or ["UNDEFINED"]:
                publishers.setdefault(row["topic_name"], []).append((node["node_name"], name))
    of_node: dict[str, list[Callback]] = {}
    for callback in callbacks.values():
        of_node.setdefault(callback.node, []).append(callback)
    sensors: dict[str, float | None] = {}
    for callback in callbacks.values():
        if callback.period:
            callback.reads = [other.name for other in of_node[callback.node] if other.topic and other.rate]
            continue
        found = _publisher(callback, publishers.get(callback.topic, []), callbacks, of_node)
        if found is None:
            sensors[callback.topic] = max(callback.rate or 0, sensors.get(callback.topic) or 0) or None
            callback.after = [callback.topic]
        elif _triggers(callbacks, callback.name, found):
            callback.reads, callback.period = [found], _period_ms(callback.rate) * 10**6
        else:
            callback.after = [found]
    return sensors


def _publisher(
    callback: Callback,
    published: list[tuple[str, str]],
    callbacks: dict[str, Callback],
    of_node: dict[str, list[Callback]],
) -> str | None:
    known = [name for _, name in published if name in callbacks]
    others = [other.name for node, _ in published for other in of_node.get(node, []) if other.name != callback.name]
    wanted = callback.rate or 10.0
    return min(known or others, key=lambda name: abs((callbacks[name].rate or 0) - wanted), default=None)


def _triggers(callbacks: dict[str, Callback], name: str, other: str) -> bool:
    """Return whether a callback triggers another, itself or through others."""
    while other in callbacks:
        if other == name:
            return True
        other = callbacks[other].after[0] if callbacks[other].after else ""
    return False


def _period_ms(rate: float | None) -> int:
    return min(PERIODS_MS, key=lambda period: abs(period - 1000 / (rate or 10.0)))


def _chains(
    paths: list[Any], callbacks: dict[str, Callback], sensors: dict[str, float | None], worst: dict[str, float]
) -> Iterator[tuple[str, list[str], float]]:
    """Yield the recorded paths as far as callbacks follow each other: name, stages, slowest message (ms)."""
    for path in paths:
        stages: list[str] = []
        for step in path["node_chain"]:
            mine = [callback for callback in callbacks.values() if callback.node == step["node_name"]]
            heard = [callback for callback in mine if callback.topic == step["subscribe_topic_name"]] or [
                callback for callback in mine if callback.rate and callback.topic
            ]
            if not heard:
                break
            first = heard[0]
            if not stages:
                stages = [*first.after, first.name]
                continue
            before = callbacks[stages[-1]]
            publisher = callbacks.get(first.after[0]) if first.after else None
            if before.name not in (*first.after, *first.reads):
                if publisher is not None and publisher.node == before.node and publisher.name not in stages:
                    if before.name not in publisher.reads:
                        publisher.reads.append(before.name)
                    stages.append(publisher.name)
                else:
                    first.reads.append(before.name)
            stages.append(first.name)
        if len(stages) > 2 and stages[0] in sensors:
            yield path["path_name"].replace("_", "-"), stages, worst[path["path_name"]]


def _text(callbacks: dict[str, Callback], sensors: dict[str, float | None], chains: list[Any]) -> str:
    names = {topic: f"topic-{short}" for topic, short in _short(sensors).items()} | _short(callbacks)
    hard = {name for _, path, _ in chains for name in path}
    lines = [HEAD, "sensors:"]
    for topic, rate in sensors.items():
        where = "source: caret" if rate else "assumed: no message in the recording"
        size = "2 MB" if "pointcloud" in topic or "packets" in topic else "6 MB" if "image" in topic else "4 kB"
        lines.append(
            f"  {names[topic]}: {{kind: topic, {where}, period: {_period_ms(rate)} ms, bytes_per_frame: {size}}}"
        )
    lines += ["", "stages:"]
    for name, callback in callbacks.items():
        lines.append(f"  {names[name]}:")
        lines.append(
            f'    title: "{callback.node}, callback {name.rpartition("_")[2]}, group {callback.group or "unknown"}"'
        )
        lines.append("    source: caret")
        if callback.after:
            lines.append(f"    after: [{', '.join(names[other] for other in callback.after)}]")
        if callback.period:
            lines.append(f"    period: {callback.period // 1000} us")
        if callback.reads:
            lines.append(f"    reads: [{', '.join(names[other] for other in callback.reads)}]")
        size = "2 MB" if "pointcloud" in callback.topic else "4 kB"
        lines.append(f"    precisions: [fp32]\n    share: 1\n    queue: 10\n    output_bytes: {size}")
        lines.append(f"    criticality: {'hard' if name in hard else 'soft'}")
        engine = "gpu" if any(node in callback.node for node in GPU) and callback.topic else "cpu"
        time = callback.time or IDLE_US
        note = (
            "no message in the recording" if not callback.time
            else "as recorded, on another GPU" if engine == "gpu" else "as recorded, on another CPU"
        )  # fmt: skip
        units = "" if engine == "gpu" else " units: 1,"
        place = f"platform: jetson-agx-orin-64gb, mode: MAXN, engine: {engine}, precision: fp32,{units}"
        figure = f'value: {max(round(time), 1)} us, kind: assumed, source: caret, note: "{note}", error: 0.5'
        lines.append(f"    costs: [{{{place}\n      time: {{{figure}}}}}]")
    lines += ["", "chains:"]
    for name, path, worst in chains:
        lines.append(f"  {name}:\n    path: [{', '.join(names[stage] for stage in path)}]")
        lines.append(f"    deadline: {worst:.0f} ms\n    source: caret")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
