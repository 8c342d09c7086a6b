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
_OWNERS = {"t": "tasks", "n": "engines"}
_SIZES = {
    "task": "t_need", "segment": "g_time", "unit": "u_engine", "engine": "n_lanes", "source": "s_period",
    "chain": "c_deadline", "choice": "c_term0", "place": "o_chain", "start": "x_chain", "load": "l_task",
    "read": "reads", "next": "nexts", "time": "times", "wait": "waits", "lane": "lane_speed",
}  # fmt: skip
"""Entity -> a column with one entry for each."""
_INDICES = {
    "nexts": "task", "g_unit": "unit", "u_engine": "engine", "o_chain": "chain", "x_chain": "chain", "o_slot": "place",
    "l_task": "task", "l_source": "source",
}  # fmt: skip
_INDICES_OR_NONE = {"t_loop": "source", "o_before": "place"}
"""Columns of indices, -1 where there is none."""
_SPANS = (
    ("t_first", "t_count", "segment", 1), ("t_alt", "t_alts", "segment", 0), ("t_reads0", "t_reads", "read", 0),
    ("t_next0", "t_next", "next", 0), ("t_table0", "t_table", "time", 0), ("s_next0", "s_next", "next", 0),
    ("o_first", "o_count", "place", 0), ("x_first", "x_count", "start", 0), ("u_load0", "u_loads", "load", 0),
    ("n_lane0", "n_lanes", "lane", 1),
)  # fmt: skip
"""First, count, entity, and the least count."""
_TIME, _BIT, _ORDER = (0, LONGEST_NS), (0, 1), (0, 16)
_RANGES = {
    "t_need": (0, 1 << 31), "t_queue": (0, MOST_QUEUE), "t_full": _BIT, "t_deadline": _TIME, "t_period": _TIME,
    "t_priority": (-MOST_RANK, MOST_RANK), "t_criticality": (0, 2), "t_cost": _TIME, "t_late": (0, 3),
    "t_between": _BIT, "t_over": (-1, -1), "t_chance": (0, 0), "t_up": (1, 1), "t_down": (1, 1), "t_budget": _TIME,
    "t_server": _TIME, "t_weights": (0, MOST_BYTES), "t_closes": _BIT, "t_process": (0, 1 << 31),
    "t_parts": (0, 1 << 20), "t_weight": (1, 1 << 20), "t_batch": (1, 1 << 20), "t_more": (0, 1 << 20),
    "times": _TIME, "waits": (0, _FAR),
    "g_time": _TIME, "g_bytes": (0, MOST_BYTES), "g_hold": _BIT, "g_rest": _TIME, "g_width": (0, 1024),
    "host_time": (0, STRETCHED_NS), "guest_time": (0, STRETCHED_NS),
    "u_kind": (0, 3), "u_flight": (1, MOST_IN_FLIGHT), "u_reset": _TIME, "u_term0": _ORDER, "u_term1": _ORDER,
    "u_dynamic": (0, 2), "u_quantum": _TIME, "u_tick": _TIME, "u_across": _BIT, "u_serves": _BIT, "u_global": _BIT,
    "u_save": _TIME, "u_restore": _TIME, "u_whole": _BIT, "u_drain": (0, 3), "u_tokens": (0, 1 << 20),
    "u_weighed": _BIT, "u_margin": (-LONGEST_NS, LONGEST_NS), "u_once": _BIT, "u_weighs": _BIT, "u_beside": _BIT,
    "u_steer": (0, 2), "u_look": _TIME, "u_clock": _BIT, "u_region": (0, 1 << 50), "u_reach": (0, 1 << 50),
    "n_switch": _TIME, "n_migrate": _TIME, "n_reshape": _TIME, "n_power": (0, 1 << 52), "n_clock": (1, MOST_HZ),
    "n_governor": _BIT, "n_slow": (1, 1), "n_fast": (1, 1), "n_still": (0, 0), "n_memory": (0, MOST_BYTES),
    "n_swap": (1, MOST_RATE), "n_linger": _TIME, "n_slice": (1, LONGEST_NS), "lane_speed": (1, 1024),
    "s_period": (1, LONGEST_NS), "s_offset": _TIME, "s_jitter": _TIME, "s_gap": _TIME, "s_lost": (0, 0),
    "s_delay": (0, 0), "s_burst": (0, 0), "s_behind": _BIT, "s_loop": _BIT,
    "c_deadline": _TIME, "c_exact": _BIT, "o_mode": (0, 2), "o_last": _BIT, "o_loses": _BIT,
    "c_term0": _ORDER, "c_term1": _ORDER, "c_moves": _BIT, "c_slow": _BIT,
    "l_worst": (0, 4 * LONGEST_NS), "l_share": (0, 1 << 20), "l_cost": (0, 8 * LONGEST_NS), "l_timer": _BIT,
    "l_period": (1, LONGEST_NS), "l_deadline": _TIME, "l_jitter": _TIME, "l_gap": _TIME,
}  # fmt: skip
_REALS = (0, 4, 42)
_CHOICES = (0, 2, 4)
"""By kind of controller (`sim.controls`): how many numbers it reads, and how many orders it chooses from."""


