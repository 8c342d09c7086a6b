"""Draw docs/figures/report.png: the upper part of a report, as a browser shows it.

    python -m tools.generate.report_picture

Needs Chromium and the playwright package.  The report is of a simulated minute of the perception stack in a power mode
that just suffices for it, so that the picture has something to say.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from socsched.cli.root import run
from tools import ROOT

TARGET = ROOT / "docs" / "figures" / "report.png"
MOST_BYTES = 250_000
WIDTH = 1180
LEFT_OUT = "nav, .mapping + .scroll, .mapping + .scroll + details, .keys"
"""What is too long for one picture."""


def main() -> int:
    """Simulate, take the picture, and write it with as many colours as fit."""
    with tempfile.TemporaryDirectory() as scratch:
        simulate = ["simulate", "perception-stack", "-p", "jetson-agx-orin-64gb", "--mode", "15W", "--duration", "60s"]
        if run([*simulate, "-q", "-o", scratch]) not in (0, 1):
            return 1
        picture = Image.open(io.BytesIO(_screenshot(Path(scratch) / "report.html"))).convert("RGB")
    for colours in (256, 128, 64, 32):
        data = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(data, "PNG", optimize=True)
        if data.tell() <= MOST_BYTES:
            TARGET.write_bytes(data.getvalue())
            print(f"{TARGET.relative_to(ROOT)}: {picture.width} x {picture.height}, {data.tell()} bytes")
            return 0
    print(f"the picture takes more than {MOST_BYTES} bytes", file=sys.stderr)
    return 1


def _screenshot(page: Path) -> bytes:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        shown.goto(page.as_uri())
        shown.add_style_tag(content=f"{LEFT_OUT} {{ display: none !important }} h2 {{ margin-top: 1.2em }}")
        shown.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
        end = shown.evaluate("document.querySelector('#part0-worst0 + .scroll').getBoundingClientRect().bottom + 12")
        return shown.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": end}, full_page=True)


if __name__ == "__main__":
    raise SystemExit(main())
