"""The `target` of an engine in platform files: compiler back end and processor (see `compiler.target`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WrapValidator

from socsched import plugins
from socsched.descriptor.fields import FileModel
from socsched.descriptor.processors import PROCESSORS, TRIPLE_PATTERN, architecture
from socsched.descriptor.validation import Tree, suggest

_Units = Annotated[int, Field(ge=1, le=2**20)]


class _Processor(FileModel):
    """A processor code is compiled for; without mtriple that of this machine."""

    mtriple: str | None = Field(None, pattern=TRIPLE_PATTERN, description="target triple, such as aarch64-linux-gnu")
    mcpu: str | None = Field(None, max_length=40, description="LLVM name of the processor, such as cortex-a78ae")
    mattr: list[Annotated[str, Field(pattern=r"^[+-][A-Za-z0-9_.-]{1,40}$")]] | None = Field(
        None, max_length=50, description="features to add and to leave out, such as +fullfp16"
    )
    num_cores: _Units | None = Field(None, alias="num-cores", description="number of cores the code is built for")
    note: str | None = Field(None, description="remarks")


class ProcessorFile(_Processor):
    """The host CPU of an engine."""

    kind: Literal["llvm"] = Field(description="the compiler back end")


def _host(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Validate a mapping against `ProcessorFile` alone, so that its faults are not reported as those of a boolean."""
    return ProcessorFile.model_validate(value) if isinstance(value, dict) else handler(value)


def _registered(kind: str) -> str:
    """Return the kind of a target; raise ValueError listing the registered kinds for any other."""
    known = plugins.names("socsched.targets")
    if kind not in known:
        raise ValueError(f"expected one of {', '.join(known)}")
    return kind


class TargetFile(_Processor):
    """What an engine's stages are compiled for."""

    kind: Annotated[str, AfterValidator(_registered)] = Field(
        description="compiler back end: llvm, cuda, opencl, hexagon (`socsched plugins targets`); simulated: none, "
        "stages are checked against the rules and compiled for the host"
    )
    host: Annotated[bool | ProcessorFile | None, WrapValidator(_host)] = Field(
        None, description="true: this machine; else the CPU next to the engine"
    )
    arch: str | None = Field(
        None, pattern="^(sm_[0-9]{2,3}[a-z]?|v[0-9]{2})$", description="architecture of a GPU (sm_87) or a DSP (v73)"
    )
    max_threads_per_block: _Units | None = Field(None, description="threads of a block or work items of a group")
    max_shared_memory_per_block: Annotated[int, Field(ge=0, le=2**30)] | None = Field(None, description="bytes")
    thread_warp_size: _Units | None = Field(None, description="threads that run in lockstep")

    def lower(self) -> dict[str, Any]:
        """Return the entry as plain data, as it was written."""
        return self.model_dump(by_alias=True, exclude_none=True)


def check_targets(root: Tree) -> None:
    """Report processors unknown to LLVM, which would silently compile for a generic one."""
    for engine in root.at("engines").items():
        for target in (engine.at("target"), engine.at("target").at("host")):
            name = target.at("mcpu").text
            try:
                known = PROCESSORS[architecture(target.at("mtriple").text)]
            except KeyError:  # reported with the triple
                continue
            if name and name != "native" and name not in known:
                target.at("mcpu").report(f"unknown processor {name!r}; {suggest(name, known)}")
