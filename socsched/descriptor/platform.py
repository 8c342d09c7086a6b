"""The internal model of a SoC: engines, memory, power modes, figures with their source.

`platform_file.py` reads these from YAML; `host.py` detects them on this machine.  Engines differ only by what they
declare here: no code tests whether an engine is a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.descriptor.fit import Fit
from socsched.descriptor.functions import FunctionCost
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.thermal import ThermalState

VENDOR_MODEL = "vendor model"
PROVENANCE = ("measured", "published", "fitted", VENDOR_MODEL, "derived", "assumed")
"""Kinds of figure, from most to least trusted."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its provenance.

    `value` is in base units (ns, bytes, bytes/s, Hz, mW) or a plain ratio; `kind` is one of `PROVENANCE`; `source` is a
    key of `Platform.sources` or empty; `note` holds the formula of a derived figure or the reasoning of an assumed one;
    `error` is the relative uncertainty (0.2 = within 20 %), 0 when none is stated.  `interval` is set where only limits
    are known or published: `value` is then its middle unless the file prefers another, and `error` covers it.
    """

    value: float
    kind: str
    source: str = ""
    note: str = ""
    error: float = 0.0
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """When an engine preempts a running job: `kind` full | segment | none | restart, and the cost of one switch (ns).

    `full`: at any instant; `segment`: between segments of the job (kernels of a GPU, loadables or tiles of an NPU);
    `none`: never before the job ends.  `segment_kind` is the display name of a segment ("kernel", "loadable");
    `granularity_ns` is how long other jobs wait for it: a segment's length or a time slice, where known.  `restart`:
    the running job is killed at once and restarts its segment; the preempting job waits `reset_ns`.  `in_flight`:
    segments launched ahead, which still run (1: the running one).  `migration_ns`: additional cost of resuming
    elsewhere.  `slices_ns`: the time slices that can be set for a process, from the shortest to the longest.
    """

    kind: str
    cost_ns: Figure
    segment_kind: str = ""
    granularity_ns: Figure | None = None
    reset_ns: Figure | None = None
    in_flight: int = 1
    migration_ns: Figure | None = None
    slices_ns: Figure | None = None


@dataclass(frozen=True, slots=True)
class WeightsMemory:
    """Weight memory of an engine (`size`, bytes), and the fetch rate of absent weights (`swap`, bytes/s)."""

    size: Figure
    swap: Figure


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A clock an engine can be set to, with its supply (uV), one unit's capacity and its full-load power (mW).

    Capacity is on the scale of Linux's capacity-aware scheduling: 1024 is the fastest unit of the platform at its
    highest clock.  None: not known.
    """

    clock_hz: int
    microvolt: int | None = None
    capacity: float | None = None
    dynamic_mw: float | None = None


@dataclass(frozen=True, slots=True)
class OperatingPoints:
    """All operating points of an engine, slowest first, with their provenance."""

    points: tuple[OperatingPoint, ...]
    kind: str
    source: str = ""
    note: str = ""

    def at(self, clock_hz: float) -> OperatingPoint:
        """Return the slowest point not below a clock, the fastest where there is none."""
        return next((point for point in self.points if point.clock_hz >= clock_hz), self.points[-1])


@dataclass(frozen=True, slots=True)
class Coherency:
    """Coherency of an engine with the CPU caches: `domain` full, io (I/O-coherent) or none.

    `flush`: bytes/s at which caches are cleaned for a non-coherent engine, paid for every byte handed over.
    """

    domain: str = "full"
    flush: Figure | None = None
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Gating:
    """Groups of units that a power mode can switch off by a bit mask (TPCs of a GPU): a set bit gates one group."""

    groups: int
    units: int

    def online(self, mask: int, most: int) -> int:
        """Return the number of units a mask leaves online, at most `most`."""
        return min((self.groups - (mask & ((1 << self.groups) - 1)).bit_count()) * self.units, most)


@dataclass(frozen=True, slots=True)
class Rail:
    """A supply rail with a power meter: loads (engine kinds or words), sensor, idle power."""

    title: str
    covers: tuple[str, ...]
    sensor: str = ""
    idle_mw: Figure | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Supply:
    """What lies between module and wall on the board that was measured: `carrier_mw` and the adaptor's efficiency.

    `carrier_mw`: the carrier board with its fan and interfaces; `efficiency`: share of the wall's power that the
    adaptor delivers.  Wall power is (module + carrier) / efficiency.
    """

    title: str
    carrier_mw: Figure
    efficiency: Figure


@dataclass(frozen=True, slots=True)
class Precision:
    """One data type an engine computes in.

    `ops_per_cycle`: dense arithmetic operations (a multiply-add is two) per unit and clock cycle at full rate.
    `layout`: native activation layout ("NCHW", "NHWC", "NCHW16c", "NCHW32c", "NHWC8h8w32c").  `efficiency`: share of
    the peak reached, by operator class ("conv", "gemm", "elementwise", "default").  `sparsity`: peak with structured
    sparsity as a multiple of the dense one, None without.  Plans do not rely on it.  `fitted`: cost models fitted to
    measurements, used instead of `efficiency` for networks.
    """

    dtype: str
    ops_per_cycle: Figure
    layout: str
    efficiency: Mapping[str, Figure]
    sparsity: Figure | None = None
    fitted: tuple[Fit, ...] = ()


