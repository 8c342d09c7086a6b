"""Objects that socsched finds by name: those that come with it, and those of other packages' entry points.

Another package registers in its pyproject.toml: ``calm = "my_package.calm:POLICY"`` in the table
``[project.entry-points."socsched.policies"]``.  The name is available once the package is installed.  Objects are
imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from socsched.errors import MachineError, UsageError
from socsched.resources import nearest

GROUPS = {
    "socsched.policies": "scheduling policy",
    "socsched.planners": "planner",
    "socsched.schedulability": "schedulability test",
    "socsched.contention": "contention model",
    "socsched.costs": "source of costs",
    "socsched.models": "model",
    "socsched.targets": "compile target",
    "socsched.toolchains": "vendor toolchain",
    "socsched.backends": "run backend",
    "socsched.renderers": "renderer",
    "socsched.commands": "command",
}
"""Group -> description of the objects registered there."""


BUILT_IN: dict[str, dict[str, str]] = {
    "socsched.targets": {
        "llvm": "socsched.compiler.targets.llvm.target:TARGET",
        "cuda": "socsched.compiler.targets.cuda.target:TARGET",
        "opencl": "socsched.compiler.targets.opencl.target:TARGET",
        "simulated": "socsched.compiler.targets.llvm.target:SIMULATED",
    },
    "socsched.toolchains": {
        "TensorRT": "socsched.compiler.toolchains.tensorrt:TENSORRT",
        "QNN": "socsched.compiler.toolchains.qnn:QNN",
        "SNPE": "socsched.compiler.toolchains.qnn:SNPE",
        "RKNN": "socsched.compiler.toolchains.rknn:RKNN",
        "onnxruntime": "socsched.compiler.toolchains.onnx_runtime:ONNXRUNTIME",
    },
    "socsched.renderers": {
        "html": "socsched.api.renderers:html",
        "pftrace": "socsched.api.renderers:perfetto",
        "btf": "socsched.api.renderers:btf",
        "xml": "socsched.api.renderers:junit",
        "md": "socsched.api.renderers:markdown",
        "json": "socsched.api.renderers:result",
        "mcap": "socsched.api.renderers:mcap",
    },
    "socsched.policies": {
        "edf": "socsched.sim.policies.shipped:EDF",
        "fp": "socsched.sim.policies.shipped:FP",
        "fifo": "socsched.sim.policies.shipped:FIFO",
        "rm": "socsched.sim.policies.shipped:RM",
        "dm": "socsched.sim.policies.shipped:DM",
        "rr": "socsched.sim.policies.shipped:RR",
        "llf": "socsched.sim.policies.shipped:LLF",
        "edf-criticality": "socsched.sim.policies.shipped:EDF_CRITICALITY",
        "cbs": "socsched.sim.policies.shipped:CBS",
        "srtf": "socsched.sim.policies.shipped:SRTF",
        "sjf": "socsched.sim.policies.shipped:SJF",
    },
    "socsched.models": {
        "pointpillars.voxelise": "socsched.models.pointpillars.voxelise:model",
        "pointpillars.pfn": "socsched.models.pointpillars.network:pfn",
        "pointpillars.scatter": "socsched.models.pointpillars.network:scatter",
        "pointpillars.backbone": "socsched.models.pointpillars.network:backbone",
        "pointpillars.head": "socsched.models.pointpillars.network:head",
        "pointpillars.decode": "socsched.models.pointpillars.decode:model",
        "pointpillars-s.pfn": "socsched.models.pointpillars.small:pfn",
        "pointpillars-s.scatter": "socsched.models.pointpillars.small:scatter",
        "pointpillars-s.backbone": "socsched.models.pointpillars.small:backbone",
        "pointpillars-s.head": "socsched.models.pointpillars.small:head",
        "centerpoint.voxelise": "socsched.models.centerpoint.voxelise:model",
        "centerpoint.pfn": "socsched.models.centerpoint.network:pfn",
        "centerpoint.scatter": "socsched.models.centerpoint.network:scatter",
        "centerpoint.backbone": "socsched.models.centerpoint.network:backbone",
        "centerpoint.head": "socsched.models.centerpoint.network:head",
        "centerpoint.decode": "socsched.models.centerpoint.decode:model",
        "onnx": "socsched.models.onnx_import:model",
        "camera.preprocess": "socsched.models.camera:preprocess",
        "camera.detector": "socsched.models.camera:detector",
        "camera.decode": "socsched.models.camera_decode:model",
    },
    "socsched.backends": {
        "network": "socsched.runtime.backends.built_in:TvmCpuBackend",
        "function": "socsched.runtime.backends.built_in:FunctionBackend",
        "conversion": "socsched.runtime.backends.built_in:ConversionBackend",
        "synthetic": "socsched.runtime.backends.built_in:SyntheticBackend",
        "vendor-sim": "socsched.runtime.backends.built_in:VendorSimBackend",
        "onnxruntime": "socsched.runtime.backends.built_in:OnnxRuntimeBackend",
    },
    "socsched.contention": {
        "max-min": "socsched.cost.contention.models:max_min",
        "pccs": "socsched.cost.contention.models:pccs",
        "linear": "socsched.cost.contention.models:linear",
        "pairwise": "socsched.cost.contention.models:pairwise",
    },
    "socsched.costs": {
        "profile": "socsched.cost.profile:SOURCE",
        "anchors": "socsched.cost.sources:ANCHORS_SOURCE",
        "vendor-model": "socsched.cost.profile:VENDOR_MODEL_SOURCE",
        "roofline": "socsched.cost.sources:ROOFLINE_SOURCE",
    },
}
"""Group -> name -> "module:object" of what comes with socsched; entry points are for other packages."""

SCANNED = {"socsched.schedulability": "socsched.schedulability.published"}
"""Groups whose built-in objects are found in the modules of a package."""


@cache
def _registered() -> Mapping[str, dict[str, EntryPoint]]:
    found: dict[str, dict[str, EntryPoint]] = {}
    installed = entry_points()
    for group in GROUPS:
        built_in = BUILT_IN.get(group, {})
        known = found[group] = {name: EntryPoint(name, value, group) for name, value in built_in.items()}
        for entry in installed.select(group=group):
            if entry.name not in built_in and (entry.name not in known or is_own(entry)):
                known[entry.name] = entry
    return found


def is_own(entry: EntryPoint) -> bool:
    """Return whether an entry is of this project; these take precedence over others of the same name."""
    return entry.value.partition(".")[0] in ("socsched", "socsched_literature")


def literature_hint(group: str) -> str:
    """Return how to get the policies, planners and studies of published systems; empty where they are installed."""
    about = {"socsched.policies": "policies", "socsched.planners": "planners", "socsched.commands": "studies"}
    if group not in about or "study" in entries("socsched.commands"):
        return ""
    return (
        f"; {about[group]} of published systems come with a distribution of their own: "
        "pip install '/path/to/socsched/socsched_literature'"
    )


def entries(group: str) -> dict[str, EntryPoint]:
    """Return name -> entry of a group."""
    if group in SCANNED:
        _scan(group)
    return _registered()[group]


@cache
def _scan(group: str) -> None:
    for name, value in import_module(SCANNED[group]).built_in():
        _registered()[group][name] = EntryPoint(name, value, group)


def names(group: str, own: bool = False) -> list[str]:
    """Return the names registered in a group, sorted; with `own` only the built-in ones."""
    return sorted(name for name, entry in entries(group).items() if not own or is_own(entry))


def load(group: str, name: str, kind: type | None = None) -> Any:
    """Return the object registered as `name`, an instance of `kind` where one is given.

    Raises UsageError for an unknown name, listing the known ones, and for an object of another kind; MachineError if
    the import fails.
    """
    if name not in entries(group):
        near = nearest(name, names(group))
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        known = ", ".join(names(group)) or "none"
        raise UsageError(f"no {GROUPS[group]} {name!r}", f"{meant}known: {known}{literature_hint(group)}")
    entry = entries(group)[name]
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        problem = f"{GROUPS[group]} {name!r}, registered as {entry.value}, cannot be loaded: {error}"
        raise MachineError(problem, "repair or uninstall the package that registers it") from None
    if kind is not None and not isinstance(found, kind):
        problem = f"{GROUPS[group]} {name!r} is registered as {entry.value}, which is not a {kind.__name__}"
        raise UsageError(problem, f"register a {kind.__name__}")
    return found


def module_of(group: str, name: str) -> ModuleType:
    """Return the module that contains an entry."""
    return import_module(entries(group)[name].module)


def provide(group: str, name: str, value: str) -> None:
    """Register "module:object" in this process, as an installed package would."""
    entries(group)[name] = EntryPoint(name, value, group)
