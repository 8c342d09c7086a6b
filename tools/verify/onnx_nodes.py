"""ONNX's own node tests (onnx.backend.test) against what socsched reads: an outsider's suite of every operator.

Usage: python -m tools.verify.onnx_nodes [--only PATTERN] [--every N] [--own] [--list]

Counted are tests whose tensors are floats, bytes, whole numbers and truth values, with a float or a byte among them.
A test is read as it stands, or with its whole-number inputs of one dimension as constants, as exports have them (axes,
sizes, numbers of places).  It passes where the network that was read, written as ONNX again, gives the test's results
in ONNX Runtime; with --own, networks without operators that are taken as they are must also give them compiled for this
machine.  Printed: a line for each reason that tests fail for, and the share that passes; exit code 1 below --least.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES, convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.processor import native_target, vector_unit
from socsched.compiler.toolchains.onnx_model import to_onnx
from socsched.errors import SocschedError
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.onnx_import import load

Array = np.ndarray[Any, Any]
_COUNTED = frozenset((1, 2, 3, 6, 7, 9))
"""Codes of fp32, uint8, int8, int32, int64 and bool."""
_OF_INTEREST = frozenset((1, 2, 3))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one test: `failure` says what went wrong, empty where it passes; `whole` operators as they are.

    `beyond`: ONNX Runtime does not give the test's results of the test's own file either.
    """

    name: str
    failure: str
    whole: tuple[str, ...] = ()
    own: str = ""
    beyond: bool = False


def cases(pattern: str = "*") -> Iterator[tuple[str, Any, list[Array], list[Array], float, float]]:
    """Yield name, model, inputs, expected results and tolerances of the tests that count."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for test in tests:
        if not fnmatch.fnmatch(test.name, pattern) or test.model is None:
            continue
        values = (*test.model.graph.input, *test.model.graph.output)
        kinds = {v.type.tensor_type.elem_type if v.type.HasField("tensor_type") else -1 for v in values}
        if kinds <= _COUNTED and kinds & _OF_INTEREST:
            for inputs, outputs in test.data_sets:
                yield test.name, test.model, list(inputs), list(outputs), test.rtol, test.atol


def judge(
    name: str, model: Any, inputs: Sequence[Array], wanted: Sequence[Array], tolerance: float, own: bool
) -> Verdict:
    """Return whether a test passes; its inputs become constants where the network is not read without."""
    failure = ""
    for bound in _bindings(model, inputs):
        try:
            network, weights = _read(model, bound)
        except SocschedError as error:
            failure = failure or f"not read: {error}".partition(".onnx: ")[2] or str(error)
            continue
        free = (array for value, array in zip(_inputs(model), inputs, strict=False) if value.name not in bound)
        given = dict(zip(network.inputs, free, strict=False))
        whole = tuple(str(layer.attrs["operator"]) for layer in network.layers if layer.op == "onnx")
        try:
            found = _computed(network, weights, given)
        except Exception as error:  # ONNX Runtime's errors have no common class
            failure = f"ONNX Runtime: {str(error).splitlines()[0][:160]}"
            continue
        if not _equal(found, wanted, tolerance):
            return Verdict(name, "other results", whole)
        compiled = "" if whole or not own else _compiled(network, weights, given, wanted, tolerance)
        return Verdict(name, compiled, whole, "compiled" if own and not whole else "")
    return Verdict(name, failure or "not read")


def _inputs(model: Any) -> list[Any]:
    held = {item.name for item in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in held]


def _bindings(model: Any, inputs: Sequence[Array]) -> Iterator[dict[str, Array]]:
    """Yield the inputs that become constants: none, whole numbers of one dimension, all but the first."""
    named = dict(zip((value.name for value in _inputs(model)), inputs, strict=False))
    yield {}
    small = {name: a for name, a in named.items() if a.dtype.kind in "iub" and a.ndim < 2 and a.dtype.itemsize > 1}
    if small and len(small) < len(named):
        yield small
    rest = dict(list(named.items())[1:])
    if rest and rest.keys() != small.keys():
        yield rest


def _read(model: Any, bound: Mapping[str, Array]) -> tuple[Network, Mapping[str, Array]]:
    import onnx
    from onnx import numpy_helper

    copy = onnx.ModelProto.FromString(model.SerializeToString())
    kept = [value for value in copy.graph.input if value.name not in bound]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in bound.items())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "node.onnx"
        onnx.save(copy, str(path))
        return load(path)


def _computed(network: Network, weights: Mapping[str, Array], given: Mapping[str, Array]) -> list[Array]:
    import onnxruntime

    model = to_onnx(network, weights, layer_types(network))
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, dict(given))
    return found


def _passes(model: Any, inputs: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> bool:
    """Return whether ONNX Runtime gives a test's results of the test's own file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    named = dict(zip((value.name for value in _inputs(model)), inputs, strict=False))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return _equal(session.run(None, named), wanted, tolerance)
    except Exception:  # ONNX Runtime's errors have no common class
        return False


