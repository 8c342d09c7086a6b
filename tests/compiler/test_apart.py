"""Compilation in a child: results, errors, deaths, limits, and the layer at which a compiler ends its process."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.compiler import builder
from socsched.compiler.apart import Ended, apart
from socsched.compiler.target import Build
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import CompileError
from socsched.progress import notice, speaking


def test_results_errors_and_notices_come_back() -> None:
    def fail() -> None:
        raise CompileError("no", "a remedy")

    said: list[str] = []
    with speaking(said.append):
        assert apart(lambda: (notice("a", "heard"), os.getpid())[1]) != os.getpid()
    assert said == ["heard"]
    with pytest.raises(CompileError, match="no") as caught:
        apart(fail)
    assert caught.value.hint == "a remedy"


def test_a_child_that_dies_or_takes_too_much_is_an_error() -> None:
    def spin() -> None:
        while True:
            pass

    with pytest.raises(Ended, match="SIGABRT, exit code 134: LLVM ERROR: nothing to select"):
        apart(lambda: (os.write(2, b"LLVM ERROR: nothing to select\n"), os.abort()))
    with pytest.raises(Ended, match="more than 1 s"):
        apart(spin, cpu_s=1)
    with pytest.raises(MemoryError):
        apart(lambda: np.ones(1 << 40))


def test_what_the_parent_left_is_not_collected_in_the_child() -> None:
    """A session of ONNX Runtime waits for its threads when it goes; a child has none of them."""

    class Session:
        def __init__(self) -> None:
            self.itself, self.process = self, os.getpid()

        def __del__(self) -> None:
            if os.getpid() != self.process:
                os.abort()

    gc.disable()
    try:
        Session()
        assert apart(lambda: (gc.collect(), "lives")[1]) == "lives"
    finally:
        gc.enable()


def test_the_layer_that_ends_the_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = builder._compiled

    def compiled(asked: Build, target: Any) -> Any:
        if any(layer.op == "scatter" for layer in asked.network.layers):
            os.kill(os.getpid(), signal.SIGILL)
        return own(asked, target)

    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path))
    monkeypatch.setattr(builder, "_compiled", compiled)
    stage = Stage("scatter", "scatter", "pointpillars.scatter")
    with pytest.raises(
        CompileError, match=r"'scatter': the compiler ended with SIGILL, exit code 132, at \w+ \(scatter\)"
    ):
        builder.compile_stage(stage, get_platform("host").engines[0])
