"""The `contention` sections of shipped platforms, from published measurements (tests/data/haxconn, tests/data/corun).

- The shape is PCCS's matrix of Xavier, refined; other memories have it scaled by their peak bandwidth.
- `traffic` of the GPU: measured load of Xavier's memory controller under convolutions of 1 x 1 and 3 x 3 (the kernels
  of most networks) over the traffic that the shipped descriptor plans for them, geometric mean.
- The DLA has no published matrix.  It loses speed in proportion to the traffic of others, up to the balance point of
  the curve; the largest loss follows from co-runs next to a GPU, geometric mean of the slowdowns.
- `error`: mean errors that PCCS states for GPU, CPU and DLA on Xavier; at least those of Orin's rows; 0.25 where only
  the shape is known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from socsched.cost.contention.models import Curve
from socsched.descriptor.catalog import get_platform
from tools import DATA
from tools.generate.contention_fits import fit_pccs, refine_pccs
from tools.verify.boards import planned
from tools.verify.boards.planned import Part

GB = 1e9
PUBLISHED_ERROR = {"gpu": 0.087, "cpu": 0.037, "dla": 0.056}
"""Mean errors of PCCS on Xavier (MICRO 2021, abstract)."""
SCALED_ERROR = {"gpu": 0.1, "cpu": 0.1, "dla": 0.056}
"""As far as the rows of Orin confirm the scaled curve (`tools.verify.boards`)."""
ASSUMED_ERROR = 0.25
OTHERS = "no matrix of other engines is published: the curve of CPU and GPU"


@dataclass(frozen=True, slots=True)
class Section:
    """A platform's section: the curve's scale to Xavier's memory, losses (%) of its DLA, and where they are from."""

    platform: str
    source: str
    scale: float
    capacity: float
    note: str
    dla_loss: float = 0.0
    dla_note: str = ""
    errors: Mapping[str, float] | None = None


def xavier_curve() -> Curve:
    """Return the refined curve of PCCS's matrix."""
    data = json.loads((DATA / "haxconn" / "pccs_xavier.json").read_text(encoding="utf-8"))["measured_matrix"]
    own, other = ([value * GB for value in data[f"{name}_GBps"]] for name in ("standalone", "external_demand"))
    achieved = [[value * GB for value in row] for row in data["achieved_GBps"]]
    return refine_pccs(fit_pccs(own, other, achieved), own, other, achieved)


def gpu_traffic() -> tuple[float, float]:
    """Return the ratio of measured to planned traffic of Xavier's GPU, and its relative spread."""
    data = json.loads((DATA / "haxconn" / "emc_conv_xavier.json").read_text(encoding="utf-8"))
    runs = [run for name, run in data["runs"].items() if "half" not in name]
    logs = []
    for name, shape in data["conv_shapes"].items():
        layer, kernel = name.split("_")
        if shape["kernel"] not in (1, 3) or layer == "conv5":  # conv5 stays on chip as planned
            continue
        part = Part(name, name, "gpu")
        plan = planned.plan({name: (part,)}, get_platform("jetson-agx-xavier"), "MAXN", {name: 100.0})
        work = next(segment for segment in plan.tasks[0].segments if segment.bytes)
        load = mean(run[layer][kernel] for run in runs) / 100 * data["peak_dram_GBps"]
        logs.append(math.log(load / (work.bytes / (work.time_ns - work.fixed_ns))))
    centre = mean(logs)
    return math.exp(centre), math.exp(math.sqrt(mean((each - centre) ** 2 for each in logs))) - 1


def rows(case: str = "") -> list[dict[str, Any]]:
    """Return the co-runs of GPU and DLA, of one case if named."""
    found = json.loads((DATA / "corun" / "gpu_dla.json").read_text(encoding="utf-8"))["rows"]
    return [row for row in found if case in ("", row["case"])]


def dla_loss(chosen: Sequence[Mapping[str, Any]]) -> float:
    """Return the speed (%) that a DLA loses next to a busy GPU, by the geometric mean of its slowdowns."""
    logs = [math.log(row["together_ms"] / row["alone_ms"]) for row in chosen if row["engine"] == "dla"]
    return 100 * (1 - math.exp(-mean(logs)))


def sections() -> tuple[Section, ...]:
    """Return the sections to ship."""
    peak = {
        name: get_platform(name).dram.peak.value for name in ("jetson-agx-xavier", "jetson-agx-orin-64gb", "qcs8550")
    }
    achievable = {name: get_platform(name).dram.achievable.value for name in peak}
    xavier, orin, qcs = peak
    pair = dla_loss(rows("HaX-CoNN, GoogleNet twice"))
    both = dla_loss([*rows("TensorRT#2745"), *rows("forum 219770")])
    note = "AGX Xavier's curve at 1.5 times its memory's peak"
    orins = Section(
        orin, "pccs", peak[orin] / peak[xavier], achievable[orin], note, both,
        "TensorRT#2745 and NVIDIA forum 219770, four co-runs of a DLA and the GPU", SCALED_ERROR,
    )  # fmt: skip
    return (
        Section(
            xavier, "pccs", 1.0, achievable[xavier], "refined on the whole matrix, mean residual 2 %", pair,
            "GoogleNet on GPU and DLA at the same time, one co-run", {**PUBLISHED_ERROR, "dla": 0.15},
        ),
        orins,
        replace(orins, platform="jetson-agx-orin-32gb", note=f"{note}; SoC and memory of the 64GB module"),
        Section(
            qcs, "pccs", peak[qcs] / peak[xavier], achievable[qcs],
            "shape of AGX Xavier's curve at this memory's peak; no co-run of this SoC is published",
        ),
    )  # fmt: skip


