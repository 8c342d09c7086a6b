"""The page in a real browser: headless Chromium, driven by Playwright; screenshots are kept as artefacts.

They go to the folder that SOCSCHED_TEST_ARTIFACTS names, or to pytest's temporary one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report_samples

from socsched.reporting.report import Background, Part, render

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test installs it")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
pytestmark = pytest.mark.needs("Chromium")
SIZES = [(1280, 900), (360, 740)]
SCHEMES = ["light", "dark"]
FRONT = {
    "points": [
        {
            "mode": mode,
            "objective": "latency,energy",
            "verdict": verdict,
            "on_front": verdict == "feasible",
            "latency_ns": latency * 1_000_000,
            "power_mw": power,
            "energy_uj": 900_000,
            "operations": {"gpu": 0.8, "dla0": 0.2},
        }
        for mode, verdict, latency, power in (("MAXN", "feasible", 28, 14_000), ("15W", "infeasible", 60, 9_000))
    ]
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of an infeasible plan with a late frame, and of its run."""
    plan = report_samples.make_infeasible(report_samples.make_plan())
    result, notes = report_samples.make_result(), ("a note with a <tag>",)
    background = Background(front=FRONT, made={"command": "socsched simulate toy -p board"})
    simulated = Part("Simulated", plan, report_samples.build_trace(plan), result, notes=notes, background=background)
    run = report_samples.build_trace(plan, frames=300, kind="measured")
    measured = Part("Measured", plan, run, result, simulated=result)
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render([simulated, measured], "toy", {"command": "socsched report out"}), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a browser."""
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Seen:
    """A page, what it asked the network for, and what it said to the console."""

    def __init__(self, browser: Any, file: Path, size: tuple[int, int], scheme: str = "light", touch: bool = False):
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, has_touch=touch
        )
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector(".gantt[data-from]", state="attached")

    def shown(self, chart: str = "#part0-steady") -> tuple[int, int]:
        """Return the part of the trace (ns) that a timeline shows."""
        figure = self.page.locator(chart)
        return int(figure.get_attribute("data-from")), int(figure.get_attribute("data-to"))

    def scroll_width(self) -> int:
        """Return the width of the page."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


@pytest.fixture
def desktop(browser: Any, file: Path) -> Iterator[Seen]:
    """Return the page on a desktop, where nothing may be said to the console or asked of the network."""
    seen = Seen(browser, file, SIZES[0])
    yield seen
    assert seen.said == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [file.as_uri()]
    seen.context.close()


