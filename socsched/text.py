"""Text from files, made safe to display: control characters are escaped, and a line stays one line."""

from __future__ import annotations

import re

_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""Terminal control characters, bidirectional controls, and characters not allowed in XML or UTF-8."""
_CONTROL = re.compile(f"[{_HIDDEN}]")
_BREAK = re.compile(f"[\t\n{_HIDDEN}]")
LINE_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]*$"
"""Text of one line without control characters; surrogates need no entry, as UTF-8 excludes them."""


def printable(text: str) -> str:
    """Return text for a terminal, a log or XML: control characters except newline and tab are escaped."""
    return _CONTROL.sub(_escape, text)


def one_line(text: str) -> str:
    """Return text as one printable line, for a comment in a script or a cell of a table."""
    return _BREAK.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
