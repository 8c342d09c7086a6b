"""socsched: where each stage of a driving pipeline runs on a heterogeneous SoC, and whether every deadline holds."""

__version__ = "0.1.0"
