"""Stages in vendors' x86 simulators on the native executor: outputs are those of the Python path, bit for bit."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from optional import VENDORS

from socsched.api.planning import plan as make_plan
from socsched.compiler.builder import network_of, shipped_scales
from socsched.compiler.toolchains.hand_over import hand_over
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline, Sensor, Stage
from socsched.executor.build import find_executor
from socsched.executor.references import write_expected
from socsched.executor.settings import RunSettings, write_settings
from socsched.executor.vendor_stages import describe_engine
from socsched.runtime.backends.vendor_sim import Simulated

HEAD = Stage("head", "head", "pointpillars-s.head", after=("lidar",), precisions=("int8",))


@pytest.mark.needs("HTP compiler")
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_context_binaries_of_qnn(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter for ONNX Runtime loads the context binary into Qualcomm's HTP emulation on x86-64."""
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    if (executor := find_executor()) is None:
        pytest.skip("no C++ compiler")
    stage, engine = replace(HEAD, precisions=(precision,)), get_platform("qcs8550").engine("npu")
    document = hand_over(stage, engine, precision, tmp_path, scales=shipped_scales(network_of(stage)[0]))
    assert "compiled" in document
    made = describe_engine(document, str(tmp_path))
    packages = next((VENDORS / "qualcomm" / "lib").glob("python3.*/site-packages"))
    plugin = packages / "onnxruntime_qnn"
    made["library"] = str(next((packages / "onnxruntime" / "capi").glob("libonnxruntime.so.*")))
    made["options"]["provider_library"] = str(plugin / "libonnxruntime_providers_qnn.so")
    made["options"]["backend_path"] = str(plugin / "libQnnHtp.so")
    made["inputs"] = [{**entry, "from": "lidar", "port": 0} for entry in made["inputs"]]
    made["outputs"] = [{key: one[key] for key in one if key != "port"} for one in made["outputs"]]
    image = np.random.default_rng(1).gamma(0.5, 0.5, (1, 192, 248, 216)).astype(np.float32)
    simulated = Simulated.of(stage, engine, precision)
    try:
        wanted = simulated([image])
    finally:
        simulated.close()
    pipeline = Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), (stage,), ())
    planned = make_plan(pipeline, "qcs8550", pins=("head=npu",))
    settings = write_settings(RunSettings(planned, 10**8, {"head": {"lidar"}}, {"head": made}), tmp_path)
    outputs = list(wanted.values())
    references = write_expected("head", {"head": made}, {"lidar": 1}, [image], outputs, tmp_path)
    command = [str(executor), str(settings), "--selftest", str(references)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "head: passed" in done.stdout, done.stdout + done.stderr  # of which some are chatty
