"""Power modes that logs state, and what rails and zones of boards stand for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from socsched.api.interchange import import_profile
from socsched.cli.root import run
from socsched.descriptor.catalog import get_platform, platform_names
from socsched.descriptor.platform import PowerMode
from socsched.errors import SocschedError
from socsched.interchange.costs import Imported
from socsched.runtime.sensors import alarms, hottest, power_of, whole_rail
from socsched.runtime.tegrastats import parse

ORIN = "jetson-agx-orin-64gb"
LINE = (
    "RAM 1/2MB CPU [{cpu}] EMC_FREQ 3%@3199 GR3D_FREQ {load}%@[{gpu},{gpu}] NVDLA0_FREQ @{dla} cpu@50C gpu@48.3C "
    "VDD_GPU_SOC 2412mW/2412mW VDD_CPU_CV 1607mW/1607mW VIN_SYS_5V0 4707mW/4707mW\n"
)


def tegrastats(cpu: int, gpu: int, online: int = 12, cores: int = 12, dla: int = 115, load: int = 99) -> str:
    listed = ",".join([f"3%@{cpu}"] * online + ["off"] * (cores - online))
    return LINE.format(cpu=listed, gpu=gpu, dla=dla, load=load)


def jtop(*modes: str) -> str:
    rows = "".join(f"2026-01-01 10:00:0{n},1:0{n},OFF,{mode},99,50.0,12000\n" for n, mode in enumerate(modes))
    return "time,uptime,jetson_clocks,nvp model,GPU,Temp CPU,Power TOT\n" + rows


def imported(folder: Path, *logs: str, platform: str = ORIN, mode: str = "") -> Imported:
    files = [folder / "net.json"]
    files[0].write_text(json.dumps([{"count": 4}, {"name": "a", "averageMs": 2.0}]))
    for number, log in enumerate(logs):
        files.append(folder / f"board{number}.log")
        files[-1].write_text(log)
    return import_profile(files, platform, precision="fp16", mode=mode)


@pytest.mark.parametrize("platform", [name for name in platform_names() if name.startswith("jetson")])
def test_the_mode_that_a_log_names_is_the_mode_of_the_costs(platform: str, tmp_path: Path) -> None:
    for mode in get_platform(platform).modes:
        for name in (mode.name, mode.name.removeprefix("MODE_"), mode.name.replace("_", " "), *mode.aliases):
            found = imported(tmp_path, jtop(name, name), platform=platform)
            assert (
                found.profile.costs[0].mode == mode.name
                and f"mode {mode.name} (stated by" in found.profile.costs[0].state
            )
            assert not found.notes
        other = next(known for known in get_platform(platform).modes if known != mode)
        with pytest.raises(SocschedError, match=f"--mode {other.name}, but board0.log states"):
            imported(tmp_path, jtop(mode.name), platform=platform, mode=other.name)
        assert imported(tmp_path, jtop(mode.name), platform=platform, mode=mode.name).profile.costs[0].mode == mode.name


@pytest.mark.parametrize("platform", [name for name in platform_names() if name.startswith("jetson")])
def test_clocks_at_the_limits_of_one_mode_state_it(platform: str, tmp_path: Path) -> None:
    board = get_platform(platform)
    cores = sum(engine.units for engine in board.engines if engine.kind == "cpu")

    def limits(mode: PowerMode) -> tuple[int, int, int]:
        cpus = [mode.engines[engine.id] for engine in board.engines if engine.kind == "cpu"]
        fastest = max(cpu.clock_hz for cpu in cpus)
        return round(fastest / 1e6), round(mode.engines["gpu"].clock_hz / 1e6), sum(cpu.units for cpu in cpus)

    for mode in board.modes:
        cpu, gpu, online = limits(mode)
        alike = [m.name for m in board.modes if limits(m)[:2] == (cpu, gpu) and limits(m)[2] >= online]
        log = tegrastats(cpu, gpu, online, cores)
        found = imported(tmp_path, log, platform=platform).profile.costs[0]
        if len(alike) == 1:
            assert (found.mode, "by the clocks in board0.log" in found.state) == (mode.name, True)
        else:
            assert "assumed" in found.state
        assert imported(tmp_path, log, platform=platform, mode=mode.name).profile.costs[0].mode == mode.name


def test_clocks_above_a_mode_contradict_it(tmp_path: Path) -> None:
    fast = tegrastats(2201, 1300)
    with pytest.raises(
        SocschedError, match=r"--mode MODE_30W, but board0\.log: cpu at 2201 MHz, at most 1728"
    ) as caught:
        imported(tmp_path, fast, mode="30W")
    assert caught.value.exit_code == 2 and "MAXN" in caught.value.hint
    assert imported(tmp_path, fast).profile.costs[0].mode == "MAXN"
    said = imported(tmp_path, fast, jtop("30W")).notes
    assert any("gpu at 1300 MHz, at most 612 MHz in MODE_30W" in note for note in said)
    cores = imported(tmp_path, tegrastats(1100, 400, online=12, load=0))
    assert cores.profile.costs[0].mode == "MAXN" and "12 CPU cores" not in " ".join(cores.notes)
    assert "fits MAXN, MODE_50W: MAXN, the fastest, is assumed" in " ".join(cores.notes)
    dla = imported(tmp_path, tegrastats(1700, 600, online=8, dla=1600, load=0))
    assert dla.profile.costs[0].mode == "MAXN"


def test_a_board_that_no_mode_fits_is_a_note(tmp_path: Path) -> None:
    found = imported(tmp_path, tegrastats(2601, 1575, online=14, cores=14))
    assert found.profile.costs[0].mode == "MODE_30W"
    said = " ".join(found.notes)
    assert "is assumed (--mode)" in said and "cpu at 2601 MHz" in said and "14 CPU cores, " + ORIN + " has 12" in said


def test_several_or_unknown_modes(tmp_path: Path) -> None:
    with pytest.raises(SocschedError, match="several modes: MAXN, 30W"):
        imported(tmp_path, jtop("MAXN", "30W"))
    assert imported(tmp_path, jtop("30W", "MODE_30W")).profile.costs[0].mode == "MODE_30W"
    with pytest.raises(SocschedError, match="states mode CUSTOM, which") as caught:
        imported(tmp_path, jtop("CUSTOM"))
    assert "MODE_30W" in caught.value.hint
    found = imported(tmp_path, jtop("CUSTOM"), mode="MAXN")
    assert found.profile.costs[0].mode == "MAXN" and "states mode CUSTOM" in " ".join(found.notes)


def test_a_lowered_clock_is_said(tmp_path: Path) -> None:
    found = imported(tmp_path, tegrastats(2201, 612), mode="MAXN")
    assert "gpu loaded at 612 MHz, 1300 MHz in MAXN" in " ".join(found.notes)
    assert not imported(tmp_path, tegrastats(2201, 114, load=0), mode="MAXN").notes


def test_the_command_says_what_it_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.json").write_text(json.dumps([{"count": 4}, {"name": "a", "averageMs": 2.0}]))
    words = ["profile", "import", str(tmp_path / "net.json"), "-p", ORIN, "--precision", "fp16"]
    assert run([*words, "-o", str(tmp_path / "p.json")]) == 0
    assert "MODE_30W, the default, is assumed (--mode)" in capsys.readouterr().err
    assert run([*words, "-o", str(tmp_path / "p.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"]


@pytest.mark.parametrize(
    ("rails", "whole", "watts"),
    [
        ("POM_5V_IN 900/943 POM_5V_GPU 40/0 POM_5V_CPU 123/123", "POM_5V_IN", 0.9),
        ("VDD_IN 2532/2698 VDD_CPU 76/178 VDD_GPU 19/19", "VDD_IN", 2.532),
        (
            "VDD_SYS_GPU 153/158 VDD_SYS_SOC 536/547 VDD_4V0_WIFI 633/527 VDD_IN 3140/3208 VDD_SYS_CPU 536/590",
            "VDD_IN",
            3.14,
        ),
        ("VDD_IN 2763mW/2846mW VDD_CPU_GPU_CV 650mW/670mW VDD_SOC 650mW/711mW", "VDD_IN", 2.763),
        ("GPU 463/463 CPU 618/618 SOC 2936/2936 CV 0/0 VDDRQ 309/309 SYS5V 3306/3306", "", 7.632),
        ("VDD_GPU_SOC 2412mW/2412mW VDD_CPU_CV 1607mW/1607mW VIN_SYS_5V0 4707mW/4707mW", "", 8.726),
        ("VDD_GPU 9412mW/1mW VDD_CPU_SOC_MSS 7607mW/1mW VIN_SYS_5V0 4707mW/1mW VIN 30000mW/1mW", "VIN", 30.0),
        ("VDD_GPU -392mW/-390mW VDD_CPU_SOC_MSS 3924mW/1mW VIN_SYS_5V0 4707mW/1mW VIN 18000mW/1mW", "VIN", 18.0),
        ("VDD_M2_IN 100mW/100mW VDD_MUX 3000mW/3000mW", "", 3.1),
    ],
    ids=["nano", "tx1", "tx2", "nx", "xavier", "agx-orin", "thor", "thor-idle", "carrier"],
)
def test_a_total_is_not_added_to_its_parts(rails: str, whole: str, watts: float) -> None:
    sample = parse(f"RAM 1/2MB CPU [1%@100] {rails}")
    assert sample is not None and (whole_rail(sample.rails_mw), sample.power_mw) == (whole, round(watts * 1000))
    assert len(sample.rails_mw) == rails.count("/")


def test_jtops_total_of_a_board_that_it_does_not_know_is_not_believed(tmp_path: Path) -> None:
    head = "time,nvp model,Power VDD_GPU,Power VIN,Power VIN_SYS_5V0,Power TOT\n"
    state = imported(tmp_path, head + "1,MAXN,9000,30000,5000,44000\n").profile.costs[0].state
    assert "30.0 W on average" in state and "(VIN)" in state
    state = imported(tmp_path, "time,nvp model,Power VDD_SOC,Power TOT\n1,MAXN,900,4400\n").profile.costs[0].state
    assert "4.4 W on average" in state


def test_a_level_or_a_constant_is_no_temperature() -> None:
    assert hottest([{"PMIC": 100.0, "CPU": 42.5, "AO": -256.0}]) == 42.5
    assert hottest([{"PMIC-Die": 50.0, "CPU": 46.5}]) == 46.5
    assert hottest([{"gpu": 41.0 + n, "stuck": 85.0} for n in range(8)]) == 48.0
    assert hottest([{"gpu": 41.0, "Tboard": 45.0}] * 20) == 45.0
    assert hottest([{"PMIC": 100.0}, {}]) is None and power_of({}) is None
    assert alarms([{"PMIC": 100.0}, {"PMIC": 120.0}]) == ["PMIC alarm at 120 C"] and not alarms([{"PMIC": 50.0}])
    sample = parse("RAM 1/2MB PLL@42.5C PMIC-Die@100C AO@-256C thermal@41.9C")
    assert sample is not None and set(sample.counters()) == {"celsius.pll", "celsius.thermal"}


def test_lines_of_the_oldest_releases() -> None:
    sample = parse(
        "RAM 1024/3994MB (lfb 100x4MB) cpu [1%,off,0%,1%]@518 EMC 10%@408 AVP 2%@12 VDE 0 GR3D 30%@76 EDP limit 0"
    )
    assert sample is not None and sample.cores == ((0.01, 518_000_000), None, (0.0, 518_000_000), (0.01, 518_000_000))
    assert (sample.gpu_hz, sample.gpu_load, sample.emc_hz) == (76_000_000, 0.3, 408_000_000)
