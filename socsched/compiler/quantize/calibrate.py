"""Scales from data: runs the fp32 network on real inputs with every value as an output, one histogram each.

Bounds are chosen for least squared error rather than by a percentile: the amount clipped then follows from the value's
own distribution, and no parameter needs tuning.  A second pass measures each channel's mean before and after rounding,
from which biases are corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.layouts import convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.quantize.fixed_point import Array, Scale
from socsched.compiler.quantize.network import quantise, require
from socsched.compiler.quantize.scales import FILE, UNCALIBRATED, Means, Scales, write_scales
from socsched.compiler.target import Compilation
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.errors import UsageError
from socsched.graph.expand import fuse_network
from socsched.graph.fusion import Graph
from socsched.graph.integers import UNSCALED, formless, has_int8, values_in_bytes
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model
from socsched.models.registry import bindings, get_model
from socsched.models.samples import whole_numbers
from socsched.models.weights import check_weights

DEFAULT_SAMPLES = 2
Sample = Mapping[str, Array]
"""A network's inputs by name, in their logical shapes."""


class Observer:
    """Runs a network in fp32 on this machine: first for histograms of all values, after `choose` for channel means."""

    def __init__(self, network: Network, weights: Mapping[str, Array]) -> None:
        self.network = network
        self.graph = fuse_network(network)
        self.chosen: dict[str, Scale] = {}
        self.samples = 0
        results = [group.output for group in self.graph.groups]
        self._histograms = {name: Histogram() for name in (*self.graph.inputs, *results)}
        self._means: dict[str, _Means] = {}
        names = {layer.name.replace(".", "_"): layer.name for layer in network.layers}
        inner = [names[value] for value in results if value in names]
        whole = replace(network, outputs=tuple(dict.fromkeys((*network.outputs, *inner))))
        self._call, self._inputs, self._outputs = _compiled(whole, weights)
        self._names = [name.replace(".", "_") for name in whole.outputs]

    def __call__(self, sample: Sample) -> tuple[Array, ...]:
        """Take in one sample and return the network's outputs in their logical shapes."""
        operands = []
        for name, kind in zip(self.network.inputs, self._inputs, strict=True):
            array = np.asarray(sample[name])
            array = array.astype(np.float32, copy=False) if kind.dtype == "fp32" else array
            if len(kind.shape) == 4:
                array = convert(array, TensorType(array.shape, kind.dtype, "NCHW"), kind)
            self._see(name, array, kind)
            operands.append(to_tvm(array, kind, f"{self.network.name}: input {name!r}"))
        outputs = []
        results = zip(self._names, self._call(*operands), self._outputs, strict=True)
        for index, (name, result, kind) in enumerate(results):
            array = from_tvm(result)
            self._see(name, array, kind)
            if index < len(self.network.outputs):
                image = len(kind.shape) == 4
                outputs.append(convert(array, kind, TensorType(kind.shape, kind.dtype, "NCHW")) if image else array)
        self.samples += not self.chosen
        return tuple(outputs)

    def _see(self, name: str, array: Array, kind: TensorType) -> None:
        """Accumulate one value; a zero border, if the array has one, changes neither histograms nor sums."""
        if name not in self._histograms or kind.dtype != "fp32":
            return
        if not self.chosen:
            self._histograms[name].add(array)
        elif len(kind.shape) == 4:
            self._means.setdefault(name, _Means(kind)).add(array, self.chosen[name])

    def choose(self) -> None:
        """Choose the scales of least squared error; values that share memory share a scale."""
        rectified = _never_negative(self.graph)
        values = {name: h.scale(False if name in rectified else None) for name, h in self._histograms.items()}
        self.chosen = share_scales(self.graph, values)

    def scales(self) -> Scales:
        """Return the chosen scales with the means of the samples observed since."""
        means = {name: sums.means() for name, sums in self._means.items()}
        return Scales(self.chosen, f"least squared error over {self.samples} inputs", means)


class _Means:
    """Sums of a value's channels before and after rounding."""

    def __init__(self, kind: TensorType) -> None:
        self.kind, self.samples = kind, 0
        self.real: Array = np.zeros(kind.shape[1])
        self.stored: Array = np.zeros(kind.shape[1])

    def add(self, array: Array, scale: Scale) -> None:
        rounded = np.rint(np.clip(array * np.float32(1 / scale.step), *scale.range))
        self.real += self._sums(array)
        self.stored += self._sums(rounded) * scale.step
        self.samples += 1

    def _sums(self, array: Array) -> Array:
        total: Array = array.sum(axis=(0, 2, 3), dtype=np.float64).reshape(-1)[: len(self.real)]
        return total

    def means(self) -> Means:
        pixels = self.samples * self.kind.shape[0] * self.kind.shape[2] * self.kind.shape[3]
        return Means(tuple((self.real / pixels).tolist()), tuple((self.stored / pixels).tolist()))


