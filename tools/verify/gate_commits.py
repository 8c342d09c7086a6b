"""Commits acted out in a repository with a guard: those that break, weaken or slow something fail it, no other does.

`pytest tests/cli/test_guard.py` makes a repository with a pipeline, a board, networks, a profile and an accepted plan,
and guards each commit of the lists, in a clone, as CI would.  A commit is right if the exit code is as expected
and the summary names the cause.  Needs onnx and git.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
PIPELINE, BOARD = "my-stack", "my-board"
SHIPPED = "jetson-orin-nx-16gb"
STACK = """schema_version: "1"
name: my-stack
title: my detector on camera images
sensors:
  camera: {kind: camera, period: 33.333 ms, jitter: 1 ms, bytes_per_frame: 6220800 B, assumed: full HD}
  lidar: {kind: lidar, period: 100 ms, bytes_per_frame: 1 MB, assumed: 32 beams}
stages:
  prepare:
    title: crop and normalise
    after: [camera]
    share: 1
    assumed: single-threaded code
    costs:
      - {platform: my-board, mode: MAXN, engine: cpu, precision: fp32, units: 1,
         time: {value: 2 ms, kind: assumed, note: like a shipped one, error: 0.5}}
  detect:
    title: the network
    onnx: ../networks/det.onnx
    after: [prepare]
    precisions: [fp32, fp16]
    accuracy_loss: {fp16: 0.1}
    engines: [gpu]
  segment:
    title: another network
    onnx: ../networks/seg.onnx
    after: [prepare]
    precisions: [fp16]
    engines: [dla0]
    queue: 1
  cluster:
    title: objects of the lidar
    after: [lidar]
    share: 1
    assumed: single-threaded code
    costs:
      - {platform: my-board, mode: MAXN, engine: cpu, precision: fp32, units: 1,
         time: {value: 9 ms, kind: assumed, note: like a shipped one, error: 0.5}}
  fuse:
    title: fusion
    after: [detect]
    reads: [cluster, segment]
    share: 1
    assumed: single-threaded code
    costs:
      - {platform: my-board, mode: MAXN, engine: cpu, precision: fp32, units: 1,
         time: {value: 1 ms, kind: assumed, note: like a shipped one, error: 0.5}}
  log:
    title: recorder
    after: [fuse]
    share: 1
    assumed: single-threaded code
    costs:
      - {platform: my-board, mode: MAXN, engine: cpu, precision: fp32, units: 1,
         time: {value: 500 us, kind: assumed, note: like a shipped one, error: 0.5}}
chains:
  detection: {path: [camera, prepare, detect, fuse], deadline: 60 ms, max_age: 80 ms}
  segmentation: {path: [camera, prepare, segment], deadline: 60 ms, criticality: hard}
