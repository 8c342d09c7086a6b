"""Hand-overs between stages: tensors that change dtype or layout, the engine that converts them, and the cost.

Engines of one SoC share DRAM, so a tensor in the format the consumer reads is handed over by reference: the cost is the
producer's `handoff_ns` and, if either end is not coherent, cleaning the tensor from the caches.  Otherwise a conversion
job reads and writes the tensor once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from socsched.cost.cost import Cost, Segment, sources_of, trust
from socsched.cost.fitted import evidence
from socsched.cost.host_functions import declared
from socsched.cost.power import dram_capacity, job_energy_uj
from socsched.descriptor.fit import Fit, choose_fit
from socsched.descriptor.platform import Engine, Platform, PowerMode
from socsched.graph.operators import StageWork, TensorType, tensor_bytes

PLAIN_LAYOUT = "NCHW"
"""The layout host code reads and writes."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A tensor handed between two stages: as the producer writes it and as the consumer reads it."""

    given: TensorType
    wanted: TensorType

    @property
    def converts(self) -> bool:
        """Return whether dtype or layout change."""
        return (self.given.dtype, self.given.layout) != (self.wanted.dtype, self.wanted.layout)


def matching(producer: StageWork, consumer: StageWork) -> list[tuple[TensorType, TensorType]]:
    """Pair each of the consumer's inputs with the producer's output of the same shape and number class."""
    pairs, left = [], list(producer.outputs)
    for wanted in consumer.inputs:
        for given in left:
            if given.shape == wanted.shape and _is_float(given) == _is_float(wanted):
                pairs.append((given, wanted))
                left.remove(given)
                break
    return pairs


def _is_float(tensor: TensorType) -> bool:
    return tensor.dtype.startswith("fp") or tensor.dtype in ("int8", "w8a16")


def hops(producer: StageWork, source: Engine, consumer: StageWork, sink: Engine) -> list[Hop]:
    """Return the tensors `producer` on `source` hands to `consumer` on `sink`, in their formats at either end.

    Stages on one engine agree on the layout at their interface, since both are compiled for it; only dtype can change.
    A function that the engine declares reads and writes the data types it lists as they are.
    """
    result = []
    reads, writes = _dtypes(consumer, sink), _dtypes(producer, source)
    for given, wanted in matching(producer, consumer):
        if source.id == sink.id:
            there = here = _layout(wanted, consumer, sink)
        else:
            there, here = _layout(given, producer, source), _layout(wanted, consumer, sink)
        if given.dtype in reads:
            wanted = replace(wanted, dtype=given.dtype)
        elif wanted.dtype in writes:
            given = replace(given, dtype=wanted.dtype)
        result.append(Hop(_with(given, there), _with(wanted, here)))
    return result


def _dtypes(work: StageWork, engine: Engine) -> tuple[str, ...]:
    cost = declared(work, engine)
    return cost.dtypes if cost else ()


def _layout(tensor: TensorType, work: StageWork, engine: Engine) -> str:
    if len(tensor.shape) != 4:
        return ""
    return PLAIN_LAYOUT if work.host_code else engine.precisions[work.precision].layout


def _with(tensor: TensorType, layout: str) -> TensorType:
    return TensorType(tensor.shape, tensor.dtype, layout)


def converter(platform: Platform, mode: PowerMode, source: Engine, sink: Engine) -> Engine | None:
    """Return the engine to convert on: the consumer's, else the producer's, else the first powered one that can."""
    for engine in (sink, source, *platform.engines):
        if engine.converts and mode.engines[engine.id].units > 0:
            return engine
    return None


def visible_ns(source: Engine, sink: Engine, size: int) -> int:
    """Return the time (ns) until another engine can read `size` bytes written by the producer."""
    if source.id == sink.id:
        return 0
    rates = [e.coherency.flush.value for e in (source, sink) if e.coherency.domain == "none" and e.coherency.flush]
    return round(source.handoff_ns.value) + (math.ceil(size * 1e9 / min(rates)) if rates else 0)


def crossing_ns(size: int, engine: Engine) -> int:
    """Return the time (ns) of `size` bytes between main memory and an engine, 0 where it has no memory of its own."""
    if engine.link is None:
        return 0
    return round(engine.link.latency_ns.value) + math.ceil(size * 1e9 / engine.link.bandwidth.value)