def calibrate(network: Network, weights: Mapping[str, Array], samples: Iterable[Sample]) -> Scales:
    """Return the scales of a network's values for `samples` of its inputs (names to arrays in logical shapes).

    Raises UsageError without samples, CompileError for a network without int8 form.
    """
    inputs = list(samples)
    if not inputs:
        raise UsageError(f"{network.name}: nothing to calibrate with", "give at least one input")
    observer = Observer(network, weights)
    require(observer.graph)
    for sample in inputs:
        observer(sample)
    observer.choose()
    for sample in inputs:
        observer(sample)
    return observer.scales()


def seeded_samples(network: Network, count: int = DEFAULT_SAMPLES) -> list[Sample]:
    """Return `count` samples, the same in every process: standard normal, and of whole numbers those expected."""
    generator, whole = np.random.default_rng(0), whole_numbers(network)

    def drawn(name: str, kind: TensorType) -> Array:
        if name in whole:
            return whole[name].draw(kind, generator)
        return generator.standard_normal(kind.shape).astype(np.float32)

    return [{name: drawn(name, kind) for name, kind in network.inputs.items()} for _ in range(count)]


def calibrate_pipeline(
    pipeline: Pipeline, weights: Mapping[str, Array], frames: Iterable[Mapping[str, Array]]
) -> dict[str, Scales]:
    """Return the scales of every network stage with an int8 form, from `frames` of its sensor's ports.

    A frame maps port names to arrays, as `{"points": scan}`.  Stages run in sequence in fp32 on this machine, so that
    each receives the inputs it will receive in service; weights included with a network file take precedence, and the
    weights shipped with socsched are used where `weights` is empty.  Raises UsageError without frames, InputError for
    weights that do not fit.
    """
    bound = bindings(pipeline)
    stages = [(stage, get_model(stage.model, stage.params)) for stage in pipeline.stages if stage.model]
    order, inputs = _in_order(pipeline, stages), list(frames)
    if not inputs:
        raise UsageError(f"{pipeline.name}: nothing to calibrate with", "give at least one frame")
    observers = {stage.name: _observer(model.network(), model, weights) for stage, model in stages if model.network}
    for _ in ("histograms", "means"):
        for frame in inputs:
            _pass(order, bound, observers, frame)
        for observer in observers.values():
            observer.choose()
    return {name: observer.scales() for name, observer in observers.items() if has_int8(observer.graph)}


def networks_of(pipeline: Pipeline) -> list[Network]:
    """Return the networks of a pipeline's stages that do not include weights."""
    models = [get_model(stage.model, stage.params) for stage in pipeline.stages if stage.model]
    return [model.network() for model in models if model.network is not None and not model.ready]


def _pass(
    order: list[tuple[Stage, Model]],
    bound: Mapping[str, Mapping[str, str]],
    observers: Mapping[str, Observer],
    frame: Mapping[str, Array],
) -> None:
    """Run one frame through all stages."""
    values: dict[str, dict[str, Array]] = {}
    for stage, model in order:
        ports = bound[stage.name]
        inputs = [values.get(ports[port.name], frame)[port.name] for port in model.inputs]
        if model.function is not None:
            results = model.function(*inputs)
        else:
            observer = observers[stage.name]
            results = observer(dict(zip(observer.network.inputs, inputs, strict=True)))
        values[stage.name] = dict(zip((port.name for port in model.outputs), results, strict=True))


def _in_order(pipeline: Pipeline, stages: list[tuple[Stage, Model]]) -> list[tuple[Stage, Model]]:
    """Return the stages with a model, each after those it depends on."""
    after = {stage.name: {*stage.after, *stage.reads} for stage in pipeline.stages}
    done: set[str] = {sensor.name for sensor in pipeline.sensors}
    order: list[str] = []
    while len(order) < len(after):
        ready = [name for name in after if name not in order and after[name] <= done]
        if not ready:  # a cycle through `reads` edges, which do not wait
            ready = [name for name in after if name not in order][:1]
        order += ready
        done |= set(ready)
    by_name = {stage.name: (stage, model) for stage, model in stages}
    return [by_name[name] for name in order if name in by_name]


def _observer(network: Network, model: Model, weights: Mapping[str, Array]) -> Observer:
    own = model.weights() if model.weights is not None else dict(weights)
    if not own and model.trained is not None:
        own = model.trained()
    check_weights(network, own)
    return Observer(network, own)


def share_scales(graph: Graph, values: Mapping[str, Scale]) -> dict[str, Scale]:
    """Return scales in which a value written directly into a concatenation has the concatenation's.

    Otherwise every part would need a separate rescaling pass.
    """
    shared = dict(values)
    for group in reversed(graph.groups):
        if graph.in_place(group):
            shared |= dict.fromkeys(group.inputs, shared[group.output])
    return shared


