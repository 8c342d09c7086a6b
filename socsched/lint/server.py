"""A language server: editors show diagnostics of pipelines, plans and networks as they are edited."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from socsched import __version__
from socsched.errors import MachineError, SocschedError, extra
from socsched.lint.check import BAD_REQUEST, Diagnostic, Place, kept, lint_file

INSTALL = extra("lsp")


def serve(platform: str | None, engines: Sequence[str], version: str | None, ignored: Sequence[str]) -> None:
    """Serve one editor over stdin and stdout until it disconnects; MachineError if pygls is not installed."""
    try:
        from lsprotocol import types
        from pygls.lsp.server import LanguageServer
    except ImportError:
        raise MachineError("the language server needs pygls, which is not installed", INSTALL) from None
    server: Any = LanguageServer("socsched-lint", f"v{__version__}")

    def publish(uri: str) -> None:
        document = server.workspace.get_text_document(uri)
        found = checked(Path(document.path), document.source, platform, engines, version, ignored)
        listed = [_shown(types, entry, document.lines) for entry in found]
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=listed))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)  # type: ignore[untyped-decorator]
    def opened(params: Any) -> None:
        publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)  # type: ignore[untyped-decorator]
    def changed(params: Any) -> None:
        publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)  # type: ignore[untyped-decorator]
    def saved(params: Any) -> None:
        publish(params.text_document.uri)

    # The server closes its streams; those of the process stay open for the command line.
    server.start_io(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))


def checked(
    path: Path,
    source: str,
    platform: str | None,
    engines: Sequence[str] = (),
    version: str | None = None,
    ignored: Sequence[str] = (),
) -> list[Diagnostic]:
    """Return the diagnostics of an edited file; a request that cannot be carried out becomes a diagnostic."""
    # an editor may send half of a surrogate pair, which is no text in UTF-8: a diagnostic says so
    text = source.encode("utf-8", "surrogatepass") if path.suffix in (".yaml", ".yml") else None
    try:
        return kept(lint_file(str(path), platform, engines=engines, version=version, text=text), ignored)
    except SocschedError as error:
        return [Diagnostic(BAD_REQUEST, "error", str(error), Place(str(path)), hint=error.hint)]


def _shown(types: Any, entry: Diagnostic, lines: Sequence[str]) -> Any:
    """Return a diagnostic in the protocol's form: positions from 0, up to the end of the line."""
    line = min(entry.place.line, max(len(lines), 1)) - 1
    length = len(lines[line].rstrip("\r\n")) if lines else 0
    start = types.Position(line=line, character=min(entry.place.column - 1, length))
    severity = {"error": 1, "warning": 2, "note": 3}[entry.level]
    return types.Diagnostic(
        range=types.Range(start=start, end=types.Position(line=line, character=length)),
        message="\n".join([entry.message, *(f"source: {source}" for source in entry.sources), entry.hint]).rstrip(),
        severity=types.DiagnosticSeverity(severity),
        code=entry.rule,
        source="socsched",
    )
