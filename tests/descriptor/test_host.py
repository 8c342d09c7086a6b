from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from socsched.cache import cache_dir
from socsched.descriptor import host
from socsched.descriptor.fields import PROVENANCE
from socsched.descriptor.platform import Figure, Platform

FACTS = host.HostFacts(
    model="Some CPU",
    machine="x86_64",
    cores=(0, 1, 2, 3),
    flags=("fma", "avx2", "avx512f"),
    clock_hz=2_500_000_000,
    clock_from="cpufreq",
    cache_bytes=32 * 2**20,
    memory_bytes=16 * 2**30,
    copy_one=20e9,
    copy_all=60e9,
    sgemm_one=100e9,
    sgemm_all=360e9,
    rapl=(),
    date="2026-01-02",
    versions={"numpy": "2.0", "python": "3.11"},
)
X86 = """processor\t: 0
model name\t: AMD EPYC 9654
cpu MHz\t\t: 2400.000
flags\t\t: fpu sse2 avx avx2 fma
processor\t: 1
model name\t: AMD EPYC 9654
cpu MHz\t\t: 3700.500
flags\t\t: fpu sse2 avx avx2 fma
"""
ARM = """processor\t: 0
BogoMIPS\t: 62.50
Features\t: fp asimd evtstrm aes asimdhp asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd42
"""


def figures(platform: Platform) -> list[Figure]:
    cpu, mode = platform.engines[0], platform.modes[0]
    precision = cpu.precisions["fp32"]
    return [
        *(getattr(cpu, name) for name in ("clock_hz", "bandwidth", "launch_ns", "submit_ns", "idle_mw", "dynamic_mw")),
        *(precision.ops_per_cycle, *precision.efficiency.values()),
        *(platform.dram.peak, platform.dram.achievable, platform.dram.picojoule_per_byte, mode.base_mw, mode.dram),
    ]


def test_onnx_runtime_computes_products_of_bytes_with_tiles_where_the_processor_has_them() -> None:
    def share(*flags: str) -> float:
        facts = replace(FACTS, flags=(*FACTS.flags, *flags), versions={**FACTS.versions, "onnxruntime": "1.31.1"})
        (theirs,) = (one for one in host.build(facts).engines[0].runtimes if one.precisions == ("int8",))
        return theirs.efficiency["gemm"].value

    assert share("amx_int8") > 2 * share()


def test_the_measured_rate_is_what_units_clock_and_operations_multiply_to() -> None:
    cpu = host.build(FACTS).engines[0]
    precision = cpu.precisions["fp32"]
    assert cpu.clock_hz.value * precision.ops_per_cycle.value == pytest.approx(FACTS.sgemm_one)
    assert precision.efficiency["conv"].value == pytest.approx(0.95 * 360 / 400)
    assert (cpu.units, cpu.shares, cpu.preemption.kind) == (4, "unit", "none")
    assert cpu.bandwidth.value == FACTS.copy_all


def test_every_figure_states_its_source() -> None:
    platform = host.build(FACTS)
    for figure in figures(platform):
        assert figure.kind in PROVENANCE
        assert figure.source in platform.sources if figure.source else figure.note
        if figure.kind == "assumed":
            assert figure.error >= 0.5, "an assumption about an unknown machine carries a large error"
    assert "2026-01-02" in platform.sources["detect"].title


def test_hidden_clock_and_failed_measurement_fall_back_with_reasons() -> None:
    cpu = host.build(replace(FACTS, clock_hz=0, clock_from="nothing tells", sgemm_one=0.0, sgemm_all=0.0)).engines[0]
    assert cpu.clock_hz.kind == "assumed" and "nothing tells" in cpu.clock_hz.note
    ops = cpu.precisions["fp32"].ops_per_cycle
    assert (ops.kind, ops.value) == ("derived", 64.0), "two FMA pipes of 16 lanes"


def test_arm_without_model_name_is_described_by_its_part_and_vectors() -> None:
    info = host.cpu_info(ARM)
    assert "0xd42" in info["model"] and float(info["mhz"]) == 0
    assert host.vector(tuple(info["flags"].split())) == ("NEON", 128)


