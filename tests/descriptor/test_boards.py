"""Boards against published tables: peaks, totals, modes, operating points and their power.

Jetson AGX Xavier, TX2, Juno, HiKey960 and Odroid-XU4: the figures that test_boards does not compare for every board.

Expected values are written out from the vendors' files and the published logs, not read from the descriptors.
"""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest
from datafiles import DATA, read

from socsched.cost.roofs import accelerator_int8_peak, peak
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Engine, dynamic_power

CHECKOUT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (CHECKOUT / "platforms").glob("*.yaml"))


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DATA / "boards" / f"{name}.csv").open(encoding="utf-8")))


@pytest.mark.parametrize("row", rows("peaks"), ids=lambda row: " ".join(list(row.values())[:4]))
def test_peaks(row: dict[str, str]) -> None:
    """10^12 operations a second, dense, as the vendor or a data sheet states or implies."""
    platform = get_platform(row["board"])
    found = peak(platform.engine(row["engine"]), platform.mode(row["mode"]), row["precision"])
    assert found and found.dense / 1e12 == pytest.approx(float(row["tera"]), rel=0.01)


@pytest.mark.parametrize("row", rows("modes"), ids=lambda row: f"{row['board']} {row['mode']}")
def test_modes_are_the_vendors(row: dict[str, str]) -> None:
    """Cores online, their clock, SMs online, the GPU's and the DLA's clock, from the vendor's files."""
    platform = get_platform(row["board"])
    mode = platform.mode(row["mode"])
    states = [mode.engines[e.id] for e in platform.engines if e.kind == "cpu" and mode.engines[e.id].units]
    dla = [mode.engines[e.id].clock_hz for e in platform.engines if e.kind == "dla"][:1]
    assert (mode.name, mode.id, sum(state.units for state in states)) == (
        row["mode"],
        int(row["id"]),
        int(row["cores"]),
    )
    assert {state.clock_hz for state in states} == {round(float(row["core_mhz"]) * 1e6)}
    assert mode.engines["gpu"].units == int(row["sm"])
    assert mode.engines["gpu"].clock_hz == round(float(row["gpu_mhz"]) * 1e6)
    assert dla == ([round(float(row["dla_mhz"]) * 1e6)] if row["dla_mhz"] else [])


@pytest.mark.parametrize("board", NAMES)
def test_totals_equal_those_stated_by_the_vendor(board: str) -> None:
    platform = get_platform(board)
    for mode in platform.modes:
        stated = mode.stated_tops
        if stated and (board, mode.name) != ("jetson-agx-orin-64gb", "MODE_15W"):  # sources disagree, its note says so
            assert accelerator_int8_peak(platform, mode).sparse / 1e12 == pytest.approx(stated.value, rel=0.03), (
                mode.name
            )


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


BOARDS = ("jetson-agx-xavier", "jetson-tx2", "juno", "hikey960", "odroid-xu4")

XAVIER = {  # TPC_PG_MASK -> SM, nvpmodel's CPU and GPU MHz, EMC MHz, falcon, VPS, AXI and CVNAS MHz (None: uncapped)
    "MODE_10W": (5, 4, 1200, 520, 1065.6, 330, 115.2, 115.2, 601.6),
    "MODE_15W": (0, 8, 1200, 670, 1331.2, 450, 550, 385, 716.8),
    "MODE_30W_ALL": (0, 8, 1200, 900, 1600, 630, 760, 532, 1011.2),
    "MODE_30W_6CORE": (0, 8, 1450, 900, 1600, 630, 760, 532, 1011.2),
    "MODE_30W_4CORE": (0, 8, 1780, 900, 1600, 630, 760, 532, 1011.2),
    "MODE_30W_2CORE": (0, 8, 2100, 900, 1600, 630, 760, 532, 1011.2),
    "MODE_15W_DESKTOP": (0, 8, 2188.8, 670, 1331.2, 115.2, 115.2, 115.2, 115.2),
}


def steps(engine: Engine) -> list[int]:
    """Return the clocks of an engine, slowest first (Hz)."""
    assert engine.points is not None
    return [point.clock_hz for point in engine.points.points]


def nearest(engine: Engine, mhz: float) -> int:
    """Return the step a board runs when its mode file asks for a clock."""
    return min(steps(engine), key=lambda clock: abs(clock - mhz * 1e6))


@pytest.mark.parametrize("name", XAVIER)
def test_xavier_modes_run_the_steps_nearest_to_their_files(name: str) -> None:
    mask, units, cpu, gpu, emc, falcon, vps, axi, cvnas = XAVIER[name]
    platform = get_platform("jetson-agx-xavier")
    mode, engine = platform.mode(name), platform.engine("gpu")
    assert engine.gating and engine.gating.online(mask, engine.units) == mode.engines["gpu"].units == units
    assert mode.engines["gpu"].clock_hz == nearest(engine, gpu)
    assert mode.engines["carmel0"].clock_hz == nearest(platform.engine("carmel0"), cpu)
    assert mode.dram.value == pytest.approx(emc * 1e6 * 2 * 32, rel=1e-3)
    mhz = {block: clock / 1e6 for block, clock in mode.clocks_hz.items()}
    assert mhz == {"dla_falcon": falcon, "pva_vps": vps, "pva_axi": axi, "cvnas": cvnas}


