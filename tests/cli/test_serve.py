"""Serving a trace to the Perfetto UI: only its page can fetch it, once, and no other file is reachable."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import click
import pytest

from socsched.cli import serve
from socsched.cli.doctor import OPTIONAL
from socsched.cli.root import run
from socsched.errors import MachineError

DATA = bytes(range(256)) * 5000


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(port: int, path: str = "/trace.pftrace", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Ask the server as a page of the UI does."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", method=method, headers={"Origin": "https://ui.perfetto.dev"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), b""


def test_it_ends_when_the_trace_was_read_and_not_before() -> None:
    port, seen, readers = free_port(), [], []

    def opened(link: str) -> None:
        assert link == f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}/trace.pftrace"
        for path, method in (("/", "GET"), ("/etc/passwd", "GET"), ("/trace.pftrace", "HEAD"), ("/x", "OPTIONS")):
            seen.append(fetch(port, path, method)[0])
        readers.append(threading.Thread(target=lambda: seen.append(fetch(port))))
        readers[0].start()

    assert serve.serve(DATA, opened, port)
    readers[0].join(10)
    assert seen[:4] == [404, 404, 200, 204]
    status, headers, body = seen[4]
    assert (status, body) == (200, DATA)
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert headers["Content-Length"] == str(len(DATA))


def test_browsers_that_ask_first_are_answered() -> None:
    port = free_port()
    with serve.TraceServer(DATA, port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, headers, _ = fetch(port, method="OPTIONS")
        server.shutdown()
    assert status == 204
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    assert "GET" in headers["Access-Control-Allow-Methods"]
    assert not server.fetched.is_set()


def ask(port: int, text: bytes) -> bytes:
    """Send bytes and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(text)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def lines(*headers: str, path: str = "/trace.pftrace", method: str = "GET") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.0", *headers, "", "")).encode()


ORIGIN = "Origin: https://ui.perfetto.dev"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Host: evil.example:{port}", ORIGIN), 421),
        (("Host: 127.0.0.1", ORIGIN), 421),
        (("Host: 127.0.0.1:{port}.evil.example", ORIGIN), 421),
        (("Host: 127.0.0.1:{port}", "Host: evil.example", ORIGIN), 421),
        ((ORIGIN,), 421),
        (("Host: 127.0.0.1:{port}", "Origin: https://evil.example"), 403),
        (("Host: 127.0.0.1:{port}", "Origin: null"), 403),
        (("Host: 127.0.0.1:{port}",), 403),
    ],
)
def test_requests_of_other_pages_are_refused_and_end_nothing(
    headers: tuple[str, ...], status: int, method: str
) -> None:
    with serve.TraceServer(DATA, 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        port = server.server_address[1]
        answer = ask(port, lines(*(header.format(port=port) for header in headers), method=method))
        assert answer.startswith(b"HTTP/1.0 %d " % status) and DATA[:300] not in answer
        assert not server.fetched.is_set()
        assert ask(port, lines(f"Host: localhost:{port}", ORIGIN)).endswith(DATA)
        server.shutdown()


def test_strangers_neither_hold_the_service_nor_make_it_talk(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve._Handler, "timeout", 0.5)
    monkeypatch.setattr(serve, "_CONNECTION_S", 1.0)
    with serve.TraceServer(DATA, 0) as server, contextlib.ExitStack() as stack:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        port = server.server_address[1]
        before = threading.active_count()
        for _ in range(100):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            with contextlib.suppress(OSError):
                slow.sendall(b"GET /")
        assert threading.active_count() - before <= 2 * serve._CONNECTIONS
        deadline = time.monotonic() + 20
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.1)
        for junk in (b"\0\xff\r\n\r\n", b"GET " + b"a" * 70000 + b" HTTP/1.0\r\n\r\n", lines(*["x: y"] * 200)):
            with contextlib.suppress(OSError):
                ask(port, junk)
        assert fetch(port)[2] == DATA
        server.shutdown()
    assert "Traceback" not in capfd.readouterr().err


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "WAIT_S", 0.2)
    assert not serve.serve(DATA, lambda link: None, free_port())


def test_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    assert not serve.serve(DATA, interrupt, free_port())


def test_a_port_in_use_is_reported() -> None:
    port = free_port()
    with serve.TraceServer(DATA, port), pytest.raises(MachineError, match=f"127.0.0.1:{port}") as caught:
        serve.TraceServer(DATA, port)
    assert "another" in caught.value.hint


def test_report_open_opens_page_and_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, port, opened, read, readers = tmp_path / "out", free_port(), [], [], []
    pointpillars = ["simulate", "pointpillars", "-p", "jetson-agx-orin-64gb", "--duration", "200ms"]
    assert run([*pointpillars, "-q", "-o", str(out)]) == 0
    original = serve.serve

    def browser(link: str) -> int:
        opened.append(link)
        if link.startswith("https"):
            readers.append(threading.Thread(target=lambda: read.append(fetch(port)[2])))
            readers[0].start()
        return 0

    monkeypatch.setattr(click, "launch", browser)
    monkeypatch.setattr(serve, "serve", lambda data, opened: original(data, opened, port))
    assert run(["report", str(out), "--open", "-q"]) == 0
    readers[0].join(10)
    assert opened[0] == (out / "report.html").as_uri()
    assert opened[1].startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
    assert run(["report", str(out), "-o", str(out / "trace.pftrace"), "-q"]) == 0
    assert read == [(out / "trace.pftrace").read_bytes()]


@pytest.mark.needs("Chromium")
def test_a_browser_lets_the_perfetto_ui_read_it() -> None:
    """A page of that origin (not the real one: nothing is fetched from outside) in a real browser gets every byte."""
    from playwright import sync_api as playwright

    chromium = next(filter(None, map(shutil.which, OPTIONAL["Chromium"].programs)))
    port = free_port()
    with playwright.sync_playwright() as driver, serve.TraceServer(DATA, port) as server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context()
        page = context.new_page()

        def read(origin: str) -> str:
            with contextlib.suppress(playwright.Error):  # older ones do not ask whether a page may use this machine
                context.grant_permissions(["local-network-access"], origin=origin)
            page.route(f"{origin}/**", lambda route: route.fulfill(body="<p>viewer</p>", content_type="text/html"))
            page.goto(f"{origin}/#!/?url=http://127.0.0.1:{port}/trace.pftrace")
            fetch = f"fetch('http://127.0.0.1:{port}/trace.pftrace').then((r) => r.arrayBuffer())"
            return str(page.evaluate(f"{fetch}.then((b) => 'read ' + b.byteLength, (e) => 'refused')"))

        assert read("https://elsewhere.example") == "refused"
        assert read("https://ui.perfetto.dev") == f"read {len(DATA)}"
        browser.close()
        server.shutdown()
