"""Time of a network on an engine from its passes and a few fitted parameters: the formula, stated once.

A pass takes the longer of its arithmetic and its traffic, with a rounded corner, and a fixed cost; a job adds one of
its own.  Nominal figures (peak, memory bandwidth, launch, submission) scale with units and clocks; the parameters are
ratios to them, so that a fit in one mode predicts the others:

    t(job)     = job * submit + sum over passes of (arithmetic^p + traffic^p)^(1/p) + layer * launch
    arithmetic = macs * padding * (1 + fill * units / outputs) / (peak * conv * class)  on the matrix unit
               + (depthwise macs + window positions + exp * costly elements + norm * normalised elements
                  + ride * elements of functions that ride on a convolution) / (peak * vector)  on the vector unit
    traffic    = activation bytes / (dram * onchip, or dram * spill where what is alive exceeds the memory on chip;
                                     both times move for transposes and copies)
               + weight bytes / (dram * weights) + bytes of an image in whole blocks / (dram * border)

`Load` is what a pass asks of an engine, counted in plain Python; `terms` is arithmetic that holds for the numbers of a
single pass as for arrays of thousands, which fits are made of.

Ratios, since one fit then serves every power mode.  Rejected: an efficiency for each class of operators (off by 69 % on
average), efficiencies that saturate with a layer's work (the same as a cost a layer) or its pixels (the same as a cost
of weights), regression trees (they do not scale with clocks and cannot be read), parameters for each mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from socsched.descriptor.fit import PASS_KINDS as KINDS
from socsched.descriptor.fit import Parameters
from socsched.graph.accelerator_kernels import pass_class
from socsched.graph.operators import Pass

SHARPNESS = 4.0
"""Exponent p that rounds the corner between arithmetic and traffic: 4 adds at most 19 % where both are equal."""
RELATIVE = ("pointwise", "winograd", "grouped", "gemm", "matmul")
"""Classes whose rate is stated relative to that of convolutions."""
MOVES = ("transpose", "copy")
"""Classes that compute nothing, and whose bandwidth is stated relative to that of others."""
IMAGES = ("conv", "pointwise", "winograd", "depthwise", "grouped", "resize", "pool")
"""Classes that read images."""
ROWS = 1 / 8
"""Share of its output that a layer of a dataflow keeps for the windows of the next."""
WHOLE = ("matmul", "softmax")
"""Classes that need all of an operand before they begin, which ends a part of a dataflow (transposes are wiring)."""
FEW = 4
"""Channels of an image after padding."""
BYTES = {
    "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0, "w8a16": 2.0, "fp8": 1.0, "int4": 0.5, "fp4": 1.0,
}  # fmt: skip
"""Bytes of an activation by data type."""
WEIGHT_BYTES = {**BYTES, "w8a16": 1.0, "fp4": 0.5625}
"""Bytes of a weight; a block of 16 four-bit ones has a scale of 8 bits."""


@dataclass(frozen=True, slots=True)
class Nominal:
    """What a descriptor states of an engine in a mode and precision.

    `peak` (multiply-adds/us of all units), `dram` (bytes/us), `sram` (bytes kept on chip between passes), channels
    of the native `block`, bytes of an element and of a weight (0: the same), `slowdown` (highest clock over the
    mode's, for fixed costs), `submit_us` and `launch_us`, `units`; `taps`: what a further row of a depthwise window
    costs relative to its rows before (1 where all taps cost the same); `resident`: weights that fit on chip stay
    there between jobs; `copies`: concatenations and slices of tensors that have other readers are kernels;
    `dataflow`: layers hand over on chip, and a frame is loaded in parts (all weights of it anew) where the weights
    do not fit or an operator needs whole rows; `padded`: tensors hold whole blocks of channels, and images are brought
    into these at the border; `views`: transposes are no kernels, nor copies that no image is made by.
    """

    peak: float
    dram: float
    sram: float
    block: int
    bytes: float
    slowdown: float = 1.0
    submit_us: float = 100.0
    launch_us: float = 1.0
    taps: float = 1.0
    resident: bool = False
    units: int = 1
    copies: bool = False
    dataflow: bool = False
    weight_bytes: float = 0.0
    padded: bool = False
    views: bool = False


class Load(NamedTuple):
    """What a pass asks of an engine, whatever its parameters; of one pass (numbers) or of many (arrays).

    `kind` numbers the class; `macs` on the matrix unit, padded, and thousands of `idle` outputs a unit would need to
    be full, over those it has; operations of the vector unit: `vector`, `costly`, `norm` and `riders`; bytes `onchip`
    and `spilled` of activations, those `moved` on chip and `carried` off it by transposes and copies, of images at the
    `border`, and of `weights`; `kernels` that are launched.
    """

    kind: Any
    macs: Any
    idle: Any
    vector: Any
    costly: Any
    norm: Any
    riders: Any
    onchip: Any
    spilled: Any
    moved: Any
    carried: Any
    border: Any
    weights: Any
    kernels: Any


class Terms(NamedTuple):
    """Parts (us) of a pass's time."""

    matrix: Any
    fill: Any
    vector: Any
    exp: Any
    norm: Any
    ride: Any
    onchip: Any
    spill: Any
    moved: Any
    carried: Any
    border: Any
    weights: Any
    fixed: Any

    @property
    def arithmetic(self) -> Any:
        """Return the time of the matrix and vector units."""
        return self.matrix + self.fill + self.vector + self.exp + self.norm + self.ride

    @property
    def traffic(self) -> Any:
        """Return the time of the memories."""
        return self.onchip + self.spill + self.moved + self.carried + self.border + self.weights

    @property
    def busy(self) -> Any:
        """Return the longer of both, with a rounded corner."""
        return (self.arithmetic**SHARPNESS + self.traffic**SHARPNESS) ** (1 / SHARPNESS)


def terms(load: Load, engine: Nominal, p: Parameters, rate: Any) -> Terms:
    """Return the parts of the time of a pass, or of many; `rate`: that of its class over that of convolutions."""
    matrix, vector_rate = load.macs / (engine.peak * p.conv * rate), engine.peak * p.vector
    onchip, spill = engine.dram * p.onchip, engine.dram * p.spill
    return Terms(
        matrix=matrix,
        fill=matrix * (p.fill * load.idle),
        vector=load.vector / vector_rate,
        exp=load.costly * (p.exp / vector_rate),
        norm=load.norm * (p.norm / vector_rate),
        ride=load.riders * (p.ride / vector_rate),
        onchip=load.onchip / onchip,
        spill=load.spilled / spill,
        moved=load.moved / (onchip * p.move),
        carried=load.carried / (spill * p.move),
        border=load.border / (engine.dram * p.border),
        weights=load.weights / (engine.dram * p.weights),
        fixed=load.kernels * (p.layer * engine.launch_us * engine.slowdown),
    )


def rates(p: Parameters) -> tuple[float, ...]:
    """Return the rate of every class over that of convolutions, in the order of `KINDS`."""
    return tuple(getattr(p, name) if name in RELATIVE else 1.0 for name in KINDS)


def job_us(engine: Nominal, p: Parameters) -> float:
    """Return the fixed cost (us) of a job."""
    return p.job * engine.submit_us * engine.slowdown


def loads(passes: Sequence[Pass], engine: Nominal) -> Iterator[Load]:
    """Yield what each pass of a network asks of an engine."""
    fetched = (engine.weight_bytes or engine.bytes) * _streamed(passes, engine)
    for one, whole in zip(passes, _before_convolutions(passes), strict=True):
        kind = pass_class(one)
        macs, deep, moves = padded(one, kind, engine.block), kind == "depthwise", kind in MOVES
        kernels = one.copies * engine.copies if kind == "copy" else int(not engine.dataflow or kind in WHOLE)
        kernels = 0 if engine.views and moves and not (kind == "copy" and whole) else kernels
        held = stored(one, engine)
        size = held * engine.bytes if kernels or not moves else 0.0
        spilled = one.live * engine.bytes > engine.sram
        yield Load(
            kind=KINDS.index(kind),
            macs=0.0 if deep else macs,
            idle=1e3 * engine.units / (one.rows * one.cout * one.groups),
            vector=vector_work(one) + (macs * engine.taps ** (one.kernel - 3) if deep else 0.0),
            costly=float(one.costly),
            norm=float(one.written * (one.kind == "softmax")),
            riders=0.0 if one.kind == "eltwise" else float(one.cheap),
            onchip=0.0 if spilled or moves else size,
            spilled=size * spilled * (not moves),
            moved=size * (not spilled) * moves,
            carried=size * spilled * moves,
            border=image(one, engine) * engine.bytes,
            weights=one.weights * fetched,
            kernels=kernels,
        )


def _before_convolutions(passes: Sequence[Pass]) -> list[bool]:
    """Return for each pass whether the next one that computes is a convolution, which reads whole images."""
    found, whole = [], False
    for one in reversed(passes):
        found.append(whole)
        if one.kind not in MOVES:
            whole = pass_class(one) in IMAGES
    return found[::-1]


def stored(one: Pass, engine: Nominal) -> float:
    """Return the elements that a pass reads and writes, channels of a convolution rounded up to the native block."""
    if not engine.padded or not one.macs:
        return one.read + one.written
    wide, narrow = one.cin * one.groups, one.cout * one.groups
    return one.read * _round_up(wide, engine.block) / wide + one.written * _round_up(narrow, engine.block) / narrow


def image(one: Pass, engine: Nominal) -> float:
    """Return the elements of a network's image in whole blocks of channels, where these do not fit on chip."""
    few = engine.padded and one.macs and one.cin * one.groups <= FEW
    held = one.read * engine.block / (one.cin * one.groups) if few else 0.0
    return held if held * engine.bytes > engine.sram else 0.0


def vector_work(one: Pass) -> float:
    """Return the element operations of a pass that is no convolution: window positions, terms of a mean."""
    if one.kind == "pool":
        return float(max(one.written * one.kernel, one.read))  # sliding windows are separable
    if one.kind in ("eltwise", "resize"):
        return float(max(one.cheap, one.written))
    if one.kind == "pillars":  # offsets of every point, then the maximum over the points of a pillar
        return float(2 * one.read + one.macs // one.cin)
    return 0.0


def padded(one: Pass, kind: str, block: int) -> float:
    """Return the multiply-adds of a pass with channels rounded up to the native block.

    A depthwise layer pads its channels; a grouped one packs as many groups as fit into a block, whose off-diagonal
    products are wasted; of an image runtimes fold the taps into channels.
    """
    if block <= 1 or not one.macs:
        return one.macs
    if kind == "depthwise":
        return one.macs * (_round_up(one.groups, block) / one.groups)
    if kind == "grouped":
        return one.macs * max(block / max(one.cin, 1), 1.0)
    narrow = FEW if one.cin <= FEW else _round_up(one.cin, block)
    return one.macs * ((narrow / one.cin) * (_round_up(one.cout, block) / one.cout))


def _round_up(channels: int, block: int) -> int:
    return -(-channels // block) * block


def _streamed(passes: Sequence[Pass], engine: Nominal) -> float:
    """Return the share of weights that every job reads anew: what does not fit on chip."""
    if not engine.resident:
        return 1.0
    total = sum(one.weights for one in passes) * (engine.weight_bytes or engine.bytes)
    if engine.dataflow:
        return 1.0 if total + ROWS * sum(one.written for one in passes) * engine.bytes > engine.sram else 0.0
    return min(max((total - engine.sram) / max(total, 1), 0.05), 1.0)
