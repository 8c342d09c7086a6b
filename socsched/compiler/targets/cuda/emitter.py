"""A Relax module in the making for a GPU: calls of kernels, each kernel once, and views of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from socsched.compiler import script
from socsched.compiler.environment import relax, tirx
from socsched.compiler.targets.cuda import kernels


class Emitter:
    """The module's builder and its kernels; without `bound` kernels remain plain loops."""

    def __init__(self, bound: bool) -> None:
        self.bound = bound
        self.builder = relax.BlockBuilder()
        self.kernels: dict[Any, Any] = {}

    def viewed(self, var: Any, shape: Any, dtype: str = "float16", offset: int = 0) -> Any:
        """Return the memory of `var`, from byte `offset` on, as a tensor of another shape and type; no kernel."""
        place = tirx.IntImm("int64", offset)
        return self.builder.emit(relax.op.memory.view(var, relax.ShapeExpr(shape), dtype, place))

    def call(
        self, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any], shape: Any, dtype: str = "float16"
    ) -> Any:
        """Return the result of the kernel that `make` writes for `args`."""
        kernel = self.kernel((make, args), make.__name__, lambda: self.spread(script.kernel(make, args)))
        return self.builder.emit(relax.call_tir(kernel, operands, relax.TensorType(shape, dtype)))

    def spread(self, function: Any) -> Any:
        """Return a kernel with its loops on the GPU's threads, if kernels are bound."""
        return kernels.spread(function) if self.bound else function

    def kernel(self, key: Any, name: str, make: Callable[[], Any]) -> Any:
        """Return the module's kernel of a key, made when it is first asked for."""
        if key not in self.kernels:
            self.kernels[key] = self.builder.add_func(make(), name)
        return self.kernels[key]
