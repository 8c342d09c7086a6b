"""The type of every layer's result, as the compiler infers it."""

from __future__ import annotations

from dataclasses import asdict

from socsched.cache import keep, recall
from socsched.compiler.store import digest
from socsched.compiler.versions import rule_sources
from socsched.graph.network import Network
from socsched.graph.operators import TensorType


def value_types(network: Network) -> dict[str, TensorType]:
    """Return layer name -> logical type (-1 where a size varies), kept in the cache so that TVM is imported once."""
    key = digest("values", repr(network), rule_sources())
    try:
        entries = recall("values", key).items()
        return {name: TensorType(tuple(e["shape"]), e["dtype"], e["layout"]) for name, e in entries}
    except (AttributeError, TypeError, KeyError):
        from socsched.compiler.fusion import tensor_type
        from socsched.compiler.relax_import import layer_types

        types = {name: tensor_type(ty) for name, ty in layer_types(network).items()}
        keep("values", key, {name: asdict(tensor) for name, tensor in types.items()})
        return types
