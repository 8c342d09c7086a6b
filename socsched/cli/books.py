"""Simulation of books for `socsched simulate`."""

from __future__ import annotations

import json
from pathlib import Path

from socsched.cli.options import Output, terminal_width
from socsched.errors import UsageError, unwritable


def simulate(
    output: Output,
    folder: Path,
    scenario_file: Path | None,
    count: int,
    duration: int,
    seed: int,
    faults_file: Path | None,
    into: Path | None,
) -> int:
    """Simulate the book in a folder through a scenario, or through `count` random switches; return the exit code."""
    from socsched.faults.file import load_faults
    from socsched.files import write_file
    from socsched.modebook.book import load_book
    from socsched.modebook.result_view import view
    from socsched.modebook.scenario import random_scenario, read_scenario

    if scenario_file and count:
        raise UsageError("--scenario and --switches exclude each other", "omit one of them")
    book = load_book(folder)
    scenario = read_scenario(scenario_file, book) if scenario_file else random_scenario(book, count, duration, seed)
    faults = load_faults(faults_file, book.plan(scenario.start)) if faults_file else None
    done = book.simulate(scenario, duration, seed, faults)
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

        console(terminal_width()).print(view(done))

    output.result(document, show)
    return int(not done.met)
