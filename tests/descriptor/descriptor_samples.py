"""Small valid descriptor files into which tests insert one fault at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.descriptor.pipeline_file import load_pipeline
from socsched.descriptor.platform_file import load_platform
from socsched.errors import DescriptorError

PIPELINE = """\
schema_version: "1"
name: small
title: two stages behind a LiDAR
sources:
  bench: {title: a bench}
sensors:
  lidar: {kind: lidar, period: 100 ms}
  camera: {kind: camera, period: 33 ms}
stages:
  detect:
    title: find objects
    model: pointpillars.backbone
    after: [lidar]
    precisions: [fp32, fp16]
  track:
    title: follow objects
    after: [detect]
    reads: [camera]
    costs:
      - {platform: p, mode: m, engine: cpu, precision: fp32, time: {value: 5 ms, kind: measured, source: bench}}
  control:
    title: steer
    period: 20 ms
    reads: [track]
    costs:
      - {platform: p, mode: m, engine: cpu, precision: fp32, time: {value: 1 ms, kind: assumed, note: a guess}}
chains:
  command:
    path: [lidar, detect, track, control]
    deadline: 200 ms
"""

PLATFORM = """\
schema_version: "1"
name: board
title: a board
vendor: acme
sources:
  book: {title: a data sheet}
dram:
  size: {value: 8 GiB, kind: published, source: book}
  peak: {value: 50 GB/s, kind: published, source: book}
  achievable: {value: 40 GB/s, kind: assumed, note: 80 %}
  energy: {value: 40 pJ/B, kind: assumed, note: as others}
thermal:
  throttle: {value: 99.5 C, kind: published, source: book}
engines:
  cpu:
    kind: cpu
    title: two clusters
    count: 2
    units: 4
    unit: core
    shares: unit
    clock: {value: 2 GHz, kind: published, source: book}
    bandwidth: {value: 20 GB/s, kind: measured, source: book}
    precisions:
      fp32:
        ops_per_cycle: {value: 16, kind: derived, note: 2 pipes x 4 lanes x 2}
        layout: NCHW16c
        efficiency: {conv: {value: 0.6, kind: assumed, note: guess}, default: {value: 0.02, kind: assumed, note: guess}}
    preemption: {kind: full, cost: {value: 5 us, kind: assumed, note: a guess}}
    launch: {value: 5 us, kind: assumed, note: a guess}
    submit: {value: 5 us, kind: assumed, note: a guess}
    handoff: {value: 5 us, kind: assumed, note: a guess}
    converts: true
    idle: {value: 200 mW, kind: assumed, note: a guess}
    dynamic: {value: 4 W, kind: measured, source: book, error: 0.1}
    operators:
      host_code: true
      allowed:
        conv2d: {limits: {kernel_h: [1, 32]}, dtypes: [fp32]}
    target: {kind: llvm}
modes:
  - name: MAX
    id: 0
    aliases: [full]
    default: true
    base: {value: 5 W, kind: assumed, note: a guess}
    dram: {value: 50 GB/s, kind: published, source: book}
    engines:
      cpu: {units: 4, clock: 2 GHz, dynamic: {value: 4 W, kind: assumed, note: a guess}}
  - name: LOW
    id: 1
    cap: {value: 10 W, kind: published, source: book}
    base: {value: 5 W, kind: assumed, note: a guess}
    dram: {value: 25 GB/s, kind: published, source: book}
    engines:
      cpu0: {units: 2, clock: 1 GHz, dynamic: {value: 1 W, kind: assumed, note: a guess}}
      cpu1: {units: 0}
"""

LOADERS = {"pipeline": load_pipeline, "platform": load_platform}
SAMPLES = {"pipeline": PIPELINE, "platform": PLATFORM}


def replaced(text: str, old: str, new: str) -> str:
    """Return `text` with its only occurrence of `old` replaced."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def findings(kind: str, text: str | bytes, folder: Path) -> list[str]:
    """Return the findings about a broken file as line:column: field: text."""
    path = folder / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DescriptorError) as caught:
        LOADERS[kind](path)
    assert str(caught.value).startswith(f"{path}:{caught.value.findings[0].line}:")
    return [f"{f.line}:{f.column}: {f.field}: {f.expected}" for f in caught.value.findings]