accuracy_budget: 0.5
"""


def network(channels: int, seed: int = 0) -> onnx.ModelProto:
    """Return a small network: three convolutions of so many channels on an image of 256 x 384."""
    draw = np.random.default_rng(seed)
    nodes, weights, last, depth = [], [], "images", 3
    for number in range(3):
        shape = (channels, depth, 3, 3)
        weights.append(numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32) / 9, f"w{number}"))
        stride = 2 if number == 0 else 1
        name = f"c{number}"
        nodes.append(helper.make_node("Conv", [last, f"w{number}"], [name], name, pads=[1] * 4, strides=[stride] * 2))
        nodes.append(helper.make_node("Relu", [name], [f"r{number}"], f"relu{number}"))
        last, depth = f"r{number}", channels
    ends = [
        helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 256, 384]),
        helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, channels, 128, 192]),
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def profile(time_ns: int) -> str:
    """Return a profile in which the fusion takes so long."""
    cost = {"stage": "fuse", "mode": "MAXN", "precision": "fp32", "share": 1, "time_ns": time_ns}
    costs = [cost | {"engine": engine} for engine in ("cpu0", "cpu1")]
    return json.dumps({"schema_version": "1", "platform": BOARD, "tool": "by hand", "date": "", "costs": costs})


def make(folder: Path) -> None:
    """Write the files of the repository into a folder."""
    for name in ("pipelines", "platforms", "networks", "profiles", "baseline"):
        (folder / name).mkdir(parents=True)
    (folder / "pipelines" / f"{PIPELINE}.yaml").write_text(STACK, encoding="utf-8")
    board = (ROOT / "platforms" / f"{SHIPPED}.yaml").read_text(encoding="utf-8")
    board = board.replace(f"name: {SHIPPED}\n", f"name: {BOARD}\n", 1)
    (folder / "platforms" / f"{BOARD}.yaml").write_text(board, encoding="utf-8")
    shutil.copytree(ROOT / "platforms" / "rules", folder / "platforms" / "rules")
    onnx.save(network(48), folder / "networks" / "det.onnx")
    onnx.save(network(16), folder / "networks" / "seg.onnx")
    (folder / "profiles" / "measured.json").write_text(profile(1_000_000), encoding="utf-8")
    (folder / ".gitignore").write_text("out/\n", encoding="utf-8")


def git(folder: Path, *words: str) -> None:
    """Run git in a folder, as somebody."""
    who = ["-c", "user.name=someone", "-c", "user.email=someone@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def socsched(folder: Path, *words: str, code: Path = ROOT) -> int:
    """Run a command in a folder, by the code of a checkout, and return its exit code."""
    environment = {**os.environ, "PYTHONPATH": str(code)}
    command = [sys.executable, "-m", "socsched", *words, "-q"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode


PLAN = (PIPELINE, "-p", BOARD, "--mode", "MAXN", "--profile", "profiles/measured.json")


def start(folder: Path) -> None:
    """Make the repository, plan it, and commit it with the plan as the baseline."""
    make(folder)
    if socsched(folder, "plan", *PLAN, "-o", "baseline/plan.json"):
        raise SystemExit("the baseline is not feasible")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "baseline")


Edit = Callable[[Path], None]


def stack(before: str, after: str, count: int = 1) -> Edit:
    """Return the edit that replaces text in the pipeline."""
    return _replaces(f"pipelines/{PIPELINE}.yaml", before, after, count)


def board(before: str, after: str, count: int = 1) -> Edit:
    """Return the edit that replaces text in the platform."""
    return _replaces(f"platforms/{BOARD}.yaml", before, after, count)


def _replaces(file: str, before: str, after: str, count: int) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / file
        text = path.read_text(encoding="utf-8")
        if before not in text:
            raise SystemExit(f"{file} has no {before!r}")
        path.write_text(text.replace(before, after, count), encoding="utf-8")

    return edit


def all_of(*edits: Edit) -> Edit:
    """Return the edit that makes several."""

    def edit(folder: Path) -> None:
        for one in edits:
            one(folder)

    return edit


def _reordered(folder: Path) -> None:
    import yaml

    path = folder / "pipelines" / f"{PIPELINE}.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump(data, sort_keys=True), encoding="utf-8")


def _moved(folder: Path) -> None:
    (folder / "networks").rename(folder / "models")
    stack("../networks/", "../models/", 9)(folder)


def _slower_rules(folder: Path) -> None:
    path = folder / "platforms" / "rules" / "nvdla-v2.yaml"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if line == "operators:\n")
    first = next(number for number in range(begin, len(lines)) if lines[number].startswith("  conv2d:"))
    end = next(n for n in range(first + 1, len(lines)) if lines[n].startswith("  ") and lines[n][2] not in " #-")
    path.write_text("".join(lines[:first] + lines[end:]), encoding="utf-8")


def _file(name: str, content: str | bytes) -> Edit:
    def edit(folder: Path) -> None:
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data)

    return edit


def other_cost_model(folder: Path) -> Path:
    """Return a copy of socsched, of the same version, in whose cost model launches take nine times as long."""
    code = folder / "other"
    for name in ("socsched", "platforms", "pipelines", "studies"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", code)
    path = code / "socsched" / "cost" / "fitted.py"
    text = path.read_text(encoding="utf-8")
    before = "p.layer * engine.launch_us"
    assert before in text
    path.write_text(text.replace(before, f"9 * {before}"), encoding="utf-8")
    return code


@dataclass(frozen=True)
class Commit:
    """A change, the exit code it must have, and what the summary must say of it."""

    what: str
    edit: Edit
    code: int
    says: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    dearer: bool = False


def _nothing(folder: Path) -> None:
    (folder / "README.md").write_text("what this is\n", encoding="utf-8")


PIPE, NET = f"input pipelines/{PIPELINE}.yaml has changed", "input networks/det.onnx has changed"
HARMLESS = (
    Commit("a file that is no input", _nothing, 0),
    Commit("comments and blank lines", stack("sensors:", "# the sensors\n\nsensors:"), 0),
    Commit("keys in another order", _reordered, 0),
    Commit(
        "the same time in another unit", stack("deadline: 60 ms, max_age: 80 ms", "deadline: 0.06 s, max_age: 80 ms"), 0
    ),
    Commit("another title", stack("title: my detector", "title: our detector"), 0),
    Commit(
        "a stage renamed",
        all_of(
            stack("[camera, prepare", "[camera, crop", 9),
            stack("  prepare:", "  crop:"),
            stack("[prepare]", "[crop]", 9),
        ),
        0,
        ("name of stage crop",),
    ),
    Commit("networks in another folder", _moved, 0, ("input models/det.onnx is new",)),
    Commit("a mode that is not planned", board("name: 10W", "name: TEN_W"), 0, ("input platforms/",)),
    Commit("weights trained again", lambda at: onnx.save(network(48, 1), at / "networks" / "det.onnx"), 0, (NET,)),
    Commit(
        "a tighter deadline that holds",
        stack("deadline: 60 ms, crit", "deadline: 59 ms, crit"),
        0,
        ("59 ms", "stronger"),
    ),
    Commit("a faster stage", stack("value: 2 ms", "value: 1.9 ms"), 0, (PIPE,)),
    Commit(
        "a rule that no network meets",
        _replaces("platforms/rules/nvdla-v2.yaml", "groups: [1, 8192]", "groups: [1, 4096]", 1),
        0,
        ("input rules/nvdla-v2.yaml has changed",),
    ),
)


def weak(what: str, before: str, after: str, *says: str) -> Commit:
    """Return the commit that weakens a requirement of the pipeline."""
    return Commit(what, stack(before, after), 1, ("weaker requirement", *says))


HARMFUL = (
    weak(
        "a shorter path",
        "[camera, prepare, detect, fuse]",
        "[camera, prepare, detect]",
        "path of chain detection: camera → prepare → detect → fuse became camera → prepare → detect",
    ),
    weak(
        "a later deadline",
        "deadline: 60 ms, max_age",
        "deadline: 70 ms, max_age",
        "deadline of chain detection: 60 ms → 70 ms",
    ),
    weak("older data", "max_age: 80 ms", "max_age: 90 ms", "max age of chain detection: 80 ms → 90 ms"),
    weak(
        "a chain removed",
        "  segmentation: {path: [camera, prepare, segment], deadline: 60 ms, criticality: hard}\n",
        "",
        "chain segmentation is removed",
    ),
    weak("less critical", "criticality: hard", "criticality: soft", "criticality of chain segmentation: hard → soft"),
    weak(
        "a data type more",
        "precisions: [fp32, fp16]",
        "precisions: [fp32, fp16, int8]",
        "precisions of stage detect: fp32, fp16 → fp32, fp16, int8",
    ),
    weak("a slower sensor", "period: 33.333 ms", "period: 66.667 ms", "period of sensor camera: 33.33 ms → 66.67 ms"),
    weak("less jitter assumed", ", jitter: 1 ms", "", "jitter of sensor camera: 1 ms → none"),
    weak("smaller frames assumed", "6220800 B", "3110400 B", "frame size of sensor camera"),
    weak("a longer queue", "queue: 1", "queue: 3", "queue of stage segment: 1 → 3"),
    weak(
        "late jobs skipped",
        "    queue: 1",
        "    queue: 1\n    on_late: skip",
        "on late of stage segment: continue → skip",
    ),
    weak("any engine", "    engines: [dla0]\n", "", "engines of stage segment: dla0 → any"),
    weak(
        "a larger accuracy budget",
        "accuracy_budget: 0.5",
        "accuracy_budget: 1.5",
        "accuracy budget of pipeline: 0.5 points → 1.5 points",
    ),
    Commit(
        "a stage removed",
        stack(STACK[STACK.index("  log:") : STACK.index("chains:")], ""),
        1,
        ("weaker requirement: stage log is removed",),
    ),
    Commit(
        "a higher cap on power",
        board("value: 30 W", "value: 90 W"),
        1,
        ("power cap of platform: 30 W → 90 W", "input platforms/my-board.yaml has changed"),
    ),
    Commit(
        "a slower network",
        lambda at: onnx.save(network(128), at / "networks" / "det.onnx"),
        1,
        (NET, "detect on gpu fp16 costs"),
    ),
    Commit("a slower function", stack("value: 2 ms", "value: 4 ms"), 1, (PIPE, "prepare on cpu")),
    Commit(
        "a slower clock",
        board("clock: 918 MHz\n        dynamic", "clock: 306 MHz\n        dynamic"),
        1,
        ("input platforms/my-board.yaml has changed", "detect on gpu"),
    ),
    Commit(
        "an operator that is refused",
        _slower_rules,
        1,
        ("input rules/nvdla-v2.yaml has changed", "an engine for stage segment"),
    ),
    Commit(
        "measured anew, slower",
        _file("profiles/measured.json", profile(4_000_000)),
        1,
        ("input profiles/measured.json has changed", "fuse on cpu"),
    ),
    Commit("another cost model", _nothing, 1, ("socsched itself has changed",), dearer=True),
    Commit(
        "a deadline that cannot be met",
        stack("deadline: 60 ms, max_age", "deadline: 3 ms, max_age"),
        1,
        ("infeasible",),
    ),
    Commit(
        "a faster sensor that overloads",
        stack("period: 33.333 ms", "period: 1.9 ms"),
        1,
        ("period of sensor camera", "feasible →"),
    ),
    Commit(
        "a stage pinned elsewhere",
        _nothing,
        1,
        ("options: none → --pin segment=dla0 --deadline detection=61ms --no-cuts",),
        ("--pin", "segment=dla0", "--no-cuts", "--deadline", "detection=61ms"),
    ),
    Commit("too little slack", _nothing, 1, ("slack", "required 59 ms"), ("--require-slack", "59ms")),
    Commit(
        "a file that is invalid",
        stack("deadline: 60 ms, max_age", "deadline: soon, max_age"),
        2,
        ("no verdict", "soon"),
    ),
    Commit("a network that is gone", lambda at: (at / "networks" / "det.onnx").unlink(), 2, ("no verdict", "det.onnx")),
)


def judge(repository: Path, commit: Commit, folder: Path) -> list[str]:
    """Return what is wrong with the guard's judgement on a commit, acted out in a clone below `folder`."""
    clone = folder / "clone"
    git(folder, "clone", "-q", str(repository), str(clone))
    commit.edit(clone)
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "--allow-empty", "-m", commit.what)
    code = other_cost_model(folder) if commit.dearer else ROOT
    words = ["--baseline", "baseline/plan.json", "--max-regression", "2%", "--duration", "1s", "-o", "out"]
    found = socsched(clone, "guard", *PLAN, *words, *commit.options, code=code)
    faults = [] if found == commit.code else [f"exit code {found}, expected {commit.code}"]
    summary = (clone / "out" / "summary.md").read_text(encoding="utf-8").replace("\\", "")
    return faults + [f"not said: {text}" for text in commit.says if text not in summary]
