"""All invariants of the kernel's tables in one place: the kernel itself checks no index and no addition.

Ranges of the plan's own numbers are in `planning.ranges`; this module checks the results of lowering and of policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.errors import UsageError
from socsched.limits import (
    LONGEST_NS,
    MOST_BYTES,
    MOST_HZ,
    MOST_IN_FLIGHT,
    MOST_QUEUE,
    MOST_RANK,
    MOST_RATE,
    STRETCHED_NS,
)
from socsched.planning.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FAR = 1 << 62
_SUBJECTS = {"t": "tasks", "n": "engines"}
_SIZES = {
    "task": "t_inputs", "segment": "g_time", "unit": "u_engine", "engine": "n_slots", "source": "s_period",
    "chain": "c_deadline", "occurrence": "o_chain", "start": "x_chain",
    "read": "reads", "next": "successors", "time": "times", "wait": "waits", "slot": "slot_speed",
}  # fmt: skip
"""Entity -> a column with one entry for each."""
_INDICES = {
    "successors": "task", "g_unit": "unit", "u_engine": "engine", "o_chain": "chain", "x_chain": "chain",
    "o_row": "occurrence",
}  # fmt: skip
_INDICES_OR_NONE = {"t_loop_source": "source", "o_previous": "occurrence"}
"""Columns of indices, -1 where there is none."""
_SPANS = (
    ("t_first", "t_count", "segment", 1), ("t_degraded0", "t_degraded", "segment", 0),
    ("t_over0", "t_over", "segment", 0),
    ("t_reads0", "t_reads", "read", 0), ("t_successors0", "t_successors", "next", 0),
    ("t_times0", "t_times", "time", 0), ("s_successors0", "s_successors", "next", 0),
    ("o_first", "o_count", "occurrence", 0), ("x_first", "x_count", "start", 0),
    ("n_slot0", "n_slots", "slot", 1),
)  # fmt: skip
"""First, count, entity, and the least count."""
_TIME, _BIT, _ORDER = (0, LONGEST_NS), (0, 1), (0, 16)
_RANGES = {
    "t_inputs": (0, 1 << 31), "t_queue": (0, MOST_QUEUE), "t_overflow": _BIT, "t_deadline": _TIME, "t_period": _TIME,
    "t_priority": (-MOST_RANK, MOST_RANK), "t_criticality": (0, 2), "t_cost": _TIME, "t_on_late": (0, 3),
    "t_low": _BIT, "t_interpolate": _BIT, "t_overrun_stream": (-1, -1), "t_overrun_chance": (0, 0),
    "t_overrun_up": (1, 1), "t_overrun_down": (1, 1), "t_budget": _TIME,
    "t_server_period": _TIME, "t_weight_bytes": (0, MOST_BYTES), "t_closes_loop": _BIT, "t_process": (0, 1 << 31),
    "t_join": (0, 1 << 20), "t_weight": (1, 1 << 20),
    "times": _TIME, "waits": (0, _FAR),
    "g_time": _TIME, "g_bytes": (0, MOST_BYTES), "g_hold": _BIT, "g_rest": _TIME, "g_width": (0, 1024),
    "host_times": (0, STRETCHED_NS), "corunner_times": (0, STRETCHED_NS),
    "u_preemption": (0, 3), "u_in_flight": (1, MOST_IN_FLIGHT), "u_reset": _TIME, "u_term0": _ORDER, "u_term1": _ORDER,
    "u_dynamic": (0, 2), "u_quantum": _TIME, "u_tick": _TIME, "u_across": _BIT, "u_reservations": _BIT,
    "u_global": _BIT,
    "u_save": _TIME, "u_restore": _TIME, "u_restart_job": _BIT, "u_drain": (0, 2), "u_tokens": (0, 1 << 20),
    "u_fair": _BIT, "u_margin": (-LONGEST_NS, LONGEST_NS), "u_corun_once": _BIT,
    "u_corun": _BIT,
    "n_switch": _TIME, "n_migrate": _TIME, "n_reshape": _TIME, "n_power": (0, 1 << 52), "n_clock": (1, MOST_HZ),
    "n_governor": _BIT, "n_slow": (1, 1), "n_fast": (1, 1), "n_stalled": (0, 0), "n_memory": (0, MOST_BYTES),
    "n_swap_rate": (1, MOST_RATE), "n_linger": _TIME, "n_quantum": (1, LONGEST_NS), "slot_speed": (1, 1024),
    "s_period": (1, LONGEST_NS), "s_offset": _TIME, "s_jitter": _TIME, "s_gap": _TIME, "s_lost": (0, 0),
    "s_delay": (0, 0), "s_burst": (0, 0), "s_jitter_after": _BIT, "s_loop": _BIT,
    "c_deadline": _TIME, "c_max_age": (0, 1 << 62), "c_exact": _BIT, "o_mode": (0, 2), "o_last": _BIT, "o_loses": _BIT,
}  # fmt: skip


def check_tables(tables: dict[str, Any], plan: Plan) -> None:
    """Raise UsageError unless the kernel can run on `tables` without out-of-range accesses."""
    numbers = tables["numbers"]
    found = {name: np.asarray(column, np.int64) for name, column in tables.items() if _is_column(name)}
    sizes = {what: len(found[column]) for what, column in _SIZES.items()}
    sizes |= {"class": numbers["classes"], "stream": numbers["streams"]}
    producers, levels = sizes["task"] + sizes["source"], numbers["levels"]
    for name, (least, most) in _RANGES.items():
        _check_range(plan, name, found[name], least, most)
    for name, what in {**_INDICES, "g_class": "class"}.items():
        _check_range(plan, name, found[name], 0, sizes[what] - 1)
    for name, what in {**_INDICES_OR_NONE, "t_stream": "stream", "s_stream": "stream"}.items():
        _check_range(plan, name, found[name], -1, sizes[what] - 1)
    for first, count, what, least in _SPANS:
        _check_range(plan, count, found[count], least, sizes[what])
        _check_range(plan, first, found[first], 0, sizes[what])
        _check_range(plan, first, found[first] + found[count], 0, sizes[what])
    _check_range(plan, "reads", found["reads"], 0, producers - 1)
    _check_range(plan, "o_producer", found["o_producer"][found["o_mode"] == 2], 0, producers - 1)
    _check_range(plan, "o_producer", found["o_producer"], -1, max(0, producers - 1))
    _check_range(plan, "n_level", found["n_level"], 0, levels - 1)
    _check_range(plan, "n_top", found["n_top"], 0, levels - 1)
    joins = found["t_inputs"] > 1
    _check_range(plan, "t_join", found["t_join"][joins], 1, 1 << 20)
    _check_range(plan, "t_join0", found["t_join0"] + found["t_join"], 0, numbers["join_size"])
    tokens = found["u_tokens"][found["g_unit"]]
    _check_range(plan, "g_waits0", found["g_waits0"], 0, sizes["wait"])
    _check_range(plan, "g_waits0", found["g_waits0"] + 2 * tokens, 0, sizes["wait"])
    # tables from which jobs draw execution times, and the period of a reservation
    _check_range(plan, "t_times", found["t_times"][found["t_stream"] >= 0], 1, sizes["time"])
    _check_range(plan, "t_times", found["t_times"][found["t_interpolate"] > 0], 2, sizes["time"])
    _check_range(plan, "t_server_period", found["t_server_period"][found["t_budget"] > 0], 1, LONGEST_NS)
    random = (found["s_jitter"] > 0) | (found["s_gap"] > 0)
    _check_range(plan, "s_stream", found["s_stream"][random], 0, sizes["stream"] - 1)
    fetched = found["n_memory"] > 0
    if fetched.any() and sizes["task"]:
        slowest = int(found["n_swap_rate"][fetched].min())
        _check_range(plan, "t_weight_bytes", found["t_weight_bytes"] // slowest, 0, LONGEST_NS // 10**9)
    ends = np.append(found["u_order0"][1:], numbers["order_size"])
    _check_range(plan, "u_order0", ends - found["u_order0"], 1, 2 * sizes["task"])
    lengths = {"n_clock": sizes["engine"] * levels, "n_power": sizes["engine"] * levels}
    lengths |= {"host_times": sizes["class"] ** 2, "corunner_times": sizes["class"] ** 2}
    if any(len(found[name]) != length for name, length in lengths.items()):
        raise UsageError("plan: the simulator's tables are inconsistent")


def _is_column(name: str) -> bool:
    return name not in ("numbers", "g_mask", "u_mask")


def _check_range(plan: Plan, name: str, values: NDArray[np.int64], least: int, most: int) -> None:
    if not len(values) or (int(values.min()) >= least and int(values.max()) <= most):
        return
    index = int(np.argmax((values < least) | (values > most)))
    kind = _SUBJECTS.get(name[0]) if name[1:2] == "_" else None
    subject = ""
    if kind and len(values) == len(getattr(plan, kind)):
        member = getattr(plan, kind)[index]
        subject = f" of {getattr(member, 'name', None) or member.id!r}"
    raise UsageError(f"plan: {name}{subject}: expected from {least} to {most}, got {int(values[index])}")
