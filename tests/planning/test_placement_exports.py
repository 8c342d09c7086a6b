"""Placement for runtimes that divide networks themselves: every node has its planned engine, and runtimes agree."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from optional import VENDORS

from socsched.api.export import export
from socsched.api.planning import plan
from socsched.compiler.toolchains.environments import environment
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import UsageError
from socsched.graph.expand import layer_types
from socsched.graph.partition import prefixes
from socsched.models.parts import cut_pipeline, parts_of
from socsched.models.registry import get_model
from socsched.planning.export import runtimes, xsched
from socsched.planning.export.linux import ExportRequest
from socsched.planning.export.networks import networks
from socsched.planning.plan import Plan

CPU, QNN = "CPUExecutionProvider", "QNNExecutionProvider"


@pytest.fixture(scope="module")
def pipe(checkout: Path) -> Pipeline:
    """Return the camera detector at a size that a test can compute, in three parts."""
    found = load_pipeline(checkout / "pipelines" / "camera-detection.yaml")
    small: dict[str, Any] = {"input_height": 64, "input_width": 96}
    stages = tuple(replace(s, params={**s.params, **small}, precisions=("fp32", "fp16")) for s in found.stages)
    whole = replace(found, stages=stages)
    stage = whole.stage("detect")
    factory = get_model(stage.model or "", stage.params).network
    assert factory is not None
    network = factory()
    types = layer_types(network)
    cuts = [cut.after for cut in prefixes(network, types)]
    chosen = (cuts[len(cuts) // 3], cuts[2 * len(cuts) // 3])
    return cut_pipeline(whole, {"detect": parts_of("detect", network, chosen, types)})


def planned(pipe: Pipeline, board: str, *engines: str) -> Plan:
    pins = tuple(f"detect.{number}={engine}" for number, engine in enumerate(engines, 1))
    made = plan(pipe, board, explain=False, refine=False, cuts=False, pins=pins)
    assert [t.engine for t in made.tasks if t.name.startswith("detect.") and t.kind == "stage"] == list(engines)
    return made


@pytest.fixture(scope="module")
def on_qcs(pipe: Pipeline) -> Plan:
    return planned(pipe, "qcs8550", "x3", "npu", "x3")


def test_every_layer_is_in_one_part_and_every_node_has_its_owner(on_qcs: Plan) -> None:
    (placed,) = networks(on_qcs)
    layers = [layer.name for part in placed.parts for layer in part.network.layers]
    assert sorted(layers) == sorted(layer.name for layer in placed.network.layers) and len(placed.parts) == 3
    model = placed.onnx()
    assert set(placed.owners(model)) == {node.name for node in model.graph.node}


def test_onnx_runtime_gets_annotations_options_and_parts(on_qcs: Plan, tmp_path: Path) -> None:
    export(on_qcs, "onnxruntime", tmp_path)
    document = json.loads((tmp_path / "detect" / "session.json").read_text())
    assert document["config"] == {runtimes.OPTION: f"{QNN}(=npu); {CPU}(=x3)"}
    assert [name for name, _ in document["providers"]] == [QNN, CPU] and document["providers"][0][1]["htp_arch"] == "73"
    whole = onnx.load(tmp_path / "detect" / "model.onnx")
    engine = {p.value for node in whole.graph.node for p in node.metadata_props if p.key == "layer_ann"}
    assert engine == {"npu", "x3"}
    by_node = {node.name: next(p.value for p in node.metadata_props) for node in whole.graph.node}
    assert {name: QNN if where == "npu" else CPU for name, where in by_node.items()} == document["nodes"]
    assert [(p["task"], p["provider"], p["planned_runtime"]) for p in document["parts"]] == [
        ("detect.1", CPU, "tvm"), ("detect.2", QNN, "qnn"), ("detect.3", CPU, "tvm"),
    ]  # fmt: skip
    values = {}
    rng = np.random.default_rng(0)
    for part in document["parts"]:
        session = onnxruntime.InferenceSession(str(tmp_path / "detect" / part["model"]), providers=[CPU])
        for name in part["inputs"]:
            shape = next(i.shape for i in session.get_inputs() if i.name == name)
            values.setdefault(name, rng.normal(size=shape).astype(np.float32))
        made = session.run(part["outputs"], {name: values[name] for name in part["inputs"]})
        values.update(zip(part["outputs"], made, strict=True))
    session = onnxruntime.InferenceSession(str(tmp_path / "detect" / "model.onnx"), providers=[CPU])
    inputs = {i.name: values[i.name] for i in session.get_inputs()}
    for output, expected in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        error = np.abs(values[output.name] - expected).max() / np.abs(expected).max()
        assert error < 1e-5, "the parts are the network"


def test_this_onnx_runtime_reads_the_annotations(on_qcs: Plan, tmp_path: Path) -> None:
    """The option is checked when a session is made; its grammar is ONNX Runtime's own."""
    export(on_qcs, "onnxruntime", tmp_path)
    document = json.loads((tmp_path / "detect" / "session.json").read_text())
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(runtimes.OPTION, document["config"][runtimes.OPTION])
    onnxruntime.InferenceSession(str(tmp_path / "detect" / "model.onnx"), options, providers=[CPU])
    broken = onnxruntime.SessionOptions()
    broken.add_session_config_entry(runtimes.OPTION, "CPUExecutionProvider=x3")
    with pytest.raises(Exception, match="Invalid layering config"):
        onnxruntime.InferenceSession(str(tmp_path / "detect" / "model.onnx"), broken, providers=[CPU])


