"""The passes from a network to an artefact, in the order in which they run.

    fuse       operators, each with the bias and activation computed along with it       `graph.expand`
    -          the target chooses its passes for these operators                         `Target.passes`
    quantise   int8: scales from data, integers in place of floats                       `quantize.calibrate`
    lower      the target's rules: layouts, packed weights, a kernel for each operator   `targets.*.passes`
    schedule   loops of the kernels that no rule has written                             `targets.*.passes`
    build      machine code, or sources                                                  `targets.*.passes`
    link       a library, or object files where no linker is present                     `passes.link`
    package    files beside the code: scales, launch plan                                `quantize`, `targets.*`

A pass is a function that takes a `Compilation` and returns it with what the pass has made.  This imports TVM.
"""

from __future__ import annotations

from collections.abc import Iterable

from socsched.compiler.target import Build, Compilation, Pass, Passes, Target
from socsched.graph.expand import fuse_network


def compile_network(asked: Build, target: Target) -> Compilation:
    """Return the network compiled for `target`, its files in the folder; CompileError for what is not supported."""
    compilation = fused(asked)
    return run(compilation, after_fusion(target.passes(compilation)))


def fused(asked: Build) -> Compilation:
    """Return the network as far as it is the same for all targets: its fused operators."""
    return Compilation(asked, asked.weights, asked.scales, fuse_network(asked.network))


def after_fusion(own: Passes) -> tuple[Pass, ...]:
    """Return a target's passes in order."""
    return (*own.quantise, *own.lower, *own.schedule, *own.build, *own.link, *own.package)


def run(compilation: Compilation, passes: Iterable[Pass]) -> Compilation:
    """Return `compilation` after `passes`."""
    for step in passes:
        compilation = step(compilation)
    return compilation
