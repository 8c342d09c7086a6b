"""Every format socsched reads: its seeds, how they are mutated, and the functions that read and use them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from socsched.errors import UsageError
from socsched.executor.check_bundle import check_bundle
from socsched.models.torch_file import read_checkpoint
from socsched.models.weights import load_weights
from socsched.planning.export import autoware, cyberrt
from socsched.planning.export.linux import ExportRequest, linux, rclcpp, systemd
from socsched.planning.io import from_document, load, to_document
from socsched.reporting.compare import compare, load_result
from socsched.reporting.junit import render
from socsched.reporting.terminal import console, plan_view
from socsched.runtime.journal import recover
from socsched.trace.metrics import result
from tools.verify.fuzz import corpus, graphs, imports, mutate

Mutate = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Format:
    """`read` loads a file and uses what it holds; `plain`: its messages show no text of the file unescaped."""

    name: str
    suffix: str
    seeds: tuple[bytes, ...]
    mutate: Mutate
    read: Callable[[Path], Any]
    plain: bool = False

    def warm(self, file: Path) -> None:
        """Read every seed once, so that imports and caches are not charged to a mutation."""
        for seed in self.seeds:
            file.write_bytes(seed)
            try:
                self.read(file)
            except Exception:
                continue


@cache
def _rich() -> Any:
    import json

    seeds = corpus.read()["plan"]
    return from_document(json.loads(min(seeds, key=len)))


def _plan(file: Path) -> None:
    plan = load(file)
    _no_negative(to_document(plan))
    if plan.tasks:
        linux(ExportRequest(plan, mode_id=1))
        for write in (autoware.write, rclcpp, cyberrt.write, systemd):
            with suppress(UsageError):  # a plan of EDF, or without a task that Linux schedules
                write(ExportRequest(plan))
    _valid_xml(render(plan, {}))
    console(100).print(plan_view(plan))


def _no_negative(document: Any) -> None:
    for task in document["tasks"]:
        assert all(v >= 0 for k, v in task.items() if k.endswith("_ns") and isinstance(v, int) and k != "deadline_ns")


def _valid_xml(text: str) -> None:
    from xml.etree import ElementTree

    ElementTree.fromstring(text)


def _trace(file: Path) -> None:
    from socsched.trace.io import load

    result(load(file), _rich())


def _journal(file: Path) -> None:
    result(recover(file), _rich())


def _manifest(file: Path) -> None:
    check_bundle(file.parent)


def _weights(file: Path) -> None:
    load_weights(file)


def _checkpoint(file: Path) -> None:
    read_checkpoint(file)


def _result(file: Path) -> None:
    loaded = load_result(file)
    compare(loaded, loaded, 0.05).document()


def _loader(module: str, name: str, with_plan: bool = False) -> Callable[[Path], Any]:
    def read(file: Path) -> Any:
        from importlib import import_module

        function = getattr(import_module(module), name)
        return function(file, _rich()) if with_plan else function(file)

    return read


def formats(folder: Path) -> list[Format]:
    """Return all formats; `folder` is used only for seeds that consist of several files."""
    found = corpus.read()
    for name, seed in imports.texts():
        found.setdefault(name, []).append(seed)

    def one(name: str, suffix: str, how: Mutate, read: Callable[[Path], Any], seeds: str = "") -> Format:
        return Format(name, suffix, tuple(found[seeds or name]), how, read)

    archive = mutate.as_archive
    d = "socsched.descriptor."
    return [
        one("plan", ".json", mutate.as_json, _plan),
        one("trace", ".json", mutate.as_json, _trace),
        one("tracegz", ".json.gz", mutate.as_gzip, _trace),
        one("blocks", ".bin", mutate.as_blocks, _trace),
        one("journal", ".jsonl", mutate.as_lines, _journal),
        one("profile", ".json", mutate.as_json, _loader("socsched.cost.profile", "load_profile")),
        one("scales", ".json", mutate.as_json, _loader("socsched.compiler.quantize.scales", "read_pipeline_scales")),
        one("manifest", ".json", mutate.as_json, _manifest),
        one("overload", ".yaml", mutate.as_json, _loader("socsched.runtime.options", "load_policies", True)),
        one("faults", ".yaml", mutate.as_json, _loader("socsched.faults.file", "load_faults", True)),
        one("taskset", ".yaml", mutate.as_json, _loader(d + "taskset", "load_taskset")),
        one("weights", ".npz", archive(mutate.npy), _weights),
        one("checkpoint", ".pth", archive(mutate.member), _checkpoint),
        one("onnx", ".onnx", graphs.network, graphs.judged),
        one("scan", ".bin", mutate.raw, _loader("socsched.models.pointpillars.scan", "read_scan")),
        one("result", ".json", mutate.as_json, _result),
        one("pipeline", ".yaml", mutate.as_text, _loader(d + "pipeline_file", "load_pipeline")),
        one("rules", ".yaml", mutate.as_text, _loader(d + "operator_rules", "load_rules")),
        one("study", ".yaml", mutate.as_text, _loader(d + "study", "load_study")),
        one("platform", ".yaml", mutate.as_text, _loader(d + "platform_file", "load_platform")),
        *(one(*row) for row in imports.formats(found)),
    ]
