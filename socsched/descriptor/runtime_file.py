"""The section `runtimes` of an engine in platform files: the programs that can compute its networks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from socsched.descriptor.fields import VERSION_PATTERN, FileModel, Name, PrecisionName, RateFigure
from socsched.descriptor.platform import Runtime
from socsched.descriptor.validation import Tree


class RuntimeFile(FileModel):
    """A program that computes networks on the engine, and its speed relative to the one that was measured."""

    version: Annotated[str, Field(pattern=VERSION_PATTERN)] | None = Field(
        None, description="version of the toolchain that stages are handed to"
    )
    ratio: RateFigure | None = Field(
        None, description="time of a network over the time that the engine's costs state; absent: 1, they are its own"
    )
    general: RateFigure | None = Field(
        None, description="the same for a network beyond kernels and tuned; absent: as ratio"
    )
    kernels: list[Name] = Field(default_factory=list, description="operators with kernels of their own; empty: all")
    tuned: list[PrecisionName] = Field(default_factory=list, description="data types of these kernels; empty: all")
    precisions: list[PrecisionName] = Field(
        default_factory=list, description="data types that this program computes in; empty: all of the engine"
    )
    without: list[Name] = Field(default_factory=list, description="operators that this program cannot compute")
    source: str = Field("", description="key of sources")

    def lower(self, name: str) -> Runtime:
        """Return the internal `Runtime`."""
        return Runtime(
            name,
            self.version or "",
            self.ratio.lower() if self.ratio else None,
            self.general.lower() if self.general else None,
            tuple(self.kernels),
            tuple(self.tuned),
            tuple(self.without),
            tuple(self.precisions),
            self.source,
        )


def check_runtimes(root: Tree) -> None:
    """Report a ratio of the first runtime, which the costs stand for, and a later one without a ratio."""
    for engine in root.at("engines").items():
        for number, runtime in enumerate(engine.at("runtimes").items()):
            stated = runtime.at("ratio").value is not None
            if not number and stated:
                text = "expected no ratio: the engine's costs are those of its first runtime"
                runtime.at("ratio").report(text, key=True)
            if number and not stated:
                runtime.report("expected ratio, the time over that of the engine's first runtime")
            if not stated and runtime.at("general").value is not None:
                runtime.at("general").report("general belongs to a runtime with ratio", key=True)
