"""Text from files, made fit to be shown: control characters are spelt out, and a line stays one line."""

from __future__ import annotations

import re

_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""What a terminal would obey rather than show, what turns the direction of text, what no XML or UTF-8 file holds."""
_CONTROL = re.compile(f"[{_HIDDEN}]")
_BREAK = re.compile(f"[\t\n{_HIDDEN}]")
LINE_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]*$"
"""Text of one line without control characters; surrogates cannot reach a pattern, they are no UTF-8."""


def printable(text: str) -> str:
    """Return text for a terminal, a log or XML: control characters but newline and tab written as escapes."""
    return _CONTROL.sub(_escape, text)


def one_line(text: str) -> str:
    """Return text as one printable line, for a comment in a script or a cell of a table."""
    return _BREAK.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
