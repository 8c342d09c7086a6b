"""The table of published networks: rows say what parses and what accelerators refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")

from onnx_files import Builder, mobilenet

from socsched.descriptor.pipeline import Stage
from tools.generate.zoo import BUILT_IN, ENGINES, NETWORKS, PAGE, PRECISIONS, TAKEN, file_of, row, table


def of_file(file: Path) -> Stage:
    return Stage("net", "net", "onnx", params={"file": str(file)}, precisions=PRECISIONS)


def test_a_row_names_what_falls_back(tmp_path: Path) -> None:
    cells = row("m", of_file(mobilenet(tmp_path / "m.onnx"))).removeprefix("| ").removesuffix(" |").split(" | ")
    title, parses, plannable, cpu, _, _, dla, htp, _ = cells
    assert (title, parses, plannable, cpu, htp) == ("m", "yes", "yes", "yes", "yes")
    assert "hard_swish" in dla and "hard_sigmoid" in dla


def test_a_network_that_does_not_parse_has_the_reason(tmp_path: Path) -> None:
    b = Builder()
    computed = b.op("Abs", b.op("Cast", "image", to=7))
    file = b.save(tmp_path / "net.onnx", [1, 3, 8, 8], [b.op("Reshape", "image", computed)])
    assert "no: Reshape_2: Reshape: the shape of its result depends on computed values" in row("net", of_file(file))


def taken(page: str) -> list[str]:
    """Return the networks that a page says every engine takes whole."""
    return page.partition(TAKEN)[2].partition(".\n")[0].split(", ")


def test_the_page_has_every_network() -> None:
    """At least 30 networks, each read or with the operator that is missing."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines()]
    found = {row[0].removeprefix("| "): row[1] for row in rows if len(row) == 3 + len(ENGINES)}
    found |= dict.fromkeys(taken(page), "yes")
    assert {*NETWORKS, *BUILT_IN} <= set(found) and len(found) > 30
    assert all(found[title] == "yes" or found[title].startswith("no: ") for title in (*NETWORKS, *BUILT_IN))


def test_what_the_page_says_of_built_in_networks_is_current(tmp_path: Path) -> None:
    assert set(taken(table(tmp_path))) == set(BUILT_IN) <= set(taken(PAGE.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_the_rows_of_networks_in_the_repository_are_current() -> None:
    folder, page = Path(__file__).parents[1] / "data" / "boards" / "networks", PAGE.read_text(encoding="utf-8")
    files = {title: file for title, name in NETWORKS.items() if (file := file_of(name, [folder])) is not None}
    rows = {title: row(title, of_file(file)) for title, file in files.items()}
    whole = {title for title, line in rows.items() if line == f"| {title} |" + " yes |" * (2 + len(ENGINES))}
    assert len(rows) > 15 and whole == set(taken(page)) & set(rows), "python -m tools.generate.zoo FOLDER"
    assert all(rows[title] in page for title in rows.keys() - whole), "python -m tools.generate.zoo FOLDER"
