"""Boards against published tables: peaks, totals, modes, operating points and their power."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.cost.roofs import accelerator_int8_peak, peak
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Platform, dynamic_power

CHECKOUT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (CHECKOUT / "platforms").glob("*.yaml"))

PEAKS = [  # board, mode, engine, precision, 10^12 operations/s dense, as the vendor or a data sheet states or implies
    ("jetson-agx-orin-64gb", "MAXN", "gpu", "fp32", 5.33),
    ("jetson-agx-orin-64gb", "MAXN", "gpu", "fp16", 42.6),
    ("jetson-agx-orin-64gb", "MAXN", "gpu", "int8", 85.2),
    ("jetson-agx-orin-64gb", "MAXN", "dla0", "int8", 26.2),
    ("jetson-agx-orin-32gb", "MAXN", "gpu", "fp32", 3.33),
    ("jetson-agx-orin-32gb", "MAXN", "gpu", "fp16", 26.7),
    ("jetson-agx-orin-32gb", "MAXN", "gpu", "int8", 53.4),
    ("jetson-agx-orin-32gb", "MAXN", "dla1", "int8", 22.95),
    ("jetson-orin-nx-16gb", "MAXN", "gpu", "fp32", 1.88),
    ("jetson-orin-nx-16gb", "MAXN", "gpu", "fp16", 15.0),
    ("jetson-orin-nx-16gb", "MAXN", "gpu", "int8", 30.1),
    ("jetson-orin-nx-16gb", "MAXN", "dla0", "int8", 10.1),
    ("jetson-orin-nx-16gb", "MAXN_SUPER", "gpu", "fp16", 19.2),
    ("jetson-orin-nx-16gb", "MAXN_SUPER", "gpu", "int8", 38.4),
    ("jetson-orin-nx-16gb", "MAXN_SUPER", "dla0", "int8", 20.1),
    ("jetson-orin-nano-8gb", "15W", "gpu", "fp32", 1.28),
    ("jetson-orin-nano-8gb", "15W", "gpu", "fp16", 10.2),
    ("jetson-orin-nano-8gb", "15W", "gpu", "int8", 20.5),
    ("jetson-orin-nano-8gb", "MAXN_SUPER", "gpu", "fp32", 2.09),
    ("jetson-orin-nano-8gb", "MAXN_SUPER", "gpu", "fp16", 16.7),
    ("jetson-orin-nano-8gb", "MAXN_SUPER", "gpu", "int8", 33.4),
    ("jetson-agx-xavier", "MAXN", "gpu", "fp32", 1.41),
    ("jetson-agx-xavier", "MAXN", "gpu", "fp16", 11.3),
    ("jetson-agx-xavier", "MAXN", "gpu", "int8", 22.6),
    ("jetson-agx-xavier", "MAXN", "dla0", "int8", 5.7),
    ("jetson-agx-xavier", "MAXN", "dla0", "fp16", 2.86),
    ("jetson-tx2", "MAXN", "gpu", "fp32", 0.666),
    ("rk3588", "performance", "npu0", "int8", 2.05),
    ("rk3588", "performance", "npu2", "fp16", 1.024),
    ("rk3588", "performance", "gpu", "fp32", 0.512),
    ("qcs8550", "performance", "npu", "int8", 48.0),
    ("qcs6490", "performance", "npu", "int8", 12.0),
    ("sa8295p", "performance", "npu", "int8", 30.0),
    ("qrb5165", "performance", "npu", "int8", 15.0),
]


@pytest.mark.parametrize(("board", "mode", "engine", "precision", "tera"), PEAKS)
def test_peaks(board: str, mode: str, engine: str, precision: str, tera: float) -> None:
    platform = get_platform(board)
    found = peak(platform.engine(engine), platform.mode(mode), precision)
    assert found and found.dense / 1e12 == pytest.approx(tera, rel=0.01)


@pytest.mark.parametrize("board", NAMES)
def test_totals_equal_those_stated_by_the_vendor(board: str) -> None:
    platform = get_platform(board)
    for mode in platform.modes:
        stated = mode.stated_tops
        if stated and (board, mode.name) != ("jetson-agx-orin-64gb", "MODE_15W"):  # sources disagree, its note says so
            assert accelerator_int8_peak(platform, mode).sparse / 1e12 == pytest.approx(stated.value, rel=0.03), (
                mode.name
            )


def test_stated_totals_are_there() -> None:
    stated = {
        (name, mode.name): mode.stated_tops.value
        for name in NAMES
        for mode in get_platform(name).modes
        if mode.stated_tops
    }
    assert stated["jetson-agx-orin-64gb", "MAXN"] == 275 and stated["jetson-agx-orin-64gb", "MODE_50W"] == 200
    assert stated["jetson-agx-orin-64gb", "MODE_30W"] == 131 and stated["jetson-agx-orin-64gb", "MODE_15W"] == 54
    assert stated["jetson-orin-nx-16gb", "MAXN"] == 100 and stated["jetson-orin-nano-8gb", "15W"] == 40


def cores(platform: Platform, mode: str) -> int:
    return sum(platform.mode(mode).engines[e.id].units for e in platform.engines if e.kind == "cpu")


MODES = {  # board -> mode -> (id, cores online, core MHz, SM online, GPU MHz, DLA MHz), from the vendor's files
    "jetson-agx-orin-32gb": {
        "MAXN": (0, 8, 2201.6, 14, 930, 1400),
        "MODE_15W": (1, 4, 1113.6, 6, 408, 614.4),
        "MODE_30W": (2, 8, 1728, 8, 612, 1369.6),
        "MODE_40W": (3, 8, 1497.6, 14, 816, 1228.8),
    },
    "jetson-orin-nx-16gb": {
        "MAXN": (0, 8, 1984, 8, 918, 614.4),
        "10W": (1, 4, 1190.4, 4, 612, 153.6),
        "15W": (2, 4, 1651.2, 4, 612, 614.4),
        "25W": (3, 8, 1497.6, 8, 408, 614.4),
        "MAXN_SUPER": (0, 8, 1984, 8, 1173, 1228.8),
        "40W": (4, 8, 1497.6, 8, 1173, 908.8),
    },
    "jetson-orin-nano-8gb": {
        "15W": (0, 6, 1510.4, 8, 624.75, None),
        "7W": (1, 4, 960, 4, 408, None),
        "25W": (1, 6, 1344, 8, 918, None),
        "MAXN_SUPER": (2, 6, 1728, 8, 1020, None),
    },
    "jetson-agx-xavier": {
        "MAXN": (0, 8, 2265.6, 8, 1377, 1395.2),
        "MODE_10W": (1, 2, 1190.4, 4, 522.75, 550),
        "MODE_15W": (2, 4, 1190.4, 8, 675.75, 750),
        "MODE_30W_ALL": (3, 8, 1190.4, 8, 905.25, 1050),
        "MODE_30W_6CORE": (4, 6, 1420.8, 8, 905.25, 1050),
        "MODE_30W_4CORE": (5, 4, 1804.8, 8, 905.25, 1050),
        "MODE_30W_2CORE": (6, 2, 2112, 8, 905.25, 1050),
        "MODE_15W_DESKTOP": (7, 4, 2188.8, 8, 675.75, 115.2),
    },
    "jetson-tx2": {
        "MAXN": (0, 6, 2035.2, 2, 1300.5, None),
        "MAXQ": (1, 4, 1267.2, 2, 854.25, None),
        "MAXP_CORE_ALL": (2, 6, 1420.8, 2, 1122, None),
        "MAXP_CORE_ARM": (3, 4, 2035.2, 2, 1122, None),
    },
}


@pytest.mark.parametrize("board", MODES)
def test_modes_are_the_vendors(board: str) -> None:
    platform = get_platform(board)
    for name, (number, online, core_mhz, units, gpu_mhz, dla_mhz) in MODES[board].items():
        mode = platform.mode(name)
        assert (mode.name, mode.id, cores(platform, name)) == (name, number, online)
        assert {
            mode.engines[e.id].clock_hz for e in platform.engines if e.kind == "cpu" and mode.engines[e.id].units
        } == {round(core_mhz * 1e6)}, name
        assert (mode.engines["gpu"].units, mode.engines["gpu"].clock_hz) == (units, round(gpu_mhz * 1e6)), name
        if dla_mhz:
            assert mode.engines["dla0"].clock_hz == round(dla_mhz * 1e6), name
        else:
            assert not any(engine.kind == "dla" for engine in platform.engines)


def test_memory_clock_caps_bandwidth() -> None:
    orin, nano = get_platform("jetson-agx-orin-64gb"), get_platform("jetson-orin-nano-8gb")
    assert orin.mode("15W").dram.value == 136.5e9 and orin.mode("30W").dram.value == 204.8e9
    assert nano.mode("15W").dram.value == 68.3e9 and nano.mode("25W").dram.value == 102.4e9
    assert get_platform("jetson-agx-xavier").mode("10W").dram.value == pytest.approx(1065.6e6 * 64, rel=1e-3)


CORE_MW = {  # dynamic-power-coefficient x f x V^2 of one busy core at each operating point of the device tree
    ("rk3588", "a55"): {1008: 105, 1200: 139, 1416: 188, 1608: 265, 1800: 370},
    ("rk3588", "a760"): {1200: 227, 1416: 310, 1608: 389, 1800: 541, 2016: 718, 2208: 896, 2400: 998},
    ("hikey960", "a53"): {533: 29, 999: 70, 1402: 125, 1709: 188, 1844: 245},
    ("hikey960", "a73"): {903: 243, 1421: 500, 1805: 804, 2112: 1162, 2362: 1572},
    ("odroid-xu4", "a7"): {200: 15, 400: 36, 700: 63, 1000: 109, 1300: 183, 1400: 205},
    ("odroid-xu4", "a15"): {
        200: 50, 800: 201, 900: 279, 1200: 372, 1300: 488, 1500: 563, 1600: 775, 1800: 855, 2000: 1068,
    },
}  # fmt: skip


NETWORKS_DRAW = {"rk3588": 0.88}
"""Power of networks relative to the device tree's coefficient, where measured power was fitted."""