def _compiled(
    network: Network,
    weights: Mapping[str, Array],
    given: Mapping[str, Array],
    wanted: Sequence[Array],
    tolerance: float,
) -> str:
    """Return what is wrong with a network compiled for this machine, empty where its results are right."""
    from socsched.compiler.environment import relax, tvm
    from socsched.compiler.targets.llvm.lower import lower

    def plain(kind: TensorType) -> TensorType:
        return TensorType(kind.shape, kind.dtype, "NCHW" if len(kind.shape) == 4 else "")

    try:
        lowered = lower(fuse_network(network), weights, vector_unit(resolve({"kind": "llvm", "host": True})))
        target = tvm.target.Target(dict(native_target()))
        pipeline = relax.backend.cpu_generic.get_default_pipeline(target)
        function = relax.VirtualMachine(relax.build(lowered.module, target, relax_pipeline=pipeline), tvm.cpu())["main"]
        operands = [
            to_tvm(convert(array.astype(NUMPY_DTYPES[kind.dtype]), plain(kind), kind), kind, name)
            for (name, array), kind in zip(given.items(), lowered.inputs, strict=True)
        ]
        results = function(*operands)
        found = [
            convert(from_tvm(result), kind, plain(kind)) for result, kind in zip(results, lowered.outputs, strict=True)
        ]
    except Exception as error:  # a compiler's errors have no common class, and any is a finding
        return f"compiled: {type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
    return "" if _equal(found, wanted, max(tolerance, 1e-4)) else "compiled: other results"


def _equal(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> bool:
    for one, other in zip(found, wanted, strict=True):
        array = np.asarray(other)
        if array.dtype.kind == "f":
            near = np.allclose(one, array, rtol=max(tolerance, 1e-3), atol=1e-5, equal_nan=True)
        elif array.dtype.itemsize == 1 and array.dtype.kind in "iu":  # one step of rounding
            near = (
                np.asarray(one).shape == array.shape and np.abs(one.astype(int) - array.astype(int)).max(initial=0) <= 1
            )
        else:
            near = np.array_equal(one, array)
        if not near or np.asarray(one).shape != array.shape:
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and print what fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="pattern of tests")
    parser.add_argument("--every", type=int, default=1, help="every n-th test")
    parser.add_argument("--own", action="store_true", help="compile for this machine too")
    parser.add_argument("--list", action="store_true", help="list the tests that fail")
    parser.add_argument("--least", type=float, default=0.0, help="share that has to pass")
    asked = parser.parse_args(arguments)
    verdicts = []
    for number, (name, model, inputs, wanted, rtol, _) in enumerate(cases(asked.only)):
        if number % asked.every == 0:
            verdict = judge(name, model, inputs, wanted, rtol, asked.own)
            if verdict.failure and not _passes(model, inputs, wanted, rtol):
                verdict = replace(verdict, beyond=True)
            verdicts.append(verdict)
    failed = [verdict for verdict in verdicts if verdict.failure]
    beyond = sum(verdict.beyond for verdict in failed)
    if asked.list:
        for verdict in failed:
            print(f"{verdict.name}: {'(ONNX Runtime neither) ' if verdict.beyond else ''}{verdict.failure}")
    for reason, count in Counter(verdict.failure for verdict in failed if not verdict.beyond).most_common(30):
        print(f"{count:5} {reason}")
    whole = sum(bool(verdict.whole) for verdict in verdicts)
    compiled = sum(verdict.own == "compiled" for verdict in verdicts)
    share_here = 1 - (len(failed) - beyond) / max(len(verdicts) - beyond, 1)
    share = 1 - len(failed) / max(len(verdicts), 1)
    print(f"{len(verdicts)} tests: {share:.1%} pass, {share_here:.1%} of those that ONNX Runtime passes")
    print(f"{whole} with operators taken as they are, {compiled} compiled here")
    return int(share < asked.least)


if __name__ == "__main__":
    sys.exit(main())