def test_xavier_steps_are_all_that_cpufreq_has() -> None:
    wanted = [round((115.2 + 76.8 * index) * 1e6) for index in range(29)]
    assert steps(get_platform("jetson-agx-xavier").engine("carmel3")) == wanted


GPU_LOAD = {  # GPU at 99 %: rail of the GPU, sum of all rails (W), mean of YOLOv3 runs in each mode
    "MAXN": (18.525, 32.988),
    "MODE_10W": (2.375, 8.841),
    "MODE_15W": (5.075, 13.488),
    "MODE_30W_ALL": (7.429, 17.572),
    "MODE_30W_6CORE": (7.389, 17.332),
    "MODE_30W_4CORE": (6.958, 17.040),
    "MODE_30W_2CORE": (6.997, 17.076),
}


@pytest.mark.parametrize("name", GPU_LOAD)
def test_xavier_power_under_gpu_load_is_as_measured(name: str) -> None:
    rail, total = (watt * 1000 for watt in GPU_LOAD[name])
    platform = get_platform("jetson-agx-xavier")
    mode, gpu = platform.mode(name), platform.engine("gpu")
    assert gpu.idle_mw.value + mode.engines["gpu"].dynamic_mw.value == pytest.approx(rail, rel=0.01)
    idle = sum(e.idle_mw.value for e in platform.engines if mode.engines[e.id].units)
    traffic = 0.55 * mode.dram.value * platform.dram.picojoule_per_byte.value * 1e-9  # memory at 55 % in the log, mW
    core = 0.7 * mode.engines["carmel0"].dynamic_mw.value / 2
    predicted = mode.base_mw.value + idle + mode.engines["gpu"].dynamic_mw.value + traffic + core
    assert predicted == pytest.approx(total, rel=0.12)


def test_slower_modes_of_xavier_never_cost_more() -> None:
    """A cluster's power per clock falls with the clock, as the voltage does."""
    platform = get_platform("jetson-agx-xavier")
    states = {mode.engines["carmel0"].clock_hz: mode.engines["carmel0"].dynamic_mw.value for mode in platform.modes}
    share = [watt / clock for clock, watt in sorted(states.items())]
    assert len(share) == 6 and all(slow <= fast * 1.15 for slow, fast in pairwise(share))
    assert share[0] < 0.6 * share[-1]


def test_xavier_reproduces_googlenet() -> None:
    """GoogleNet has 1.58 G multiply-adds: the DLA's efficiency is from it, the GPU's from a network 20 times larger.

    Transition costs: marking a layer's output on the DLA takes what handing over costs here.
    """
    platform = get_platform("jetson-agx-xavier")
    groups = read("haxconn/googlenet_xavier_layer_groups.json")
    work = 2 * 1.58e9
    gpu_ms = sum(groups["gpu_ms_three_runs"]["858dfb5"].values())
    for engine_id, low, high, milliseconds in (("gpu", 1.0, 2.2, gpu_ms), ("dla0", 0.9, 1.1, 3.84)):
        found = peak(platform.engine(engine_id), platform.mode("MAXN"), "fp16")
        share = platform.engine(engine_id).precisions["fp16"].efficiency["conv"].value
        assert found and low <= found.dense * share * milliseconds / 1e3 / work <= high, engine_id
    costs = read("haxconn/transition_costs_xavier.json")
    marks = [mark for run in costs["runs"].values() for mark in run.get("dla_marks_output", {}).values()]
    found_ms = [mark["cost_ms"] for mark in marks if mark["cost_ms"] > 0]
    handoff = platform.engine("dla0").handoff_ns.value / 1e6
    assert found_ms and min(found_ms) <= handoff <= max(found_ms)


TX2 = {  # nvpmodel's A57, Denver and GPU MHz, EMC MHz, cores online as (Denver, A57); None: cluster off
    "MAXQ": (1200, None, 850, 1331.2),
    "MAXP_CORE_ALL": (1400, 1400, 1120, 1600),
    "MAXP_CORE_ARM": (2000, None, 1120, 1600),
    "MAXP_CORE_DENVER": (345.6, 2035.2, 1120, 1600),
}


@pytest.mark.parametrize("name", TX2)
def test_tx2_modes_run_the_steps_nearest_to_their_files(name: str) -> None:
    a57, denver, gpu, emc = TX2[name]
    platform = get_platform("jetson-tx2")
    mode = platform.mode(name)
    for engine_id, mhz in (("a57", a57), ("denver", denver), ("gpu", gpu)):
        state = mode.engines[engine_id]
        assert state.clock_hz == (nearest(platform.engine(engine_id), mhz) if mhz else 0), engine_id
    assert mode.dram.value == pytest.approx(emc * 1e6 * 2 * 16, rel=1e-3)


