"""Bundles on an emulated board: an arm64 root under qemu-user, with stand-ins for the vendors' libraries that compute.

    python -m tools.verify.board_root ROOT WHEEL BUNDLE ...

ROOT: a Debian 11 for arm64 with g++; qemu-user is registered with binfmt_misc (`tools/ci/bare_root.sh` shows how).
WHEEL: onnxruntime for aarch64, whose C API is real where Qualcomm's provider is not.  Each bundle is copied into the
root; build.sh, `start.sh --selftest` and 20 frames (`--pace asap`) run there without Python, networks of the CPU on one
thread each.  What accelerators compute is computed outside of the emulation: networks by ONNX Runtime, of the bytes
that the executor hands to the vendor's API, CUDA kernels by their sources, compiled for this machine's processor, and
OpenCL kernels by this machine's OpenCL (PoCL: Debian's pocl-opencl-icd).
Needs root, Zig (`socsched.compiler.native.compilers`) and the cache that the bundles were compiled with.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import mmap
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from socsched.cache import cache_dir
from socsched.compiler.layouts import NUMPY_DTYPES, convert, physical_shape
from socsched.compiler.native.compilers import cross_compiler, require_zig
from socsched.graph.operators import TensorType
from tests.compiler.cuda_emulator import HEADER, LAUNCH
from tools import ROOT
from tools.verify.opencl_device import Device

STANDINS = ROOT / "tests" / "executor" / "standins"
MOUNTED = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
"""What OpenCL counts memory by, for the time of a command."""
HOME, PLACE, SOCKET = "opt/standins", "srv/bundle", "tmp/standin"
FRAMES, TIMEOUT_S = 20, 3000
MEMORY = (".memory", 0x600000000000, 4 << 30)
"""Of the GPU: its file, address and size, as in standins/computed.hpp."""
_FIXED, _FIXED_ANEW = 0x100000, 0x10  # MAP_FIXED_NOREPLACE, MAP_FIXED
_REAL = {
    "host": "real",
    "network": "real",
    "convert": "real",
    "opencl": "OpenCL stood in for, kernels run by PoCL outside",
    "cuda": "CUDA's driver stood in for, kernels' sources run on the CPU",
}
_STOOD_IN = {
    "rknn": "real calls of librknnrt, Q/DQ model computed outside",
    "cudla": "real calls of cuDLA, fp32 model computed outside",
    "board": "adapter built there, calls of TensorRT, fp32 model computed outside",
    "onnxruntime": "real ONNX Runtime, its QNN session computed outside in fp32",
}


def compiler(machine: str = "aarch64") -> list[str]:
    """Return the C++ compiler for a processor, the root's by default."""
    require_zig(machine)
    found = cross_compiler(machine)
    assert found is not None
    return [*found, "-std=c++17", "-O2", "-w", "-shared", "-fPIC"]


def install(root: Path, wheel: Path) -> None:
    """Compile the stand-ins into the root."""
    home = root / HOME
    (home / "real").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if "/libonnxruntime.so." in name)
        (home / "real" / "libonnxruntime.so").write_bytes(archive.read(name))
    shutil.copy(STANDINS / "trtexec", home)
    shutil.copytree(STANDINS, home / "include", dirs_exist_ok=True)
    libraries = {
        "librknnrt.so": STANDINS / "rknn.cpp",
        "libcudla.so": STANDINS / "cudla.cpp",
        "libonnxruntime.so": STANDINS / "onnxruntime_qnn.cpp",
        "libcuda.so.1": STANDINS / "cuda.cpp",
        "libOpenCL.so.1": STANDINS / "opencl.cpp",
    }
    for library, source in libraries.items():
        command = [*compiler(), f"-I{STANDINS}", "-o", str(home / library), str(source), "-ldl"]
        subprocess.run(command, check=True)