@pytest.mark.slow
@pytest.mark.needs("HTP compiler")
def test_onnx_runtime_with_qualcomms_emulation_places_as_planned(
    on_qcs: Plan, tmp_path: Path, checkout: Path, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part runs on its provider alone; in one session ONNX Runtime takes annotations of a whole network only."""
    export(on_qcs, "onnxruntime", tmp_path / "cut")
    export(planned(pipe, "qcs8550", "npu", "npu", "npu"), "onnxruntime", tmp_path / "whole")
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    found = {}
    for name in ("cut", "whole"):
        program = [str(environment("qualcomm").require()), str(checkout / "tools/verify/placement_sessions.py")]
        done = subprocess.run([*program, str(tmp_path / name / "detect")], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        found[name] = json.loads(done.stdout.splitlines()[-1])
    for task, provider in (("detect.1", CPU), ("detect.2", QNN), ("detect.3", CPU)):
        nodes = found["cut"]["parts"][task]
        assert nodes and set(nodes.values()) == {provider}, task
    assert all(error < 0.02 for run in found.values() for error in run["errors"].values())
    assert set(found["whole"]["annotated"]["nodes"].values()) == {QNN}
    refused = found["cut"]["annotated"].get("error", "")
    assert "in_degree.size()" in refused or set(found["cut"]["annotated"]["nodes"].values()) == {CPU, QNN}


def test_xsched_gets_priorities_or_deadlines(pipe: Pipeline, tmp_path: Path) -> None:
    for policy, variable, hint in (
        ("fp", "XSCHED_AUTO_XQUEUE_PRIORITY=255", "XHintPriority(queue, 255)"),
        ("edf", "XSCHED_POLICY=EDF", "XHintDeadline(queue, "),
    ):
        made = plan(pipe, "jetson-agx-orin-64gb", "MAXN", policy=policy, explain=False, refine=False, cuts=False,
                    pins=("detect.1=gpu", "detect.2=gpu", "detect.3=gpu"))  # fmt: skip
        export(made, "xsched", tmp_path / policy)
        texts = [path.read_text() for path in sorted((tmp_path / policy).glob("*.env"))]
        assert len([t for t in texts if "on gpu" in t]) >= 3 and any(variable in text for text in texts)
        assert hint in (tmp_path / policy / "hints.h").read_text()
        if compiler := shutil.which("cc"):
            (tmp_path / policy / "xsched").mkdir()
            (tmp_path / policy / "xsched" / "hint.h").write_text(
                "typedef int XResult; typedef unsigned long XQueueHandle;\n"
                "XResult XHintPriority(XQueueHandle, int); XResult XHintDeadline(XQueueHandle, long);\n"
            )
            command = [compiler, "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-function", "-xc", "-I."]
            source = '#include "hints.h"\nint main(void) { return 0; }\n'
            assert subprocess.run([*command, "-"], input=source, text=True, cwd=tmp_path / policy).returncode == 0


def test_what_a_runtime_lacks_is_left_out_by_name_or_refused(pipe: Pipeline, tmp_path: Path) -> None:
    made = plan("perception-stack", "qcs8550", explain=False, refine=False, cuts=False, pins=("backbone=npu",))
    files = runtimes.onnxruntime(ExportRequest(made))
    omitted = files["omitted.txt"]
    assert isinstance(omitted, str) and omitted.startswith("pfn: ") and "backbone/session.json" in files
    with pytest.raises(UsageError, match=r"ONNX Runtime has nothing that runs on npu0, where detect\.1 is planned"):
        runtimes.onnxruntime(ExportRequest(planned(pipe, "rk3588", "npu0", "npu0", "npu0")))
    orin = planned(pipe, "jetson-agx-orin-64gb", "gpu", "gpu", "gpu")
    session = json.loads(str(runtimes.onnxruntime(ExportRequest(orin))["detect/session.json"]))
    assert (
        session["providers"][0][0] == "TensorrtExecutionProvider"
        and session["parts"][0]["planned_runtime"] == "tensorrt"
    )
    with pytest.raises(UsageError, match="XSched has no policy"):
        xsched.write(ExportRequest(replace(orin, policy="llf")))
    functions = replace(orin, tasks=tuple(t for t in orin.tasks if not t.name.startswith("detect.")))
    with pytest.raises(UsageError, match="no stage of the plan is a network"):
        networks(functions)
