"""ONNX Runtime as a program of CPUs: it reads a network's own ONNX file, and a board needs its shared library only."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from platform import machine
from tempfile import TemporaryDirectory
from typing import Any

from socsched.compiler.native.compilers import fetch
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.store import library
from socsched.compiler.target import resolve
from socsched.compiler.toolchains.hand_over import hand_over
from socsched.compiler.toolchains.package import MODEL, Package, Toolchain
from socsched.compiler.toolchains.qdq import quantised
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import ONNXRUNTIME as RUNTIME
from socsched.descriptor.platform import Engine
from socsched.files import file_digest

LIBRARY = "libonnxruntime.so"
_MEGABYTES = 20
_OLDEST = "1.12"
"""First release with the version of the C API that the adapter asks for (`onnxruntime_adapter.cpp`)."""
_KNOWN = "1.31.1"
"""Release of which a board is told where none is installed here."""


def installed_library() -> Path | None:
    """Return the shared library of the Python package on this machine, None without it."""
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "capi").glob(f"{LIBRARY}.*"))), None)


def carried_library(needed: Mapping[str, Any]) -> Path:
    """Return the library that a hand-over `needs`: this machine's, or that of the wheel for another, fetched by pip."""
    own = installed_library()
    if own is not None and needed["machine"] == machine():
        return own
    name = f"ONNX Runtime for {needed['machine']}"
    return fetch((needed["wheel"],), needed["member"], name, _MEGABYTES, needed["machine"])


def installed_version() -> str:
    """Return the version of the Python package on this machine, empty without it."""
    try:
        return version("onnxruntime") if installed_library() is not None else ""
    except PackageNotFoundError:
        return ""


def needs(package: Package) -> Mapping[str, Any]:
    """Return the library that a stage loads, its oldest release, and the wheel that holds it for the processor."""
    spec = resolve(package.engine.target, package.engine.id)
    where, release = spec.triple.split("-")[0] or machine(), installed_version() or _KNOWN
    return {
        "library": LIBRARY,
        "from": _OLDEST,
        "machine": where,
        "wheel": f"onnxruntime=={release}",
        "member": f"onnxruntime/capi/{LIBRARY}.{release}",
    }


def model_folder(
    stage: Stage, engine: Engine, precision: str, weights: Mapping[str, Any] | None, scales: Scales | None
) -> tuple[Mapping[str, Any], Path]:
    """Return the hand-over of a stage and the folder in the cache that holds its model; errors of `hand_over`."""
    with TemporaryDirectory() as made:
        document = hand_over(stage, engine, precision, Path(made), weights, scales=scales, runtime=RUNTIME)
        key = file_digest(Path(made) / MODEL)[:24]

        def copy(folder: Path) -> None:
            shutil.copytree(made, folder, dirs_exist_ok=True)

        return document, library(RUNTIME, key, MODEL, copy).parent


ONNXRUNTIME = Toolchain(
    lambda package: {},
    # in int8 Q/DQ about every value: its kernels multiply unsigned by signed bytes
    convert=lambda package, model: (
        quantised(model, package.exact, unsigned=True) if package.precision == "int8" else model
    ),
    layout=lambda tensor, precision, own: "NCHW",
    verbatim=True,
    needs=needs,
)
