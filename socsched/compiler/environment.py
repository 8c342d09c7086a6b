"""TVM with its compiler; only this module and `loading.tvm_runtime`, on which it builds, import TVM.

Import this module only where the compiler is needed; it takes about a second.
"""

from __future__ import annotations

from socsched.compiler.loading.tvm_runtime import check_versions, online_cores, tvm  # isort: skip  (before any TVM import)

from tvm import relax, s_tir, te, tirx
from tvm.s_tir.dlight.analysis.common_analysis import collect_vars_used_in_prim_expr as variables_in
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from socsched.compiler import script

script.speed_up_parser()

__all__ = [
    "T",
    "check_versions",
    "online_cores",
    "relax",
    "s_tir",
    "structural_walk",
    "te",
    "tirx",
    "tvm",
    "variables_in",
]
