"""TensorRT releases and what each has for a DLA, from `releases.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from socsched.descriptor.operator_rules import version_key

FILE = Path(__file__).with_name("releases.json")


@dataclass(frozen=True, slots=True)
class Release:
    """Releases from `since` up to but without `until` ("": all later ones).

    `dla`: calibrated (precision by flags, calibration cache), typed (strongly typed networks with Q/DQ), or none;
    `modules` are the Jetson modules on which a DLA is supported, `sources` document titles with place.
    """

    since: str
    until: str
    jetpack: str
    modules: tuple[str, ...]
    dla: str
    sources: tuple[str, ...]
    note: str


@lru_cache(maxsize=1)
def releases() -> tuple[Release, ...]:
    """Return the rows of the table, oldest first."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    known = document["sources"]
    return tuple(
        Release(**{**row, "modules": tuple(row["modules"]), "sources": tuple(known[key] for key in row["sources"])})
        for row in document["rows"]
    )


def release(version: str) -> Release | None:
    """Return the row of a release, None for one older than the table."""
    key = version_key(version)
    rows = [row for row in releases() if version_key(row.since) <= key]
    return next((row for row in rows if not row.until or key < version_key(row.until)), None)


def dla_refusal(version: str, model: str = "") -> str:
    """Return the reason for which a release builds nothing for a DLA, empty if it does.

    `model`: the board's name in its device tree, such as "NVIDIA Jetson AGX Orin Developer Kit"; "": not known.
    """
    found = release(version)
    if found is None:  # older than the table
        return ""
    if found.dla == "none":
        return f"TensorRT {version} has no DLA"
    board = model.strip("\0").strip()
    words = board.lower().split()
    if "jetson" in words and not any(set(module.split("-")) <= set(words) for module in found.modules):
        return f"TensorRT {version} has a DLA on {', '.join(found.modules)} only, this is a {board}"
    return ""


def table() -> str:
    """Return the table as Markdown, as printed in docs/tensorrt.md."""
    lines = ["| TensorRT | JetPack | modules with DLA | DLA | note | source |", "|---|---|---|---|---|---|"]
    for row in releases():
        span = f"{row.since} to before {row.until}" if row.until else f"{row.since} and later"
        modules = ", ".join(row.modules) or "none"
        cells = (span, row.jetpack or "-", modules, row.dla, row.note, "; ".join(row.sources))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
