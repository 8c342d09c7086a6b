"""Stages compiled for aarch64, run under qemu with TVM's own aarch64 runtime.

The runtime libraries come from the wheels of the pinned versions, which pip fetches once (95 MB) into
$SOCSCHED_AARCH64_RUNTIME or the user's cache folder; only the two libraries (5 MB) are kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import NUMPY_DTYPES, convert
from socsched.compiler.loading.stages import constants
from socsched.compiler.store import PINNED
from tests.compiler.small_stages import plain

Array = np.ndarray[Any, Any]

HARNESS = Path(__file__).with_name("run_stage.cc")
LIBRARIES = {"libtvm_runtime.so": "tvm/lib", "libtvm_ffi.so": "tvm_ffi/lib"}
COMPILER, SYSROOT = "aarch64-linux-gnu-g++", "/usr/aarch64-linux-gnu"
CPU = "cortex-a76"
"""Armv8.2 with half precision and dot products, as the boards' processors: an instruction beyond that is illegal."""
_CODES = {"i": 0, "u": 1, "f": 2}
_KINDS = {
    (0, 32): np.int32,
    (0, 64): np.int64,
    (0, 8): np.int8,
    (1, 8): np.uint8,
    (2, 16): np.float16,
    (2, 32): np.float32,
}


class Unavailable(Exception):
    """What is missing to run aarch64 code here."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """A built harness and the libraries it needs; `cpu` is qemu's name of the processor."""

    harness: Path
    runtime: Path
    cpu: str = CPU

    def run(self, artifact: Artifact, arrays: list[Array], repeats: int = 1) -> tuple[list[Array], float]:
        """Return the outputs in plain layout for plain inputs, and the last run's time in ms."""
        given = [
            convert(array, plain(tensor, array), tensor) for array, tensor in zip(arrays, artifact.inputs, strict=True)
        ]
        if not artifact.computes_half:  # half precision is storage only: kernels take fp32 (see compiler.builder)
            given = [array.astype(np.float32) if array.dtype == np.float16 else array for array in given]
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder) / name) for name in ("inputs", "outputs")]
            Path(files[0]).write_bytes(b"".join(_packed(array) for array in (*given, *constants(artifact))))
            printed = self.execute(str(artifact.path.resolve()), *files, str(repeats))
            found = _unpacked(Path(files[1]).read_bytes())
        outputs = []
        for array, tensor in zip(found, artifact.outputs, strict=True):
            array = array.astype(NUMPY_DTYPES[tensor.dtype])
            outputs.append(convert(array, tensor, plain(tensor, array)))
        return outputs, float(printed.split()[-1])

    def execute(self, *arguments: str) -> str:
        """Run the harness under qemu and return what it printed; RuntimeError with its words when it fails."""
        command = ["qemu-aarch64", "-cpu", self.cpu, "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={self.runtime}"]
        command += ["-E", "TVM_NUM_THREADS=2", "-E", "TVM_BIND_THREADS=0", str(self.harness), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(f"qemu-aarch64 ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout


def emulator(folder: Path, cpu: str = CPU) -> Emulator:
    """Build the harness in `folder`; Unavailable names the missing tool and the remedy."""
    for tool, package in (("qemu-aarch64", "qemu-user"), (COMPILER, "g++-aarch64-linux-gnu")):
        if not shutil.which(tool):
            raise Unavailable(f"{tool} is not installed: sudo apt-get install -y {package}")
    libraries, include = runtime(), Path(_package("tvm_ffi"))
    command = [COMPILER, "-std=c++17", "-O1", str(HARNESS), "-o", str(folder / "run_stage")]
    command += [f"-I{include / 'include'}", f"-I{include / '3rdparty' / 'dlpack' / 'include'}", f"-L{libraries}"]
    command += ["-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi", "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{COMPILER} failed: {done.stderr[-2000:]}")
    return Emulator(folder / "run_stage", libraries, cpu)


def runtime() -> Path:
    """Return the folder of TVM's aarch64 libraries, fetched if need be; Unavailable when they cannot be."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("SOCSCHED_AARCH64_RUNTIME") or Path(base) / "socsched-aarch64" / PINNED["apache-tvm"])
    if all((folder / name).is_file() for name in LIBRARIES):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for wheel in _download(Path(scratch)):
            with zipfile.ZipFile(wheel) as archive:
                for name, inside in LIBRARIES.items():
                    if f"{inside}/{name}" in archive.namelist():
                        extracted = archive.extract(f"{inside}/{name}", scratch)
                        os.replace(extracted, folder / name)
    return folder


def _download(folder: Path) -> list[Path]:
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 27, 24, 17)]
    packages = [f"{name}=={version}" for name, version in PINNED.items()]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        done = subprocess.run(
            [*command, *platforms, "-d", str(folder), *packages],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"TVM's aarch64 runtime cannot be fetched: {error}") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise Unavailable(f"TVM's aarch64 runtime cannot be fetched: {reason}")
    return sorted(folder.glob("*.whl"))


def _package(name: str) -> str:
    from importlib.util import find_spec

    found = find_spec(name)
    assert found is not None and found.submodule_search_locations
    return found.submodule_search_locations[0]


def _packed(array: Array) -> bytes:
    head = np.array([_CODES[array.dtype.kind], array.dtype.itemsize * 8, array.ndim], "<i4")
    return head.tobytes() + np.array(array.shape, "<i8").tobytes() + np.ascontiguousarray(array).tobytes()


def _unpacked(data: bytes) -> list[Array]:
    arrays, at = [], 0
    while at < len(data):
        code, bits, dims = np.frombuffer(data, "<i4", 3, at)
        shape = np.frombuffer(data, "<i8", dims, at + 12)
        at += 12 + 8 * int(dims)
        count, dtype = int(np.prod(shape)), np.dtype(_KINDS[int(code), int(bits)])
        arrays.append(np.frombuffer(data, dtype, count, at).reshape(shape))
        at += count * dtype.itemsize
    return arrays


ORIN_CPU = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78ae", "num-cores": 4}
