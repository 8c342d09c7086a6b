"""The shipped descriptor files: they load, every figure states its provenance, and totals equal the vendor's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from socsched import plugins
from socsched.cost.roofs import peaks
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.fields import PROVENANCE
from socsched.descriptor.platform import Figure, Platform
from socsched.descriptor.platform_file import read_platform
from socsched.descriptor.source import read
from tools.generate import schemas

CHECKOUT = Path(__file__).parents[2]
FILES = {kind: sorted((CHECKOUT / kind).glob("*.yaml")) for kind in ("platforms", "pipelines")}
ALL = [*FILES["platforms"], *FILES["pipelines"]]
ORIN = "jetson-agx-orin-64gb"


def load(path: Path) -> Any:
    return (get_platform if path.parent.name == "platforms" else get_pipeline)(str(path))


def figures(value: Any) -> Iterator[Figure]:
    """Every figure anywhere inside a descriptor."""
    if isinstance(value, Figure):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from figures(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from figures(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from figures(item)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_file_loads_and_is_named_like_its_file(path: Path) -> None:
    descriptor = load(path)
    assert descriptor.name == path.stem
    assert descriptor.file == str(path)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_figure_states_its_provenance(path: Path) -> None:
    descriptor = load(path)
    found = list(figures(descriptor))
    assert found or path.parent.name == "pipelines"
    for figure in found:
        assert figure.kind in PROVENANCE
        assert figure.source in descriptor.sources if figure.kind in PROVENANCE[:3] else figure.note.strip(), figure


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_source_is_used(path: Path) -> None:
    def cited(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("source"), str):
                yield value["source"]
            for item in value.values():
                yield from cited(item)
        elif isinstance(value, list):
            for item in value:
                yield from cited(item)

    data = (read_platform if path.parent.name == "platforms" else read)(path).data
    assert set(data["sources"]) == set(cited({key: item for key, item in data.items() if key != "sources"}))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_first_line_names_a_schema_that_exists(path: Path) -> None:
    prefix = "# yaml-language-server: $schema="
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(prefix)
    assert (path.parent / first.removeprefix(prefix)).is_file()


def sparse_int8_tops(platform: Platform, mode: str, kinds: tuple[str, ...] = ("gpu", "dla")) -> float:
    """Peak as NVIDIA states it: 2:4 sparsity counts twice."""
    found = [item for item in peaks(platform, platform.mode(mode)) if item.precision == "int8"]
    return sum(item.sparse for item in found if platform.engine(item.engine).kind in kinds) / 1e12


def test_orin_15w_disagreement_is_stated() -> None:
    platform = get_platform(ORIN)
    assert sparse_int8_tops(platform, "15W", ("dla",)) == pytest.approx(40, rel=0.03)
    assert sparse_int8_tops(platform, "15W", ("gpu",)) > 14 * 1.03
    assert "disagree" in platform.mode("15W").note and "54" in platform.mode("15W").note


def test_orin_modes_are_the_vendors() -> None:
    platform = get_platform(ORIN)
    assert {m.name: m.id for m in platform.modes} == {"MAXN": 0, "MODE_15W": 1, "MODE_30W": 2, "MODE_50W": 3}
    assert platform.mode().name == "MODE_30W", "nvpmodel's default after boot"
    assert platform.mode("MODE_15W") == platform.mode("15W") == platform.mode("15w")
    cores = {m.name: sum(m.engines[f"cpu{n}"].units for n in range(3)) for m in platform.modes}
    assert cores == {"MAXN": 12, "MODE_15W": 4, "MODE_30W": 8, "MODE_50W": 12}
    assert [platform.mode(m).engines["gpu"].units for m in ("MAXN", "15W", "30W", "50W")] == [16, 6, 8, 16]
    assert platform.mode("15W").dram.value < platform.dram.peak.value


def test_orin_power_of_networks_is_a_share_of_the_power_under_stress() -> None:
    """Dynamic power of the CPU clusters is 0.59 of the rail measured under CPU stress less their idle power."""
    platform = get_platform(ORIN)
    for mode, watts in (("MAXN", 15.2), ("50W", 6.0), ("30W", 5.6), ("15W", 1.6)):
        online = [e for e in platform.engines if e.kind == "cpu" and platform.mode(mode).engines[e.id].units]
        total = sum(e.idle_mw.value + platform.mode(mode).engines[e.id].dynamic_mw.value / 0.59 for e in online)
        assert total == pytest.approx(1000 * watts, rel=0.01), mode


def test_orin_engines_differ_by_declaration() -> None:
    platform = get_platform(ORIN)
    kinds = {engine.id: engine.preemption.kind for engine in platform.engines}
    assert kinds == {"cpu0": "full", "cpu1": "full", "cpu2": "full", "gpu": "segment", "dla0": "none",
                     "dla1": "none", "vic": "none", "pva": "none"}  # fmt: skip
    dla = platform.engine("dla1").operators
    assert dla.max_jobs == 16 and dla.static_shapes and dla.max_dim == 8192 and dla.weight_bytes == 512 * 2**20
    assert dla.allowed is not None and dla.allowed["conv2d_transpose"][0].limits["pad"] == (0, 0)
    assert "scatter" not in dla.allowed and "pillar_features" not in dla.allowed
    assert set(platform.engine("dla0").precisions) == {"fp16", "int8"}


def test_built_in_models_of_shipped_pipelines_exist() -> None:
    used = {stage.model for path in FILES["pipelines"] for stage in get_pipeline(str(path)).stages if stage.model}
    assert used <= set(plugins.names("socsched.models"))


def test_pointpillars_is_the_agreed_pipeline() -> None:
    pipeline = get_pipeline("pointpillars")
    names = ["voxelise", "pfn", "scatter", "backbone", "head", "decode"]
    assert [stage.name for stage in pipeline.stages] == names
    assert [stage.model for stage in pipeline.stages] == [f"pointpillars.{name}" for name in names]
    (chain,) = pipeline.chains
    assert chain.name == "lidar-detection" and chain.path == ("lidar", *names) and chain.deadline_ns == 100_000_000
    shared = [stage for stage in get_pipeline("perception-stack").stages if stage.name in names]
    assert [(s.model, s.after, s.precisions) for s in shared] == [
        (s.model, s.after, s.precisions) for s in pipeline.stages
    ]


def test_schemas_are_fresh(tmp_path: Path) -> None:
    assert schemas.stale() == [], "run python -m tools.generate.schemas"
    assert schemas.stale(tmp_path) == [*schemas.MODELS], "a missing schema is stale"


def test_schemas_describe_quantities_as_text_with_units() -> None:
    import json
    import re

    schema = json.loads((CHECKOUT / "schemas" / "pipeline.schema.json").read_text(encoding="utf-8"))
    period = schema["$defs"]["Sensor"]["properties"]["period"]
    assert period["type"] == "string" and period["description"]
    assert re.search(period["pattern"], "100 ms") and not re.search(period["pattern"], "100")
    assert schema["additionalProperties"] is False
