"""Small CTF 1.8 traces of ROS 2's tracepoints, written for tests: one stream, 64-bit time stamps."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HANDLE = "integer { size = 64; align = 8; signed = 0; encoding = none; base = 16; }"
EVENTS: dict[str, dict[str, str]] = {
    "ros2:rcl_node_init": {"node_handle": "Q", "rmw_handle": "Q", "node_name": "s", "namespace": "s"},
    "ros2:rcl_publisher_init": {"publisher_handle": "Q", "node_handle": "Q", "topic_name": "s"},
    "ros2:rcl_subscription_init": {"subscription_handle": "Q", "node_handle": "Q", "topic_name": "s"},
    "ros2:rclcpp_subscription_init": {"subscription_handle": "Q", "subscription": "Q"},
    "ros2:rclcpp_subscription_callback_added": {"subscription": "Q", "callback": "Q"},
    "ros2:rcl_timer_init": {"timer_handle": "Q", "period": "q"},
    "ros2:rclcpp_timer_callback_added": {"timer_handle": "Q", "callback": "Q"},
    "ros2:rclcpp_timer_link_node": {"timer_handle": "Q", "node_handle": "Q"},
    "ros2:rclcpp_publish": {"publisher_handle": "Q", "message": "Q"},
    "ros2:rmw_publish": {"message": "Q", "timestamp": "q"},
    "ros2:rmw_take": {"message": "Q", "source_timestamp": "q", "taken": "i"},
    "ros2:callback_start": {"callback": "Q", "is_intra_process": "i"},
    "ros2:callback_end": {"callback": "Q"},
}
TYPES = {
    "Q": HANDLE,
    "q": "integer { size = 64; align = 8; signed = 1; }",
    "i": "integer { size = 32; align = 8; signed = 1; }",
    "s": "string",
}
_HEAD = """/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
trace { major = 1; minor = 8; byte_order = le;
  packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }; };
env { hostname = "car"; };
clock { name = monotonic; freq = 1000000000; offset = 5000; };
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := stamp_t;
stream { id = 0;
  event.header := struct { uint32_t id; stamp_t timestamp; };
  packet.context := struct { stamp_t timestamp_begin; stamp_t timestamp_end; uint64_t content_size;
    uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; };
  event.context := struct { integer { size = 32; align = 8; signed = 1; } _vpid;
    integer { size = 32; align = 8; signed = 1; } _vtid; };
};
"""


def write(folder: Path, rows: Sequence[tuple[int, int, str, Sequence[Any]]], lost: int = 0) -> Path:
    """Write events (time, thread, name without provider, values) as a trace."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _HEAD
    for number, (name, fields) in enumerate(EVENTS.items()):
        listed = " ".join(f"{TYPES[kind]} _{field};" for field, kind in fields.items())
        text += f'event {{ name = "{name}"; id = {number}; stream_id = 0; fields := struct {{ {listed} }}; }};\n'
    (folder / "metadata").write_text(text)
    numbers, body = {name.partition(":")[2]: number for number, name in enumerate(EVENTS)}, b""
    for time, thread, name, values in rows:
        body += struct.pack("<IQii", numbers[name], time, 7, thread)
        for kind, value in zip(EVENTS[f"ros2:{name}"].values(), values, strict=True):
            body += value.encode() + b"\0" if kind == "s" else struct.pack(f"<{kind}", value)
    size = (24 + 44 + len(body)) * 8
    head = struct.pack("<I16sI", 0xC1FC1FC1, bytes(16), 0)
    (folder / "stream_0").write_bytes(head + struct.pack("<QQQQQI", 0, 0, size, size + 64, lost, 3) + body + bytes(8))
    return folder


def chain(frames: int = 5, period: int = 100, reply: int = 2) -> list[tuple[int, int, str, list[Any]]]:
    """Return a timer on thread 1 that publishes /scan, and a subscription on thread 2 that takes it `reply` later."""
    rows: list[tuple[int, int, str, list[Any]]] = [
        (1, 1, "rcl_node_init", [10, 0, "lidar", "/"]),
        (2, 1, "rcl_node_init", [20, 0, "detector", "/perception"]),
        (3, 1, "rcl_publisher_init", [11, 10, "/scan"]),
        (4, 1, "rcl_timer_init", [12, period]),
        (5, 1, "rclcpp_timer_callback_added", [12, 13]),
        (6, 1, "rclcpp_timer_link_node", [12, 10]),
        (7, 1, "rcl_subscription_init", [21, 20, "/scan"]),
        (8, 1, "rclcpp_subscription_init", [21, 22]),
        (9, 1, "rclcpp_subscription_callback_added", [22, 23]),
    ]
    for frame in range(frames):
        start = 1000 + frame * period + (frame % 2) * 5
        rows += [
            (start, 1, "callback_start", [13, 0]),
            (start + 10, 1, "rclcpp_publish", [11, 99]),
            (start + 11, 1, "rmw_publish", [99, 777 + frame]),
            (start + 12, 1, "callback_end", [13]),
            (start + 12 + reply, 2, "rmw_take", [98, 777 + frame, 1]),
            (start + 13 + reply, 2, "callback_start", [23, 0]),
            (start + 33 + reply + frame, 2, "callback_end", [23]),
        ]
    return rows
