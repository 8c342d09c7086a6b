"""The cost model: every engine, precision and share a stage can use in a power mode, and why others are refused.

Costs come from the sources registered under ``socsched.costs`` (`cost.sources`), the most trusted first: a measured
profile, then the stage's anchors, then the roofline: a time known in another mode is scaled by the ratio of rooflines.

Costs of an engine are those of the first program (runtime) it declares; the other ones state their ratio to it, with an
error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from socsched.cost.conversion import Hop, Pace, conversion_pace, hops
from socsched.cost.cost import Cost, Segment, error_of, joined, weakest
from socsched.cost.kernel_times import kernel_time
from socsched.cost.power import dram_capacity, job_energy_uj
from socsched.cost.roofline import Estimate, efficiency, kind_of, rescale
from socsched.cost.shares import Neighbour, on_share
from socsched.cost.sources import PROFILE, CostRequest, CostSource, Known, Reference, cost_sources
from socsched.descriptor.catalog import find_platform
from socsched.descriptor.fit import Fit, choose_fit
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import OWN, Engine, EngineMode, Figure, Platform, PowerMode, Runtime
from socsched.errors import CompileError
from socsched.graph.accelerator_kernels import pass_class
from socsched.graph.operators import StageWork
from socsched.graph.rules import check_operators, offered, uncompiled
from socsched.models.parts import PART, whole_stage

if TYPE_CHECKING:
    from socsched.cost.profile import Profile


def seen_by(engine: Engine, runtime: Runtime) -> Engine:
    """Return an engine with the rates that a runtime of its own efficiency reaches there, else as it is."""
    if not runtime.efficiency:
        return engine
    reached = {
        name: replace(precision, efficiency=runtime.efficiency, fitted=())
        for name, precision in engine.precisions.items()
    }
    return replace(engine, precisions=reached)


def beside_measured(engine: Engine, runtime: Runtime, work: StageWork | None, precision: str, units: int) -> Runtime:
    """Return a runtime with its ratio to an engine's measured kernels, where those of the first runtime are measured.

    The ratio is that of the shares of the peak which both reach in each class, weighted by the kernels' times.
    """
    times = next((one for one in engine.kernel_times if (one.runtime, one.precision) == (OWN, precision)), None)
    known = any(one.runtime == runtime.name for one in engine.kernel_times)
    if not runtime.efficiency or times is None or work is None or not work.operators or known:
        return runtime
    ours = engine.precisions[precision]
    theirs = replace(ours, efficiency=runtime.efficiency)
    total = scaled = 0.0
    for op in work.operators:
        time, kind = kernel_time(times, op, units)[0], kind_of(op)
        total += time
        scaled += time * efficiency(ours, kind).value / efficiency(theirs, kind).value
    note = "shares of the peak by operator class, weighted by measured kernels"
    ratio = Figure(scaled / max(total, 1.0), "derived", note=note, error=_BESIDE)
    return replace(runtime, efficiency={}, ratio=ratio)


_BESIDE = 0.3
"""Relative error of a program's time over that of measured kernels."""


def ratios_of(runtime: Runtime, work: StageWork, segments: Sequence[Segment]) -> list[Figure]:
    """Return each segment's time over the one that the engine's costs state, none for the runtime they stand for.

    Where a segment is not an operator of its own, what has no kernel of the runtime's slows down all of the stage.
    """
    if runtime.ratio is None:
        return []
    general = runtime.general or runtime.ratio
    if runtime.tuned and work.precision not in runtime.tuned:
        return [general] * len(segments)
    known = set(runtime.kernels) - ({"grouped"} if work.precision == "int8" else set())  # groups have no form in int8
    # convolutions in groups are a kind of their own
    kinds = {op.name: "grouped" if op.attrs.get("groups", 1) > 1 else op.kind for op in work.operators}
    apart = [not runtime.kernels or kinds.get(one.name, "") in known for one in segments]
    if not all(one.name in kinds for one in segments):
        apart = [not runtime.kernels or known.issuperset(kinds.values())] * len(segments)
    return [runtime.ratio if own else general for own in apart]


def never_faster(runtime: Runtime) -> bool:
    """Return whether no network takes less time than the engine's costs state."""
    return runtime.ratio is not None and all(f.value >= 1 for f in (runtime.ratio, runtime.general) if f)