def check_tables(tables: dict[str, Any], plan: Plan) -> None:
    """Raise UsageError unless the kernel can run on `tables` without out-of-range accesses."""
    numbers = tables["numbers"]
    found = {name: np.asarray(column, np.int64) for name, column in tables.items() if _is_column(name)}
    sizes = {what: len(found[column]) for what, column in _SIZES.items()}
    sizes |= {"class": numbers["classes"], "stream": numbers["streams"]}
    producers, levels = sizes["task"] + sizes["source"], numbers["levels"]
    for name, (least, most) in _RANGES.items():
        _within(plan, name, found[name], least, most)
    for name, what in {**_INDICES, "g_class": "class"}.items():
        _within(plan, name, found[name], 0, sizes[what] - 1)
    for name, what in {**_INDICES_OR_NONE, "t_stream": "stream", "s_stream": "stream"}.items():
        _within(plan, name, found[name], -1, sizes[what] - 1)
    for first, count, what, least in _SPANS:
        _within(plan, count, found[count], least, sizes[what])
        _within(plan, first, found[first], 0, sizes[what])
        _within(plan, first, found[first] + found[count], 0, sizes[what])
    _within(plan, "reads", found["reads"], 0, producers - 1)
    _within(plan, "o_producer", found["o_producer"][found["o_mode"] == 2], 0, producers - 1)
    _within(plan, "o_producer", found["o_producer"], -1, max(0, producers - 1))
    _within(plan, "n_level", found["n_level"], 0, levels - 1)
    _within(plan, "n_top", found["n_top"], 0, levels - 1)
    joins = found["t_need"] > 1
    _within(plan, "t_parts", found["t_parts"][joins], 1, 1 << 20)
    _within(plan, "t_part0", found["t_part0"] + found["t_parts"], 0, numbers["join_room"])
    tokens = found["u_tokens"][found["g_unit"]]
    _within(plan, "g_levels", found["g_levels"], 0, sizes["wait"])
    _within(plan, "g_levels", found["g_levels"] + 2 * tokens, 0, sizes["wait"])
    kinds = found["u_steer"]
    _within(plan, "u_real0", found["u_real0"] + np.take(_REALS, kinds), 0, len(tables["reals"]))
    _within(plan, "u_choice0", found["u_choice0"] + np.take(_CHOICES, kinds), 0, sizes["choice"])
    _within(plan, "u_look", found["u_look"][kinds > 0], 1, LONGEST_NS)
    # tables from which jobs draw execution times, and the period of a reservation
    _within(plan, "t_table", found["t_table"][found["t_stream"] >= 0], 1, sizes["time"])
    _within(plan, "t_table", found["t_table"][found["t_between"] > 0], 2, sizes["time"])
    _within(plan, "t_server", found["t_server"][found["t_budget"] > 0], 1, LONGEST_NS)
    random = (found["s_jitter"] > 0) | (found["s_gap"] > 0)
    _within(plan, "s_stream", found["s_stream"][random], 0, sizes["stream"] - 1)
    fetched = found["n_memory"] > 0
    if fetched.any() and sizes["task"]:
        slowest = int(found["n_swap"][fetched].min())
        _within(plan, "t_weights", found["t_weights"] // slowest, 0, LONGEST_NS // 10**9)
    ends = np.append(found["u_order0"][1:], numbers["order_room"])
    _within(plan, "u_order0", ends - found["u_order0"], 1, 2 * sizes["task"])
    lengths = {"n_clock": sizes["engine"] * levels, "n_power": sizes["engine"] * levels}
    lengths |= {"host_time": sizes["class"] ** 2, "guest_time": sizes["class"] ** 2}
    if any(len(found[name]) != length for name, length in lengths.items()):
        raise UsageError("plan: the simulator's tables do not fit together")


def _is_column(name: str) -> bool:
    return name not in ("numbers", "reals", "g_mask", "u_mask")


def _within(plan: Plan, name: str, values: NDArray[np.int64], least: int, most: int) -> None:
    if not len(values) or (int(values.min()) >= least and int(values.max()) <= most):
        return
    place = int(np.argmax((values < least) | (values > most)))
    kind = _OWNERS.get(name[0]) if name[1:2] == "_" else None
    owner = ""
    if kind and len(values) == len(getattr(plan, kind)):
        member = getattr(plan, kind)[place]
        owner = f" of {getattr(member, 'name', None) or member.id!r}"
    raise UsageError(f"plan: {name}{owner}: expected from {least} to {most}, got {int(values[place])}")
