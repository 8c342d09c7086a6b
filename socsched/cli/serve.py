"""Serves one file from this machine to the Perfetto UI until it has been fetched, for ten minutes at most.

The UI is a page from another origin, and its content security policy allows it to fetch from 127.0.0.1:9001 only
(ui.perfetto.dev; `tools/open_trace_in_ui` of Perfetto uses the same port).  Newer browsers ask the user first.  The
trace stays on this machine: the page reads it and does not upload it.

Any page of the web can make a browser send requests here.  Only those with the UI's Origin are answered, which scripts
of other pages cannot set, and only with this server's own address as Host: a page whose name was rebound to 127.0.0.1
sends that name.  A connection lasts a minute at most, so that a slow stranger does not hold one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Event, Timer
from typing import Any

from socsched.errors import MachineError

ORIGIN, HOST, PORT, NAME = "https://ui.perfetto.dev", "127.0.0.1", 9001, "trace.pftrace"
WAIT_S = 600.0
_SILENCE_S, _CONNECTION_S, _CONNECTIONS = 10.0, 60.0, 32


class TraceServer(ThreadingHTTPServer):
    """Serves `data` as /trace.pftrace to pages of ui.perfetto.dev; `fetched` is set when a page has read all of it."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, data: bytes, port: int = PORT) -> None:
        self.data, self.fetched = data, Event()
        self._room = BoundedSemaphore(_CONNECTIONS)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise MachineError(
                f"cannot serve the trace on {HOST}:{port}: {error.strerror}",
                "another program uses the port, perhaps another `report --open`: stop it, "
                "or open the trace file in the Perfetto UI",
            ) from None

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, unless there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and end it when its time is up."""
        end = Timer(_CONNECTION_S, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that broke off."""

    @property
    def link(self) -> str:
        """Return the address of the Perfetto UI that loads the trace."""
        return f"{ORIGIN}/#!/?url=http://{HOST}:{self.server_address[1]}/{NAME}"


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer
    timeout = _SILENCE_S

    def do_GET(self) -> None:
        if self._head():
            self.wfile.write(self.server.data)
            self.wfile.flush()
            self.server.fetched.set()

    def do_HEAD(self) -> None:
        self._head()

    def do_OPTIONS(self) -> None:
        if not self._known():
            return
        self.send_response(204)
        self._allow()
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        # browsers ask the user before a public page may read from this machine
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _known(self) -> bool:
        """Return whether a request is from the UI and for this server; otherwise answer it with an error."""
        port = self.server.server_address[1]
        if self.headers.get_all("Host", []) not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
            self.send_error(421)
            return False
        if self.headers.get_all("Origin", []) != [ORIGIN]:
            self.send_error(403)
            return False
        return True

    def _head(self) -> bool:
        if not self._known():
            return False
        if self.path.partition("?")[0] != f"/{NAME}":
            self.send_error(404)
            return False
        self.send_response(200)
        self._allow()
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(self.server.data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        return True

    def _allow(self) -> None:
        self.send_header("Access-Control-Allow-Origin", ORIGIN)

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the log of requests."""


def serve(data: bytes, opened: Callable[[str], None], port: int = PORT) -> bool:
    """Serve `data` until it is fetched, Ctrl-C, or `WAIT_S` have passed, and return whether it was fetched.

    `opened` receives the UI's address.
    """
    from threading import Thread

    with TraceServer(data, port) as server:
        thread = Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            opened(server.link)
            server.fetched.wait(WAIT_S)
        except KeyboardInterrupt:
            pass
        finally:
            server.shutdown()
            thread.join()
        return server.fetched.is_set()
