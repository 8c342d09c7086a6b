"""A plan whose trace holds every kind of event that a Perfetto file shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from socsched.cost.cost import Segment
from socsched.planning.plan import Plan
from socsched.sim.simulate import simulate
from socsched.trace.trace import Trace
from tests.sim.builders import chain, engine, plan, sensor, task

KERNELS = (Segment("k0", 10, 0, 100), Segment("k1", 10, 0, 0))


def example() -> tuple[Plan, Trace]:
    """A gang on two lanes that is preempted, a conversion, a sampler, a queue that overflows and a sensor."""
    tasks = [
        task("net", engine="gpu", lanes=(0, 1), segments=KERNELS, after=("lidar",), period_ns=100, priority=1),
        task("urgent", 4, engine="gpu", lanes=(0,), period_ns=100, offset_ns=15, deadline_ns=50),
        task("net->post", 3, kind="conversion", after=("net",), period_ns=100, deadline_ns=100),
        task("post", 150, after=("net->post",), period_ns=100, deadline_ns=120, queue=0, lanes=(1,)),
        task("control", 2, period_ns=50, offset_ns=40, reads=("net", "lidar"), lanes=(2,)),
    ]
    engines = [engine("gpu", lanes=2, policy="fp", dynamic_mw=50, switch_ns=2), engine(lanes=3)]
    path = ("lidar", "net", "post")
    made = plan(tasks, engines, sensors=[sensor("lidar", 100)], chains=[chain("c", path, 120)], dram_bandwidth=10**10)
    return made, simulate(made, 1000)


def absolute(packets: Iterable[Any]) -> list[Any]:
    """Return packets with the times that readers give them: on incremental clocks they add up, a sequence each."""
    clocks, now = dict[int, int](), dict[tuple[int, int], int]()
    found = list(packets)
    for packet in found:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("trace_packet_defaults"):
            clocks[sequence] = packet.trace_packet_defaults.timestamp_clock_id
        for clock in packet.clock_snapshot.clocks:
            if clock.is_incremental:
                now[sequence, clock.clock_id] = clock.timestamp
        key = sequence, clocks.get(sequence, 0)
        if packet.HasField("timestamp") and key in now:
            now[key] += packet.timestamp
            packet.timestamp = now[key]
    return found
