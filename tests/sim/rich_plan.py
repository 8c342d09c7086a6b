"""One plan and one set of faults that exercise every feature of the simulator; times in ns."""

from __future__ import annotations

from fractions import Fraction

from socsched.cost.cost import Segment
from socsched.faults.model import Burst, Dropout, Faults, Hog, Overrun, Slowdown, Stall
from socsched.planning.plan import ExecutionTimes, Level, Plan
from tests.sim.builders import chain, engine, plan, sensor, task

DURATION = 2_000_000


def rich_plan() -> Plan:
    """Return cores of two speeds, a restartable accelerator with memory and operating points, and a time-shared one."""
    cores = engine("cpu", lanes=4, capacities=(1024, 1024, 640, 512), switch_ns=7, migration_ns=5, dynamic_mw=4000)
    gpu = engine(
        "gpu", lanes=2, policy="fp", preemption="restart", reset_ns=30, reshape_ns=11, dynamic_mw=9000, idle_mw=300,
        memory_bytes=900, swap_bandwidth=3 * 10**9, levels=(Level(500, 3000), Level(800, 6000), Level(1000, 9000)),
        governor="ccedf",
    )  # fmt: skip
    dla = engine("dla", policy="rr", preemption="segment", in_flight=2, quantum_ns=1, dynamic_mw=900)
    served = engine("rt", policy="cbs", lanes=1, switch_ns=3, dynamic_mw=100)

    def parts(name: str, *times: int, size: int = 0) -> tuple[Segment, ...]:
        return tuple(Segment(f"{name}.{i}", time, time // 8, size) for i, time in enumerate(times))

    tasks = [
        task("decode", 900, after=("lidar",), period_ns=10_000, lanes=(0, 1, 2, 3), width=1, bytes=2000,
             times=ExecutionTimes((400, 700, 900, 2100), True)),
        task("net", segments=parts("net", 1500, 900, 2200, size=6000), after=("decode",), engine="gpu", lanes=(0, 1),
             period_ns=10_000, deadline_ns=14_000, priority=0, weights_bytes=600, queue=2, overflow="oldest"),
        task("camera", segments=(*parts("isp", 300), Segment("dla", 2600, 40, 5000, "dla", (0,), True),
                                 *parts("nms", 500)),
             after=("cam",), period_ns=7000, lanes=(0, 1, 2, 3), width=1, on_late="abort", queue=1),
        task("lanes", segments=parts("lanes", 800, 800, size=1000), after=("cam",), engine="dla", period_ns=7000,
             on_late="degrade", degraded=parts("less", 200), deadline_ns=3000, queue=3),
        task("seg", 700, engine="gpu", lanes=(1,), period_ns=4500, priority=1, weights_bytes=500, on_late="skip",
             times=ExecutionTimes((300, 600, 650, 1200)), release_jitter_ns=400, deadline_ns=2500),
        task("fuse", 1100, after=("net", "decode"), reads=("camera", "seg"), period_ns=10_000, lanes=(2, 3), width=2),
        task("control", 150, engine="rt", period_ns=2000, budget_ns=200, server_ns=1000, reads=("fuse",)),
        *(task(f"tick{i}", 90, lanes=(i,), period_ns=1000 + 300 * i) for i in range(3)),
        task("log", 400, engine="rt", period_ns=5000, gap_ns=900, criticality="soft", bytes=800),
    ]  # fmt: skip
    chains = (
        chain("drive", ("lidar", "decode", "net", "fuse"), 20_000),
        chain("act", ("lidar", "decode", "net", "fuse", "control"), 25_000),
        chain("see", ("cam", "camera"), 7000),
    )
    sensors = (sensor("lidar", 10_000, jitter_ns=300), sensor("cam", 7000, offset_ns=1500, jitter_ns=100))
    memory = {"dram_bandwidth": 9 * 10**9, "dram_picojoule_per_byte": 35.0, "base_mw": 2500}
    return plan(tasks, [cores, gpu, dla, served], sensors=sensors, chains=chains, **memory)


def rich_faults() -> Faults:
    """Return faults of every kind but delays."""
    return Faults(
        dropouts=(Dropout("lidar", 300_000, 340_000),),
        slowdowns=(
            Slowdown("gpu", 500_000, 700_000, Fraction(5, 3), True),
            Slowdown("cpu", 600_000, 800_000, Fraction(2)),
        ),
        overruns=(Overrun("fuse", Fraction(1, 10), Fraction(7, 3)),),
        stalls=(Stall("dla", 900_000, 950_000), Stall("gpu", 1_200_000, 1_230_000, lost=True)),
        bursts=(Burst("cam", 1_400_000, 3),),
        hogs=(Hog("gpu", 1_500_000, 1_700_000, 4 * 10**9),),
    )
