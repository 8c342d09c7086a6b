"""The table of TensorRT releases in docs/tensorrt.md: python -m tools.generate.releases."""

from __future__ import annotations

from pathlib import Path

from socsched.compiler.toolchains.tensorrt import releases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tensorrt.md"
BEGIN, END = "<!-- releases -->\n", "<!-- end -->\n"


def releases_table() -> str:
    """Return the table as Markdown."""
    lines = ["| TensorRT | JetPack | modules with DLA | DLA | note | source |", "|---|---|---|---|---|---|"]
    for row in releases():
        span = f"{row.since} to before {row.until}" if row.until else f"{row.since} and later"
        modules = ", ".join(row.modules) or "none"
        cells = (span, row.jetpack or "-", modules, row.dla, row.note, "; ".join(row.sources))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table between its marks."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + releases_table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
