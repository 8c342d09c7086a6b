"""The table of formats in docs/imports.md: in order, and every line names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
COLUMNS = ["format", "tool, versions tried", "read", "written", "left out", "test"]


def rows() -> list[list[str]]:
    text = (CHECKOUT / "docs" / "imports.md").read_text(encoding="utf-8")
    section = text.split("## Formats and versions\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    head, _, *body = ([cell.strip() for cell in line] for line in lines)
    assert head == COLUMNS
    return body


def test_every_line_names_a_test_and_lines_are_sorted() -> None:
    body = rows()
    assert all(len(row) == len(COLUMNS) and all(row) for row in body)
    assert body == sorted(body, key=lambda row: (row[0].lower(), row[1].lower()))
    for *_, place in body:
        file, _, name = place.partition("::")
        assert re.search(rf"^def {name}\(", (CHECKOUT / file).read_text(encoding="utf-8"), re.M), place
