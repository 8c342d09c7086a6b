"""A Ray cluster of two nodes, one of which fails during the sweep: the table is that of the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables are Parquet")
pytest.importorskip("ray", reason="the engine needs Ray")

from disturbed import ROWS, STUDY, await_rows, digest, rows, start

pytestmark = pytest.mark.slow


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
