"""Power of the module, of rails and at the wall, with the uncertainty of the figures behind it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from socsched.cost.power import Watts, at_wall, on_rail, parts, power_terms, total
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Figure, Rail, Supply

ORIN = "jetson-agx-orin-64gb"
SUPPLY = Supply("a kit", Figure(2000, "assumed", error=0.5), Figure(0.8, "assumed", error=0.05))


def test_parts_add_up_to_the_terms_of_a_plan() -> None:
    platform = get_platform(ORIN)
    mode, used = platform.mode("30W"), {"gpu": 0.5, "dla0": 1.0}
    found, terms = parts(platform, mode, used, 10e9), power_terms(platform, mode, used, 10e9)
    assert [(part.name, round(part.mw)) for part in found] == list(terms)
    assert total(found).mw == pytest.approx(sum(mw for _, mw in terms), abs=len(terms))
    assert not any(part.load == "cpu2" for part in found), "off in this mode"


def test_the_wall_adds_carrier_and_losses() -> None:
    power = at_wall(SUPPLY, Watts(6000, 0))
    assert power.mw == pytest.approx(10_000)
    assert power.error_mw == pytest.approx(math.hypot(2000 * 0.5 / 0.8, 10_000 * 0.05))
    assert at_wall(SUPPLY, Watts(6000, 600)).error_mw > power.error_mw


def test_clusters_of_one_figure_err_alike() -> None:
    platform = get_platform(ORIN)
    mode = platform.mode("MAXN")
    dynamic = mode.engines["cpu0"].dynamic_mw
    found = [p for p in parts(platform, mode, dict.fromkeys(("cpu0", "cpu1", "cpu2"), 1.0), 0) if p.figure == dynamic]
    assert len(found) == 3 and total(found).error_mw == pytest.approx(3 * dynamic.value * dynamic.error)
    other = replace(found[2], figure=replace(dynamic, note="another"))
    assert total([*found[:2], other]).error_mw == pytest.approx(math.hypot(2, 1) * dynamic.value * dynamic.error)


def test_a_rail_carries_what_it_feeds() -> None:
    platform = get_platform("jetson-agx-xavier")
    mode = platform.mode("MAXN")
    found = parts(platform, mode, {"gpu": 1.0, "carmel0": 0.5}, 100e9)
    gpu = on_rail(platform, platform.rails["GPU"], found)
    cpu = on_rail(platform, platform.rails["CPU"], found)
    assert gpu and gpu.mw == pytest.approx(18_525, rel=0.01), "the rail of a log with the GPU at 99 %"
    assert cpu and cpu.mw == pytest.approx(618 + mode.engines["carmel0"].dynamic_mw.value / 2)
    memory = on_rail(platform, platform.rails["VDDRQ"], found)
    assert memory and memory.mw == pytest.approx(309 + 100 * platform.dram.picojoule_per_byte.value)
    engines = on_rail(platform, Rail("clusters", ("carmel",)), found)
    assert engines and engines.mw == pytest.approx(sum(p.mw for p in found if p.load.startswith("carmel")))
    assert on_rail(platform, Rail("clusters and others", ("carmel", "soc")), found) is None
