"""Qualcomm's HTP compiler and its emulation on x86-64, through ONNX Runtime's provider for QNN."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import onnxruntime as ort
import onnxruntime_qnn as qnn
from serving import own, serve

PROVIDER = "QNNExecutionProvider"
CONTEXT = "model_ctx.onnx"
_loaded = {}


def versions():
    """Return the versions of what compiles."""
    ort.register_execution_provider_library(PROVIDER, qnn.get_library_path())
    from onnxruntime_qnn.build_and_package_info import qnn_version

    return {"onnxruntime-qnn": qnn.__version__, "onnxruntime": ort.__version__, "QNN": qnn_version}


def session(model, target, context=""):
    """Return a session that runs on the HTP alone: an operator that it does not take is an error."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if context:
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", context)
        options.add_session_config_entry("ep.context_embed_mode", "0")
    devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER][:1]
    settings = {"backend_path": qnn.get_qnn_htp_path(), "htp_graph_finalization_optimization_mode": "3"}
    settings.update((name, str(target[name])) for name in ("soc_model", "htp_arch", "vtcm_mb"))
    options.add_provider_for_devices(devices, settings)
    return ort.InferenceSession(own(model), options)


def compile_model(model, target):
    """Write the context binary and the ONNX file that names it."""
    session(model, target, CONTEXT)
    return {"files": sorted(name for name in os.listdir(".") if name.startswith("model_ctx"))}


def ask(model, target):
    """Return whether the HTP takes every operator of a model."""
    try:
        session(model, target)
    except Exception as error:
        return {"accepted": False, "message": " ".join(str(error).split())[:300]}
    return {"accepted": True, "message": ""}


def load(model, target):
    """Load a model, a compiled one too, into the emulation."""
    _loaded["session"] = session(model, target)
    return {}


def run(inputs, outputs):
    """Run the loaded model on arrays in .npy files; write its outputs to such files."""
    values = {name: np.load(own(file), allow_pickle=False) for name, file in inputs.items()}
    results = _loaded["session"].run(list(outputs), values)
    for file, array in zip(outputs.values(), results, strict=True):
        np.save(own(file), np.asarray(array, np.float32), allow_pickle=False)
    return {}


if __name__ == "__main__":
    serve({"compile": compile_model, "ask": ask, "load": load, "run": run}, versions)
