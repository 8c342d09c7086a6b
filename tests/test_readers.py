"""No reader beside the bounded ones: the package is searched for calls that open files in any other way.

A call is allowed by the module's part, or in `ALLOWED` with the reason why what it reads is not a user's file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted([*(ROOT / "socsched").rglob("*.py"), *(ROOT / "socsched_ros").rglob("*.py")])

METHODS = {"read_text", "read_bytes", "fromfile", "memmap", "genfromtxt", "loadtxt", "ZipFile", "connect", "iterparse"}
"""Names of methods and functions that read a file; `open` and `load` of some modules besides."""
LOADERS = {
    *(("json", "load"), ("np", "load"), ("numpy", "load"), ("torch", "load"), ("pickle", "load"), ("pickle", "loads")),
    *(("pickle", "Unpickler"), ("yaml", "load"), ("yaml", "safe_load"), ("gzip", "open"), ("gzip", "decompress")),
    *(("bz2", "open"), ("lzma", "open"), ("lzma", "decompress"), ("zlib", "decompress"), ("tarfile", "open")),
    *(("ElementTree", "parse"), ("ET", "parse"), ("ElementTree", "fromstring"), ("ET", "fromstring")),
    *(("json", "loads"), ("marshal", "loads"), ("os", "open"), ("io", "open"), ("codecs", "open"), ("Image", "open")),
    *(("onnx", "load"), ("onnx", "load_model")),
}
ALLOWED = {
    "socsched/bounded.py": "the bounded reader",
    "socsched/confined.py": "requests and answers of its own child, and /proc",
    "socsched/interchange/sqlite_file.py": "connects within the confined child",
    "socsched/models/npz.py": "archives opened by the bounded reader",
    "socsched/models/torch_file.py": "archives opened by the bounded reader",
    "socsched/models/onnx_file.py": "maps weights beside a model after checking that they are a file",
    # files of this program, of its package and of its cache
    "socsched/cache.py": "the cache",
    "socsched/compiler/loading/stages.py": "artefacts of the cache",
    "socsched/compiler/targets/cuda/attention.py": "files of the package",
    "socsched/descriptor/host_gpus.py": "answers of its own child",
    "socsched/files.py": "writes, and digests of files",
    "socsched/reporting/markup.py": "files of the package",
    "socsched/reporting/pictures.py": "pictures drawn just before",
    "socsched/cost/fitted.py": "files of the package",
    "socsched/models/work.py": "parameters that it has written itself",
    "socsched/descriptor/platform_file.py": "files of the package",
    "socsched/sim/build.py": "sources of the package",
    "socsched/executor/application.py": "the program built just before",
    "socsched/executor/frames.py": "writes",
    "socsched/executor/references.py": "writes",
    "socsched/cli/report.py": "the trace rendered just before",
    "socsched/cli/root.py": "/dev/null",
    "socsched/study/store.py": "opens parts for writing",
    "socsched/runtime/collect.py": "writes",
    "socsched/study/inputs.py": "compares what it writes with what is there",
    "socsched/study/sweep.py": "plans that the sweep has just packed",
    "socsched/study/work.py": "a plan of the sweep, expanded within bounds",
    "socsched/executor/callbacks.py": "messages of its own child",
    "socsched/executor/vendor_stages.py": "sources of the package",
    "socsched/executor/run_native.py": "the journal of its own child, while it grows",
    "socsched/executor/programs.py": "what was compiled is trusted, see SECURITY.md",
    "socsched/api/renderers.py": "a picture whose bytes were read within bounds",
    "socsched/runtime/input_files.py": "a picture opened by the bounded reader",
    "socsched/interchange/bag.py": "expands a file opened by the bounded reader, within its allowance",
    "socsched/interchange/rtapp.py": "one text of a file read within bounds",
    "socsched/models/street.py": "a file of the package",
    "socsched/models/pointpillars/scan.py": "numbers of a file read within bounds",
    "socsched/runtime/ros_messages.py": "pictures within messages",
    # the machine itself
    "socsched/cli/doctor.py": "/proc and /sys",
    "socsched/descriptor/host.py": "/proc and /sys",
    "socsched/executor/probe/calls.py": "constants of an artefact in the cache",
    "socsched/executor/probe/onnx_runtime.py": "a profile written just before",
    "socsched/runtime/boards/local.py": "/sys",
    "socsched/runtime/conditions.py": "/proc",
    "socsched/runtime/boards/__init__.py": "/proc and /sys",
}
PARTS = {
    "socsched/compiler/": "what was compiled is trusted, see SECURITY.md; manifests are checked by check_bundle",
    "socsched/runtime/backends/": "what was compiled is trusted, see SECURITY.md",
}


def reads(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of every call that may read a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("open", "ZipFile"):
            yield node.lineno, function.id
        elif isinstance(function, ast.Attribute):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            if owner in ("bounded", "source"):
                continue
            plain_open = function.attr == "open" and owner not in ("webbrowser", "JsonFile")
            if function.attr in METHODS or plain_open or (owner, function.attr) in LOADERS:
                yield node.lineno, f"{owner or '…'}.{function.attr}"


def test_every_file_of_a_user_is_opened_by_a_bounded_reader() -> None:
    found = [
        f"{name}:{line}: {call}: read it with socsched.bounded, or list why it is no user's file"
        for path in MODULES
        if (name := path.relative_to(ROOT).as_posix()) not in ALLOWED and not any(name.startswith(p) for p in PARTS)
        for line, call in reads(path)
    ]
    assert found == []


def test_the_list_has_no_entry_without_a_use() -> None:
    assert [name for name in ALLOWED if not (ROOT / name).is_file() or not list(reads(ROOT / name))] == []


@pytest.mark.parametrize(
    "text",
    [
        "open(path)", "Path(path).open()", "path.read_text()", "json.load(file)", "np.load(path)", "np.fromfile(path)",
        "torch.load(path)", "pickle.loads(raw)", "sqlite3.connect(path)", "ET.parse(path)", "zipfile.ZipFile(path)",
        "yaml.safe_load(raw)", "gzip.open(path)", "gzip.decompress(raw)", "json.loads(text)", "os.open(path, 0)",
    ],
)  # fmt: skip
def test_the_search_sees_every_way_to_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(text)
    assert list(reads(tmp_path / "m.py"))
