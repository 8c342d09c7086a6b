"""Artefacts of other programs as stages of run.json: the adapter of each toolchain, where a board has the libraries."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from socsched.compiler.store import library
from socsched.compiler.toolchains.hand_over import hand_over
from socsched.compiler.toolchains.onnx_runtime import LIBRARY, installed_library, model_folder
from socsched.compiler.toolchains.package import MODEL
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import ONNXRUNTIME
from socsched.errors import MachineError, UsageError
from socsched.files import digests
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.tvm_cpu import weights_of

KIND = "engine"
BOARD = "board"
"""The adapter that is compiled on the board (`socsched/executor/board`)."""
SORTS = ("dla", ONNXRUNTIME)
"""Sorts of stages: those that TensorRT runs, on DLAs and on GPUs where the plan chose it; and ONNX Runtime's."""
_ADAPTER = "libsocsched-tensorrt.so"
_BUILD_S = 3600

Document = Mapping[str, Any]


def describe_built_stage(task: Task, stage: Stage, setting: Setting) -> dict[str, Any]:
    """Return the description of a stage that another program runs here, built by trtexec or taken from the cache.

    Its inputs lack their providers.  UsageError for a precision that is not run, MachineError if the build fails.
    """
    engine = setting.platform.engine(task.engine)
    if task.runtime == ONNXRUNTIME:
        document, folder = model_folder(stage, engine, task.precision, weights_of(setting))
        return described_onnx(document, str(folder), len(task.lanes), str(installed_library() or LIBRARY))
    chosen = next((runtime.name for runtime in engine.runtimes if runtime.name == task.runtime), "")
    if task.precision not in (("fp16", "fp32") if chosen else ("fp16",)):
        which = "TensorRT on GPUs in fp16 and fp32" if chosen else "DLAs in fp16"
        raise UsageError(
            f"stage {task.name!r} is planned in {task.precision} on {task.engine}: the executor runs {which}",
            "list only fp16 under the stage's precisions and plan again",
        )
    with tempfile.TemporaryDirectory() as scratch:
        document = hand_over(stage, engine, task.precision, Path(scratch), weights_of(setting), runtime=chosen)
        name = "model.dla" if document["engine_kind"] == "dla" else "model.engine"
        files = digests(Path(scratch))
        key = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:24]

        def build(folder: Path) -> None:
            shutil.copytree(scratch, folder, dirs_exist_ok=True)
            _shell(["sh", "build.sh"], folder, f"stage {task.name!r}: TensorRT built no engine")

        artefact = library("tensorrt", key, name, build)
    sources = [path for path in (*_BOARD.iterdir(), *_BOARD.with_name("native").iterdir()) if path.is_file()]
    adapter = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:24]

    def compile_adapter(folder: Path) -> None:
        command = ["sh", str(_BOARD / "build.sh"), str(_BOARD.with_name("native")), str(folder)]
        _shell(command, folder, "the adapter of TensorRT cannot be compiled")

    gpu = document["engine_kind"] != "dla"
    adapters = library("adapters", adapter, _ADAPTER, compile_adapter).parent if gpu else Path()
    return describe_engine(document, str(artefact.parent), str(adapters))


_BOARD = Path(__file__).with_name("board")


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
    layouts = made.pop("layouts")
    sides = {
        side: [_tensor(entry, layout) for entry in document[side]]
        for side, layout in zip(("inputs", "outputs"), layouts, strict=True)
    }
    return {"kind": KIND, **made, **sides}


def _tensor(entry: Mapping[str, Any], layout: str | None) -> dict[str, Any]:
    """Return a tensor of an artefact: floats in plain `layout`, or as the hand-over has it if `layout` is None."""
    found = {key: entry[key] for key in ("name", "port", "dtype", "layout", "shape")}
    if layout is None:
        return found
    integral = entry["dtype"] in ("int32", "int64", "bool")
    return {
        **found,
        "dtype": entry["dtype"] if integral else "fp32",
        "layout": layout if len(entry["shape"]) == 4 else "",
    }


def _made(document: Document, ending: str, otherwise: str) -> str:
    """Return the compiled file with an ending; if it is built later, the file that its build step writes."""
    files = document.get("compiled", {}).get("files", {})
    return next((name for name in sorted(files) if name.endswith(ending)), otherwise)


def _qnn(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    """A QNN context binary in an ONNX file that names it, all of it on the HTP."""
    target = document.get("compiled", {}).get("target", {})
    return {
        "adapter": "onnxruntime",
        "artefact": str(folder / _made(document, "_ctx.onnx", "build/model_ctx.onnx")),
        "library": "libonnxruntime.so",
        "options": {
            "provider": "QNNExecutionProvider",
            "provider_library": "libonnxruntime_providers_qnn.so",
            "backend_path": "libQnnHtp.so",
            "session.disable_cpu_ep_fallback": "1",
            **{name: str(value) for name, value in target.items()},
        },
        "layouts": ("NCHW", "NCHW"),
    }


def described_onnx(document: Document, folder: str, threads: int, runtime: str) -> dict[str, Any]:
    """Return the description of a stage that ONNX Runtime computes on processors; `runtime`: its shared library.

    Its threads wait actively while a job runs, as our kernels' do, and not between jobs, whose processors others use.
    """
    made = describe_engine(document, folder)
    waiting = {"session.intra_op.allow_spinning": "1", "session.force_spinning_stop": "1"}
    return {**made, "library": runtime, "options": {"threads": str(threads), **waiting}}


def _onnxruntime(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    return {
        "adapter": "onnxruntime",
        "artefact": str(folder / MODEL),
        "library": LIBRARY,
        "options": {},
        "layouts": ("NCHW", "NCHW"),
    }


def _rknn(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    """A model of librknnrt, which takes images channels last and returns them as the ONNX model does."""
    return {
        "adapter": "rknn",
        "artefact": str(folder / _made(document, ".rknn", "build/model.rknn")),
        "library": "librknnrt.so",
        "options": {},
        "layouts": ("NHWC", "NCHW"),
    }


def _tensorrt(document: Document, folder: PurePosixPath, adapters: PurePosixPath) -> dict[str, Any]:
    """A DLA loadable for cuDLA, or for a GPU an engine of the board's TensorRT."""
    loadable, engine = document["engine_kind"] == "dla", str(document["engine"])
    return {
        "adapter": "cudla" if loadable else BOARD,
        "artefact": str(folder / ("model.dla" if loadable else "model.engine")),
        "library": "libcudla.so" if loadable else str(adapters / _ADAPTER),
        "options": {"core": engine[-1]} if loadable and engine[-1:].isdigit() else {},
        "layouts": (None, None),
    }


_TOOLCHAINS: Mapping[str, Callable[[Document, PurePosixPath, PurePosixPath], dict[str, Any]]] = {
    "QNN": _qnn,
    "RKNN": _rknn,
    "TensorRT": _tensorrt,
    ONNXRUNTIME: _onnxruntime,
}