# The first program is the one that was measured: shipped GPU rates are TensorRT's while bundles run our kernels.  The
# faster program is chosen inside a candidate, so that planners see as many candidates as with one program.  Rejected: a
# fit of our kernels scaled from a server GPU (its tensor cores and bandwidth differ in kind), both programs as
# candidates (twice the search for a dominated one), a silent switch to our kernels where TensorRT is missing.
def under(found: Estimate, runtime: Runtime, work: StageWork | None, fit: Fit | None) -> Estimate:
    """Return an estimate for the first runtime of an engine as one for another.

    Passes of classes that no measurement of the first runtime covers are no rate of its own, and keep their time.
    """
    ratios = ratios_of(runtime, work, found.segments) if work is not None else []
    if not ratios or work is None:
        return found
    each = len(found.segments) == len(work.passes)
    scaled = [not each or fit is None or pass_class(one) in fit.classes for one in work.passes] if each else []
    scaled = scaled or [True] * len(found.segments)
    made = tuple(
        replace(one, time_ns=max(round(one.time_ns * ratio.value), one.fixed_ns, 1)) if known else one
        for one, ratio, known in zip(found.segments, ratios, scaled, strict=True)
    )
    total = max(sum(one.time_ns for one in made), 1)
    carried = [(one.time_ns, ratio) for one, ratio, known in zip(made, ratios, scaled, strict=True) if known]
    if not carried:
        return found
    _, main = max(carried, key=lambda one: one[0])
    kind = weakest([found.provenance, main.kind])
    same = len({ratio.value for _, ratio in carried}) == 1
    times = f"{main.value:g}" if same else f"{total / max(found.time_ns, 1):.2g}"
    source = f"{found.source}, times {times} for {runtime.name}"
    error = found.error + sum(time * error_of(ratio) for time, ratio in carried) / total
    return Estimate(made, kind, source, error, found.lower)


WorkOf = Callable[[Stage, str], StageWork]
"""Returns the work of a stage in a precision; `compiler.stage_work` at run time."""
Place = tuple[str, str]
"""The engine and the precision of a stage."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An (engine, precision) pair a stage cannot use in this mode, and why."""

    stage: str
    engine: str
    precision: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine} {self.precision}: {self.reason}"