def test_x86_cpu_info_takes_the_highest_clock() -> None:
    info = host.cpu_info(X86)
    assert (info["model"], info["mhz"]) == ("AMD EPYC 9654", "3700.5")
    assert host.vector(tuple(info["flags"].split())) == ("AVX2", 256)
    assert host.vector(()) == ("scalar", 32)


def test_clock_cache_and_energy_counters_are_read_from_the_file_system(tmp_path: Path) -> None:
    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    info = {"mhz": "1000.0"}
    assert host.clock_hz(tmp_path, info)[0] == 1_000_000_000
    put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "2200000\n")
    put("sys/devices/system/cpu/cpu7/cpufreq/cpuinfo_max_freq", "3700000\n")
    assert host.clock_hz(tmp_path, info) == (3_700_000_000, "cpufreq")
    assert host.last_level_cache(tmp_path) == 32 * 2**20
    put("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n")
    put("sys/devices/system/cpu/cpu0/cache/index3/size", "8M\n")
    assert host.last_level_cache(tmp_path) == 8 * 2**20
    assert host.rapl_domains(tmp_path) == []
    put("sys/class/powercap/intel-rapl:0/energy_uj", "1")
    put("sys/class/powercap/intel-rapl:0:0/energy_uj", "1")
    assert [path.parent.name for path in host.rapl_domains(tmp_path)] == ["intel-rapl:0"]


def test_a_copy_of_more_threads_is_measured_at_all() -> None:
    assert host.copy_rate(2, 2**20, seconds=0.01) > 1e6


@pytest.fixture
def detection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often the machine is measured; the cache folder is empty at first."""
    measured: list[int] = []
    model, cores = host.identity()

    def probe() -> host.HostFacts:
        measured.append(1)
        return replace(FACTS, model=model, cores=tuple(range(cores)), date=f"day {len(measured)}")

    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "probe", probe)
    return measured


def kept() -> Path:
    """Return the file of the stored detection."""
    (file,) = (cache_dir() / "host").iterdir()
    return file


def test_a_second_detection_rests_on_the_first(detection: list[int]) -> None:
    assert host.detect() == host.detect()
    assert len(detection) == 1
    host.detect(cache=False)
    assert len(detection) == 2
    assert "day 1" in host.detect().sources["detect"].title, "measuring without the cache leaves it alone"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}', '{"format": 99}', '{"format": 2, "cores": 3}'])
def test_a_damaged_cache_is_measured_again(detection: list[int], content: str) -> None:
    host.detect()
    kept().write_text(content)
    assert "day 2" in host.detect().sources["detect"].title
    assert "day 2" in host.detect().sources["detect"].title, "and written again"


def test_a_busy_machine_is_measured_again_once_it_is_idle(
    detection: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = len(FACTS.cores)
    monkeypatch.setattr("os.getloadavg", lambda: (2.0 * cores, 0.0, 0.0))
    host.detect()
    stored = json.loads(kept().read_text())
    kept().write_text(json.dumps({**stored, "load": 2.0 * len(stored["cores"])}))
    host.detect()
    assert len(detection) == 1, "busy still"
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.0, 0.0))
    host.detect()
    host.detect()
    assert len(detection) == 2


def test_rates_of_a_busy_machine_have_wider_intervals() -> None:
    idle, noisy, busy = (host.build(replace(FACTS, load=load)) for load in (0.0, 0.9, 2.0))
    errors = [one.engine("cpu").precisions["fp32"].efficiency["conv"].error or 0.0 for one in (idle, noisy, busy)]
    assert errors[0] == errors[1] and errors[2] == pytest.approx(errors[0] + 0.5)
    assert (busy.dram.achievable.error or 0) > (idle.dram.achievable.error or 0)


def test_facts_of_another_cpu_are_not_used(detection: list[int]) -> None:
    host.detect()
    stored = json.loads(kept().read_text())
    kept().write_text(json.dumps({**stored, "model": "another CPU"}))
    host.detect()
    assert len(detection) == 2


def test_a_cache_folder_that_cannot_be_written_only_costs_time(
    detection: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "file"))
    assert host.detect().name == "host"
    assert host.detect().name == "host"
    assert len(detection) == 2
