"""Run an export for ONNX Runtime with Qualcomm's emulation, and read back the provider of every node.

    python tools/verify/placement_sessions.py FOLDER

with the Python of the environment that `socsched doctor --install qualcomm` makes; it imports nothing of socsched.
FOLDER holds session.json of one network.  Every part runs in a session of its own with its provider alone, on seeded
inputs; the result is compared with the whole network on the CPU.  The annotated model is tried in one session as well.
Prints JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import onnxruntime_qnn as qnn

CPU, QNN = "CPUExecutionProvider", "QNNExecutionProvider"


def session(model, providers, config):
    """Return a session with (provider, options) pairs in order, and the provider that took every node."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for name, value in {**config, "session.record_ep_graph_assignment_info": "1"}.items():
        options.add_session_config_entry(name, value)
    for provider, settings in providers:
        devices = [device for device in ort.get_ep_devices() if device.ep_name == provider][:1]
        given = {**settings, "backend_path": qnn.get_qnn_htp_path()} if provider == QNN else settings
        options.add_provider_for_devices(devices, given)
    made = ort.InferenceSession(str(model), options)
    taken = {}
    for group in made.get_provider_graph_assignment_info():
        taken.update({node.name: group.ep_name for node in group.get_nodes()})
    return made, taken


def main(folder):
    """Print the providers of all nodes, the errors of the outputs, and the outcome of the annotated model."""
    document = json.loads((folder / "session.json").read_text())
    ort.register_execution_provider_library(QNN, qnn.get_library_path())
    settings = dict(document["providers"])
    whole, _ = session(folder / document["model"], [(CPU, {})], {})
    rng = np.random.default_rng(0)
    values = {one.name: rng.normal(size=one.shape).astype(np.float32) for one in whole.get_inputs()}
    names = [one.name for one in whole.get_outputs()]
    expected = dict(zip(names, whole.run(None, values), strict=True))
    taken = {}
    for part in document["parts"]:
        alone = {} if part["provider"] == CPU else {"session.disable_cpu_ep_fallback": "1"}
        model = folder / part.get("model", document["model"])
        made, nodes = session(model, [(part["provider"], settings[part["provider"]])], alone)
        taken[part["task"]] = nodes
        results = made.run(part["outputs"], {name: values[name] for name in part["inputs"]})
        values.update(zip(part["outputs"], results, strict=True))
    errors = {name: float(np.abs(values[name] - expected[name]).max() / np.abs(expected[name]).max()) for name in names}
    try:
        _, together = session(folder / document["model"], document["providers"], document["config"])
        outcome = {"nodes": together}
    except Exception as error:
        outcome = {"error": " ".join(str(error).split())[-400:]}
    versions = {"onnxruntime": ort.__version__, "onnxruntime-qnn": qnn.__version__}
    print(json.dumps({"parts": taken, "errors": errors, "annotated": outcome, "versions": versions}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
