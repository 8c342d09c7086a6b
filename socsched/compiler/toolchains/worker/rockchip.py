"""Rockchip's RKNN compiler with its simulator.

The package imports PyTorch, which only its own quantiser and PyTorch models need; a stand-in is imported instead, and
with it another gigabyte stays away.
"""

import importlib.abc
import importlib.machinery
import os
import re
import sys
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
from serving import log_since, log_size, own, serve

ROW = re.compile(r"RKNN: \[[^\]]*\] (\d+) +(\S+) +(\S+) +(CPU|NPU|GPU) +(.*?) +(\d+)/(\d+)/(\d+) +(\d+) +(.*)")
"""ID, operator, data type, unit, shapes, cycles of DRAM, NPU and total, KB moved, name."""
LONGEST_TABLE = 5000
_loaded = {}


class Absent:
    """Anything of PyTorch: a class, a decorator, a namespace."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *values, **_):
        return values[0] if values else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()


class AbsentModule(types.ModuleType):
    """A module of PyTorch, every name of which is a class."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Absent,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the stand-in for every module of PyTorch."""

    def find_spec(self, name, path, target=None):
        """Return the stand-in's specification."""
        known = name.split(".")[0] == "torch"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec):
        """Return the stand-in."""
        return AbsentModule(spec.name)

    def exec_module(self, module):
        """Do nothing."""


def versions():
    """Return the version of the compiler."""
    from importlib import metadata

    if importlib.util.find_spec("torch") is None:
        sys.meta_path.append(Finder())
    from rknn.api import RKNN

    _loaded["RKNN"] = RKNN
    version = metadata.version("rknn-toolkit2")
    return {"rknn-toolkit2": version, "RKNN": version}


def build(model, target):
    """Return the compiler with a model built for a chip, and its table of layers."""
    if "rknn" in _loaded:
        _loaded.pop("rknn").release()
    start = log_size()
    rknn = _loaded["RKNN"](verbose=True)
    _loaded["rknn"] = rknn
    rknn.config(target_platform=target["platform"])
    for step, status in (("load", lambda: rknn.load_onnx(own(model))), ("build", lambda: rknn.build(False))):
        if status() != 0:
            raise ValueError(f"{step} failed: {complaint(log_since(start))}")
    return rknn, table(log_since(start))


def table(text):
    """Return the rows of the compiler's own table of layers, those of input and output left out."""
    rows = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        found = ROW.search(line)
        if found and found[2] not in ("InputOperator", "OutputOperator"):
            _, kind, dtype, unit, _, ddr, npu, total, moved, name = found.groups()
            cycles = {"ddr": int(ddr), "npu": int(npu), "total": int(total)}
            row = {"name": name.strip(), "operator": kind, "dtype": dtype, "unit": unit, "cycles": cycles}
            rows.append({**row, "kbytes": int(moved)})
    return rows[:LONGEST_TABLE]


def complaint(text):
    """Return the first error that the compiler logged."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [line for line in plain.splitlines() if line.startswith("E ") and line.strip("E -\t")]
    return " ".join(" ".join(lines[:3]).split())[:300] or "no reason given"


def compile_model(model, target):
    """Write model.rknn."""
    rknn, layers = build(model, target)
    if rknn.export_rknn("model.rknn") != 0:
        raise ValueError("the compiler did not write model.rknn")
    return {"files": ["model.rknn"], "layers": layers}


def ask(model, target):
    """Return whether the NPU takes every operator of a model."""
    try:
        _, layers = build(model, target)
    except Exception as error:
        return {"accepted": False, "message": " ".join(str(error).split())[:300], "layers": []}
    other = sorted({row["operator"] for row in layers if row["unit"] != "NPU"})
    message = f"{', '.join(other)} on the CPU" if other else ""
    return {"accepted": not other, "message": message, "layers": layers}


def load(model, target):
    """Build a model, given as ONNX, for the simulator: it takes no .rknn file."""
    rknn, _ = build(model, target)
    if rknn.init_runtime() != 0:
        raise ValueError("the simulator did not start")
    return {}


def run(inputs, outputs):
    """Run the loaded model on arrays in .npy files; write its outputs to such files."""
    values = [np.load(own(file), allow_pickle=False) for file in inputs.values()]
    results = _loaded["rknn"].inference(values, data_format=["nchw"] * len(values))
    if results is None or len(results) != len(outputs):
        raise ValueError("the simulator gave no results")
    for file, array in zip(outputs.values(), results, strict=True):
        np.save(own(file), np.asarray(array, np.float32), allow_pickle=False)
    return {}


if __name__ == "__main__":
    serve({"compile": compile_model, "ask": ask, "load": load, "run": run}, versions)