def text(section: Section) -> str:
    """Return a section as it stands in a platform file."""
    curve = xavier_curve().at(section.scale)
    same = section.scale == 1.0
    kind = "fitted" if same else "derived" if section.errors else "assumed"
    lines = [
        "  contention:",
        "    model: pccs",
        f"    source: {section.source}",
        "    parameters:",
        f"      capacity: {section.capacity / GB:.4g} GB/s",
    ]
    traffic, spread = gpu_traffic()
    for engine in ("gpu", "cpu", "dla", "default") if section.errors else ("default",):
        measured = bool(section.errors) and engine in section.errors
        error = section.errors[engine] if measured else ASSUMED_ERROR
        lines.append(f"      {engine}:")
        if engine == "dla":
            top = f"{curve.peak / GB:.4g} GB/s"
            note = "no matrix of a DLA is published; only the minor region applies"
            lines.append(f"        normal: &never {{value: {top}, kind: assumed, note: {note}}}")
            lines.append("        intensive: *never")
            names = ("tbwdc", "cbp")
        else:
            names = ("normal", "intensive", "tbwdc", "cbp")
        own, about = (kind, section.note) if measured or not section.errors else ("assumed", OTHERS)
        for name in names:
            lines.append(_figure(name, f"{getattr(curve, name) / GB:.4g} GB/s", own, "pccs", about, error))
        peak = curve.cbp if engine == "dla" else curve.peak
        lines.append(_figure("peak", f"{peak / GB:.4g} GB/s", own, "pccs", about, error))
        lines.append(_figure("rate", f"{curve.rate:.4g}", own, "pccs", about, error))
        if engine == "dla":
            lines.append(_figure("mrmc", f"{section.dla_loss:.4g}", "fitted", "corun", section.dla_note, error))
        else:
            lines.append(_figure("mrmc", f"{curve.mrmc:.4g}", own, "pccs", about, error))
        if engine == "gpu":
            how = "fitted" if same else "derived"
            what = "load of the memory controller under 8 convolutions over the traffic planned for them"
            lines.append(
                _figure("traffic", f"{traffic:.3g}", how, "haxconn", what + ("" if same else ", on AGX Xavier"), spread)
            )
        lines.append(f"        error: {error:g}")
    return "\n".join(lines) + "\n"


def _figure(name: str, value: str, kind: str, source: str, note: str, error: float) -> str:
    return f'        {name}: {{value: {value}, kind: {kind}, source: {source}, note: "{note}", error: {error:.2g}}}'


SOURCES = {
    "pccs": (
        "PCCS (MICRO 2021), bandwidth matrix of AGX Xavier under external demand",
        "github.com/processorcentricmodel/PCCS at 51ffb72, model_construction/input.txt",
    ),
    "corun": (
        "GPU and DLA at the same time, times alone and together",
        "github.com/NVIDIA/TensorRT issue 2745; forums.developer.nvidia.com/t/219770; github.com/ismetdagli/HaX-CoNN",
    ),
    "haxconn": (
        "HaX-CoNN (PPoPP 2024) repository, load of the memory controller under convolutions on AGX Xavier",
        "github.com/ismetdagli/HaX-CoNN at 87f5f25",
    ),
}


def placed(raw: str, section: str) -> str:
    """Return a platform file with the section in place of the one it has, or at the end of `dram`, and its sources."""
    rows, block = raw.splitlines(), section.rstrip("\n").splitlines()
    start = rows.index("dram:")
    end = next(at for at in range(start + 1, len(rows)) if rows[at] and not rows[at].startswith(" "))
    if "  contention:" in rows[start:end]:
        first = rows.index("  contention:", start)
        last = next(at for at in range(first + 1, end + 1) if at == end or not rows[at].startswith("    "))
        rows[first:last] = block
    else:
        while not rows[end - 1].strip():
            end -= 1
        rows[end:end] = block
    return "\n".join(_with_sources(rows, section)) + "\n"


def _with_sources(rows: list[str], section: str) -> list[str]:
    start = rows.index("sources:")
    end = next(at for at in range(start + 1, len(rows)) if rows[at] and not rows[at].startswith(" "))
    while not rows[end - 1].strip():
        end -= 1
    for key, (title, where) in SOURCES.items():
        if f"source: {key}" in section and f"  {key}:" not in rows[start:end]:
            rows[end:end] = [f"  {key}:", f'    title: "{title}"', f'    where: "{where}"']
            end += 3
    return rows


def write(folder: Path) -> None:
    """Write the sections into the files of `folder`."""
    for section in sections():
        file = folder / f"{section.platform}.yaml"
        file.write_text(placed(file.read_text(encoding="utf-8"), text(section)), encoding="utf-8")
