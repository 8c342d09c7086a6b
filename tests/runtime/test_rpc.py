"""Stages on a machine reached over RPC, which is this one: a server in a separate process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded import Recorded

from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.loading.rpc import Remote
from socsched.compiler.loading.stages import load
from socsched.descriptor import host
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import MachineError
from socsched.models.work import stage_work
from socsched.planning.search import make_plan
from socsched.runtime.boards.rpc import measure_remotely


@pytest.fixture
def port(checkout: Path, tmp_path: Path) -> Iterator[int]:
    """Serve, and return the port."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "TVM_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "socsched.compiler.loading.rpc"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_stage_computes_there_what_it_computes_here(port: int, checkout: Path) -> None:
    stage = load_pipeline(checkout / "pipelines" / "pointpillars.yaml").stage("head")
    artifact = compile_stage(stage, host.detect().engines[0], "fp32", None, 1)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=physical_shape(t)).astype(NUMPY_DTYPES[t.dtype]) for t in artifact.inputs]
    there, here = Remote(port).load(artifact), load(artifact)
    for found, expected in zip(there(*arrays), here(*arrays), strict=True):
        assert np.array_equal(found, expected)
    times = there.times(arrays, 5)
    assert len(times) == 5 and min(times) > 100_000, "half a million multiply-adds a microsecond is no processor"


def test_network_stages_are_measured_there_into_a_profile(port: int, recorded: Recorded) -> None:
    pipe = recorded.pipeline()
    platform = host.detect()
    made = make_plan(pipe, platform, work=stage_work)
    made = replace(made, tasks=tuple(replace(t, lanes=t.lanes[:1]) for t in made.tasks))
    reported: list[str] = []
    scans = recorded.scans[:1]
    profile = measure_remotely(made, pipe, platform, port, repeat=3, scans=scans, note=reported.append)
    assert [cost.stage for cost in profile.costs] == ["pfn", "scatter", "backbone", "head"] and len(reported) == 4
    assert all(0 < cost.median_ns <= cost.time_ns and cost.samples == 3 for cost in profile.costs)
    assert max(profile.costs, key=lambda cost: cost.median_ns).stage == "backbone"


def test_it_listens_on_the_loopback_address_only(port: int) -> None:
    own = socket.gethostbyname(socket.gethostname())
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    if not own.startswith("127."):
        with pytest.raises(OSError):
            socket.create_connection((own, port), timeout=2)


def test_a_machine_that_does_not_answer_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        unused = free.getsockname()[1]
    with pytest.raises(MachineError, match=f"127.0.0.1:{unused} does not answer"):
        Remote(unused, timeout_s=2)
