"""Whether a bundle can start on its board, as far as another machine can tell: files, processors, glibc, stages."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.compiler.packaging.deploy import APPLICATION, MANIFEST
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.limits import Line
from socsched.errors import InputError, SocschedError
from socsched.executor.build import NAME, newest_glibc
from socsched.executor.settings import SETTINGS
from socsched.executor.vendor_stages import ADAPTERS, BOARD
from socsched.files import file_digest

_HINT = "compile the plan again, and copy the whole folder"
MOST_BYTES, _MOST_CODE = 64 * 2**20, 2**31
_MACHINES = {62: "x86_64", 183: "aarch64", 190: "CUDA"}
"""e_machine of ELF files (System V ABI, and NVIDIA's)."""
_VENDORS = {
    "TensorRT": "trtexec of TensorRT {version} (libnvinfer-bin)",
    "QNN": "ONNX Runtime's QNN provider, when it loads the model (QNN {version})",
}
_DRIVERS = {"cuda": "libcuda.so.1 for CUDA {}", "opencl": "libOpenCL.so.1 or libmali.so"}
"""What stages of a kind are started by."""
GOOD, BOARD_BUILDS, BOARD_HAS, FAULT = "ok", "built on the board", "needed on the board", "fault"


@dataclass(frozen=True, slots=True)
class Point:
    """What was looked at, one of the states above, and the detail or the fault."""

    what: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Application:
    machines: list[Line]
    glibc: Line
    stages: dict[Line, Line]
    built_on_board: list[Line]


@dataclass(frozen=True, slots=True)
class _Handover:
    stage: Line
    engine: Line
    toolchain: Line
    version: Line
    folder: Line


@dataclass(frozen=True, slots=True)
class _Manifest:
    pipeline: Line
    platform: Line
    files: dict[Line, Line]
    handovers: list[_Handover]
    application: _Application | None = None


def check_bundle(folder: Path) -> list[Point]:
    """Return what was checked of a bundle, and what its board must build or have; see `Point.state`.

    InputError or DescriptorError for a folder whose manifest or settings cannot be read.
    """
    return list(_Bundle(folder).points())


class _Bundle:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: _Manifest = self._json(MANIFEST).load(_Manifest)

    def points(self) -> Iterator[Point]:
        """Yield every point, faults or not."""
        yield self._digests()
        application = self.manifest.application
        if application is None:
            yield Point("application", FAULT, "there is none: only the bundle of a whole plan has one")
            return
        for machine in application.machines:
            yield self._object(f"executor for {machine}", f"{APPLICATION}/{machine}/{NAME}", machine)
        stages = self._read(SETTINGS, "stages")
        for name, stage in stages.items():
            try:
                yield from self._stage(name, stage, application)
            except (SocschedError, KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
                yield Point(name, FAULT, str(error) or "its description is damaged")
        yield from self._tools(stages, application)

    def _digests(self) -> Point:
        changed = []
        for name, digest in self.manifest.files.items():
            path = self._inside(name)
            try:
                whole = file_digest(path) == digest
            except OSError:
                whole = False
            changed += [] if whole else [name]
        if changed:
            return Point("digests", FAULT, f"missing or changed: {', '.join(sorted(changed)[:5])}")
        return Point("digests", GOOD, f"{len(self.manifest.files)} files as they were built")

    def _stage(self, name: str, stage: Mapping[str, Any], application: _Application) -> Iterator[Point]:
        kind = stage["kind"]
        if kind == "callback":
            yield Point(name, FAULT, "it is a function of Python's, which the board does not run")
        elif kind == "network":
            document = self._read(stage["program"])
            kernels = {f"__tvm_ffi_{launch['kernel']}" for launch in document["launches"]}
            home = self._inside(stage["program"]).parent
            yield self._object(name, self._relative(home / document["code"]), application.machines[0], kernels)
        elif kind in ("cuda", "opencl"):
            for program in stage["programs"]:
                yield self._gpu_program(name, program, kind)
        elif kind == "engine":
            yield from self._engine(name, stage, application)
        else:
            yield Point(name, GOOD, {"host": "a function of the executor", "convert": "a conversion"}.get(kind, kind))

    def _gpu_program(self, name: str, program: str, kind: str) -> Point:
        document, home = self._read(program), self._inside(program).parent
        missing = set()
        for number, file in enumerate(document["code"]):
            data = self._bytes(self._relative(home / file))
            if kind == "cuda" and elf_machine(data) != "CUDA":
                return Point(name, FAULT, f"{program}: {file} is no code of CUDA")
            kernels = {launch["kernel"] for launch in document["launches"] if launch["code"] == number}
            missing |= {kernel for kernel in kernels if kernel.encode() not in data}
        if missing:
            return Point(name, FAULT, f"{program}: no kernel {sorted(missing)[0]}")
        made = f"{document['arch']}, CUDA {document['toolkit'] / 1000:g}" if kind == "cuda" else "OpenCL source"
        return Point(name, GOOD, f"{len(document['launches'])} launches, {made}")

    def _engine(self, name: str, stage: Mapping[str, Any], application: _Application) -> Iterator[Point]:
        artefact, needed = stage["artefact"], stage["library"]
        path = self._inside(artefact)
        if artefact in application.built_on_board:
            state = GOOD if path.is_file() else BOARD_BUILDS
            yield Point(name, state, f"{artefact}" + ("" if state == GOOD else " by build.sh"))
        elif path.is_file() and path.stat().st_size:
            yield Point(name, GOOD, f"{artefact}, by the adapter {stage['adapter']}")
        else:
            yield Point(name, FAULT, f"{artefact} is missing")
        if "/" in needed and stage["adapter"] != BOARD:
            yield self._object(f"{name}: {Path(needed).name}", needed, application.machines[0])
        elif stage["adapter"] != BOARD:
            others = [stage["options"].get(key) for key in ("provider_library", "backend_path")]
            yield Point(f"{name}: library", BOARD_HAS, ", ".join(filter(None, (needed, *others))))

    def _tools(self, stages: Mapping[str, Any], application: _Application) -> Iterator[Point]:
        """Yield the tools that the board needs, by what is built there or loads an artefact as it is."""
        seen = set()
        for one in self.manifest.handovers:
            stage = stages.get(one.stage, {})
            later = stage.get("artefact") in application.built_on_board or (
                one.toolchain == "QNN" and not str(stage.get("artefact")).endswith("_ctx.onnx")
            )
            if later and one.toolchain not in seen:
                seen.add(one.toolchain)
                tool = _VENDORS.get(one.toolchain, "{version}").format(version=one.version or "of the board's release")
                yield Point(one.toolchain, BOARD_HAS, tool)
        for kind, library in _DRIVERS.items():
            programs = {one for stage in stages.values() if stage["kind"] == kind for one in stage["programs"]}
            kits = sorted({self._read(one).get("toolkit", 0) // 1000 for one in programs})
            if programs:
                yield Point(f"driver for {kind}", BOARD_HAS, library.format(" or ".join(map(str, kits))))
        if any(stage.get("adapter") == BOARD for stage in stages.values()):
            where = f"{ADAPTERS}/: by build.sh with g++ and libnvinfer-dev"
            yield Point("adapter of TensorRT", BOARD_BUILDS, where)

    def _object(self, what: str, name: str, machine: str, symbols: set[str] = frozenset()) -> Point:  # type: ignore[assignment]
        """Return a program or library checked: processor, glibc, and the names of functions that it must have."""
        data = self._bytes(name)
        found, newest = elf_machine(data), newest_glibc(data)
        if found != machine:
            return Point(what, FAULT, f"{name} is for {found or 'no machine'}, expected {machine}")
        allowed = self.manifest.application.glibc if self.manifest.application else ""
        if newest > tuple(int(part) for part in allowed.split(".") if part.isdigit()):
            return Point(what, FAULT, f"{name} needs glibc {newest[0]}.{newest[1]}, the bundle says {allowed}")
        if missing := sorted(symbol for symbol in symbols if symbol.encode() not in data):
            return Point(what, FAULT, f"{name} has no function {missing[0]}")
        needs = f"glibc {newest[0]}.{newest[1]}" if newest > (0, 0) else "no glibc"
        return Point(what, GOOD, f"{machine}, needs {needs}" + (f", {len(symbols)} kernels" if symbols else ""))

    def _json(self, name: str) -> JsonFile:
        return JsonFile(read_bytes(self._inside(name), "bundle", _HINT, MOST_BYTES), str(self.folder / name), _HINT)

    def _read(self, name: str, key: str = "") -> Any:
        """Return a document, or a mapping in it; InputError if it is something else."""
        found = self._json(name).load(dict[str, Any])
        found = found.get(key) if key else found
        if not isinstance(found, dict):
            raise InputError(f"{self.folder / name}: {key}: expected a mapping", _HINT)
        return found

    def _bytes(self, name: str) -> bytes:
        return read_bytes(self._inside(name), "code", _HINT, _MOST_CODE)

    def _relative(self, path: Path) -> str:
        return path.resolve().relative_to(self.folder.resolve()).as_posix()

    def _inside(self, name: str) -> Path:
        """Return the path of a file of the bundle; InputError for a name that leads out of it."""
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise InputError(f"{self.folder}: {name!r} is no file of the bundle", _HINT)
        return path


def elf_machine(data: bytes) -> str:
    """Return the machine that a 64-bit little-endian ELF file is for, empty for any other file."""
    if data[:6] != b"\x7fELF\2\1" or len(data) < 20:
        return ""
    (number,) = struct.unpack_from("<H", data, 18)
    return _MACHINES.get(number, f"machine {number}")
