"""Spatial sharing of accelerators: the assignment of parts to networks, its cost, and the requests served in time.

Resource models (`mechanisms`, `mig`, `profile`, `interference`), planners that cut accelerators into parts (`gpulet`,
`nexus`, `mig_serving`), controllers that change parts while requests arrive (`gslice`), a serving simulation to compare
them in (`serving`), and two finer ones: an NPU of subarrays (`fission`) and co-running kernels (`corun`).
"""
