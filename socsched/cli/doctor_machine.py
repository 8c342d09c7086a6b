"""Checks of `socsched doctor` on this machine's devices, drivers and permissions."""

from __future__ import annotations

import ctypes
import platform as system
from pathlib import Path

from socsched.cli.doctor_tools import OPTIONAL, Check

ROOT = Path("/")
LLVM = {"arm64": "aarch64", "AMD64": "x86_64"}
"""Machine -> its name in LLVM, if different."""


def codegen() -> Check:
    """Return the targets that TVM can build code for; this machine's processor must be among them."""
    purpose = "compile, run"
    try:
        from socsched.compiler.environment import tvm

        processors = set(tvm.target.codegen.llvm_get_targets())
        devices = [
            name for name in ("cuda", "opencl") if tvm.get_global_func(f"target.build.{name}", allow_missing=True)
        ]
    except Exception as error:  # any error that prevents TVM from loading
        return Check("TVM targets", "broken", f"TVM does not load: {error}", purpose, "see tvm above", True)
    own = LLVM.get(system.machine(), system.machine())
    known = [name for name in ("x86_64", "aarch64", "hexagon") if name in processors]
    listed = ", ".join([*known, *devices]) or "none"
    good = own in processors
    remedy = "" if good else "install the pinned TVM wheel: see tvm above"
    return Check("TVM targets", "ok" if good else "broken", listed, purpose, remedy, True)


def gpu() -> Check:
    """Return the NVIDIA GPU and its driver, on a Jetson or on a machine with the driver's library."""
    from socsched.runtime.meters import Nvml

    tool = OPTIONAL["GPU"]
    model = _text("proc/device-tree/model")
    if "Jetson" in model:
        release = _text("etc/nv_tegra_release").split(",")[0].removeprefix("# ")
        there = any((ROOT / "dev" / name).exists() for name in ("nvhost-gpu", "nvgpu", "nvmap"))
        board = f"{model}, {release or 'L4T unknown'}"
        return tool.ok(board) if there else tool.broken(board, "sudo apt-get install -y nvidia-l4t-core, then reboot")
    driver = _text("proc/driver/nvidia/version")
    if not driver and not (ROOT / "dev/nvidia0").exists():
        return tool.missing("no NVIDIA GPU, or no driver for it")
    version = next((word for word in driver.split() if word[:1].isdigit() and "." in word), "unknown")
    if not Nvml().available:
        found = f"driver {version}, not responding"
        return tool.broken(found, "sudo modprobe nvidia (after a driver update: reboot)")
    return tool.ok(f"driver {version}")


def cudart() -> Check:
    """Return the installed CUDA runtime: TVM's wheel loads only version 13, and reports nothing if it is missing."""
    tool = OPTIONAL["libcudart"]
    versions = [version for version in (13, 12) if _loads(f"libcudart.so.{version}")]
    if 13 in versions:
        return tool.ok("libcudart.so.13")
    return (
        tool.broken("only libcudart.so.12; TVM needs 13 to use the GPU") if versions else tool.missing("not installed")
    )


def tensorrt() -> Check:
    """Return whether engines for a DLA can be built and run here."""
    from importlib import util

    from socsched.compiler.toolchains.tensorrt import release
    from socsched.errors import MachineError
    from socsched.runtime.backends import tensorrt_dla

    tool = OPTIONAL["TensorRT"]
    cores = sorted(path.name for path in (ROOT / "dev").glob("nvhost-nvdla*"))
    if util.find_spec("tensorrt") is None:
        found = f"not installed; {len(cores)} DLA cores here" if cores else "not installed"
        return tool.missing(found)
    model = ROOT / "proc/device-tree/model"
    board = model.read_text(errors="replace") if model.is_file() else ""
    try:
        version = tensorrt_dla.tensorrt(model=board).__version__
    except MachineError as error:
        return tool.broken(str(error), error.hint)
    row = release(version)
    jetpack = f" (JetPack {row.jetpack})" if row and row.jetpack else ""
    return tool.ok(f"{version}{jetpack}, {len(cores)} DLA cores")


def realtime() -> Check:
    """Return whether stages may have real-time priorities and lock their memory."""
    from socsched.runtime import realtime as scheduling

    tool = OPTIONAL["real time"]
    refused = scheduling.refusal()
    return tool.missing(refused) if refused else tool.ok("SCHED_FIFO is permitted")


def power() -> Check:
    """Return the power sensors this user may read."""
    from socsched.descriptor.host import rapl_domains
    from socsched.runtime.meters import Nvml, ina3221_rails

    tool = OPTIONAL["power sensors"]
    packages, rails = rapl_domains(ROOT), ina3221_rails(ROOT)
    sensors = [f"{len(packages)} package counters"] if packages else []
    sensors += [f"{len(rails)} rails (INA3221)"] if rails else []
    sensors += ["NVML"] if Nvml().available else []
    if sensors:
        return tool.ok(", ".join(sensors))
    if list(ROOT.glob("sys/class/powercap/*:[0-9]*/energy_uj")):
        return tool.broken("not readable by this user", "sudo chmod a+r /sys/class/powercap/*/energy_uj")
    return tool.missing("none on this machine")


def _text(name: str) -> str:
    try:
        return (ROOT / name).read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
