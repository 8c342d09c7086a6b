"""The published tests there are, by module; more may be installed under the entry-point group `GROUP`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points

from socsched.planning.schedulability.published.model import SchedulabilityTest

GROUP = "socsched.schedulability"
MODULES = (
    *("utilisation", "liu_layland", "hyperbolic", "rta", "lehoczky", "np_fp", "limited_preemption", "event_models"),
    *("edf_utilisation", "qpa", "edf_response", "np_edf_jeffay", "np_edf_demand", "fifo", "sched_deadline"),
    *("gfb", "bcl", "global_rta", "global_carry_in", "global_np_fp", "devi_tardiness"),
    *("graham", "melani", "han_typed", "suspension_oblivious", "suspension_jitter"),
    *("accelerator_busy_wait", "accelerator_server", "memory_accesses", "memguard"),
    *(
        "chain_davare",
        "chain_duerr",
        "chain_kloda",
        "chain_becker",
        "chain_guenzel_local",
        "chain_let_sum",
        "chain_let",
    ),
)


def tests() -> Iterator[SchedulabilityTest]:
    """Yield every test, built in or installed."""
    for module in MODULES:
        test: SchedulabilityTest = import_module(f"socsched.planning.schedulability.published.{module}").TEST
        yield test
    for entry in entry_points(group=GROUP):
        installed: SchedulabilityTest = entry.load()
        yield installed
