"""What a SoC is, to everything downstream of the file edge: engines, memory, power modes, figures with their source.

`platform_file.py` reads these from YAML; `host.py` detects them on this machine.  Engines differ by what they declare
here and by nothing else: no code asks whether an engine is a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.descriptor.operator_rules import OperatorRules

PROVENANCE = ("measured", "published", "derived", "assumed")
"""Kinds of figure, most to least trusted."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and why it may be believed.

    `value` is in base units (ns, bytes, bytes/s, Hz, mW) or a plain ratio; `kind` is one of `PROVENANCE`; `source` is
    a key of `Platform.sources` or empty; `note` holds the formula of a derived or the reasoning of an assumed figure;
    `error` is the relative uncertainty (0.2 = within 20 %), 0 when none is stated.
    """

    value: float
    kind: str
    source: str = ""
    note: str = ""
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Preemption:
    """When an engine gives a running job up: `kind` full | segment | none, and what one switch costs (ns).

    `full`: at any instant; `segment`: between segments of the job (kernels of a GPU, loadables or tiles of an NPU);
    `none`: never before the job ends.  `segment_kind` names the segment for people ("kernel", "loadable").
    """

    kind: str
    cost_ns: Figure
    segment_kind: str = ""


@dataclass(frozen=True, slots=True)
class Precision:
    """One data type an engine computes in.

    `ops_per_cycle`: dense arithmetic operations (a multiply-add is two) per unit and clock cycle at full rate.
    `layout`: native activation layout ("NCHW", "NHWC", "NCHW16c", "NCHW32c").
    `efficiency`: share of the peak reached, by operator class ("conv", "gemm", "elementwise", "default").
    """

    dtype: str
    ops_per_cycle: Figure
    layout: str
    efficiency: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Engine:
    """One schedulable processor: a CPU cluster, a GPU, a DLA core, an NPU, a DSP.

    `kind` ("cpu", "gpu", "dla", ...) groups engines for people and for cost anchors only.  `units` identical units
    (cores, SMs); with `shares` "unit" a job occupies any number of them, with "whole" it occupies the engine.
    `clock_hz` is the highest clock.  `bandwidth` is what this initiator alone achieves on DRAM (bytes/s).
    `launch_ns` is paid per segment, `submit_ns` per job, `handoff_ns` when a job's output is handed to another engine.
    `converts`: this engine can run layout/dtype conversion jobs.  `idle_mw` is drawn always while the mode powers it,
    `dynamic_mw` in addition while every unit is busy at `clock_hz`.
    `target` says what to compile for (see `compile.targets`).
    """

    id: str
    kind: str
    title: str
    units: int
    unit: str
    shares: str
    clock_hz: Figure
    precisions: Mapping[str, Precision]
    bandwidth: Figure
    sram_bytes: int
    preemption: Preemption
    launch_ns: Figure
    submit_ns: Figure
    handoff_ns: Figure
    converts: bool
    operators: OperatorRules
    idle_mw: Figure
    dynamic_mw: Figure
    target: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EngineMode:
    """An engine under a power mode: units online (0 = off), clock, and full-load dynamic power there (mW)."""

    units: int
    clock_hz: int
    dynamic_mw: Figure


@dataclass(frozen=True, slots=True)
class PowerMode:
    """A power mode as the vendor ships it; `engines` covers every engine of the platform.

    `cap_mw` is the module's power budget, None where the vendor states none; `base_mw` is drawn by everything that is
    no engine (rest of the SoC, DRAM idle, board); `dram` is the bandwidth the memory clock of this mode allows.
    """

    name: str
    aliases: tuple[str, ...]
    id: int
    default: bool
    cap_mw: Figure | None
    base_mw: Figure
    dram: Figure
    engines: Mapping[str, EngineMode]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Dram:
    """Main memory: theoretical `peak` and `achievable` bytes/s over all initiators, energy per byte moved (pJ)."""

    peak: Figure
    achievable: Figure
    size_bytes: int
    picojoule_per_byte: Figure


@dataclass(frozen=True, slots=True)
class Source:
    """Where figures come from: title, and address or publication."""

    title: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Platform:
    """One SoC module or board."""

    name: str
    title: str
    vendor: str
    engines: tuple[Engine, ...]
    dram: Dram
    modes: tuple[PowerMode, ...]
    sources: Mapping[str, Source]
    thermal: Mapping[str, Figure] = field(default_factory=dict)
    file: str = ""

    def engine(self, engine_id: str) -> Engine:
        """Return the engine with this id; KeyError when there is none."""
        for engine in self.engines:
            if engine.id == engine_id:
                return engine
        raise KeyError(engine_id)

    def mode(self, name: str | None = None) -> PowerMode:
        """Return the mode with this name or alias (case ignored), the default one for None; KeyError when unknown."""
        for mode in self.modes:
            if name is None and mode.default:
                return mode
            if name is not None and name.lower() in {n.lower() for n in (mode.name, *mode.aliases)}:
                return mode
        raise KeyError(name)
