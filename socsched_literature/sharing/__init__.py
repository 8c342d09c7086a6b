"""Spatial sharing of accelerators: the assignment of parts to networks, its cost, and the requests served in time.

Mechanisms and requests (`deployment`), needs of networks (`profile`), planners that cut accelerators into parts
(`gpulet`, `nexus`, `mig_serving`), and a serving simulation to compare them in (`serving`).
"""