def handover_ns(source: Engine, sink: Engine, size: int) -> int:
    """Return the time (ns) of `size` bytes between two engines over the links of those that keep their tensors."""
    return 0 if source.id == sink.id else sum(crossing_ns(size, one) for one in (source, sink) if one.keeps)


def conversion_figures(
    read: int, written: int, producer: str, engine: Engine, platform: Platform, mode: PowerMode, pace: Pace
) -> tuple[int, int]:
    """Return time (ns) and energy (µJ) of a conversion job that reads and writes so many bytes.

    Behind a link the side of the other engine crosses it: what is written where the `producer` (an engine) converts
    itself, else what is read.
    """
    size = read + written
    time = pace.fixed_ns + max(math.ceil(size * 1e9 / pace.rate), 1)
    time += _side_ns(read, written, producer, engine)
    share, picojoule = _share(engine, mode), platform.dram.picojoule_per_byte.value
    return time, job_energy_uj(engine, mode, share, time, size, picojoule)


def _side_ns(read: int, written: int, producer: str, engine: Engine) -> int:
    return 0 if engine.keeps else crossing_ns(written if producer == engine.id else read, engine)


@dataclass(frozen=True, slots=True)
class Pace:
    """Bytes/s of conversions, the fixed time (ns) of a job, and the evidence: a fit, else the engine's figures."""

    rate: float
    fixed_ns: int
    fit: Fit | None = None


def conversion_pace(engine: Engine, platform: Platform, mode: PowerMode) -> Pace:
    """Return the speed of conversions: that of activations in a fit of the engine, unless its own is stated.

    A conversion is one kernel that reads and writes a tensor; whatever the data type, DRAM bounds it, so that the fit
    with most networks serves.
    """
    capacity, share = dram_capacity(platform, mode), _share(engine, mode)
    fits = [choose_fit(precision.fitted, share) for precision in engine.precisions.values()]
    fit = max((found for found in fits if found is not None), key=lambda found: found.networks, default=None)
    if engine.conversion is not None or fit is None:
        rate = (engine.conversion or engine.bandwidth).value
        submit = 0 if engine.keeps else engine.submit_ns.value
        return Pace(min(rate, capacity), round(engine.launch_ns.value + submit))
    slowdown = engine.clock_hz.value / mode.engines[engine.id].clock_hz
    fixed = fit.parameters.layer * fit.launch_ns + fit.parameters.job * fit.submit_ns
    memory = min(fit.memory * share, mode.dram.value) if fit.memory else mode.dram.value
    return Pace(min(memory * fit.parameters.spill, capacity), round(fixed * slowdown), fit)


def _share(engine: Engine, mode: PowerMode) -> int:
    return 1 if engine.shares == "unit" else mode.engines[engine.id].units


def conversion_cost(
    name: str, changed: Sequence[Hop], producer: str, engine: Engine, platform: Platform, mode: PowerMode, pace: Pace
) -> Cost:
    """Return the cost of one conversion job over all `changed` tensors of a stage on the engine `producer`.

    Each is read once and written once.
    """
    read, written = sum(tensor_bytes(hop.given) for hop in changed), sum(tensor_bytes(hop.wanted) for hop in changed)
    size, share = read + written, _share(engine, mode)
    time, energy = conversion_figures(read, written, producer, engine, platform, mode, pace)
    fixed, fit = pace.fixed_ns, pace.fit
    if fit is not None:
        provenance, source, error = evidence(fit, share, {"transpose": 1.0})
    else:
        rate, overheads = engine.conversion or engine.bandwidth, (engine.launch_ns, engine.submit_ns)
        link = (engine.link.bandwidth,) if engine.link else ()
        crossing = _side_ns(read, written, producer, engine)
        provenance, error = trust([(time - fixed - crossing, (rate,)), (fixed, overheads), (crossing, link)])
        source = sources_of([rate, *overheads, *link])
    return Cost(
        stage=name,
        engine=engine.id,
        mode=mode.name,
        precision=changed[0].wanted.dtype,
        share=share,
        time_ns=time,
        bytes=size,
        energy_uj=energy,
        segments=(Segment(name, time, fixed, size),),
        provenance=provenance,
        source=source,
        error=error,
    )
