"""Ray: it listens on the loopback address alone, and a node of a cluster may fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables are Parquet")
pytest.importorskip("ray", reason="the engine needs Ray")

from study_files import ROWS, STUDY, await_rows, digest, rows, start

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


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Return a cluster with a head and a second node, of one core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield made
    finally:
        made.shutdown()


def test_a_node_that_dies_costs_nothing(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "killed.yaml").write_text(STUDY)
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    process = start(tmp_path, "cluster", "--engine", "ray", "--address", cluster.address)
    await_rows(process, tmp_path / "cluster", ROWS // 3)
    cluster.remove_node(second, allow_graceful=False)
    assert process.wait() in (0, 1)
    assert rows(tmp_path / "cluster") == ROWS
    assert start(tmp_path, "out").wait() in (0, 1)
    assert digest(tmp_path / "cluster") == digest(tmp_path / "out")
