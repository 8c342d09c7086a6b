"""The threads of a stage in the native executor: every chunk of a kernel is computed once, free of data races."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from socsched.executor.build import SOURCES, cxx_compiler

CHECK = Path(__file__).with_name("parallel_check.cpp")


@pytest.mark.parametrize("sanitizer", ["undefined", "thread"])
def test_every_chunk_is_computed_once(sanitizer: str, tmp_path: Path) -> None:
    compiler = cxx_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / "check"
    flags = ["-std=c++17", "-O1", "-pthread", f"-fsanitize={sanitizer}", f"-I{SOURCES}"]
    built = subprocess.run([compiler, *flags, str(CHECK), "-o", str(program)], capture_output=True, text=True)
    if built.returncode:
        if "cannot find" not in built.stderr:
            pytest.fail(built.stderr[-2000:])
        pytest.skip(f"no {sanitizer} sanitizer")
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, "TSAN_OPTIONS": "exitcode=66"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
