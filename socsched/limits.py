"""Upper limits of quantities: the ranges that files are checked against, chosen for the int64 of the simulator.

Times are integer ns, sizes bytes, rates bytes per second or hertz, powers mW.  Within these limits every product and
sum of the simulator stays below 2**63 (`planning.ranges`, `sim.callbacks`).
"""

from __future__ import annotations

HOUR_NS = 3600 * 10**9
LONGEST_NS = HOUR_NS
"""The longest time in a file: a period, a deadline, an execution time, an offset."""
HORIZON_NS = 100 * 24 * HOUR_NS
"""The longest simulation; 1,024 lanes busy for that long are just below 2**63 ns."""
STRETCHED_NS = 2**43 - 1
"""The longest segment, slowdowns included (2 h 26 min): the simulator stores it in units of 2**-20 ns."""
MOST_BYTES = 2**50
MOST_RATE = 10**15
"""Bytes per second: 1 PB/s."""
MOST_HZ = 10**12
MOST_MW = 10**9
MOST_PICOJOULE = 10**6
"""pJ per byte."""
MOST_LANES = 1024
"""Lanes of an engine, or processors of a task set."""
MOST_ENGINES = 1024
MOST_TASKS = 20_000
MOST_SENSORS = 20_000
MOST_SEGMENTS = 10**6
"""Segments, summed over all tasks."""
MOST_CHAINS = 1_000
MOST_TIMES = 10**6
"""Listed execution times, summed over all tasks."""
MOST_QUEUE = 2**40
MOST_IN_FLIGHT = 2**20
MOST_RANK = 2**62
LARGEST = {
    "duration": LONGEST_NS,
    "size": MOST_BYTES,
    "bandwidth": MOST_RATE,
    "frequency": MOST_HZ,
    "power": MOST_MW,
    "energy per byte": MOST_PICOJOULE,
}
"""The largest quantity of a dimension in a file (`units`), in base units."""
