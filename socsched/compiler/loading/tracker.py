"""Boards found through TVM's RPC tracker: a list of boards, and a session on the next free one of a kind.

python -m socsched.compiler.loading.tracker --host ADDRESS --port PORT            a tracker (needs the package tornado)
python -m socsched.compiler.loading.rpc --tracker HOST:PORT --key KEY             a board that registers there
"""

from __future__ import annotations

import argparse
import logging
import secrets
import socket
import sys
from typing import Any

from socsched.compiler.loading.rpc import LOOPBACK, Remote
from socsched.compiler.loading.tvm_runtime import tvm  # noqa: F401  TVM is set up before its parts are imported
from socsched.errors import MachineError, SocschedError, extra

INSTALL = f"python -m socsched.compiler.loading.tracker starts one ({extra('tracker')})"


def boards(host: str, port: int) -> dict[str, int]:
    """Return the number of registered boards by key; MachineError if no tracker answers."""
    from tvm import rpc

    _answers(host, port)
    try:
        session = rpc.connect_tracker(host, port)
        servers = session.summary()["server_info"]
        session.close()
    except (OSError, RuntimeError) as error:
        raise MachineError(f"{host}:{port} is not an RPC tracker: {error}", INSTALL) from error
    found: dict[str, int] = {}
    for server in servers:
        key = server["key"].removeprefix("server:")
        found[key] = found.get(key, 0) + 1
    return found


def request(host: str, port: int, key: str, priority: int, timeout_s: int) -> Remote:
    """Return a session on the next free board of a key, waiting for it; the board ends it after `timeout_s`.

    `priority`: among waiting requests, the highest is served first.  MachineError if the offered board does not answer.
    """
    from tvm import rpc

    _answers(host, port)
    try:
        session = rpc.connect_tracker(host, port).request(key, priority, timeout_s, max_retry=1)
    except (OSError, RuntimeError) as error:
        raise MachineError(f"no board {key!r} is available from {host}:{port}: {error}", INSTALL) from error
    return Remote.of(session)


def _answers(host: str, port: int) -> None:
    """Raise MachineError if nothing listens: TVM itself would retry for a minute."""
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        raise MachineError(f"no tracker answers at {host}:{port}: {error}", INSTALL) from error


def serve(host: str = LOOPBACK, port: int = 0) -> None:
    """Print the port and track boards forever; port 0 selects a free one."""
    try:
        from tvm.rpc import tracker
    except ImportError as error:
        raise MachineError(f"TVM's tracker cannot be started: {error}", extra("tracker")) from error

    _guard(tracker)
    try:
        listening = socket.create_server((host, port), backlog=1)
    except (OSError, OverflowError) as error:
        raise MachineError(f"cannot listen at {host}:{port}: {error}", "choose another port") from None
    print(listening.getsockname()[1], flush=True)
    tracker._tracker_server(listening, secrets.token_hex())  # who knows this key may stop it: nobody


def _guard(tracker: Any) -> None:
    """Make TVM's tracker close a connection whose messages it cannot read, without a traceback for each."""
    handle = tracker.TCPEventHandler.on_message

    def on_message(self: Any, message: bytes) -> None:
        try:
            handle(self, message)
        except Exception as error:  # it parses what strangers send
            tracker.logger.warning("%s: closed: %s", self.name(), type(error).__name__)
            self.close()

    def without_traceback(record: logging.LogRecord) -> bool:
        record.exc_info = None
        try:
            record.getMessage()
        except (TypeError, ValueError):  # it logs what it received as a number
            record.msg, record.args = "a message of no known kind", ()
        return True

    tracker.TCPEventHandler.on_message = on_message
    tracker.logger.addFilter(without_traceback)


def main() -> int:
    """Run a tracker as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0)
    chosen = parser.parse_args()
    try:
        serve(chosen.host, chosen.port)
    except KeyboardInterrupt:
        return 130
    except SocschedError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
