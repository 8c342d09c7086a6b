"""What `socsched doctor` says of the targets: whose code can be built and run here, why not, what to do."""

from __future__ import annotations

import platform as system
import shutil
from dataclasses import dataclass
from pathlib import Path

AARCH64_COMPILERS = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "aarch64-none-linux-gnu-g++")
ARCHITECTURES = ("sm_62", "sm_72", "sm_80", "sm_87", "sm_90")
"""GPUs of the boards that are shipped as descriptors, and of data centres."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `status` ok | missing (it is not there) | broken (it is there and does not work).

    `remedy`: the command that mends it, "" where nothing is to be done.  `main`: without it the main job does not work.
    """

    name: str
    status: str
    found: str
    enables: str
    remedy: str = ""
    main: bool = False


def cross_compiler() -> Check:
    """Return whether code for Arm boards can be linked here."""
    path = next((found for name in AARCH64_COMPILERS if (found := shutil.which(name))), None)
    if system.machine() == "aarch64":
        return Check("aarch64 compiler", "ok", "native", "compile for Arm boards")
    remedy = (
        ""
        if path
        else "sudo apt-get install -y g++-aarch64-linux-gnu (objects for the board are made without it, unlinked)"
    )
    return Check(
        "aarch64 compiler", "ok" if path else "missing", path or "none on PATH", "linking for Arm boards", remedy
    )


def emulator() -> Check:
    """Return whether aarch64 code can be run here."""
    purpose = "running Arm code in tests"
    if system.machine() == "aarch64":
        return Check("aarch64 emulator", "ok", "native", purpose)
    path = shutil.which("qemu-aarch64")
    remedy = "" if path else "sudo apt-get install -y qemu-user (code for Arm boards is built without it, not run)"
    return Check("aarch64 emulator", "ok" if path else "missing", path or "none on PATH", purpose, remedy)


def nvcc() -> Check:
    """Return for which GPUs CUDA code can be built here: the newest toolkits have dropped the oldest."""
    purpose = "CUDA code for NVIDIA boards"
    path = shutil.which("nvcc") or next((str(p) for p in [Path("/usr/local/cuda/bin/nvcc")] if p.is_file()), None)
    if not path:
        advice = "install the CUDA toolkit (12.x for JetPack 6, 13.x for JetPack 7); planning and simulating need none"
        return Check("nvcc", "missing", "none on PATH", purpose, advice)
    able = _architectures(path)
    if able is None:
        return Check("nvcc", "broken", f"{path} does not run", purpose, "reinstall the CUDA toolkit")
    found = [arch for arch in ARCHITECTURES if arch in able]
    dropped = [arch for arch in ARCHITECTURES if arch not in able]
    listed = f"{path}: {', '.join(found) or 'none of the boards'}"
    if not dropped:
        return Check("nvcc", "ok", listed, purpose)
    old = [arch for arch in dropped if arch in ("sm_62", "sm_72")]
    advice = (
        f"not for {', '.join(dropped)}: put the nvcc of {'CUDA 12' if old == dropped else 'CUDA 12 or later'} first"
    )
    return Check("nvcc", "ok" if found else "missing", listed, purpose, f"{advice} on PATH for those")


def _architectures(path: str) -> set[str] | None:
    """What this nvcc builds device code for ("sm_87"), None when it cannot be asked."""
    import subprocess

    try:
        done = subprocess.run([path, "--list-gpu-code"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(done.stdout.split()) if done.returncode == 0 else None


def opencl() -> Check:
    """Return whether OpenCL kernels can be run here; building them takes nothing."""
    from socsched.compile.opencl.device import Device
    from socsched.errors import MachineError

    purpose = "running OpenCL kernels here"
    try:
        return Check("OpenCL", "ok", Device().name, purpose)
    except MachineError as error:
        return Check("OpenCL", "missing", str(error), purpose, f"{error.hint} (they are built without)")


def hexagon() -> Check:
    """Return whether objects for Hexagon can be built here; nothing can run them."""
    purpose = "objects for Hexagon DSPs"
    try:
        from socsched.compile.environment import tvm

        able = "hexagon" in tvm.target.codegen.llvm_get_targets()
    except Exception as error:  # whatever is wrong with the compiler is the row above's business
        return Check("Hexagon", "missing", f"TVM does not load: {error}", purpose, "see tvm above")
    if not able:
        return Check("Hexagon", "missing", "not in TVM's LLVM", purpose, "install the wheel of TVM that is pinned")
    return Check("Hexagon", "ok", "in TVM's LLVM; built, never run: that takes the vendor's kit", purpose)