@dataclass(slots=True)
class CostModel:
    """Costs of a platform in one mode; results are cached, as planning queries them repeatedly.

    `runtime`: the program that runs networks where it is another than plans stand for (`descriptor.fit`); `adjust`:
    changes every cost, those of conversions too.  `undivided`: the costs of the platform whose engines this one divides
    among stages, where it does, and `others`: what runs beside a stage there (`planning.shares`).
    """

    platform: Platform
    mode: PowerMode
    work: WorkOf
    profile: Profile | None = None
    reference: Reference = find_platform
    sources: tuple[CostSource, ...] = field(default_factory=cost_sources)
    runtime: str = ""
    adjust: Callable[[Cost], Cost] | None = None
    undivided: CostModel | None = None
    others: Mapping[str, Sequence[Neighbour]] = field(default_factory=dict)
    _known: dict[tuple[str, int, tuple[str, ...], int], tuple[list[Cost], list[Refusal]]] = field(default_factory=dict)
    _works: dict[tuple[str, str], StageWork | None] = field(default_factory=dict)
    _variants: dict[tuple[str, int, tuple[str, ...], int, str, str, int], Cost | None] = field(default_factory=dict)
    _broken: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    _hops: dict[tuple[str, ...], list[Hop]] = field(default_factory=dict)
    _paces: dict[str, Pace] = field(default_factory=dict)
    _wholes: dict[tuple[str, int], Stage | None] = field(default_factory=dict)
    _seen: dict[tuple[str, str, str], Engine] = field(default_factory=dict)
    _requests: dict[tuple[str, int, str, str, int, str], CostRequest] = field(default_factory=dict)
    _entire: dict[tuple[str, str, int, str, str, int, str], Known | Estimate | None] = field(default_factory=dict)

    def in_mode(self, mode: PowerMode) -> CostModel:
        """Return the costs of the same platform in another mode; what no mode changes is shared."""
        whole = self.undivided and self.undivided.in_mode(self.undivided.platform.mode(mode.name))
        settings = self.profile, self.reference, self.sources, self.runtime, self.adjust, whole
        model = CostModel(self.platform, mode, self.work, *settings)
        model._works, model._broken, model._hops, model._wholes = self._works, self._broken, self._hops, self._wholes
        return model

    @property
    def dram(self) -> float:
        """Return the bytes/s that all engines together reach in this mode."""
        return dram_capacity(self.platform, self.mode)

    def conversion_pace(self, engine: Engine) -> Pace:
        """Return the speed of conversions on an engine."""
        if engine.id not in self._paces:
            self._paces[engine.id] = conversion_pace(engine, self.platform, self.mode)
        return self._paces[engine.id]

    def candidates(self, stage: Stage) -> list[Cost]:
        """Return the stage's costs, one per engine, accepted precision and share that can run it."""
        key = _asked(stage)
        if key not in self._known:
            costs: list[Cost] = []
            refusals: list[Refusal] = []
            for engine, precision in itertools.product(self.platform.engines, stage.precisions):
                offers = self._pair(stage, engine, precision)
                if isinstance(offers, str):
                    refusals.append(Refusal(stage.name, engine.id, precision, offers))
                else:
                    costs += offers
            self._known[key] = (costs, refusals)
        return self._known[key][0]

    def refused(self, stage: Stage) -> list[Refusal]:
        """Return the (engine, precision) pairs that cannot run the stage, with the reason."""
        self.candidates(stage)
        return self._known[_asked(stage)][1]

    def work_of(self, stage: Stage, precision: str) -> StageWork | None:
        """Return the work of a stage in a precision, None for a stage without model."""
        if stage.model is None:
            return None
        key = (_key(stage), precision)
        if key not in self._works:
            self._works[key] = self.work(stage, precision)
        return self._works[key]

    def variant(self, stage: Stage, chosen: Cost, precision: str) -> Cost | None:
        """Return the cost of a stage in another data type where it is mapped, None if the engine cannot run it."""
        return self.at(stage, chosen.engine, precision, chosen.share)

    def at(self, stage: Stage, engine: str, precision: str, share: int) -> Cost | None:
        """Return the cost of a stage in one configuration, None if the engine cannot run it."""
        key = (*_asked(stage), engine, precision, share)
        if key not in self._variants:
            found = self._pair(stage, self.platform.engine(engine), precision)
            costs = [] if isinstance(found, str) else found
            self._variants[key] = next((cost for cost in costs if cost.share == share), None)
        return self._variants[key]

    def some_work(self, stage: Stage) -> StageWork | None:
        """Return the work of a stage in a precision some engine accepts, None without model or engine.

        For parts of a network no engine is queried: their shapes are the same in all precisions.
        """
        if PART in stage.params:
            return self.work_of(stage, stage.precisions[0])
        options = self.candidates(stage)
        return self.work_of(stage, options[0].precision) if options else None

    def _divided(self, whole: CostModel, stage: Stage, engine: Engine, precision: str) -> list[Cost] | str:
        """Return the cost of a stage on its portion of an engine, or why it cannot run there."""
        entire = whole.platform.engine(engine.id)
        costs = whole._pair(stage, entire, precision)
        if isinstance(costs, str):
            return costs
        state, groups = whole.mode.engines[engine.id], stage.portions[engine.id][1]
        work = whole.work_of(stage, precision)
        others = self.others.get(stage.name, ())
        return [on_share(cost, work, entire, state, groups, whole.dram, others) for cost in costs]

    def _pair(self, stage: Stage, engine: Engine, precision: str) -> list[Cost] | str:
        """Return the costs of a stage on an engine in a precision, one per share, or why it cannot run there."""
        if self.undivided is not None and engine.id in stage.portions:
            return self._divided(self.undivided, stage, engine, precision)
        state = self.mode.engines[engine.id]
        if state.units <= 0:
            return f"off in {self.mode.name}"
        if stage.engines and not {engine.id, engine.kind} & set(stage.engines):
            return f"the stage may run on {', '.join(stage.engines)} only"
        if precision not in engine.precisions:
            return f"computes in {', '.join(engine.precisions)} only"
        if engine.precisions[precision].on_request and stage.model is not None and not stage.stated:
            return f"{precision} only for networks whose file states it, or asked for it (--precision {precision})"
        try:
            work = self.work_of(stage, precision)
        except CompileError as error:  # a limit of this machine says nothing about the engine
            return str(error)
        if work and not work.host_code and not self.runtime and (lacking := uncompiled(engine, precision)):
            return lacking
        place = (_key(stage), engine.id, precision)
        if work and place not in self._broken:
            self._broken[place] = check_operators(work, engine)
        if work and (reasons := self._broken[place]):
            return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more)"
        costs = [
            cost
            for share in _shares(stage, engine, state, work)
            if (cost := self._cost(stage, engine, precision, share, work)) is not None
        ]
        return costs or "no model, and no known execution time for this engine"

    def hops(self, producer: Stage, written: Place, consumer: Stage, read: Place) -> list[Hop]:
        """Return the tensors handed from one stage to another, each with its engine and precision."""
        key = (_key(producer), *written, _key(consumer), *read)
        if key not in self._hops:
            given, wanted = self.work_of(producer, written[1]), self.work_of(consumer, read[1])
            source, sink = self.platform.engine(written[0]), self.platform.engine(read[0])
            self._hops[key] = hops(given, source, wanted, sink) if given and wanted else []
        return self._hops[key]

    def _cost(self, stage: Stage, engine: Engine, precision: str, share: int, work: StageWork | None) -> Cost | None:
        """Return the cost with the runtime that takes the least time, the first of equals; measured ones first.

        The engine, the units and the data type being the same, no other runtime could be of use to a plan.
        """
        best: tuple[bool, int, str, Estimate] | None = None
        for runtime in offered(engine, work):
            if best is not None and self.profile is None and never_faster(runtime):
                continue
            estimate, measured = self._estimate(stage, engine, precision, share, work, runtime)
            if estimate is not None and (best is None or (not measured, estimate.time_ns) < best[:2]):
                best = not measured, estimate.time_ns, runtime.name, estimate
        if best is None:
            return None
        _, time_ns, name, chosen = best
        least = engine.preemption.least_ns
        segments = joined(chosen.segments, round(least.value)) if least else chosen.segments
        size = sum(segment.bytes for segment in segments)
        picojoule = self.platform.dram.picojoule_per_byte.value
        cost = Cost(
            stage=stage.name,
            engine=engine.id,
            mode=self.mode.name,
            precision=precision,
            share=share,
            time_ns=time_ns,
            bytes=size,
            energy_uj=job_energy_uj(engine, self.mode, share, time_ns, size, picojoule),
            segments=segments,
            provenance=chosen.provenance,
            source=chosen.source,
            error=chosen.error,
            runtime=name,
        )
        return self.adjust(cost) if self.adjust else cost

    def _estimate(
        self, stage: Stage, engine: Engine, precision: str, share: int, work: StageWork | None, runtime: Runtime
    ) -> tuple[Estimate | None, bool]:
        """Return the estimate of a stage under a runtime, and whether it was measured in the profile."""
        name = runtime.name
        if self.profile is None and (beside := beside_measured(engine, runtime, work, precision, share)) != runtime:
            runtime, name = beside, engine.runtimes[0].name
        if (engine.id, runtime.name, precision) not in self._seen:
            self._seen[engine.id, runtime.name, precision] = seen_by(engine, runtime)
        request = self._request(stage, self._seen[engine.id, runtime.name, precision], precision, share, work, name)
        whole = self._whole(request)
        best: Known | Estimate | None = None
        measured = False
        for source in self.sources:
            if whole is None or source.parts:
                found = source.cost(request)
            else:
                found = _share_of_whole(self._cost_of_whole(source, whole), request, whole)
            if found is None or (best is not None and (found.lower or found.error >= best.error)):
                continue
            best, measured = found, source.rank <= PROFILE
            if not best.foreign:
                break
        if best is None:
            return None, False
        if isinstance(best, Estimate):
            estimate = best
        else:
            roof = request.roofline()
            segments = roof.segments if roof else _opaque(stage, engine, best)
            bandwidth = engine.host_bandwidth(self.dram)
            scaled = rescale(segments, best.time_ns, bandwidth)
            estimate = Estimate(scaled, best.provenance, best.source, best.error)
        if measured or runtime.ratio is None:  # a time of this runtime itself
            return estimate, measured
        return under(estimate, runtime, work, choose_fit(engine.precisions[precision].fitted, share)), False

    def _request(
        self, stage: Stage, engine: Engine, precision: str, share: int, work: StageWork | None, runtime: str
    ) -> CostRequest:
        here = self.platform, engine, self.mode, precision, share
        chosen = runtime if engine.runtimes else ""
        return CostRequest(stage, *here, work, self.profile, self.reference, self.runtime, chosen)

    def _whole(self, part: CostRequest) -> CostRequest | None:
        """Return the request for the whole network of a part, None for a stage that is no part."""
        key = (_key(part.stage), part.stage.share)
        if key not in self._wholes:
            self._wholes[key] = whole_stage(part.stage)
        whole = self._wholes[key]
        if whole is None:
            return None
        where = (whole.name, whole.share, part.engine.id, part.precision, part.share, part.chosen)
        if where not in self._requests:
            work = self.work_of(whole, part.precision)
            self._requests[where] = self._request(whole, part.engine, part.precision, part.share, work, part.chosen)
        return self._requests[where]

    def _cost_of_whole(self, source: CostSource, whole: CostRequest) -> Known | Estimate | None:
        place = whole.engine.id, whole.precision, whole.share, whole.chosen
        key = (source.name, whole.stage.name, whole.stage.share, *place)
        if key not in self._entire:
            self._entire[key] = source.cost(whole)
        return self._entire[key]

    def measured_times(self, stage: str, engine: str, precision: str, share: int) -> tuple[int, ...]:
        """Return the profiled job times of a stage (ns, ascending), empty without measurements."""
        if self.profile is None or self.profile.platform != self.platform.name:
            return ()
        found = self.profile.find(stage, engine, (self.mode.name, *self.mode.aliases), precision, share)
        return found.times_ns if found else ()


