"""The Jetson code paths on a board made of recorded files."""

from __future__ import annotations

import ctypes
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_board import JETPACK7, L4T35, RECORDED, Nvpmodel, orin, tegrastats
from run_plans import MS, Scripted, executed, pipeline, plan, sleep, task

from socsched.compiler.toolchains.tensorrt import dla_refusal
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import MachineError, UsageError
from socsched.planning.plan import Plan, PlannedEngine
from socsched.runtime.backends import choose
from socsched.runtime.backends.base import Setting
from socsched.runtime.boards.jetson import JetsonBoard
from socsched.runtime.meters import Nvml, TegrastatsMeter, as_steps, ina3221_rails, read_rails
from socsched.runtime.tegrastats import parse

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
        monkeypatch.setattr(choose, "is_installed", lambda _, answer=installed: answer)
        assert [choose.sort_of(each, setting) for each in tasks] == [first, "cuda"]
        notes = choose.replaced_runtimes(setting)
        assert len(notes) == (not installed) and all("planned for tensorrt" in note for note in notes)