def _never_negative(graph: Graph) -> set[str]:
    """Return the values after a ReLU, also through pooling and concatenation."""
    rectified: set[str] = set()
    for group in graph.groups:
        passes = group.kind in ("max_pool", "concat") and all(value in rectified for value in group.inputs)
        if group.relu or group.kind == "relu" or passes:
            rectified.add(group.output)
    return rectified


def _compiled(network: Network, weights: Mapping[str, Array]) -> tuple[Any, tuple[TensorType, ...], tuple[Any, ...]]:
    from socsched.compiler.environment import relax, tvm
    from socsched.compiler.target import resolve
    from socsched.compiler.targets.llvm.lower import lower
    from socsched.compiler.targets.llvm.processor import native_target, vector_unit

    unit = vector_unit(resolve({"kind": "llvm", "host": True}))
    lowered = lower(fuse_network(network), weights, unit)
    executable = relax.build(lowered.module, tvm.target.Target(dict(native_target())))
    return relax.VirtualMachine(executable, tvm.cpu())["main"], lowered.inputs, lowered.outputs


BINS = 4096
_CANDIDATES = 128
_SMALLEST = 1 / 64
"""Least clipping bound tried, as a share of the largest magnitude."""


class Histogram:
    """Counts of magnitudes other than zero in equal bins from 0; the range doubles when larger ones arrive."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.top, self.largest, self.negative = 0.0, 0.0, False

    def add(self, array: Array) -> None:
        """Count all finite elements of an array."""
        flat = np.asarray(array, np.float32).reshape(-1)
        flat = flat[flat != 0]
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return
        self.negative |= bool(flat.min() < 0)
        magnitudes = np.abs(flat)
        self.largest = max(self.largest, float(magnitudes.max()))
        if not self.top:
            self.top = self.largest
        while self.largest > self.top:
            self.counts[: BINS // 2] = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[BINS // 2 :] = 0
            self.top *= 2
        index = np.minimum(magnitudes * np.float32(BINS / self.top), BINS - 1).astype(np.int32)
        self.counts += np.bincount(index, minlength=BINS)

    def scale(self, signed: bool | None = None) -> Scale:
        """Return the scale of least squared error; unsigned unless a negative element was seen or `signed` is set.

        A bound clips elements beyond it (error: the excess) and rounds the rest (error: step^2 / 12 on average); the
        candidates are bounds between 1/64 of the largest magnitude and all of it.  Zero is always exact.
        """
        signed = self.negative if signed is None else signed
        levels = 127 if signed else 255
        if not self.largest:
            return Scale(1.0 / levels, signed)
        centres = (np.arange(BINS) + 0.5) * (self.top / BINS)
        best, least = self.largest, np.inf
        for bound in np.geomspace(self.largest * _SMALLEST, self.largest, _CANDIDATES):
            excess = np.maximum(np.minimum(centres, self.largest) - bound, 0)
            error = float((self.counts * np.where(excess > 0, excess**2, (bound / levels) ** 2 / 12)).sum())
            if error < least:
                best, least = float(bound), error
        return Scale(best / levels, signed)


# The passes of int8: scales from data, integers in place of floats, and the scales as a file beside the code.


def choose_scales(compilation: Compilation) -> Compilation:
    """Return the network with scales: those given, or calibrated on this machine on seeded normal inputs.

    Such inputs do not represent real ones; the scales' source says so.  CompileError for a network without int8 form.
    """
    if compilation.scales is not None:
        return compilation
    require(compilation.graph)  # fail before any work
    network = compilation.asked.network
    scales = calibrate(network, compilation.weights, seeded_samples(network))
    return replace(compilation, scales=replace(scales, source=f"{UNCALIBRATED}: no calibration data were given"))


def use_integers(compilation: Compilation) -> Compilation:
    """Return the network in integers; CompileError for operators without int8 form."""
    assert compilation.scales is not None
    return replace(compilation, integers=quantise(compilation.graph, compilation.weights, compilation.scales))


def keep_scales(compilation: Compilation) -> Compilation:
    """Write the scales beside the code."""
    assert compilation.scales is not None
    write_scales(compilation.asked.folder / FILE, compilation.scales)
    return replace(compilation, files=(*compilation.files, FILE))


def left_in_floats(compilation: Compilation) -> list[str]:
    """Return the reasons for which operators are computed in fp32, sorted."""
    graph, scales = compilation.graph, compilation.scales
    _, floats = values_in_bytes(graph, {}, scales.weights if scales is not None else ())
    partial = scales is not None and scales.partial
    exact = [step.group for step in compilation.integers.steps if step.exact]
    return sorted({formless(graph, one) or (floats.get(one.name, UNSCALED) if partial else "") for one in exact})


QUANTISE = (choose_scales, use_integers)
