"""Simulation of books for `socsched simulate`."""

from __future__ import annotations

import json
from pathlib import Path

from socsched.cli.options import Output, terminal_width
from socsched.errors import UsageError, unwritable


def simulate(
    output: Output,
    folder: Path,
    drive_file: Path | None,
    count: int,
    duration: int,
    seed: int,
    faults_file: Path | None,
    into: Path | None,
) -> int:
    """Simulate the book in a folder through a drive, or through `count` random switches; return the exit code."""
    from socsched.faults.file import load_faults
    from socsched.files import write_file
    from socsched.modebook.book import load_book, random_drive, read_drive
    from socsched.modebook.view import simulated

    if drive_file and count:
        raise UsageError("--drive and --switches exclude each other", "omit one of them")
    book = load_book(folder)
    drive = read_drive(drive_file, book) if drive_file else random_drive(book, count, duration, seed)
    faults = load_faults(faults_file, book.plan(drive.start)) if faults_file else None
    done = book.simulate(drive, duration, seed, faults)
    document = done.document()
    if into:
        try:
            into.mkdir(parents=True, exist_ok=True)
            write_file(into / "result.json", json.dumps(document, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            raise unwritable(into, error) from None
        output.note(f"wrote {into}/ (result.json)")

    def show() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(simulated(done))

    output.result(document, show)
    return int(not done.met)
