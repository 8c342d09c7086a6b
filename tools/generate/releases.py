"""The table of TensorRT releases in docs/tensorrt.md: python -m tools.generate.releases."""

from __future__ import annotations

from pathlib import Path

from socsched.compiler.targets.tensorrt.releases import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tensorrt.md"
BEGIN, END = "<!-- releases -->\n", "<!-- end -->\n"


def main() -> None:
    """Write the table between its marks."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
