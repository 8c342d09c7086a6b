"""Stages in vendors' x86 simulators on the native executor: outputs are those of the Python path, bit for bit."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from socsched.runtime.backends.built_in import Simulated
from tools.verify import board_root

HEAD = Stage("head", "head", "pointpillars-s.head", after=("lidar",), precisions=("int8",))
IMAGE = np.random.default_rng(1).gamma(0.5, 0.5, (1, 192, 248, 216)).astype(np.float16).astype(np.float32)
"""Halves, as models in half precision take them on an NPU."""


def checked(stage: Stage, engine: str, made: dict[str, Any], simulated: Simulated, folder: Path, **env: str) -> None:
    """Self-test a stage of an artefact on the native executor: its outputs are those of the Python path."""
    if (executor := find_executor()) is None:
        pytest.skip("no C++ compiler")
    made["inputs"] = [{**entry, "from": "lidar", "port": 0} for entry in made["inputs"]]
    made["outputs"] = [{key: one[key] for key in one if key != "port"} for one in made["outputs"]]
    outputs = list(simulated([IMAGE]).values())
    pipeline = Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), (stage,), ())
    platform, unit = engine.split()
    planned = make_plan(pipeline, platform, pins=(f"head={unit}",))
    settings = write_settings(RunSettings(planned, 10**8, {"head": {"lidar"}}, {"head": made}), folder)
    references = write_expected("head", {"head": made}, {"lidar": 1}, [IMAGE], outputs, folder)
    command = [str(executor), str(settings), "--selftest", str(references)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **env})
    assert done.returncode == 0 and "head: passed" in done.stdout, done.stdout + done.stderr  # of which some are chatty


@pytest.mark.needs("HTP compiler")
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_context_binaries_of_qnn(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter for ONNX Runtime loads the context binary into Qualcomm's HTP emulation on x86-64."""
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    stage, engine = replace(HEAD, precisions=(precision,)), get_platform("qcs8550").engine("npu")
    document = hand_over(stage, engine, precision, tmp_path, scales=shipped_scales(network_of(stage)[0]))
    assert "compiled" in document
    made = describe_engine(document, str(tmp_path))
    packages = next((VENDORS / "qualcomm" / "lib").glob("python3.*/site-packages"))
    plugin = packages / "onnxruntime_qnn"
    made["library"] = str(next((packages / "onnxruntime" / "capi").glob("libonnxruntime.so.*")))
    made["options"]["provider_library"] = str(plugin / "libonnxruntime_providers_qnn.so")
    made["options"]["backend_path"] = str(plugin / "libQnnHtp.so")
    with closing(Simulated.of(stage, engine, precision)) as simulated:
        checked(stage, "qcs8550 npu", made, simulated, tmp_path)


@pytest.mark.needs("RKNN compiler")
def test_models_of_rknn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of librknnrt reach a stand-in that hands each tensor's bytes to RKNN's simulator, which is Python."""
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    engine, library = get_platform("rk3588").engine("npu0"), tmp_path / "librknnrt.so"
    source = Path(__file__).parent / "standins" / "rknn.cpp"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", source, "-o", library], check=True)
    accelerator, models = board_root.Accelerator(), tmp_path / board_root.HOME / "models"
    accelerator.serve(tmp_path / "socket")
    models.parent.mkdir(parents=True)
    env = {"STANDIN_SOCKET": str(tmp_path / "socket"), "STANDIN_MODELS": str(models), "STANDIN_LOG": os.devnull}
    for precision in ("int8", "fp16"):
        stage, folder = replace(HEAD, precisions=(precision,)), tmp_path / precision
        folder.mkdir()
        document = hand_over(stage, engine, precision, folder, scales=shipped_scales(network_of(stage)[0]))
        made = describe_engine(document, str(folder)) | {"library": str(library)}
        accelerator.stages = board_root.models(tmp_path, {"head": made})
        (name,) = accelerator.stages
        with closing(Simulated.of(stage, engine, precision)) as simulated:
            accelerator.sessions[name] = SimpleNamespace(
                get_inputs=lambda: [SimpleNamespace(name="neck", shape=IMAGE.shape)],
                run=lambda names, given, by=simulated: [by(list(given.values()))[one] for one in names],
            )
            checked(stage, "rk3588 npu0", made, simulated, folder, **env)