def test_every_section_is_there_and_drawn(desktop: Seen) -> None:
    headings = desktop.page.locator("h2").all_text_contents()
    for name in (
        "Unmet requirements",
        "Where each stage runs, and why",
        "Predicted against measured",
        "Timeline",
        "Chains: response times against deadlines",
        "Power and energy",
        "Memory bandwidth",
        "Roofline",
        "Power modes",
        "Evidence for the figures",
        "How this was made",
    ):
        assert name in headings
    for figure in desktop.page.locator(".figure svg").all():
        if figure.is_visible():
            box = figure.bounding_box()
            assert box["width"] > 100 and box["height"] > 20
    assert desktop.page.locator("#part0-steady .slice").count() > 5
    for link in desktop.page.locator("nav a").all():
        assert desktop.page.locator(link.get_attribute("href")).count() == 1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_it_fits_every_screen_and_leaves_a_picture(
    browser: Any, file: Path, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    seen = Seen(browser, file, size, scheme)
    assert seen.scroll_width() == size[0]
    folder = Path(os.environ.get("SOCSCHED_TEST_ARTIFACTS") or tmp_path / "test-artifacts")
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"report-{size[0]}-{scheme}.png"
    seen.page.screenshot(path=str(picture), full_page=True)
    assert picture.stat().st_size > 20_000
    seen.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert seen.scroll_width() == size[0]
    colours = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
    assert seen.said == []
    seen.context.close()


def test_print_is_light_and_unfolded(browser: Any, file: Path) -> None:
    seen = Seen(browser, file, SIZES[0], "dark")
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not seen.page.locator(".controls button").first.is_visible()
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert seen.page.locator("details:not([open])").count() == 0
    seen.context.close()


def test_buttons_zoom_and_come_back(desktop: Seen) -> None:
    chart, first = desktop.page.locator("#part0-steady"), desktop.shown()
    readout = chart.locator(".readout").text_content()
    chart.locator("[data-act=in]").click()
    near = desktop.shown()
    assert near[1] - near[0] == pytest.approx((first[1] - first[0]) / 2, abs=2)
    assert first[0] < near[0] < near[1] < first[1]
    assert chart.locator(".readout").text_content() != readout
    chart.locator("[data-act=right]").click()
    moved = desktop.shown()
    assert moved[0] - near[0] == pytest.approx((near[1] - near[0]) / 4, abs=2)
    chart.locator("[data-act=reset]").click()
    assert desktop.shown() == first
    assert chart.locator(".readout").text_content() == readout
    chart.locator("[data-act=all]").click()
    assert desktop.shown() == (0, 2_000_000_000)


def test_keys_zoom_move_and_come_back(desktop: Seen) -> None:
    first = desktop.shown()
    desktop.page.locator("#part0-steady .stage").focus()
    desktop.page.keyboard.press("+")
    near = desktop.shown()
    assert near[1] - near[0] == pytest.approx((first[1] - first[0]) / 2, abs=2)
    desktop.page.keyboard.press("ArrowLeft")
    assert desktop.shown()[0] < near[0]
    desktop.page.keyboard.press("ArrowUp")
    assert desktop.shown()[1] - desktop.shown()[0] == pytest.approx((first[1] - first[0]) / 4, abs=2)
    desktop.page.keyboard.press("0")
    assert desktop.shown() == first
    for _ in range(60):
        desktop.page.keyboard.press("+")
    assert desktop.shown()[1] - desktop.shown()[0] == 2000


def test_the_wheel_scrolls_the_page_until_the_timeline_has_the_focus(desktop: Seen) -> None:
    stage, first = desktop.page.locator("#part0-steady .stage"), desktop.shown()
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    x, y = box["x"] + box["width"] * 0.75, box["y"] + 60
    desktop.page.mouse.move(x, y)
    desktop.page.mouse.wheel(0, -100)
    desktop.page.wait_for_timeout(100)
    assert desktop.shown() == first
    stage.focus()
    box = stage.bounding_box()
    desktop.page.mouse.move(x, box["y"] + 60)
    desktop.page.mouse.wheel(0, -200)
    desktop.page.wait_for_timeout(100)
    near = desktop.shown()
    assert near[1] - near[0] == pytest.approx((first[1] - first[0]) / 2, rel=1e-3)
    # what was under the pointer stays there: more is cut off on the left than on the right
    assert near[0] - first[0] > first[1] - near[1] > 0
    desktop.page.mouse.wheel(0, 200)
    desktop.page.wait_for_timeout(100)
    back = desktop.shown()
    assert back[1] - back[0] == pytest.approx(first[1] - first[0], rel=1e-3)


def test_the_mouse_drags_and_the_strip_seeks(desktop: Seen) -> None:
    stage, first = desktop.page.locator("#part0-steady .stage"), desktop.shown()
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    desktop.page.mouse.move(box["x"] + 600, box["y"] + 40)
    desktop.page.mouse.down()
    desktop.page.mouse.move(box["x"] + 400, box["y"] + 40, steps=4)
    desktop.page.mouse.up()
    dragged = desktop.shown()
    assert dragged[0] > first[0] and dragged[1] - dragged[0] == first[1] - first[0]
    assert "Select a job" in (desktop.page.locator("#part0-steady .detail").text_content() or "")
    strip = desktop.page.locator("#part0-steady .strip")
    strip.click(position={"x": strip.bounding_box()["width"] - 2, "y": 5})
    assert desktop.shown()[1] == 2_000_000_000


def test_two_fingers_zoom(browser: Any, file: Path) -> None:
    seen = Seen(browser, file, SIZES[1], touch=True)
    stage, first = seen.page.locator("#part0-steady .stage"), seen.shown()
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    middle, y = box["x"] + 200, box["y"] + 50
    send = seen.context.new_cdp_session(seen.page).send

    def fingers(kind: str, apart: float) -> None:
        points = [{"x": middle - apart, "y": y, "id": 1}, {"x": middle + apart, "y": y, "id": 2}]
        send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points if kind != "touchEnd" else []})

    fingers("touchStart", 20)
    for apart in range(24, 84, 4):
        fingers("touchMove", apart)
    fingers("touchEnd", 0)
    near = seen.shown()
    assert near[1] - near[0] < (first[1] - first[0]) * 0.5
    assert seen.said == []
    seen.context.close()


def test_a_job_is_selected_by_pointer_and_key(desktop: Seen) -> None:
    chart = desktop.page.locator("#part0-worst0")
    assert "decode frame 7" in (chart.locator(".detail").text_content() or "")  # the last one of the worst frame
    late = chart.locator(".slice.late", has_text="backbone").first
    assert (late.locator("text").text_content() or "").startswith("✗ ")
    late.locator("rect").first.click()
    reported = chart.locator(".detail").text_content() or ""
    assert "backbone frame 7" in reported and "ran 52.5 ms" in reported
    assert chart.locator(".flow").count() >= 4
    assert chart.locator("line.limit").count() == 1
    assert chart.locator(".slice.dimmed").count() > 0
    desktop.page.keyboard.press("n")
    assert "planning frame 38" in (chart.locator(".detail").text_content() or "")  # the next one to start
    desktop.page.keyboard.press("p")
    assert chart.locator(".detail").text_content() == reported
    desktop.page.keyboard.press("Escape")
    assert chart.locator(".flow").count() == 0
    assert "Select a job" in (chart.locator(".detail").text_content() or "")


def test_the_keyboard_reaches_every_control_in_order(desktop: Seen) -> None:
    wanted = desktop.page.evaluate(
        "[...document.querySelectorAll('a, button, summary, [tabindex=\"0\"]')]"
        ".filter((e) => e.checkVisibility({contentVisibilityAuto: true}))"
        ".map((e, i) => { e.dataset.order = i; return i; })"
    )
    reached = []
    for _ in range(len(wanted) + 3):
        desktop.page.keyboard.press("Tab")
        reached.append(desktop.page.evaluate("document.activeElement.dataset.order ?? null"))
    found = [int(order) for order in reached if order is not None]
    assert found[: len(wanted)] == wanted
    for button in desktop.page.locator("button").all():
        assert button.get_attribute("aria-label")
