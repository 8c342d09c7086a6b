"""Spatial sharing of accelerators: who gets which part, what that costs, and how much is served in time.

Resource models (`mechanisms`, `mig`, `profile`, `interference`), planners that cut accelerators into parts (`gpulet`,
`squishy`, `rms`), controllers that change parts while requests come (`gslice`), a serving simulation to compare them in
(`serving`), and two finer ones: an NPU of subarrays (`fission`) and kernels that run side by side (`corun`).
"""