class OpenCl:
    """Builds kernels and runs them over the memory that a stand-in shares, by the first OpenCL of this machine."""

    def __init__(self) -> None:
        self.device = Device()
        self.programs: list[dict[str, Any]] = []
        self.memory: dict[tuple[int, int], Any] = {}

    def answer(self, words: list[str], stream: Any) -> None:
        """Answer "build BYTES" or "launch PROGRAM KERNEL ARGUMENTS" with a status, and a program's number."""
        if words[0] == "build":
            self.programs.append(self.device.build(stream.read(int(words[1])).decode()))
            stream.write(struct.pack("2i", 0, len(self.programs) - 1))
        else:
            kernel, count = self.programs[int(words[1])][words[2]], int(words[3])
            sizes = struct.unpack("6Q", stream.read(48))
            given = [struct.unpack("3Q", stream.read(24)) for _ in range(count)]
            groups = [whole // part for whole, part in zip(sizes[:3], sizes[3:], strict=True)]
            self.device.launch(kernel, groups, list(sizes[3:]), [self._argument(*one) for one in given])
            self.device.finish()
            stream.write(struct.pack("i", 0))
        stream.flush()

    def _argument(self, is_memory: int, value: int, size: int) -> Any:
        if not is_memory:
            return np.frombuffer(struct.pack("<Q", value)[:size], f"V{size}")[0]
        if (value, size) not in self.memory:
            self.memory[value, size] = self.device.allocate(size, at=value)
        return self.memory[value, size]


@dataclass(slots=True)
class Accelerator:
    """Computes stages for the stand-ins: their inputs' bytes come through a socket, and the outputs' go back."""

    stages: dict[str, tuple[Mapping[str, Any], Path]] = field(default_factory=dict)
    sessions: dict[str, Any] = field(default_factory=dict)
    opencl: OpenCl | None = None
    serves: ClassVar[bool] = False  # whether memory of this process is the GPU's; the last one's

    def serve(self, path: Path) -> None:
        """Answer requests at a socket in a thread, until the program ends; share the GPU's memory at its address."""
        path.unlink(missing_ok=True)
        with path.with_name(path.name + MEMORY[0]).open("wb+") as file:
            file.truncate(MEMORY[2])
            library = ctypes.CDLL(None)
            library.mmap.restype, library.mmap.argtypes = (
                ctypes.c_size_t,
                (*[ctypes.c_size_t] * 2, *[ctypes.c_int] * 3, ctypes.c_long),
            )
            how = mmap.MAP_SHARED | (_FIXED_ANEW if Accelerator.serves else _FIXED)
            placed = library.mmap(MEMORY[1], MEMORY[2], 3, how, file.fileno(), 0)
        if placed != MEMORY[1]:
            raise SystemExit("the GPU's memory has no place here")
        Accelerator.serves = True
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        threading.Thread(target=self._loop, args=(server,), daemon=True).start()

    def _loop(self, server: socket.socket) -> None:
        while True:
            link, _ = server.accept()
            with link, link.makefile("rwb") as stream:
                try:
                    self._answer(stream)
                except Exception as error:
                    print(f"  accelerator: {error}", file=sys.stderr)

    def _answer(self, stream: Any) -> None:
        import onnxruntime

        name = stream.readline().decode().strip()
        if name.startswith(("build ", "launch ")):
            self.opencl = self.opencl or OpenCl()
            self.opencl.answer(name.split(), stream)
            return
        if name.startswith("kernel "):
            library, kernel, count = name.split()[1:]
            shape, operands = struct.unpack("5i", stream.read(20)), stream.read(8 * int(count))
            launch = getattr(ctypes.CDLL(library), f"launch_{kernel}")
            stream.write(struct.pack("i", launch(*shape, (ctypes.c_uint64 * int(count)).from_buffer_copy(operands))))
            stream.flush()
            return
        stage, model = self.stages[name]
        if name not in self.sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self.sessions[name] = onnxruntime.InferenceSession(str(model), options)
        session = self.sessions[name]
        given = {}
        for entry in stage["inputs"]:
            kind, scale = kind_of(entry)
            count = int(np.prod(physical_shape(kind))) * NUMPY_DTYPES[kind.dtype].itemsize
            stored = np.frombuffer(stream.read(count), NUMPY_DTYPES[kind.dtype]).reshape(physical_shape(kind))
            image = "NCHW" if len(kind.shape) == 4 else ""
            given[entry["name"]] = convert(stored, kind, TensorType(kind.shape, "fp32", image)) * np.float32(scale or 1)
        shapes = {item.name: item.shape for item in session.get_inputs()}
        arrays = session.run(
            [entry["name"] for entry in stage["outputs"]],
            {name: array.reshape(shapes[name]) for name, array in given.items()},
        )
        for entry, array in zip(stage["outputs"], arrays, strict=True):
            kind, scale = kind_of(entry)
            values = array.reshape(kind.shape)
            if scale:
                values = np.clip(np.rint(values / np.float32(scale)), -128, 127).astype(np.int8)
            dtype = next(name for name, dtype in NUMPY_DTYPES.items() if dtype == values.dtype)
            image = "NCHW" if len(kind.shape) == 4 else ""
            stream.write(np.ascontiguousarray(convert(values, TensorType(kind.shape, dtype, image), kind)).tobytes())
        stream.flush()


def kind_of(entry: Mapping[str, Any]) -> tuple[TensorType, float]:
    """Return a tensor of an artefact as the adapter hands it over, and its scale where it is int8."""
    scale = struct.unpack("<f", struct.pack("<I", entry.get("scale_bits", 0)))[0]
    return TensorType(tuple(entry["shape"]), "int8" if scale else entry["dtype"], entry["layout"] or ""), scale


_TYPES = {"board": {"fp32": 0, "fp16": 1, "int8": 2, "int32": 3}, "rknn": {"fp16": 1, "int32": 6}}


def models(root: Path, stages: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Mapping[str, Any], Path]]:
    """Write what the stand-ins read of the artefacts of a bundle in the root; return stages and models by name."""
    folder = root / HOME / "models"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    found = {}
    for stage in stages.values():
        if stage["kind"] != "engine":
            continue
        artefact, adapter = root / PLACE / stage["artefact"], stage["adapter"]
        quantised, name = artefact.with_name("quantised.onnx"), "_".join(artefact.parts[-3:-1])
        found[name] = stage, quantised if quantised.is_file() else artefact.with_name("model.onnx")
        lines = [f"stage {name} " + ("0" if adapter == "cudla" else "0 0")]
        for side in ("input", "output"):
            for entry in stage[f"{side}s"]:
                kind, _ = kind_of(entry)
                count = int(np.prod(physical_shape(kind)))
                size = count if adapter == "rknn" else count * NUMPY_DTYPES[kind.dtype].itemsize
                code = "" if adapter == "cudla" else f"{_TYPES.get(adapter, {}).get(kind.dtype, 0)} "
                lines.append(f"{side} {entry['name']} {code}{size}")
        own = str(artefact.stat().st_size) if artefact.is_file() and adapter == "rknn" else name
        (folder / f"{own}.txt").write_text("\n".join(lines) + "\n")
    return found


