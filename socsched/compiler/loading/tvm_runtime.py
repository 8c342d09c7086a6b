"""The part of TVM present on a board: loading and running compiled stages, without the compiler.

Checks the pinned versions and configures the thread pool before its first use.  TVM reads its thread settings at the
first parallel launch: by default it takes half of the cores and narrows the calling thread's affinity, which is wrong
for an executor that places threads itself, so both are set here unless the user did.  With TVM_USE_RUNTIME_LIB=1 in the
environment TVM does not load its compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata

from socsched.compiler.store import PINNED
from socsched.errors import MachineError


def check_versions(version: Callable[[str], str] = metadata.version) -> None:
    """Raise MachineError unless exactly the pinned pair of TVM and its FFI is installed."""
    for package, expected in PINNED.items():
        try:
            found = version(package)
        except metadata.PackageNotFoundError:
            raise MachineError(f"{package} is not installed, {expected} is needed", _install()) from None
        if found != expected:
            raise MachineError(f"{package} {found} is installed, but only {expected} is known to work", _install())


def _install() -> str:
    return "pip install " + " ".join(f"{package}=={version}" for package, version in PINNED.items())


def online_cores() -> int:
    """Return the number of cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


check_versions()
os.environ.setdefault("TVM_NUM_THREADS", str(online_cores()))
os.environ.setdefault("TVM_BIND_THREADS", "0")

import tvm  # noqa: E402
from tvm.runtime.vm import VirtualMachine  # noqa: E402

__all__ = ["VirtualMachine", "check_versions", "online_cores", "tvm"]
