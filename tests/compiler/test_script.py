# mypy: ignore-errors
# ruff: noqa: E741
"""Expressions of kernels, compiled once, against the evaluation that TVM's parser has of its own."""

from __future__ import annotations

import pytest
from cpu_networks import CASES, weights_of
from tvm.script.parser.core import evaluator
from tvm.script.parser.core.parser import Parser, ScriptMacro

from socsched.compiler import script
from socsched.compiler.environment import T, tirx, tvm
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.vector import AVX512
from socsched.graph.expand import fuse_network


def every_expression(size, fits, spare):
    @T.prim_func(s_tir=True, private=True)
    def kernel(X: T.Buffer((size, 8), "float32"), O: T.Buffer((size, 8), "float32")):
        for y, x in T.grid(size, 8):
            with T.sblock("all"):
                i, j = T.axis.remap("SS", [y, x])
                T.reads(X[0:size, 0:8])
                T.writes(O[i, 0:8])
                if (0 < i < size - 1) and (fits or i // 3 != j % 3) and not (i <= j):
                    O[i, j] = -X[i, j] * 2.0 if spare is not None else X[spare.at, j]
                else:
                    O[i, j] = X[i, j] if i > j else T.float32(len([n for n in range(size) if n > 1 or fits]))

    return kernel


def of_tvm(self, node, extra_vars=None):
    values = {**self.var_table.get(), **(extra_vars or {}), ScriptMacro.parser_object_name: self}
    return evaluator.eval_expr(self, node, values)


def both(make, monkeypatch):
    ours = make()
    with monkeypatch.context() as patch:
        patch.setattr(Parser, "eval_expr", of_tvm)
        return ours, make()


@pytest.mark.parametrize("fits", [True, False])
def test_every_expression(fits, monkeypatch):
    ours, theirs = both(lambda: every_expression(8, fits, 1), monkeypatch)
    tvm.ir.assert_structural_equal(ours, theirs)
    with pytest.raises(ValueError, match="StructuralEqual check failed"):
        tvm.ir.assert_structural_equal(ours, every_expression(8, not fits, 1))


@pytest.mark.parametrize("name", sorted(CASES)[::6])
def test_kernels_of_networks(name, monkeypatch):
    made = []
    monkeypatch.setattr(script, "kernel", lambda make, args: made.append((make, args)) or make(*args))
    lower(fuse_network(CASES[name]), weights_of(CASES[name]), AVX512)
    for make, args in made:
        ours, theirs = both(lambda make=make, args=args: make(*args), monkeypatch)
        assert isinstance(ours, tirx.PrimFunc)
        tvm.ir.assert_structural_equal(ours, theirs)
