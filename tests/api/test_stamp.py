"""What plans name: everything they were made from, options that are not the usual ones, what was asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import socsched as ss
from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.descriptor.pipeline_file import onnx_pipeline
from socsched.files import gzipped, sources_digest
from socsched.reporting.plan_diff import diff
from tests.models.onnx_files import resnet

BOARD, MODE = "jetson-agx-orin-64gb", "MAXN"
FAST = {"solver": "heft", "refine": False, "explain": False}
CODE = "from socsched.files import sources_digest; print(sources_digest())"


def digest_of(folder: Path) -> str:
    """Return the digest that a process computes for the socsched in a folder."""
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def test_the_digest_of_the_sources_is_that_of_every_file_and_of_no_place(checkout: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "site-packages"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(checkout / "socsched", wheel / "socsched", ignore=ignored)
    for name in ("platforms", "pipelines", "studies", "schemas"):  # inside the package, as a wheel has them
        shutil.copytree(checkout / name, wheel / "socsched" / name)
    (wheel / "socsched" / "cost" / "__pycache__").mkdir()
    (wheel / "socsched" / "cost" / "__pycache__" / "x.py").write_text("1")
    assert digest_of(wheel) == digest_of(checkout) == sources_digest()
    seen = {sources_digest()}
    for file in ("cost/fitted.py", "sim/kernel/kernel.pxd", "trained/pointpillars-s.scales.json"):
        with (wheel / "socsched" / file).open("a") as text:
            text.write(" ")
        seen.add(digest_of(wheel))
    assert len(seen) == 4


def test_every_option_that_decides_a_plan_is_in_it(tmp_path: Path) -> None:
    """An option of `PlanOptions` that is added needs a decision: it is named in the plan, or it decides nothing."""
    named = {
        "objective": "energy", "policy": "fp", "solver": "restarts", "cuts": False, "refine": False,
        "power_cap": 50_000, "bandwidth_cap": 10**11, "pins": ("backbone=gpu",), "prefers": ("backbone=gpu",),
        "deadlines": ("lidar-detection=90ms",), "runtimes": ("gpu=tvm",), "robust": True, "steady": True,
        "precisions": ("backbone=fp16",), "shapes": ("image=1x3x64x96",), "dims": ("N=1",), "shares": ("gpu=2",),
            "memory": ("gpu=256MiB",),
    }  # fmt: skip
    texts = set()
    for name, value in named.items():
        source = onnx_pipeline(resnet(tmp_path / "net.onnx")) if name in ("shapes", "dims") else "pointpillars"
        plan = plan_with(source, BOARD, MODE, PlanOptions(**{**FAST, name: value}))
        texts.add(plan.tool["options"])
    assert len(texts) == len(named)
    assert any("--power-cap 50000mW" in text for text in texts)
    # budgets end a search, and what ended it is in the plan; planners and their settings, and profiles, are below
    others = {"time_limit", "patience", "explain", "profile", "planner", "settings"}
    assert {field.name for field in fields(PlanOptions)} - set(named) - others <= {"evaluations", "budget", "effort"}
    plan = plan_with(
        "pointpillars",
        BOARD,
        MODE,
        PlanOptions(**FAST, planner="axonn", settings={"share": "0.7", "stage": "backbone"}),
    )
    assert "--planner axonn -O share=0.7 -O stage=backbone" in plan.tool["options"]


def test_a_usual_plan_names_no_options_and_equal_plans_no_difference() -> None:
    plan = ss.plan("pointpillars", BOARD, MODE)
    assert "options" not in plan.tool
    assert diff(plan, ss.plan("pointpillars", BOARD, MODE), 0.0).changes == ()
    other = ss.plan("pointpillars", BOARD, MODE, pins="backbone=gpu")
    assert "options: none → --pin backbone=gpu" in diff(plan, other, 9.0).changes


def test_platforms_that_known_costs_are_of_are_inputs(checkout: Path) -> None:
    plan = ss.plan("perception-stack", BOARD, MODE, **FAST)
    pipeline = ss.load_pipeline("perception-stack")
    named = {cost.platform for stage in pipeline.stages for cost in stage.costs}
    described = {name for name in named if (checkout / "platforms" / f"{name}.yaml").is_file()}
    assert described and {f"platforms/{name}.yaml" for name in described} <= set(plan.inputs)


@pytest.mark.parametrize("level", [1, 4, 6, 9])
def test_compressed_files_have_one_header_and_are_read_everywhere(level: int) -> None:
    import gzip

    for data in (b"", b"x", bytes(range(256)) * 999):
        packed = gzipped(data, level)
        assert packed[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
        assert gzip.decompress(packed) == data


def test_nothing_else_writes_gzip(checkout: Path) -> None:
    """Headers of `gzip.compress` differ between versions of Python, those of `GzipFile` hold a name and a time."""
    for path in (checkout / "socsched").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "gzip.compress" not in text and "GzipFile(" not in text and "w:gz" not in text, path
