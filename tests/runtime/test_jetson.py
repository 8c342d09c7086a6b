"""The Jetson code paths on a board made of recorded files."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_plans import MS, Scripted, executed, pipeline, plan, sleep, task

from socsched.compiler.toolchains.tensorrt import dla_refusal
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import MachineError, UsageError
from socsched.planning.plan import Plan, PlannedEngine
from socsched.runtime import backends
from socsched.runtime.backends import Setting
from socsched.runtime.boards.local import JetsonBoard
from socsched.runtime.meters import Nvml, TegrastatsMeter, as_steps, ina3221_rails, parse, read_rails

# A Jetson made of recorded files: sysfs below a folder, nvpmodel by a function, tegrastats by a script, TensorRT.
#
# Lines and files follow what AGX Orin prints under L4T 35 and 36 and under JetPack 7, Xavier under L4T 32 and 35.

L4T35 = (
    "RAM 2257/30536MB (lfb 5392x4MB) SWAP 0/15268MB (cached 0MB)"
    " CPU [1%@729,0%@729,off,off,3%@2201,0%@2201,0%@729,0%@729] EMC_FREQ 0%@3199 GR3D_FREQ 37%@1300 VIC_FREQ 729"
    " APE 174 CV0@-256C CPU@41.4C Tboard@33C SOC2@37.3C Tdiode@34.5C SOC0@38C CV1@-256C GPU@-256C tj@41.4C"
    " SOC1@37.2C CV2@-256C VDD_GPU_SOC 2403mW/2403mW VDD_CPU_CV 801mW/801mW VIN_SYS_5V0 3232mW/3232mW NC 0mW/0mW"
    " VDDQ_VDD2_1V8AO 604mW/604mW NC 0mW/0mW"
)
L4T36_NX = (
    "11-03-2025 10:21:44 RAM 3212/15656MB (lfb 4x4MB) SWAP 0/7828MB (cached 0MB)"
    " CPU [12%@1984,9%@1984,8%@1984,11%@1984]"
    " EMC_FREQ 2%@3199 GR3D_FREQ 0%@[918] NVDLA0_FREQ @614 cpu@48.1C soc2@47.2C gpu@46.9C tj@48.1C"
    " VDD_IN 5200mW/5100mW VDD_CPU_GPU_CV 1400mW/1350mW VDD_SOC 1500mW/1490mW"
)
JETPACK7 = (
    "07-25-2026 09:08:28 RAM 20642/62817MB (lfb 1x2MB) CPU [23%@2201,5%@2201,off,off] EMC_FREQ 3%@3199"
    " GR3D_FREQ 12%@[1300,1300] NVENC0 off NVDEC0 off NVJPG0 off OFA off NVDLA0 off NVDLA1 off PVA0_FREQ off APE 174"
    " cpu@52.968C tboard@41.125C soc2@49.281C tdiode@44.5C soc0@50.5C tj@52.968C soc1@49.937C"
    " VDD_GPU_SOC 5139mW/5139mW/5139mW VDD_CPU_CV 3268mW/3268mW/3268mW VIN_SYS_5V0 5500mW/5500mW/5500mW"
)
THOR = (
    "07-25-2026 09:08:29 RAM 4000/125000MB (lfb 1x2MB) CPU [2%@2601] EMC_FREQ 0%@4266 GR3D_FREQ @[1000,1000,1000]"
    " cpu@40.1C"
)
XAVIER_L4T32 = (
    "RAM 1903/31918MB (lfb 7136x4MB) SWAP 0/15959MB (cached 0MB)"
    " CPU [2%@1190,0%@1190,off,off,off,off,off,off] EMC_FREQ 0%@2133 GR3D_FREQ 0%@318 APE 150 MTS fg 0% bg 0%"
    " AO@33C GPU@33.5C iwlwifi@38C Tboard@35C Tdiode@37C AUX@32.5C CPU@35C thermal@33.55C PMIC@100C"
    " GPU 154/154 CPU 462/462 SOC 1387/1387 CV 0/0 VDDRQ 308/308 SYS5V 2360/2360"
)
RECORDED = {"l4t35": L4T35, "l4t36": L4T36_NX, "jetpack7": JETPACK7, "thor": THOR, "xavier": XAVIER_L4T32}

RAILS = {
    "1-0040/hwmon/hwmon4": (("VDD_GPU_SOC", 19000, 200), ("VDD_CPU_CV", 19000, 100), ("VIN_SYS_5V0", 5000, 700)),
    "1-0041/hwmon/hwmon5": (("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 4900, 120), ("NC", 0, 0)),
}


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def orin(root: Path, l4t: int = 36, gpu_hz: int = 1300500000, clusters: int = 3, cpu_khz: int = 2201600) -> Path:
    """Write what an AGX Orin in MAXN has below `root`."""
    write(root / "proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    write(root / "etc/nv_tegra_release", f"# R{l4t} (release), REVISION: 4.0, GCID: 1, BOARD: generic\n")
    folder = (
        "sys/devices/17000000.ga10b/devfreq/17000000.ga10b"
        if l4t == 35
        else "sys/devices/platform/17000000.gpu/devfreq_dev"
    )
    write(root / folder / "max_freq", f"{gpu_hz}\n")
    cap = (
        "sys/devices/platform/13e40000.host1x/15880000.nvdla0/acm/clk_cap/dla0_core"
        if l4t == 35
        else "sys/devices/platform/bus@0/13e00000.host1x/15880000.nvdla0/clk_cap/dla0_core"
    )
    write(root / cap, "1600000000\n")
    for number in range(12):
        cpu = root / f"sys/devices/system/cpu/cpu{number}"
        write(cpu / "online", "1\n" if number < 4 * clusters else "0\n")
        write(cpu / "cpufreq/scaling_max_freq", f"{cpu_khz}\n")
    for chip, channels in RAILS.items():
        place = root / "sys/bus/i2c/drivers/ina3221" / chip
        for number, (label, volts, amperes) in enumerate(channels, 1):
            write(place / f"in{number}_label", label + "\n")
            write(place / f"in{number}_input", f"{volts}\n")
            write(place / f"curr{number}_input", f"{amperes}\n")
        write(place / "in7_label", "sum of shunt voltages\n")
        write(place / "in7_input", "123456\n")
    return root


class Nvpmodel:
    """nvpmodel by name and number; `stuck` ones need a reboot, as a mode with other TPCs does."""

    def __init__(self, mode: str = "MAXN", stuck: bool = False, fails: bool = False) -> None:
        self.mode, self.stuck, self.fails = mode, stuck, fails
        self.calls: list[tuple[str, ...]] = []
        self.numbers = {"MAXN": 0, "MODE_15W": 1, "MODE_30W": 2, "MODE_50W": 3}

    def __call__(self, command: Sequence[str]) -> str:
        self.calls.append(tuple(command))
        if self.fails:
            raise MachineError("nvpmodel cannot be run: no such file", "is this a Jetson?")
        if "-m" in command and not self.stuck:
            self.mode = next(name for name, n in self.numbers.items() if n == int(command[-1]))
        return f"NVPM WARN: Fan mode is not set!\nNV Power Mode: {self.mode}\n{self.numbers[self.mode]}\n"


def tegrastats(*lines: str) -> tuple[str, ...]:
    """Return a command that prints recorded lines, some of them broken, ten times a second."""
    script = f"import time\nwhile True:\n for l in {lines!r}:\n  print(l, flush=True); time.sleep(0.02)"
    return (sys.executable, "-c", script)


EXPECTED = {
    "l4t35": (0.37, 1_300_000_000, 2403 + 801 + 3232 + 604, {"CPU": 41.4}),
    "l4t36": (0.0, 918_000_000, 5200, {"tj": 48.1}),
    "jetpack7": (0.12, 1_300_000_000, 5139 + 3268 + 5500, {"cpu": 52.968}),
    "thor": (None, 1_000_000_000, None, {"cpu": 40.1}),
    "xavier": (0.0, 318_000_000, 154 + 462 + 1387 + 0 + 308 + 2360, {"PMIC": 100.0}),
}


@pytest.mark.parametrize("name", RECORDED)
def test_lines_of_every_release_are_understood(name: str) -> None:
    sample = parse(RECORDED[name])
    assert sample is not None
    load, clock, power, zones = EXPECTED[name]
    assert (sample.gpu_load, sample.gpu_hz, sample.power_mw) == (load, clock, power)
    assert zones.items() <= sample.zones_c.items() and min(sample.zones_c.values()) > -200, "zones that are off are not"


def test_the_rest_of_a_line_is_understood_too() -> None:
    sample, newer, nx = (parse(RECORDED[name]) for name in ("l4t35", "jetpack7", "l4t36"))
    assert sample is not None and newer is not None and nx is not None
    assert (sample.ram_bytes, sample.ram_total_bytes) == (2257 * 2**20, 30536 * 2**20)
    assert sample.cores[0] == (0.01, 729_000_000) and sample.cores[2] is None and len(sample.cores) == 8
    assert (sample.emc_load, sample.emc_hz) == (0.0, 3_199_000_000)
    assert "RAM" not in sample.rails_mw and "SWAP" not in sample.rails_mw and sample.rails_mw["VDD_CPU_CV"] == 801
    assert newer.engines_hz["NVDLA0"] == 0 and nx.engines_hz["NVDLA0"] == 614_000_000
    assert nx.counters()["rail_mw.VDD_SOC"] == 1500.0 and nx.counters()["power_mw"] == 5200.0


@pytest.mark.parametrize("line", ["", "tegrastats: not found", "RAM", "RAM x/yMB CPU [", "\x00\xff"])
def test_other_lines_are_none(line: str) -> None:
    assert parse(line) is None


def test_ina3221_reads_rails_and_leaves_shunt_sums_and_unused_channels_out(tmp_path: Path) -> None:
    rails = ina3221_rails(orin(tmp_path))
    assert set(rails) == {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"}
    found = read_rails(rails)
    assert found["rail_mw.VDD_GPU_SOC"] == 3800.0
    assert found["power_mw"] == 3800 + 1900 + 3500 + 588
    rails["VDD_CPU_CV"][1].unlink()
    assert "power_mw" not in read_rails(rails), "the sum of some rails is no module's power"
    assert ina3221_rails(tmp_path / "nowhere") == {} and read_rails({}) == {}


def test_tegrastats_is_sampled_until_the_run_ends_and_broken_lines_are_counted() -> None:
    meter = TegrastatsMeter(tegrastats(L4T35, "what?", JETPACK7))
    start = time.monotonic_ns()
    with meter:
        time.sleep(0.6)
    steps = meter.counters(start)
    assert len(steps["power_mw"]) >= 4 and {value for _, value in steps["power_mw"]} == {7040.0, 13907.0}
    assert meter.skipped >= 1 and all(time >= 0 for time, _ in steps["gpu_hz"])
    with TegrastatsMeter(("there-is-no-such-command",)) as missing:
        pass
    assert missing.counters(0) == {}


def test_the_last_sample_before_the_start_is_the_first_step() -> None:
    assert as_steps([(1, {"x": 1.0}), (5, {"x": 2.0}), (12, {"x": 3.0})], 10) == {"x": [(0, 2.0), (2, 3.0)]}


def test_nvml_reports_power_and_clocks_or_nothing() -> None:
    class Library:
        """NVML as the driver has it, with a device that reports no memory clock."""

        def nvmlInit_v2(self) -> int:
            return 0

        def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:
            return 0

        def nvmlDeviceGetPowerUsage(self, device: Any, value: Any) -> int:
            ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = 71234
            return 0

        def nvmlDeviceGetClockInfo(self, device: Any, kind: int, value: Any) -> int:
            ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = 1980
            return 0 if kind == 1 else 3

    assert Nvml(library=Library()).read() == {"gpu_power_mw": 71234.0, "gpu_hz": 1.98e9}


def board(root: Path, mode: Nvpmodel | None = None, apply: bool = False) -> JetsonBoard:
    return JetsonBoard(apply, root, mode or Nvpmodel(), tegrastats(JETPACK7))


def planned(mode: str = "MAXN") -> Plan:
    made = plan(task("a", "s", period_ns=20 * MS), sensors={"s": 20 * MS})
    engines = tuple(
        PlannedEngine(e.id, e.kind, e.units if e.kind == "cpu" else 1, "none", 0, "edf", 10**10, 0, 0)
        for e in get_platform("jetson-agx-orin-64gb").engines
    )
    tasks = tuple(replace(t, engine="cpu0") for t in made.tasks)
    return replace(made, platform="jetson-agx-orin-64gb", mode=mode, engines=engines, tasks=tasks)


@pytest.mark.parametrize("l4t", [35, 36])
def test_mode_and_clocks_are_read_and_agree_with_the_plan(tmp_path: Path, l4t: int) -> None:
    jetson = board(orin(tmp_path, l4t))
    assert jetson.mode() == ("MAXN", 0)
    clocks = jetson.clocks()
    assert (clocks["gpu"], clocks["dla0"], clocks["cpu11"]) == (1_300_500_000, 1_600_000_000, 2_201_600_000)
    platform = jetson.platform_for(planned())
    assert jetson.differences(platform, platform.mode("MAXN")) == []
    facts = jetson.facts()
    assert facts["model"] == "NVIDIA Jetson AGX Orin Developer Kit" and facts["mode"] == {"name": "MAXN", "id": 0}


def test_another_mode_is_refused_and_never_set_unless_requested(tmp_path: Path) -> None:
    mode = Nvpmodel("MODE_30W")
    jetson = board(orin(tmp_path), mode)
    with pytest.raises(UsageError, match="in mode 30W") as caught, jetson.prepared(planned()):
        pass
    assert "--apply-mode" in caught.value.hint
    assert not [call for call in mode.calls if "-m" in call]


def test_apply_mode_sets_the_mode_for_the_run_and_sets_it_back(tmp_path: Path) -> None:
    mode = Nvpmodel("MODE_30W")
    with board(orin(tmp_path), mode, apply=True).prepared(planned()):
        assert mode.mode == "MAXN"
    assert mode.mode == "MODE_30W"
    mode = Nvpmodel("MODE_30W")
    with pytest.raises(RuntimeError), board(orin(tmp_path), mode, apply=True).prepared(planned()):
        raise RuntimeError
    assert mode.mode == "MODE_30W", "also when the run fails"
    with (
        pytest.raises(MachineError, match="stays in mode"),
        board(orin(tmp_path), Nvpmodel("MODE_30W", stuck=True), apply=True).prepared(planned()),
    ):
        pass


def test_clocks_and_cores_that_are_not_the_modes_are_named(tmp_path: Path) -> None:
    slow = board(orin(tmp_path / "slow", gpu_hz=612_000_000, cpu_khz=1_190_400))
    with pytest.raises(UsageError) as caught, slow.prepared(planned()):
        pass
    assert "gpu: at most 612 MHz, 1300 MHz planned" in str(caught.value) and "cpu0: at most 1190" in str(caught.value)
    few = board(orin(tmp_path / "few", clusters=2))
    with pytest.raises(UsageError, match="cpu2: 0 cores online, 4 planned"), few.prepared(planned()):
        pass


def test_a_machine_that_is_no_jetson_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a Jetson"):
        board(tmp_path).platform_for(planned())
    with pytest.raises(UsageError, match="the plan is for 'host'"):
        board(orin(tmp_path)).platform_for(replace(planned(), platform="host"))
    with pytest.raises(MachineError):
        board(orin(tmp_path), Nvpmodel(fails=True)).mode()


def test_clusters_follow_each_other_in_processor_numbers(tmp_path: Path) -> None:
    jetson = board(orin(tmp_path))
    jetson.platform_for(planned())
    assert (
        jetson.cpus("cpu0", (0, 3)) == {0, 3} and jetson.cpus("cpu2", (1,)) == {9} and jetson.cpus("gpu", (0,)) == set()
    )


def test_a_run_on_the_board_records_its_power(tmp_path: Path) -> None:
    made = planned()
    backends = dict.fromkeys(("synthetic",), Scripted(lambda *_: sleep(1)))
    trace = executed(made, pipeline(made), frames=20, board=board(orin(tmp_path)), backends=backends)
    assert {value for _, value in trace.counters["power_mw"]} == {9788.0}, "of the sensors, which are nearer"
    assert trace.counters["gpu_hz"] and trace.counters["rail_mw.VDD_GPU_SOC"]
    assert len(trace.jobs) == 20


def test_the_dlas_of_the_board_are_driven_by_tensorrt(tmp_path: Path) -> None:
    platform = board(orin(tmp_path)).platform_for(planned())
    assert {e.id: e.target["kind"] for e in platform.engines if e.kind == "dla"} == dict.fromkeys(
        ("dla0", "dla1"), "tensorrt"
    )
    assert platform.engine("gpu").target["kind"] == "cuda"


@pytest.mark.parametrize(
    ("version", "has"),
    [("8.5.2", True), ("8.6.2.3", True), ("10.7.0", True), ("10.8.0", False), ("11.0.0", False), ("11.3.0", False),
     ("11.4.0", False), ("11.4.1", True), ("12.0.0", True)],
)  # fmt: skip
def test_which_releases_have_a_dla(version: str, has: bool) -> None:
    assert (not dla_refusal(version)) == has


def test_from_11_4_1_on_only_an_agx_orin_has_a_dla() -> None:
    boards = ("NVIDIA Jetson AGX Orin Developer Kit\0", "NVIDIA Jetson Orin NX Engineering Reference\0", "a PC", "")
    refused = [dla_refusal("11.4.1", board) for board in boards]
    assert [bool(reason) for reason in refused] == [False, True, False, False]
    assert refused[1].endswith("on jetson-agx-orin only, this is a NVIDIA Jetson Orin NX Engineering Reference")
    assert not any(dla_refusal("8.6.2", board) for board in boards), "JetPack 6 has it on an Orin NX too"
    assert dla_refusal("8.6.2", "NVIDIA Jetson Orin Nano Developer Kit"), "an Orin Nano has no DLA"


def test_a_task_runs_by_its_planned_runtime_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, pipeline = planned(), get_pipeline("camera-detection")
    detect = replace(made.tasks[0], name="detect", kind="stage", engine="gpu")
    tasks = tuple(replace(detect, runtime=name) for name in ("tensorrt", "tvm"))
    setting = Setting(replace(made, tasks=tasks), pipeline, board(orin(tmp_path)).platform_for(made), {}, None)
    for installed, first in ((True, "dla"), (False, "cuda")):
        monkeypatch.setattr(backends, "is_installed", lambda _, answer=installed: answer)
        assert [backends.sort_of(each, setting) for each in tasks] == [first, "cuda"]
        notes = backends.replaced_runtimes(setting)
        assert len(notes) == (not installed) and all("planned for tensorrt" in note for note in notes)
