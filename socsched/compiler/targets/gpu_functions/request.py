"""What a device implementation is built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from socsched.errors import CompileError
from socsched.graph.operators import TensorType
from socsched.models.model import Model


@dataclass(frozen=True, slots=True)
class Request:
    """A model to build in a precision; images at its border lie in `layout`.

    `items` is the number of items of a group, a power of two; `most_items` the most a group may have.
    """

    model: Model
    precision: str
    layout: str
    items: int = 256
    most_items: int = 256

    def keywords(self) -> Mapping[str, Any]:
        """Return the settings bound to the model's function; CompileError if it has none."""
        if not isinstance(self.model.function, partial):
            raise CompileError(f"{self.model.name}: its function has no settings to build a GPU program from")
        return self.model.function.keywords

    def image(self, tensor: TensorType) -> TensorType:
        """Return a border image in the request's precision and layout."""
        return TensorType(tensor.shape, self.precision, self.layout)