OWN, NATIVE = "tvm", "native"
"""Runtimes of code compiled here: networks, and host functions."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program that computes networks on an engine; the costs that an engine states are those of its first.

    `ratio`: time of a network over the stated one, None for the runtime that was measured.  Networks with an operator
    other than `kernels` (all if empty), or in a data type other than `tuned`, take `general` instead.  `without`:
    operators it cannot compute; `precisions` it computes in, empty: all of the engine's.  `version`: that of the
    toolchain which stages are handed to.
    """

    name: str
    version: str = ""
    ratio: Figure | None = None
    general: Figure | None = None
    kernels: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """The way from main memory to an engine with memory of its own: bytes/s, and ns for each tensor that crosses it."""

    bandwidth: Figure
    latency_ns: Figure


@dataclass(frozen=True, slots=True)
class Engine:
    """One schedulable processor: a CPU cluster, a GPU, a DLA core, an NPU, a DSP.

    `kind` ("cpu", "gpu", "dla", ...) groups engines for display and for cost anchors only.  `units` identical units
    (cores, SMs); with `shares` "unit" a job occupies any number of them, with "whole" it occupies the engine.
    `clock_hz` is the highest clock.  `bandwidth` is the DRAM bandwidth this initiator achieves alone (bytes/s); with a
    `link` that of its own memory, in which weights and inner tensors stay, while inputs and outputs cross the link.
    `launch_ns` is paid per segment, `submit_ns` per job, `handoff_ns` when a job's output is handed to another engine.
    `converts`: this engine can run layout/dtype conversion jobs, at `conversion` bytes/s read plus written (None: at
    `bandwidth`).  `idle_mw` is always drawn while the mode powers it, `dynamic_mw` in addition while every unit is busy
    at `clock_hz`.  `target` is the compilation target (see `compiler.target`).  `performance` is the speed of one unit
    at `clock_hz` on general code (7-zip MIPS), used to scale host-code times from one CPU to another.  `capacity`
    (DMIPS per MHz as device trees count it) and `coefficient` (dynamic power of one unit in uW/MHz/V^2) go with
    `points`.  `source` or `assumed` gives the provenance of plain numbers.  `quantum_ns`: time slice of policies that
    have one, 0: the policy's own.  `reconfigure_ns`: cost of regrouping units last used in other groups.  `capacities`:
    speed of each unit where they differ, 1024 for the unit that costs refer to.  `functions`: host functions that this
    engine has code or hardware for, by `models.model.Model.device`; CPUs run all of them (`operators.host_code`).
    `runtimes`: programs that can compute its networks, where there are several; the first is the one that was measured.
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
    sram: Figure | None
    preemption: Preemption
    launch_ns: Figure
    submit_ns: Figure
    handoff_ns: Figure
    converts: bool
    operators: OperatorRules
    idle_mw: Figure
    dynamic_mw: Figure
    target: Mapping[str, Any]
    performance: Figure | None = None
    capacity: Figure | None = None
    coefficient: Figure | None = None
    points: OperatingPoints | None = None
    conversion: Figure | None = None
    coherency: Coherency = field(default_factory=Coherency)
    gating: Gating | None = None
    source: str = ""
    assumed: str = ""
    quantum_ns: int = 0
    reconfigure_ns: Figure | None = None
    weights: WeightsMemory | None = None
    capacities: tuple[int, ...] = ()
    functions: Mapping[str, FunctionCost] = field(default_factory=dict)
    runtimes: tuple[Runtime, ...] = ()
    link: Link | None = None

    def host_bandwidth(self, dram: float) -> float:
        """Return the bytes/s that this engine moves from and to main memory, of which all engines reach `dram`."""
        return min((self.link.bandwidth if self.link else self.bandwidth).value, dram)


@dataclass(frozen=True, slots=True)
class EngineMode:
    """An engine under a power mode: units online (0 = off), clock, and full-load dynamic power there (mW)."""

    units: int
    clock_hz: int
    dynamic_mw: Figure


@dataclass(frozen=True, slots=True)
class PowerMode:
    """A power mode as the vendor ships it; `engines` covers every engine of the platform.

    `cap_mw` is the module's power budget, None where the vendor states none; `base_mw` is drawn by everything other
    than engines (rest of the SoC, idle DRAM, board); `dram` is the bandwidth the memory clock of this mode allows.
    `stated_tops` is the INT8 peak (10^12/s, with sparsity where supported) the vendor states for this mode.
    `clocks_hz` are clocks of blocks not modelled as engines; `family` is the configuration file the mode comes from,
    where a vendor ships several whose numbers overlap.
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
    clocks_hz: Mapping[str, int] = field(default_factory=dict)
    family: str = ""
    stated_tops: Figure | None = None
    source: str = ""
    assumed: str = ""

    def called(self, name: str) -> bool:
        """Return whether a name denotes this mode: its own or an alias, without "MODE_"; case, blanks and "_" alike."""
        plain = [n.lower().replace(" ", "_").removeprefix("mode_") for n in (name, self.name, *self.aliases)]
        return plain[0] in plain[1:]


@dataclass(frozen=True, slots=True)
class Contention:
    """The model of DRAM contention between engines (`cost.contention`) and its parameters.

    `model` empty stands for the default.  Parameters are numbers (bandwidths in bytes/s), or mappings of these.
    """

    model: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Dram:
    """Main memory: theoretical `peak` and `achievable` bytes/s over all initiators, energy per byte moved (pJ).

    `latency_ns`: a random access by a CPU, where measured.  `reserved`: bytes that firmware and the operating system
    take, where known.
    """

    peak: Figure
    achievable: Figure
    size: Figure
    picojoule_per_byte: Figure
    latency_ns: Figure | None = None
    contention: Contention = field(default_factory=Contention)
    reserved: Figure | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The source of figures: title, and address or publication."""

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
    rails: Mapping[str, Rail] = field(default_factory=dict)
    file: str = ""
    supply: Supply | None = None
    thermal_states: tuple[ThermalState, ...] = ()

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
            if name is not None and mode.called(name):
                return mode
        raise KeyError(name)
