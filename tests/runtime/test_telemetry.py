from __future__ import annotations

import time
from pathlib import Path

from socsched.runtime.boards.local import PowerMeter


def counter(folder: Path, value: int, span: int) -> Path:
    folder.mkdir()
    (folder / "max_energy_range_uj").write_text(f"{span}\n")
    (folder / "energy_uj").write_text(f"{value}\n")
    return folder / "energy_uj"


def wait_for(meter: PowerMeter, count: int) -> None:
    end = time.monotonic() + 10
    while len(meter.samples) < count and time.monotonic() < end:
        time.sleep(0.002)


def test_energy_used_becomes_power_also_where_the_counter_wraps(tmp_path: Path) -> None:
    file = counter(tmp_path / "package", 990, 999)
    meter = PowerMeter((file,), interval_s=0.01)
    with meter:
        wait_for(meter, 1)
        file.write_text("10\n")  # 20 uJ on: 990 .. 999, 0 .. 10
        wait_for(meter, 4)
    assert all(power >= 0 for _, power in meter.samples)
    energy = sum(
        power * (later - earlier) / 1e6
        for (earlier, power), (later, _) in zip(meter.samples, meter.samples[1:], strict=False)
    )
    assert 19 <= energy <= 21, "20 uJ were used while it looked"


def test_steps_before_the_start_are_left_out(tmp_path: Path) -> None:
    meter = PowerMeter(())
    meter.samples += [(5, 1.0), (20, 2.0)]
    assert meter.steps(10) == [(10, 2.0)]


def test_without_a_counter_nothing_is_reported() -> None:
    with PowerMeter(()) as meter:
        pass
    assert meter.steps(0) == []
