"""Bundles on an emulated board: an arm64 root under qemu-user, with stand-ins for the vendors' libraries that compute.

    python -m tools.verify.board_root ROOT WHEEL BUNDLE ...

ROOT: a Debian 11 for arm64 with g++ and, for OpenCL, pocl-opencl-icd; qemu-user is registered with binfmt_misc
(`tools/ci/bare_root.sh` shows how).  WHEEL: onnxruntime for aarch64, which stands in for what NPUs, DLAs and TensorRT
compute.  Each bundle is copied into the root; build.sh, `start.sh --selftest` and 20 frames run there without Python.
Kernels of CUDA are launched but not run: the driver is a stand-in, so their self-tests fail, and nothing else may.
Needs root, and Zig (`socsched.compiler.native.cross`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from socsched.compiler.native.cross import cross_compiler, require_zig
from socsched.executor.build import SOURCES
from tools import ROOT

STANDINS = Path(__file__).with_name("board_standins")
DRIVER = ROOT / "tests" / "executor" / "standins" / "cuda.cpp"
HOME, PLACE = "opt/standins", "srv/bundle"
FRAMES = 20
_REAL = {
    "host": "real",
    "network": "real",
    "convert": "real",
    "opencl": "real kernels on PoCL",
    "cuda": "launched only",
}
_STOOD_IN = {
    "rknn": "real calls of librknnrt, ONNX Runtime computes",
    "cudla": "real calls of cuDLA, ONNX Runtime computes",
    "board": "real calls of TensorRT, ONNX Runtime computes",
    "onnxruntime": "ONNX Runtime, without the provider's processor",
}


def install(root: Path, wheel: Path) -> None:
    """Compile the stand-ins into the root."""
    require_zig("aarch64")
    compiler = cross_compiler("aarch64")
    assert compiler is not None
    home = root / HOME
    (home / "real").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if "/libonnxruntime.so." in name)
        (home / "real" / "libonnxruntime.so").write_bytes(archive.read(name))
    shared = [SOURCES / "onnxruntime_adapter.cpp", SOURCES / "tensor.cpp"]
    for file in (*STANDINS.iterdir(), *shared):
        shutil.copy(file, home)
    made = {
        "librknnrt.so": [STANDINS / "rknn.cpp", *shared],
        "libcudla.so": [STANDINS / "cudla.cpp", *shared],
        "libonnxruntime.so": [STANDINS / "onnxruntime_qnn.cpp"],
        "libcuda.so.1": [DRIVER],
    }
    for library, sources in made.items():
        command = [*compiler, "-std=c++17", "-O2", "-w", "-shared", "-fPIC", f"-I{SOURCES}", "-o", str(home / library)]
        subprocess.run([*command, *map(str, sources), "-ldl"], check=True)


def models(root: Path, stages: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what the stand-ins read of the artefacts of a bundle in the root."""
    folder = root / HOME / "models"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for stage in stages.values():
        if stage["kind"] != "engine":
            continue
        artefact = root / PLACE / stage["artefact"]
        quantised = artefact.with_name("quantised.onnx")
        model = quantised if quantised.is_file() else artefact.with_name("model.onnx")
        lines = [f"onnx /{model.relative_to(root)}"]
        for side in ("input", "output"):
            for entry in stage[f"{side}s"]:
                scale = struct.unpack("<f", struct.pack("<I", entry.get("scale_bits", 0)))[0]
                sizes = " ".join(map(str, entry["shape"]))
                lines.append(f"{side} {entry['name']} {entry['dtype']} {entry['layout'] or '-'} {scale!r} {sizes}")
        by_size = artefact.is_file() and artefact.suffix == ".rknn"
        name = str(artefact.stat().st_size) if by_size else "_".join(artefact.parts[-3:-1])
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the root, as on a board without Python."""
    home = f"/{HOME}"
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LD_LIBRARY_PATH": home,
        "STANDIN_MODELS": f"{home}/models",
        "STANDIN_ORT": f"{home}/real/libonnxruntime.so",
        "STANDIN_LOG": "/tmp/standin.log",
        "STANDIN_SM": os.environ.get("STANDIN_SM", "87"),
        "TRTEXEC": f"{home}/trtexec",
        "CXXFLAGS": f"-I{home}",
        "LIBRARIES": f"{home}/onnxruntime_adapter.cpp {home}/tensor.cpp",
        "POCL_CACHE_DIR": "/tmp/pocl",
    }
    return subprocess.run(
        ["chroot", str(root), *command], env=environment, capture_output=True, text=True, check=False, timeout=3000
    )


def trial(root: Path, bundle: Path) -> bool:
    """Run a bundle in the root and print what came of it; return whether all is as it should be."""
    place = root / PLACE
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(bundle, place)
    stages = json.loads((place / "run.json").read_text())["stages"]
    models(root, stages)
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
        sound &= kind == "cuda" or "FAILED" not in said
        print(f"  {name:22} {kind:8} {how:48} {said[:100]}")
    sound &= tested.returncode == 0 or any(stage["kind"] == "cuda" for stage in stages.values())
    print(f"  start.sh --selftest: exit {tested.returncode} {tested.stderr.strip()[:300]}")
    done = run(root, "sh", f"/{PLACE}/start.sh", "--frames", str(FRAMES), "-o", "/tmp/results")
    file = root / "tmp" / "results" / "executed.json"
    accounts = json.loads(file.read_text())["accounts"] if file.is_file() else {}
    for sensor, account in accounts.items():
        sound &= account["released"] == sum(account[end] for end in ("completed", "dropped", "aborted")) >= FRAMES
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
    install(given.root.resolve(), given.wheel)
    failed = [bundle.name for bundle in given.bundle if not trial(given.root.resolve(), bundle)]
    print("\nother than expected: " + ", ".join(failed) if failed else "\nall as expected")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
