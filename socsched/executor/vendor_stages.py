"""Artefacts of other programs as stages of run.json: the adapter of each toolchain, where a board has the libraries."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from socsched.compiler.store import library
from socsched.compiler.toolchains.environments import environment
from socsched.compiler.toolchains.hand_over import DESCRIPTION, hand_over, toolchain_of
from socsched.compiler.toolchains.onnx_runtime import LIBRARY, carried_library, installed_library, model_folder
from socsched.compiler.toolchains.package import MODEL, QUANTISED
from socsched.compiler.toolchains.tensorrt import FIRST_LOADABLE
from socsched.descriptor.operator_rules import version_key
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import ONNXRUNTIME, Platform
from socsched.errors import MachineError, UsageError
from socsched.files import digests
from socsched.models.registry import get_model
from socsched.planning.plan import Task
from socsched.runtime.backends import GPUS, Setting
from socsched.runtime.backends.built_in import known_scales, weights_of

KIND = "engine"
BOARD = "board"
"""The adapter that is compiled on the board (`socsched/executor/board`)."""
ADAPTERS = "native/adapters"
"""Folder of a bundle in which its build step puts adapters."""
ADAPTER = "libsocsched-tensorrt.so"
_BUILD_S = 3600

Document = Mapping[str, Any]


def describe_built_stage(task: Task, stage: Stage, setting: Setting) -> dict[str, Any]:
    """Return the description of a stage that another program runs here, built by trtexec or taken from the cache.

    Its inputs lack their providers.  MachineError if the build fails.
    """
    engine = setting.platform.engine(task.engine)
    scales = known_scales(setting, stage, task.precision)
    if task.runtime == ONNXRUNTIME:
        document, folder = model_folder(stage, engine, task.precision, weights_of(setting), scales)
        return described_onnx(document, str(folder), len(task.lanes), str(installed_library() or LIBRARY))
    chosen = next((runtime.name for runtime in engine.runtimes if runtime.name == task.runtime), "")
    with tempfile.TemporaryDirectory() as scratch:
        document = hand_over(
            stage, engine, task.precision, Path(scratch), weights_of(setting), scales=scales, runtime=chosen
        )
        name = PurePosixPath(describe_engine(document, "")["artefact"]).name
        files = digests(Path(scratch))
        key = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:24]

        def build(folder: Path) -> None:
            shutil.copytree(scratch, folder, dirs_exist_ok=True)
            _shell(["sh", "build.sh"], folder, f"stage {task.name!r}: TensorRT built no engine")

        artefact = library("tensorrt", key, name, build)
    sources = [
        path for path in (*BOARD_SOURCES.iterdir(), *BOARD_SOURCES.with_name("native").iterdir()) if path.is_file()
    ]
    adapter = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:24]

    def compile_adapter(folder: Path) -> None:
        command = ["sh", str(BOARD_SOURCES / "build-adapter.sh"), str(BOARD_SOURCES.with_name("native")), str(folder)]
        _shell(command, folder, "the adapter of TensorRT cannot be compiled")

    adapters = library("adapters", adapter, ADAPTER, compile_adapter).parent if name == "model.engine" else Path()
    return describe_engine(document, str(artefact.parent), str(adapters))


BOARD_SOURCES = Path(__file__).with_name("board")
"""The scripts of bundles, and the source of the adapter that boards compile."""


def _shell(command: list[str], folder: Path, problem: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode:
        raise MachineError(f"{problem}: {(done.stderr or done.stdout)[-2000:]}", "see `socsched doctor`")


def describe_engine(document: Document, folder: str, adapters: str = "adapters") -> dict[str, Any]:
    """Return the description of a hand-over (handover.json) in `folder`, relative to run.json.

    Its inputs and outputs are those of the artefact, with `name` and `port`; who provides an input is the caller's.
    `adapters`: the folder of adapters that are compiled on the board.  UsageError for a toolchain without adapter.
    """
    toolchain = str(document["toolchain"])
    if toolchain not in _TOOLCHAINS:
        known = ", ".join(sorted(_TOOLCHAINS))
        raise UsageError(
            f"{document['stage']}: no adapter runs artefacts of {toolchain}", f"there are some for {known}"
        )
    made = _TOOLCHAINS[toolchain](document, PurePosixPath(folder), PurePosixPath(adapters))
    layouts, floats = made.pop("layouts"), (made.pop("input_floats", "fp32"), "fp32")
    sides = {
        side: [_tensor(entry, layout, kind) for entry in document[side]]
        for side, layout, kind in zip(("inputs", "outputs"), layouts, floats, strict=True)
    }
    return {"kind": KIND, **made, **sides}


def _tensor(entry: Mapping[str, Any], layout: str | None, floats: str) -> dict[str, Any]:
    """Return a tensor of an artefact: `floats` in plain `layout`, or as the hand-over has it if `layout` is None.

    Bytes of an artefact are floats for the executor, which multiplies by their scale (`scale_bits`, of fp32).
    """
    found = {key: entry[key] for key in ("name", "port", "dtype", "layout", "shape")}
    if layout is None:
        if entry["dtype"] != "int8":
            return found
        (bits,) = struct.unpack("<I", struct.pack("<f", entry["scale"]))
        return {**found, "dtype": "fp32", "scale_bits": bits}
    integral = entry["dtype"] in ("int32", "int64", "bool", "uint8")
    return {
        **found,
        "dtype": entry["dtype"] if integral else floats,
        "layout": layout if len(entry["shape"]) == 4 else "",
    }


def _made(document: Document, ending: str, otherwise: str) -> str:
    """Return the compiled file with an ending; if it is built later, the file that its build step writes."""
    files = document.get("compiled", {}).get("files", {})
    return next((name for name in sorted(files) if name.endswith(ending)), otherwise)


def _qnn(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    """A QNN context binary in an ONNX file that names it, all of it on the HTP.

    Where Qualcomm's compiler is not installed, the model, which the provider compiles when it loads it.  A chip with
    several of them (SA-series) has an engine for each, with its number (CDSP, NSP) in its name.
    """
    target = document.get("compiled", {}).get("target", {})
    number = str(document["engine"])[-1:]
    model = QUANTISED if document["precision"] == "int8" else MODEL
    return {
        "adapter": "onnxruntime",
        "artefact": str(folder / _made(document, "_ctx.onnx", model)),
        "library": "libonnxruntime.so",
        "options": {
            "provider": "QNNExecutionProvider",
            "provider_library": "libonnxruntime_providers_qnn.so",
            "backend_path": "libQnnHtp.so",
            "session.disable_cpu_ep_fallback": "1",
            "enable_htp_shared_memory_allocator": "1",
            **{name: str(value) for name, value in target.items()},
            **({"device_id": number} if number.isdigit() else {}),
        },
        "layouts": ("NCHW", "NCHW"),
    }


def described_onnx(document: Document, folder: str, threads: int, runtime: str) -> dict[str, Any]:
    """Return the description of a stage that ONNX Runtime computes on processors; `runtime`: its shared library.

    Its threads wait actively while a job runs, as our kernels' do, and not between jobs, whose processors others use.
    """
    made = describe_engine(document, folder)
    waiting = {"session.intra_op.allow_spinning": "1", "session.force_spinning_stop": "1"}
    floats = {"session.set_denormal_as_zero": "1"}  # as our kernels
    return {**made, "library": runtime, "options": {"threads": str(threads), **waiting, **floats}}


def _onnxruntime(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    return {
        "adapter": "onnxruntime",
        "artefact": str(folder / MODEL),
        "library": LIBRARY,
        "options": {},
        "layouts": ("NCHW", "NCHW"),
    }


def _rknn(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    """A model of librknnrt, which takes images channels last and returns them as the ONNX model does.

    Inputs of models in half precision are halves, so that they may lie in memory of the NPU as they come.
    An NPU of several cores has an engine for each, with the core's number in its name.
    """
    engine = str(document["engine"])
    return {
        "adapter": "rknn",
        "artefact": str(folder / _made(document, ".rknn", "build/model.rknn")),
        "library": "librknnrt.so",
        "options": {"core_mask": str(1 << int(engine[-1]))} if engine[-1:].isdigit() else {},
        "layouts": ("NHWC", "NCHW"),
        "input_floats": "fp16" if document["precision"] == "fp16" else "fp32",
    }


def _tensorrt(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    """A DLA loadable for cuDLA where trtexec writes one; else an engine of the board's TensorRT, for a GPU or DLA."""
    dla, engine = document["engine_kind"] == "dla", str(document["engine"])
    loadable = dla and version_key(str(document["version"])) >= FIRST_LOADABLE
    return {
        "adapter": "cudla" if loadable else BOARD,
        "artefact": str(folder / ("model.dla" if loadable else "model.engine")),
        "library": "libcudla.so" if loadable else str(adapters / ADAPTER),
        "options": {"core": engine[-1]} if dla and engine[-1:].isdigit() else {},
        "layouts": (None, None),
    }


