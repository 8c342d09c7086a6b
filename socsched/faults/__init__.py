"""Faults to inject into a simulation or a run, and the file format that describes them.

dropouts:  [{sensor: lidar, from: 2 s, until: 3 s}]           frames released in the window are lost
delays:    [{sensor: lidar, from: 2 s, until: 3 s, by: 20 ms}]  frames released in the window arrive late
bursts:    [{sensor: lidar, at: 2 s, frames: 3}]              that many extra frames with the first one after `at`
slowdowns: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.5}]  everything on the engine takes factor times as long
throttles: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.5}]  the same, marked in the trace as thermal throttling
stalls:    [{engine: gpu, from: 5 s, until: 6 s}]             the engine stalls; running work continues afterwards
deaths:    [{engine: gpu, from: 5 s, until: 6 s}]             the engine fails; running work is lost
overruns:  [{stage: head, probability: 0.01, factor: 2}]      a job takes factor times its planned work
hogs:      [{engine: gpu, from: 5 s, until: 6 s, bandwidth: 20 GB/s}]  foreign DRAM traffic, as if from that engine
failures:  [{engine: cpu, lanes: [1], at: 2 s, kind: hang}]   the first job there from then on hangs, or fails
random:    {seed: 1, rate: 2, until: 60 s, kinds: [stalls]}   additional faults drawn from a seed, `rate` per minute

Every section may be absent; `model.SECTIONS` declares which of them a simulation and a run can inject.  Windows are
[from, until) from time zero, the first release; factors lie between 1 and 1000.  Windows may overlap: slowdowns
multiply, hogs add up, and of several delays the longest applies.  Frames of a sensor do not overtake each other, so a
delay and the sensor's jitter together are at most its period.  `kinds` names sections of this file; if it is absent,
all that can be drawn.  The distributions are documented in `random_faults`.
"""
