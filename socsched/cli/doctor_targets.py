"""Checks of `socsched doctor` on the targets whose code can be built and run here, with reasons and remedies."""

from __future__ import annotations

import platform as system

from socsched.cli.doctor_tools import OPTIONAL, Check, Tool

ARCHITECTURES = ("sm_62", "sm_72", "sm_80", "sm_87", "sm_90")
"""GPUs of the boards with shipped descriptors, and of data centres."""


def cross_compiler() -> Check:
    """Return whether code for Arm boards can be linked here."""
    return _native_or_found(OPTIONAL["aarch64 compiler"])


def emulator() -> Check:
    """Return whether aarch64 code can be run here."""
    return _native_or_found(OPTIONAL["aarch64 emulator"])


def _native_or_found(tool: Tool) -> Check:
    return tool.ok("native") if system.machine() == "aarch64" else tool.look()


def nvcc() -> Check:
    """Return the GPUs that CUDA code can be built for here: the newest toolkits have dropped the oldest GPUs."""
    tool = OPTIONAL["nvcc"]
    check = tool.look()
    if check.status != "ok":
        return check
    path = check.found
    supported = _architectures(path)
    if supported is None:
        return tool.broken(f"{path} does not run", "reinstall the CUDA toolkit")
    buildable = [arch for arch in ARCHITECTURES if arch in supported]
    dropped = [arch for arch in ARCHITECTURES if arch not in supported]
    listed = f"{path}: {', '.join(buildable) or 'none of the boards'}"
    if not dropped:
        return tool.ok(listed)
    old = [arch for arch in dropped if arch in ("sm_62", "sm_72")]
    release = "CUDA 12" if old == dropped else "CUDA 12 or later"
    advice = f"no code for {', '.join(dropped)}: put the nvcc of {release} first on PATH for these"
    return Check(tool.name, "ok" if buildable else "missing", listed, tool.enables, advice)


def _architectures(path: str) -> set[str] | None:
    """Return the architectures ("sm_87") that this nvcc builds device code for, None if the query fails."""
    import subprocess

    try:
        done = subprocess.run([path, "--list-gpu-code"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(done.stdout.split()) if done.returncode == 0 else None


def opencl() -> Check:
    """Return whether OpenCL kernels can be run here; building them needs no tool."""
    from socsched.compiler.targets.opencl.device import Device
    from socsched.errors import MachineError

    tool = OPTIONAL["OpenCL"]
    try:
        return tool.ok(Device().name)
    except MachineError as error:
        return tool.missing(str(error))


def hexagon() -> Check:
    """Return whether objects for Hexagon can be built here; nothing can run them."""
    tool = OPTIONAL["Hexagon"]
    try:
        from socsched.compiler.environment import tvm

        supported = "hexagon" in tvm.target.codegen.llvm_get_targets()
    except Exception as error:  # a faulty compiler is reported by the row above
        return tool.missing(f"TVM does not load: {error}")
    return (
        tool.ok("in TVM's LLVM; code is built, not run: running needs the vendor's SDK")
        if supported
        else tool.missing("not in TVM's LLVM")
    )


def htp_compiler() -> Check:
    """Return whether Qualcomm's HTP compiler is installed; it is not started."""
    return _vendor(OPTIONAL["HTP compiler"], "qualcomm")


def rknn_compiler() -> Check:
    """Return whether Rockchip's compiler is installed; it is not started."""
    return _vendor(OPTIONAL["RKNN compiler"], "rockchip")


def _vendor(tool: Tool, name: str) -> Check:
    from socsched.compiler.toolchains.environments import ENVIRONMENTS
    from socsched.errors import MachineError

    wanted = ENVIRONMENTS[name]
    try:
        python = wanted.python()
    except MachineError as error:
        return tool.broken(str(error), error.hint)
    return tool.missing("not installed") if python is None else tool.ok(f"{wanted.package} {wanted.version}")