def _key(stage: Stage) -> str:
    """Return the cache key of a stage: parts of one name differ by their cut points."""
    part = stage.params.get(PART)
    return f"{stage.name} {part['cut']}" if part else stage.name


def _asked(stage: Stage) -> tuple[str, int, tuple[str, ...], int]:
    """Return the cache key of a stage's costs, with share, engines and slices, which the planner may vary."""
    return _key(stage), stage.share, stage.engines, stage.slice_ns


def _shares(stage: Stage, engine: Engine, state: EngineMode, work: StageWork | None) -> tuple[int, ...]:
    if engine.shares != "unit":
        return (state.units,)
    if work and work.host_code:
        return (1,)
    return tuple(dict.fromkeys((1, min(stage.share or state.units, state.units))))


def _share_of_whole(known: Known | Estimate | None, part: CostRequest, whole: CostRequest) -> Known | None:
    """Return the time of a part of a network of `known` time: its share of the whole roofline time, overheads aside.

    Overheads are launches and submission.
    """
    if known is None or part.work is None or whole.work is None:
        return None
    own, entire = part.roofline(), whole.roofline()
    assert own is not None and entire is not None
    fixed = [sum(segment.fixed_ns for segment in each.segments) for each in (own, entire)]
    ratio = (own.time_ns - fixed[0]) / max(entire.time_ns - fixed[1], 1)
    time = fixed[0] + round(max(known.time_ns - fixed[1], known.time_ns // 2) * ratio)
    kind = weakest([known.provenance, "derived"])
    return Known(max(time, 1), kind, known.source, known.error, False, known.foreign)


def _opaque(stage: Stage, engine: Engine, known: Known) -> tuple[Segment, ...]:
    """Return the segments of a stage known by its time only: one, or its time slices on a time-sliced engine."""
    time_ns, size = known.time_ns, stage.output_bytes
    fixed = min(round(engine.launch_ns.value + engine.submit_ns.value), time_ns // 2)
    length = known.slice_ns or _chosen_slice(stage, engine)
    count = -(-time_ns // length) if length and engine.preemption.kind == "segment" else 1
    ends = [(time_ns * number // count, size * number // count) for number in range(count + 1)]
    return tuple(
        Segment(f"{stage.name}.{number}" if count > 1 else stage.name, end - start, 0 if number else fixed, upto - done)
        for number, ((start, done), (end, upto)) in enumerate(itertools.pairwise(ends))
    )


def _chosen_slice(stage: Stage, engine: Engine) -> int:
    """Return the length of a slice that the planner chose, 0 for none or on an engine that declares none."""
    slices = engine.preemption.slices_ns
    if not stage.slice_ns or slices is None:
        return 0
    return max(stage.slice_ns, round(slices.interval[0] if slices.interval else slices.value))