@pytest.mark.parametrize(("board", "engine"), CORE_MW)
def test_power_of_a_core_at_its_operating_points(board: str, engine: str) -> None:
    found = get_platform(board).engine(engine)
    for mhz, milliwatt in CORE_MW[board, engine].items():
        wanted = milliwatt * NETWORKS_DRAW.get(board, 1.0)
        assert dynamic_power(found, 1, mhz * 10**6).value == pytest.approx(wanted, abs=1.0, rel=0.01), mhz


def test_capacities_of_energy_models() -> None:
    """Juno r0 and HiKey960 as their EAS tables have them; the fastest point of the big cluster is 1024."""
    wanted = {
        ("juno", "a57"): [417, 579, 744, 883, 1024],
        ("juno", "a53"): [235, 302, 368, 406, 447],
        ("hikey960", "a73"): [390, 615, 782, 915, 1024],
        ("hikey960", "a53"): [133, 250, 351, 429, 462],
    }
    for (board, engine), capacities in wanted.items():
        points = get_platform(board).engine(engine).points
        assert points and [point.capacity for point in points.points] == capacities


@pytest.mark.parametrize("board", NAMES)
def test_what_every_board_declares(board: str) -> None:
    platform = get_platform(board)
    assert platform.dram.size.value > 0 and platform.dram.achievable.value <= platform.dram.peak.value
    for engine in platform.engines:
        assert engine.source or engine.assumed, engine.id
        assert engine.points or engine.kind not in ("cpu", "gpu") or engine.assumed, engine.id
        if engine.kind == "cpu":
            assert engine.performance and engine.performance.value > 0, "carries host code from CPU to CPU"
            assert engine.operators.host_code and engine.converts
        if engine.kind in ("dla", "npu"):
            assert engine.operators.name and engine.operators.allowed, "rules as data"
    for mode in platform.modes:
        assert mode.source or mode.assumed, mode.name
        for engine in platform.engines:
            state = mode.engines[engine.id]
            if state.units and engine.points:
                clocks = [point.clock_hz for point in engine.points.points]
                assert state.clock_hz <= clocks[-1], (mode.name, engine.id)
    assert any(mode.default for mode in platform.modes)