def kernels(root: Path, stages: Mapping[str, Mapping[str, Any]]) -> None:
    """Compile a bundle's CUDA sources; the stand-in finds them by where a cubin's sections end."""
    stored = [json.loads(file.read_text()) for file in (cache_dir() / "programs").glob("*/program.json")]
    found: dict[int, tuple[str, dict[str, int]]] = {}  # of all programs with the same code
    for stage in stages.values():
        for name in stage["programs"] if stage["kind"] == "cuda" else ():
            program = root / PLACE / name
            document = json.loads(program.read_text())
            like = ("launches", "inputs", "outputs", "memory", "results")
            same = next(one for one in stored if "sources" in one and all(one[key] == document[key] for key in like))
            for number, (source, code) in enumerate(zip(same["sources"], document["code"], strict=True)):
                counts = {one["kernel"]: len(one["arguments"]) for one in document["launches"] if one["code"] == number}
                cubin = (program.parent / code).read_bytes()
                size = struct.unpack_from("<Q", cubin, 40)[0] + math.prod(struct.unpack_from("<HH", cubin, 58))
                found.setdefault(size, (source["file"], {}))[1].update(counts)
    for size, (file, counts) in found.items():
        compile_kernels(Path(file).read_text(), counts, root, f"{HOME}/models/{size}")


