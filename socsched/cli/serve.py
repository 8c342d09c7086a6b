"""Serves one file from this machine to the Perfetto UI until it has been fetched.

The UI is a page from another origin, and its content security policy allows it to fetch from 127.0.0.1:9001 only
(ui.perfetto.dev; `tools/open_trace_in_ui` of Perfetto uses the same port).  Newer browsers ask the user first.  The
trace stays on this machine: the page reads it and does not upload it.
"""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event

from socsched.errors import MachineError

ORIGIN, HOST, PORT, NAME = "https://ui.perfetto.dev", "127.0.0.1", 9001, "trace.pftrace"


class TraceServer(ThreadingHTTPServer):
    """Serves `data` as /trace.pftrace to pages of ui.perfetto.dev; `fetched` is set when a page has read all of it."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, data: bytes, port: int = PORT) -> None:
        self.data, self.fetched = data, Event()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise MachineError(
                f"cannot serve the trace on {HOST}:{port}: {error.strerror}",
                "another program uses the port, perhaps another `report --open`: stop it, "
                "or open the trace file in the Perfetto UI",
            ) from None

    @property
    def link(self) -> str:
        """Return the address of the Perfetto UI that loads the trace."""
        return f"{ORIGIN}/#!/?url=http://{HOST}:{self.server_address[1]}/{NAME}"


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def do_GET(self) -> None:
        if self._head():
            self.wfile.write(self.server.data)
            self.wfile.flush()
            self.server.fetched.set()

    def do_HEAD(self) -> None:
        self._head()

    def do_OPTIONS(self) -> None:
        self.send_response(204)
        self._allow()
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        # browsers ask the user before a public page may read from this machine
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _head(self) -> bool:
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
    """Serve `data` until it is fetched or Ctrl-C, and return whether it was; `opened` receives the UI's address."""
    from threading import Thread

    with TraceServer(data, port) as server:
        thread = Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            opened(server.link)
            server.fetched.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.shutdown()
            thread.join()
        return server.fetched.is_set()
