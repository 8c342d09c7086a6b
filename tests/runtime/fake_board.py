"""A Jetson made of recorded files: sysfs below a folder, nvpmodel by a function, tegrastats by a script, TensorRT.

Lines and files follow what AGX Orin prints under L4T 35 and 36 and under JetPack 7, Xavier under L4T 32 and 35.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from socsched.errors import MachineError

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