def test_accelerators_reproduce_the_networks_their_efficiency_is_from() -> None:
    """ResNet-50 is 8.2 GOP: frames/s or ms measured on the board, against peak x efficiency."""
    for board, engine, precision, measured in (
        ("rk3588", "npu0", "int8", 110.1 * 8.2e9),
        ("qcs8550", "npu", "int8", 8.2e9 / 0.767e-3),
        ("qcs8550", "npu", "fp16", 8.2e9 / 2.198e-3),
        ("qcs6490", "npu", "int8", 8.2e9 / 2.612e-3),
        ("sa8295p", "npu", "int8", 8.2e9 / 1.314e-3),
        ("jetson-agx-orin-64gb", "dla0", "int8", 1018 * 8.2e9),
        ("jetson-agx-orin-64gb", "gpu", "int8", 4500 * 8.2e9),
    ):
        platform = get_platform(board)
        mode = platform.mode("MAXN" if board.startswith("jetson") else "performance")
        found = peak(platform.engine(engine), mode, precision)
        share = platform.engine(engine).precisions[precision].efficiency["conv"].value
        assert found and found.dense * share == pytest.approx(measured, rel=0.05), (board, precision)


def test_big_cores_are_faster_than_little_ones() -> None:
    for board, little, big in (("rk3588", "a55", "a760"), ("odroid-xu4", "a7", "a15"), ("qcs8550", "a510", "x3")):
        platform = get_platform(board)
        slow, fast = (platform.engine(name).performance for name in (little, big))
        assert slow and fast and fast.value > 1.5 * slow.value, board
