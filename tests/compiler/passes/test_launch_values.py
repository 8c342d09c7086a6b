"""Launch lists name values by their variables: passes give the same name to several."""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import relax, tvm
from socsched.compiler.passes.launches import CpuRecorder

KIND = relax.TensorType([4], "float32")


def _sum(name: str) -> Any:
    shape = [tvm.tirx.IntImm("int64", 4)]
    x, y = (tvm.te.placeholder(shape, name=side) for side in ("X", "Y"))
    total = tvm.te.compute(shape, lambda i: x[i] + y[i], name="O")
    return tvm.te.create_prim_func([x, y, total]).with_attr("global_symbol", name)


def test_a_name_that_repeats_stands_for_the_variable_it_belongs_to() -> None:
    builder = relax.BlockBuilder()
    callee = builder.add_func(_sum("sum"), "sum")
    x = relax.Var("x", KIND)
    first, between, last, result = (relax.Var(name, KIND) for name in ("v", "w", "v", "o"))
    steps = [(first, (x, x)), (between, (first, x)), (last, (between, x)), (result, (first, last))]
    bindings = [relax.VarBinding(made, relax.call_tir(callee, list(operands), KIND)) for made, operands in steps]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    main = relax.Function([x], body, KIND).with_attr("global_symbol", "main")
    module = builder.get()
    module["main"] = main
    module = relax.transform.Normalize()(module)
    recorder = CpuRecorder("net", module, tvm.IRModule({}))
    recorder.follow()
    written = [launch["arguments"][-1]["buffer"] for launch in recorder.launches]
    assert [argument["buffer"] for argument in recorder.launches[-1]["arguments"]] == [
        written[0],
        written[2],
        written[3],
    ]