def lacks_runtime(task: Task, pipeline: Pipeline, platform: Platform) -> str:
    """Return why no bundle can run a network as it was planned, empty if one can: what was priced is what ships."""
    stage = next((stage for stage in pipeline.stages if stage.name == task.name), None)
    if stage is None or stage.model is None or get_model(stage.model, stage.params).network is None:
        return ""
    engine = platform.engine(task.engine)
    toolchain = toolchain_of(engine, task.runtime)
    if toolchain and toolchain not in _TOOLCHAINS and toolchain.lower() not in _TOOLCHAINS:
        return f"the executor has no adapter for {toolchain}"
    if not toolchain and engine.target.get("kind") not in (*GPUS, "llvm"):
        return f"no tool makes code for {engine.id}"
    return ""


def shipped_stage(task: Task, setting: Setting, folder: Path, name: str) -> dict[str, Any] | None:
    """Return the description of a stage whose hand-over is the bundle's folder `name`; None for one compiled here.

    `folder`: the bundle's.  UsageError for a toolchain without adapter, MachineError for an artefact that no tool of
    the board makes and that was not made here.
    """
    if not toolchain_of(setting.platform.engine(task.engine), task.runtime):
        return None
    document = json.loads((folder / name / DESCRIPTION).read_text(encoding="utf-8"))
    if document["toolchain"].lower() == ONNXRUNTIME:
        carried = PurePosixPath("native") / document["needs"]["machine"] / LIBRARY
        if not (folder / carried).exists():
            (folder / carried).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(carried_library(document["needs"]), folder / carried)
        return described_onnx(document, name, len(task.lanes), str(carried))
    made = describe_engine(document, name, ADAPTERS)
    made["options"] = {**made["options"], **core_mask(task, setting, str(document["toolchain"]))}
    if document["toolchain"] == "RKNN" and "compiled" not in document:
        vendor = environment("rockchip")
        raise MachineError(f"stage {task.name!r} on {task.engine}: {vendor.title} is not installed", vendor.command)
    return made


def core_mask(task: Task, setting: Setting, toolchain: str) -> dict[str, str]:
    """Return the cores of a task that has a share of an engine, as the option of the adapter that takes them."""
    lanes = next(engine.lanes for engine in setting.plan.engines if engine.id == task.engine)
    if toolchain != "RKNN" or lanes < 2:
        return {}
    return {"core_mask": str(sum(1 << lane for lane in task.lanes))}


_TOOLCHAINS: Mapping[str, Callable[[Document, PurePosixPath, PurePosixPath], dict[str, Any]]] = {
    "QNN": _qnn,
    "RKNN": _rknn,
    "TensorRT": _tensorrt,
    ONNXRUNTIME: _onnxruntime,
}
