"""The exception hierarchy; each class carries the exit code of the command line.

    SocschedError
    ├── UsageError                 2  the request or a file is wrong
    │   ├── DescriptorError        2  a platform, pipeline or plan file; lists every finding at once
    │   └── InputError             2  a scan, weights or result file cannot be used
    └── MachineError               3  this machine or the board cannot do it (tool missing, driver, permission)
        └── CompileError           3  a stage could not be lowered to a target

A deployment that misses its requirements is not an error: planners return a verdict (exit code 1), and solvers that
run out of time return an undecided one (exit code 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

EXIT_OK, EXIT_VIOLATED, EXIT_USAGE, EXIT_MACHINE, EXIT_UNDECIDED = 0, 1, 2, 3, 4


class SocschedError(Exception):
    """Base of all errors that socsched raises on purpose; `hint` suggests a remedy."""

    exit_code = EXIT_MACHINE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(SocschedError):
    """The request cannot be carried out as stated."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault in a file: its position (1-based line and column), its field, and the value expected there."""

    file: str
    line: int
    column: int
    field: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.field}: {self.expected}"


class DescriptorError(UsageError):
    """A descriptor or plan file with faults; all of them are in `findings`, in file order."""

    def __init__(self, findings: list[Finding], hint: str = "") -> None:
        super().__init__("\n".join(map(str, findings)), hint)
        self.findings = findings


class InputError(UsageError):
    """A data file (scan, weights, result folder) that cannot be used as it is."""


class UnknownOperator(InputError):
    """A node of a network that is not understood: its operator, or a form of it."""


class OpenShape(InputError):
    """A network with a tensor whose size its file leaves open."""


class MachineError(SocschedError):
    """This machine or board lacks something the request needs."""


def extra(name: str) -> str:
    """Return the command that installs an optional dependency; socsched is on no package index."""
    return f"pip install '/path/to/socsched[{name}]'"


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn errors of the operating system into those of a file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: object, error: OSError) -> SocschedError:
    """Return the error for a file that cannot be written, due to the request (2) or to the machine (3)."""
    message = f"{path}: cannot be written: {error.strerror or error}"
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
        return InputError(message, "name a folder that exists")
    return MachineError(message, "check permissions and free space (socsched doctor)")


def of_machine(error: SocschedError) -> bool:
    """Return whether an error concerns this machine only and not the request."""
    return isinstance(error, MachineError) and not isinstance(error, CompileError)


class CompileError(MachineError):
    """A stage could not be lowered to the target its engine declares."""
