"""Parameters of the cost model that were fitted to measurements of an engine, with what they were fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase

PASS_KINDS = ("conv", "pointwise", "winograd", "depthwise", "grouped", "gemm", "matmul", "pool", "eltwise", "copy",
              "transpose", "softmax", "resize", "pillars", "scatter")  # fmt: skip
"""Classes of passes (`graph.accelerator_kernels`)."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Fitted constants of an engine in one precision; all positive, so that fits work on their logarithms.

    `conv`: share of the peak that a large convolution reaches; `pointwise`, `winograd`, `grouped`, `gemm`, `matmul`:
    the rates of these classes relative to that; `vector`: operations of the vector unit per peak multiply-add, where
    depthwise layers, pooling and element-wise functions run; `exp`: its operations for one exp-like function;
    `onchip`, `spill`, `weights`: bandwidth for activations that fit on chip, for others and for weights, relative to
    the memory's peak; `fill`: outputs (thousands a unit) at which a layer reaches half of its rate; `layer`, `job`:
    fixed costs of a pass and of a job over the engine's stated launch and submission.
    """

    conv: float = 0.5
    pointwise: float = 1.0
    winograd: float = 1.0
    grouped: float = 0.5
    gemm: float = 1.0
    matmul: float = 0.5
    vector: float = 0.01
    exp: float = 5.0
    onchip: float = 1.0
    spill: float = 0.6
    weights: float = 0.6
    fill: float = 1.0
    layer: float = 1.0
    job: float = 1.0

    def logs(self) -> tuple[float, ...]:
        """Return the logarithms in the order of `NAMES`."""
        return tuple(math.log(getattr(self, name)) for name in NAMES)

    def changed(self, **values: float) -> Parameters:
        """Return parameters with some of them set."""
        return replace(self, **values)


NAMES = tuple(item.name for item in fields(Parameters))


@dataclass(frozen=True, slots=True)
class Host:
    """Costs (ns) of a pass and of a job at the highest clock under host programs that fit one of `runtimes` (globs)."""

    runtimes: tuple[str, ...]
    launch_ns: int
    submit_ns: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters of an engine in a precision, the nominal figures they are ratios to, and their evidence.

    Nominal: `block` channels an operator is padded to; `launch_ns` of a pass and `submit_ns` of a job at the highest
    clock; `sram` (bytes kept on chip between passes); `ops_per_cycle` (0: the precision's own); `memory` (bytes/s one
    unit reaches alone, 0: the memory's peak in the mode); `taps`: cost of a further row of a depthwise window over that
    of the row before; `copies`: concatenations and slices of tensors with other readers are kernels; `resident`:
    weights that fit on chip stay there between jobs.  `units` the fit was made with, 0: any number.  `joined`: engines
    whose units work on a network together; empty: this engine alone.  `runtimes` (globs) of the measured programs,
    empty where they are not stated; `hosts`: those of them whose costs of a pass and a job are others; `varied`
    (globs): those that compute sequences at their own length, without padding.

    Evidence: `source` (key of `Platform.sources`) of the measurements of so many `networks`, the `date` of the fit, its
    mean absolute `error` on networks left out, the half width of the `interval` that holds most of them (relative), and
    the `classes` of passes that these networks have.
    """

    parameters: Parameters
    block: int
    launch_ns: int
    submit_ns: int
    sram: float
    source: str
    networks: int
    date: str
    error: float
    interval: float
    classes: tuple[str, ...]
    ops_per_cycle: float = 0.0
    memory: float = 0.0
    taps: float = 1.0
    copies: bool = False
    resident: bool = False
    units: int = 0
    note: str = ""
    joined: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()
    varied: tuple[str, ...] = ()

    def covers(self, runtime: str) -> bool:
        """Return whether the fit stands for a program that ran networks."""
        return any(fnmatchcase(runtime, glob) for glob in self.runtimes)

    def varies(self, runtime: str) -> bool:
        """Return whether a program computes sequences at their own length rather than the network's."""
        return any(fnmatchcase(runtime, glob) for glob in self.varied)

    def under(self, runtime: str) -> Fit:
        """Return the fit with the costs of a host program."""
        if not runtime:
            return self
        found = (one for one in self.hosts if any(fnmatchcase(runtime, glob) for glob in one.runtimes))
        host = next(found, None)
        return replace(self, launch_ns=host.launch_ns, submit_ns=host.submit_ns) if host else self


def choose_fit(fits: Sequence[Fit], units: int, runtime: str = "") -> Fit | None:
    """Return the fit for a job on `units` units of an engine, None without any.

    Fits that cover `runtime` are preferred; without one that does, those of a single engine.  Among these it is the one
    made with as many units, else with any number, else with the nearest number.
    """
    covering = [fit for fit in fits if fit.covers(runtime)] if runtime else []
    fitting = covering or [fit for fit in fits if not fit.joined]
    if len(fitting) < 2:  # the usual case, asked for thousands of times in a search
        return fitting[0].under(runtime) if fitting else None
    best = min(fitting, key=lambda fit: (fit.units != units, fit.units != 0, abs(fit.units - units)))
    return best.under(runtime)
