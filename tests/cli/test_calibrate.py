"""`socsched calibrate`, and runs that use its output."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from socsched.cli.root import run
from socsched.compiler import builder
from socsched.compiler.quantize.scales import Scales, read_pipeline_scales
from socsched.descriptor.catalog import get_pipeline
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.tvm_cpu import TvmCpuBackend


@pytest.mark.slow
def test_scales_of_the_shipped_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On synthetic frames and seeded weights, which are reported."""
    file = tmp_path / "scales.json"
    assert run(["calibrate", "pointpillars", "--frames", "1", "-o", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    assert "fit no others" in printed.err
    assert json.loads(printed.out)["stages"] == {"backbone": 21, "head": 4}
    scales = read_pipeline_scales(file)
    assert scales["backbone"].source == "least squared error over 1 inputs"
    assert scales["backbone"].values["neck"].step == pytest.approx(scales["head"].values["neck"].step, rel=1e-3)


def test_a_run_compiles_with_its_scales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scales.json"
    file.write_text(json.dumps({"head": {"neck": 0.1}}))
    given: list[Scales | None] = []

    def compiled(*arguments: Any, scales: Scales | None = None) -> None:
        given.append(scales)
        raise StopIteration

    monkeypatch.setattr(builder, "compile_stage", compiled)
    pipeline = get_pipeline("pointpillars")
    stages = {stage.name: stage for stage in pipeline.stages}
    task: Any = SimpleNamespace(engine="cpu", precision="int8", lanes=("cpu",))
    platform: Any = SimpleNamespace(engine=lambda name: None)
    plan: Any = None
    for name, path in (("head", file), ("backbone", file), ("head", None)):
        setting = Setting(plan, pipeline, platform, {name: {}}, None, 0, path)
        with pytest.raises(StopIteration):
            TvmCpuBackend().prepare(task, stages[name], setting)
    assert given[0] is not None and given[0].values["neck"].step == 0.1
    assert given[1:] == [None, None]
