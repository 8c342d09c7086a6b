"""Ctrl-C before the command line is ready: while its own modules, or those that it needs, are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "from socsched.cli import main; main(['platforms', 'list'])"


@pytest.mark.parametrize("module", ["click", "rich", "pydantic"])
def test_ctrl_c_while_modules_are_imported(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": path}
    )
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")
