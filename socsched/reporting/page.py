"""A self-contained HTML page in the report's style, without scripts."""

from __future__ import annotations

from html import escape
from importlib.resources import files


def wrap_page(title: str, body: str) -> str:
    """Return a page with the report's style around a body."""
    style = (files("socsched.reporting") / "assets" / "report.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>{body}</main></body></html>\n'
