"""Access to OR-Tools, if it is installed; no other module imports it."""

from __future__ import annotations

from typing import Any

from socsched.errors import MachineError

SOLVERS = ("auto", "heft", "restarts", "cpsat")


def available() -> bool:
    """Return whether OR-Tools is installed."""
    import importlib.util

    return importlib.util.find_spec("ortools") is not None


def require() -> None:
    """Raise MachineError if OR-Tools is not installed."""
    if not available():
        raise _missing()


def linear() -> Any:
    """Return OR-Tools' module of linear solvers; MachineError if it is not installed."""
    try:
        from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]
    except ImportError:
        raise _missing() from None
    return pywraplp


def constraints() -> Any:
    """Return OR-Tools' module for constraint programs; MachineError if it is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise _missing() from None
    return cp_model


def _missing() -> MachineError:
    return MachineError(
        "the exact solver needs OR-Tools, which is not installed",
        "pip install ortools==9.15.*, or plan with --solver heft",
    )
