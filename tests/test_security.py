"""SECURITY.md says what the code does: its figures are those of the code, its tools and services exist.

What the readers do at their bounds is tested with each: tests/test_bounded.py, test_confined.py, test_readers.py,
models/test_hostile_weights.py, interchange/test_mutations.py, reporting/test_hostile_folders.py,
executor/test_hostile_run_files.py, cli/test_serve.py, lint/test_lint.py and study/test_measure.py.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from socsched.bounded import seconds

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
MIB = 2**20


@pytest.mark.parametrize(
    ("claim", "name", "value"),
    [
        ("a pipe is read up to 64 MiB", "bounded.PIPE_BYTES", 64 * MIB),
        ("after 10 s of silence", "bounded.PIPE_SECONDS", 10),
        ("expand to 64 MiB and 16 times its size", "bounded.SLACK", 64 * MIB),
        ("expand to 64 MiB and 16 times its size", "bounded.RATIO", 16),
        ("YAML: 32 levels", "descriptor.source.MAX_DEPTH", 32),
        ("| 10 MiB, 20,000 values |", "descriptor.source.MAX_BYTES", 10 * MIB),
        ("| 10 MiB, 20,000 values |", "descriptor.source.MAX_NODES", 20_000),
        ("| 16 MiB, 500,000 values;", "descriptor.json_file.MAX_BYTES", 16 * MIB),
        ("| 16 MiB, 500,000 values;", "descriptor.json_file.MAX_VALUES", 500_000),
        ("64 levels, a million elements, 1.5 million attributes", "interchange.xml_file.MOST_DEPTH", 64),
        ("64 levels, a million elements, 1.5 million attributes", "interchange.xml_file.MOST_ELEMENTS", 10**6),
        ("64 levels, a million elements, 1.5 million attributes", "interchange.xml_file.MOST_ATTRIBUTES", 1_500_000),
        ("64 MiB of XML", "interchange.xml_file.MOST_BYTES", 64 * MIB),
        ("| 2 GiB, expanded", "trace.io.MOST_BYTES", 2**31),
        ("| 4 MiB and 64 MiB a line |", "runtime.journal._LONGEST", 4 * MIB),
        ("| 4 MiB and 64 MiB a line |", "runtime.collect._LONGEST", 64 * MIB),
        ("`cost/measurements.py` | 64 MiB |", "cost.measurements.MOST_BYTES", 64 * MIB),
        ("frames 1 GiB", "runtime.input_files.LARGEST", 2**30),
        ("2 million instructions", "models.torch_file.MOST_INSTRUCTIONS", 2_000_000),
        ("| 2 GiB, 20,000 nodes;", "models.onnx_file.MOST_BYTES", 2**31),
        ("| 2 GiB, 20,000 nodes;", "models.onnx_file.MOST_NODES", 20_000),
        ("folded for 12,000 nodes", "models.onnx_graph.MOST_FOLDED", 12_000),
        ("| 256 MiB, finite numbers; 1 GiB of pixels |", "models.pointpillars.scan.MOST_BYTES", 256 * MIB),
        ("| 256 MiB of text and JSON", "interchange.profile_model.MOST_BYTES", 256 * MIB),
        ("5 million messages", "runtime.mcap_file.MOST_MESSAGES", 5_000_000),
        ("(`confined.py`): 512 MiB", "confined.MEMORY", 512 * MIB),
        ("until the trace has been fetched or ten minutes", "cli.serve.WAIT_S", 600),
        ("lasts a minute at most, 32 at once", "cli.serve._CONNECTION_S", 60),
        ("lasts a minute at most, 32 at once", "cli.serve._CONNECTIONS", 32),
        ("`executor/check_bundle.py` | 64 MiB |", "executor.check_bundle.MOST_BYTES", 64 * MIB),
    ],
)
def test_bounds_are_those_of_the_code(claim: str, name: str, value: float) -> None:
    assert claim in " ".join(TEXT.split()), "the text says something else"
    module, _, constant = name.rpartition(".")
    assert getattr(import_module(f"socsched.{module}"), constant) == value


def test_the_time_for_a_database_is_in_proportion_to_it() -> None:
    assert "5 s and a second for every 4 MiB of the file" in " ".join(TEXT.split())
    assert [seconds(size) for size in (0, 4 * MIB, 400 * MIB)] == [5, 6, 105]


@pytest.mark.parametrize(
    ("claim", "file", "code"),
    [
        ("4 GiB for the tensors of a run", "tensor.hpp", r"MOST_MEMORY = size_t\{4\} << 30"),
        ("64 MiB of JSON, 64 levels", "json.hpp", r"(?s)MOST_DEPTH = 64.*MOST_BYTES = size_t\{64\} << 20"),
        ("at most 5 million frames", "virtual_run.hpp", "MOST = 5e6"),
    ],
)
def test_bounds_of_the_native_executor(claim: str, file: str, code: str) -> None:
    assert claim in " ".join(TEXT.split())
    assert re.search(code, (ROOT / "socsched/executor/native" / file).read_text())


def test_the_fuzzers_bounds_are_those_stated() -> None:
    from tools.verify.fuzz import run

    assert (run.SECONDS, run.MEMORY) == (10, 2**30)
    assert "most 10 s of processor time, at most 1 GiB" in " ".join(TEXT.split())


def test_every_file_and_module_it_names_is_there() -> None:
    for name in re.findall(r"`((?:socsched|tests|[a-z_]+)/[\w/]*(?:\.py)?)`", TEXT):
        assert (ROOT / name).exists() or (ROOT / "socsched" / name).exists(), name
    for module in re.findall(r"python -m ([\w.]+)", TEXT):
        assert (ROOT / module.replace(".", "/")).exists() or (ROOT / f"{module.replace('.', '/')}.py").exists(), module


def test_no_reader_of_checkpoints_unpickles() -> None:
    for path in (ROOT / "socsched").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import pickle\b|from pickle\b|.*torch\.load)", text, re.M), path


def test_only_two_modules_call_pip() -> None:
    callers = sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "socsched").rglob("*.py")
        if re.search(r'"pip", "install"|ensurepip', path.read_text(encoding="utf-8"))
    )
    assert callers == ["socsched/compiler/native/compilers.py", "socsched/compiler/toolchains/environments.py"]