def compile_kernels(source: str, counts: Mapping[str, int], root: Path, name: str) -> None:
    """Compile a CUDA source to NAME.so beside the root's files, and write NAME.txt: its kernels and their operands."""
    text = re.sub(
        r"#include <\w+.h>", "", source[source.find('extern "C" __global__') if "__CUDACC_RTC__" in source else 0 :]
    )
    text = re.sub(r"(?<!extern )__shared__ (alignas\(\d+\) )?|(?<=define LOCAL )__shared__", r"\1static ", text)
    calls = [LAUNCH.format(name=kernel) for kernel in counts]
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as file:
        file.write("\n".join([HEADER.read_text(), text, *calls]))
        file.flush()
        how = [*compiler(platform.machine()), "-mcpu=native", "-fno-strict-aliasing"]
        subprocess.run([*how, "-o", str(root / f"{name}.so"), file.name], check=True)
    lines = [f"outside {root}/{name}.so", *(f"{kernel} {count}" for kernel, count in counts.items())]
    (root / f"{name}.txt").write_text("\n".join(lines) + "\n")


def single_threads(place: Path) -> None:
    """Let each network of a bundle run on one thread: a board's wait actively, and share few processors here."""
    file, sums = place / "run.json", place / "SHA256SUMS"
    old = file.read_bytes()
    new = re.sub(rb'"threads": \d+', b'"threads": 1', old)
    file.write_bytes(new)
    before, after = (hashlib.sha256(text).hexdigest() for text in (old, new))
    sums.write_text(sums.read_text().replace(before, after))


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the root, as on a board without Python."""
    home = f"/{HOME}"
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LD_LIBRARY_PATH": home,
        "STANDIN_MODELS": f"{home}/models",
        "STANDIN_ORT": f"{home}/real/libonnxruntime.so",
        "STANDIN_SOCKET": f"/{SOCKET}",
        "STANDIN_LOG": "/tmp/standin.log",
        "STANDIN_SM": os.environ.get("STANDIN_SM", "87"),
        "TRTEXEC": f"{home}/trtexec",
        "CXXFLAGS": f"-O0 -I{home}/include/tensorrt",
        "LIBRARIES": " ",
    }
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", MOUNTED, str(root), *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def trial(root: Path, bundle: Path, accelerator: Accelerator) -> bool:
    """Run a bundle in the root and print what came of it; return whether all is as it should be."""
    place = root / PLACE
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(bundle, place)
    single_threads(place)
    stages = json.loads((place / "run.json").read_text())["stages"]
    accelerator.stages = models(root, stages)
    accelerator.sessions.clear()
    kernels(root, stages)
    print(f"\n{bundle.name}")
    sound = True
    if (place / "build.sh").is_file():
        built = run(root, "sh", f"/{PLACE}/build.sh")
        sound &= built.returncode == 0
        print(f"  build.sh: exit {built.returncode}: {(built.stderr or built.stdout).strip().splitlines()[-1][:150]}")
    tested = run(root, "sh", f"/{PLACE}/start.sh", "--selftest")
    outcome = {line.split(": ", 1)[0]: line.split(": ", 1)[1] for line in tested.stdout.splitlines() if ": " in line}
    for name, stage in stages.items():
        kind = stage["kind"]
        how = _STOOD_IN[stage["adapter"]] if kind == "engine" else _REAL.get(kind, kind)
        said = outcome.get(name, "compared with its source")
        print(f"  {name:22} {kind:8} {how:70} {said[:150]}", flush=True)
    sound &= tested.returncode == 0
    print(f"  start.sh --selftest: exit {tested.returncode} {tested.stderr.strip()[-300:]}", flush=True)
    done = run(root, "sh", f"/{PLACE}/start.sh", "--frames", str(FRAMES), "--pace", "asap", "-o", "/tmp/results")
    file = root / "tmp" / "results" / "executed.json"
    accounts = json.loads(file.read_text())["accounts"] if file.is_file() else {}
    for sensor, account in accounts.items():
        sound &= account["released"] == account["completed"] == FRAMES
        print(f"  start.sh --frames {FRAMES}: exit {done.returncode}, {sensor}: {account}")
    if done.returncode or not accounts:
        print(f"  {done.stderr.strip()[:500]}")
    return sound and done.returncode == 0 and bool(accounts)


def main() -> int:
    """Run all bundles; exit code 1 if one did other than expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("bundle", type=Path, nargs="+")
    given = parser.parse_args()
    root = given.root.resolve()
    install(root, given.wheel)
    accelerator = Accelerator()
    accelerator.serve(root / SOCKET)
    failed = [bundle.name for bundle in given.bundle if not trial(root, bundle, accelerator)]
    print("\nother than expected: " + ", ".join(failed) if failed else "\nall as expected")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
