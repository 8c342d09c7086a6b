"""Known times on other hardware: how they are scaled, and which of several is used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.cost.anchors import TRANSFER_ERROR, Configuration, find_anchor
from socsched.cost.conversion import visible_ns
from socsched.cost.roofs import accelerator_int8_peak, peak, peaks
from socsched.cost.sources import Known
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Anchor, Stage
from socsched.descriptor.platform import Coherency, Engine, EngineMode, Figure, Platform, PowerMode
from socsched.graph.operators import TensorType, tensor_bytes

ORIN = get_platform("jetson-agx-orin-64gb")
MAXN = ORIN.mode("MAXN")


def slower(name: str = "board", performance: float | None = 1000.0, bandwidth: float = 10e9) -> Platform:
    """A platform like Orin in MAXN, with one CPU cluster at half the clock and figures of its own."""
    cpu = replace(
        ORIN.engine("cpu0"),
        id="cpu",
        clock_hz=Figure(1e9, "derived", note="x"),
        bandwidth=Figure(bandwidth, "derived", note="x"),
        performance=Figure(performance, "derived", note="x") if performance else None,
    )
    mode = replace(MAXN, name="on", default=True, engines={"cpu": EngineMode(4, 10**9, cpu.dynamic_mw)})
    return replace(ORIN, name=name, engines=(cpu,), modes=(mode,))


FAST = slower("fast", 4000.0, 40e9)


def reference(name: str) -> Platform | None:
    return FAST if name == "fast" else None


def find(platform: Platform, *anchors: Anchor, units: int = 1, clock: int = 10**9) -> Known | None:
    engine = platform.engines[0]
    mode = replace(platform.modes[0], engines={engine.id: EngineMode(4, clock, engine.dynamic_mw)})
    stage = Stage("s", "s", None, costs=anchors)
    return find_anchor(stage, Configuration(platform, engine, mode, "fp32", units, 1), {}, reference)


def anchor(platform: str = "fast", follows: str = "performance", ms: float = 8, kind: str = "measured") -> Anchor:
    return Anchor(platform, "on", "cpu", "fp32", Figure(ms * 1e6, kind, "bench", "n", 0.1), 1, 1.0, follows)


def test_host_code_follows_the_performance_of_a_core() -> None:
    found = find(slower(), anchor())
    assert found and found.time_ns == 8e6 * 4000 / 1000
    assert found.foreign and not found.exact and found.provenance == "derived"
    assert found.error == pytest.approx(0.1 + 2 * TRANSFER_ERROR)
    half = find(slower(), anchor(), clock=5 * 10**8)
    assert half and half.time_ns == 2 * found.time_ns, "performance is that of the highest clock"


def test_memory_bound_code_follows_bandwidth() -> None:
    found = find(slower(), anchor(follows="bandwidth"))
    assert found and found.time_ns == 8e6 * 40 / 10
    compute = find(slower(), anchor(follows="compute"))
    assert compute and compute.time_ns == 8e6, "same units, clock and operations a cycle"
    nothing = find(slower(), anchor(follows="nothing"))
    assert nothing and nothing.time_ns == 8e6


def test_described_hardware_is_preferred_to_undescribed_hardware() -> None:
    found = find(slower(), anchor("some server", ms=1), anchor(ms=8, kind="assumed"))
    assert found and found.time_ns == 8e6 * 4 and found.provenance == "assumed"


def test_the_most_trusted_time_is_used_unchanged_if_nothing_relates_two_cpus() -> None:
    found = find(slower(performance=None), anchor(ms=8, kind="assumed"), anchor("some server", ms=1))
    assert found and found.time_ns == 1e6 and "some server" in found.source


def test_engines_of_another_kind_are_no_guide() -> None:
    gpu = replace(slower().engines[0], kind="gpu")
    assert find(replace(slower(), engines=(gpu,)), anchor()) is None


def test_layouts_take_the_room_they_take() -> None:
    assert tensor_bytes(TensorType((1, 3, 10, 10), "int8", "NCHW")) == 300
    assert tensor_bytes(TensorType((1, 3, 10, 10), "int8", "NCHW32c")) == 3200
    assert tensor_bytes(TensorType((1, 33, 10, 10), "fp16", "NCHW32c")) == 2 * 6400
    assert tensor_bytes(TensorType((1, 3, 10, 10), "int8", "NHWC8h8w32c")) == 16 * 16 * 32


def coherent(engine: Engine, domain: str, flush: float | None = None) -> Engine:
    figure = Figure(flush, "assumed", note="x") if flush else None
    return replace(engine, handoff_ns=Figure(5000, "assumed", note="x"), coherency=Coherency(domain, figure))


def test_handing_over_without_coherency_cleans_caches() -> None:
    here, there = coherent(ORIN.engine("cpu0"), "full"), coherent(ORIN.engine("gpu"), "io")
    assert visible_ns(here, here, 10**6) == 0
    assert visible_ns(here, there, 10**6) == 5000
    deaf = coherent(ORIN.engine("dla0"), "none", 2e9)
    assert visible_ns(here, deaf, 10**6) == visible_ns(deaf, here, 10**6) == 5000 + 500_000


def test_peaks_by_hand() -> None:
    gpu = ORIN.engine("gpu")
    found = peak(gpu, MAXN, "fp16")
    assert found and found.dense == 16 * 1300.5e6 * 2048
    assert peak(gpu, MAXN, "int4") is None
    low = ORIN.mode("MODE_15W")
    assert {item.engine for item in peaks(ORIN, low)} == {"cpu0", "gpu", "dla0", "dla1"}, "powered ones only"
    total = accelerator_int8_peak(ORIN, MAXN)
    assert total.dense == pytest.approx(137.7e12, rel=0.01) and total.sparse == pytest.approx(275e12, rel=0.01)


def test_modes_are_found_by_their_short_names() -> None:
    mode = PowerMode("MODE_50W", (), 3, True, None, MAXN.base_mw, MAXN.dram, {})
    assert all(mode.called(name) for name in ("MODE_50W", "50W", "50w", "mode_50w"))
    assert not mode.called("50") and not mode.called("W")