def test_tx2_keeps_one_arm_core_for_linux() -> None:
    """Mode 4 turns everything off but a Denver and cpu0, an A57 that cannot be turned off, at its lowest clock."""
    platform = get_platform("jetson-tx2")
    mode = platform.mode("MAXP_CORE_DENVER")
    assert mode.id == 4 and (mode.engines["denver"].units, mode.engines["a57"].units) == (1, 1)
    assert mode.engines["a57"].clock_hz == steps(platform.engine("a57"))[0]
    assert [m.name for m in platform.modes if m.default] == ["MAXP_CORE_ARM"]
    assert {e.id for e in platform.engines} == {"denver", "a57", "gpu", "vic"}


def test_tx2_idles_at_what_its_meter_shows() -> None:
    platform = get_platform("jetson-tx2")
    idle = platform.mode("MAXN").base_mw.value + sum(engine.idle_mw.value for engine in platform.engines)
    assert idle == pytest.approx(3104, rel=0.01), "VDD_IN with every clock at its maximum"


def test_juno_has_no_milliwatts_from_relative_units() -> None:
    """Its energy model states 616 for an A57 and 93 for an A53; only ratios of such numbers may be used."""
    platform = get_platform("juno")
    for engine_id, slow, fast in (("a57", 168, 616), ("a53", 33, 93)):
        engine = platform.engine(engine_id)
        assert engine.points and all(point.dynamic_mw is None for point in engine.points.points)
        states = [platform.mode(name).engines[engine_id] for name in ("powersave", "performance")]
        assert states[0].dynamic_mw.value / states[1].dynamic_mw.value == pytest.approx(slow / fast, rel=0.01)
        assert states[1].dynamic_mw.value != fast * engine.units


def test_capacities_follow_the_device_trees() -> None:
    """capacity-dmips-mhz x highest clock, the big cluster as 1024, within the energy models' own accuracy."""
    for board, little, big in (("juno", "a53", "a57"), ("hikey960", "a53", "a73")):
        engines = [get_platform(board).engine(name) for name in (little, big)]
        assert all(engine.capacity and engine.points for engine in engines)
        absolute = [engine.capacity.value * engine.clock_hz.value for engine in engines if engine.capacity]
        table = [engine.points.points[-1].capacity for engine in engines if engine.points]
        assert table[1] == 1024 and table[0] == pytest.approx(1024 * absolute[0] / absolute[1], rel=0.03)


def test_hikey960_sustains_what_its_thermal_zone_says() -> None:
    platform = get_platform("hikey960")
    mode = platform.mode("sustainable")
    assert mode.cap_mw and mode.cap_mw.value - mode.base_mw.value == 4500
    clusters = sum(mode.engines[name].dynamic_mw.value for name in ("a53", "a73"))
    assert clusters == pytest.approx(4 * 125 + 4 * 500, abs=8)
    assert clusters + platform.engine("gpu").idle_mw.value < 4500


WALL = {500: 5.125, 800: 5.795, 1000: 6.415, 1400: 7.910, 1600: 8.880, 2000: 12.640}  # 7-zip on four A15 (W)


def test_wall_power_calibrates_odroid_xu4() -> None:
    platform = get_platform("odroid-xu4")
    mode = platform.mode("performance")
    idle = mode.base_mw.value
    assert idle == 3890
    a15, a7 = platform.engine("a15"), platform.engine("a7")
    ratios = [(watt * 1000 - idle) / dynamic_power(a15, 4, mhz * 10**6).value for mhz, watt in WALL.items()]
    assert min(ratios) >= 1.6 and max(ratios) <= 2.5, "coefficients give about half"
    assert mode.engines["a15"].dynamic_mw.value == pytest.approx(WALL[2000] * 1000 - idle, rel=0.01)
    everything = idle + mode.engines["a15"].dynamic_mw.value + mode.engines["a7"].dynamic_mw.value
    assert everything == pytest.approx(13195, rel=0.05), "all eight cores at 2000 and 1400 MHz"
    slow = platform.mode("powersave").engines
    assert slow["a15"].dynamic_mw.value > dynamic_power(a15, 4, 200 * 10**6).value
    assert slow["a7"].dynamic_mw.value > dynamic_power(a7, 4, 200 * 10**6).value


def test_memory_clock_of_odroid_xu4_is_the_kernels() -> None:
    platform = get_platform("odroid-xu4")
    assert platform.dram.peak.value == pytest.approx(933e6 * 16, rel=0.005)
    assert all(mode.dram.value == pytest.approx(825e6 * 16, rel=0.005) for mode in platform.modes)


@pytest.mark.parametrize("board", BOARDS)
def test_clocks_of_modes_are_steps(board: str) -> None:
    platform = get_platform(board)
    for mode in platform.modes:
        for engine in platform.engines:
            state = mode.engines[engine.id]
            if state.units and engine.points:
                assert state.clock_hz in steps(engine), (mode.name, engine.id)
