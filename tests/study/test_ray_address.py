"""The listening address of a Ray started by a sweep."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="the engine needs Ray")
pytestmark = pytest.mark.slow

LISTENING = """
import json, os
import ray
from socsched.study.engines import RayEngine

def children(pid):
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in open(f"/proc/{pid}/task/{task}/children").read().split():
            found += children(int(child))
    return found

def sockets(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]

class Nothing:
    pass

with RayEngine(Nothing(), 1):
    ours = {inode for pid in children(os.getpid()) for inode in sockets(pid)}
    rows = [line.split() for file in ("tcp", "tcp6") for line in open(f"/proc/net/{file}").read().splitlines()[1:]]
    print(json.dumps(sorted({row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in ours})))
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_it_listens_on_the_loopback_interface_alone() -> None:
    done = subprocess.run([sys.executable, "-c", LISTENING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found and set(found) <= LOOPBACK
