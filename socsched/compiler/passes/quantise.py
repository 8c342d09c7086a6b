"""The passes of int8: scales from data, integers in place of floats, and the scales as a file beside the code."""

from __future__ import annotations

from dataclasses import replace

from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.quantize.network import quantise, require
from socsched.compiler.quantize.scales import FILE, UNCALIBRATED, write_scales
from socsched.compiler.target import Compilation
from socsched.graph.integers import UNSCALED, formless, values_in_bytes


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
