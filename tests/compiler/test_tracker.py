"""TVM's tracker as a service: strangers neither stop it nor make it print tracebacks; Ctrl-C ends it quietly."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress

import pytest

pytest.importorskip("tornado", reason="TVM's tracker needs tornado")
MODULE = "socsched.compiler.loading.tracker"


def message(content: object) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<i", len(text)) + text


def send(port: int, *parts: bytes) -> bytes:
    """Send messages one after the other, and return the last answer."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 10) as connection, suppress(OSError):
        connection.settimeout(5)
        for part in parts:
            connection.sendall(part)
            answer = connection.recv(4096)
    return answer


def test_strangers_do_not_stop_it_and_ctrl_c_does() -> None:
    from tvm.rpc.base import RPC_TRACKER_MAGIC, TrackerCode

    magic = struct.pack("<i", RPC_TRACKER_MAGIC)
    running = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    port = int(running.stdout.readline())
    for parts in (
        (b"GET / HTTP/1.0\r\n\r\n",), (b"x",), (b"\xff\xff\xff\xff",), (magic, message(b"[" * 50_000)),
        (magic, message(b"\xff\xfe")), (magic, message({"a": 1})), (magic, message([int(TrackerCode.PUT)])),
        (magic, struct.pack("<i", -5)), (magic, message([int(TrackerCode.STOP), ""])), (magic, message([[]])),
        (magic, message([int(TrackerCode.UPDATE_INFO), {"addr": [None, 1]}])),
    ):  # fmt: skip
        send(port, *parts)
    assert send(port, magic, message([int(TrackerCode.PING)])), "it still answers"
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=30)[1]
    assert (running.returncode, "Traceback" in said) == (130, False), said


def test_a_port_in_use_is_an_error_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (taken.getsockname()[1], 99_999):
            done = subprocess.run(
                [sys.executable, "-m", MODULE, "--port", str(port)], capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 3 and f"127.0.0.1:{port}" in done.stderr and "Traceback" not in done.stderr
