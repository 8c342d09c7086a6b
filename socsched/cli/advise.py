"""`socsched advise`: which board meets the deadlines of some networks or pipelines, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.api.options import argument, option
from socsched.cli.options import mode
from socsched.cli.output import Output, ready_to_write, table
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED, writing
from socsched.files import write_file
from socsched.units import format_duration, format_power

if TYPE_CHECKING:
    from rich.console import RenderableType

    from socsched.api.advise import Advice
    from socsched.reporting.markup import Markup

COLOURS = {"yes": "#2f7d4f", "likely": "#1b6ca8", "open": "#b8860b", "no": "#c8553d"}
WIDTH, LEFT, RIGHT, ROW, TOP = 760, 190, 90, 20, 44


class AdviseRequest(Request):
    """What has to run, on which boards, and how the answers are written."""

    pipelines: tuple[str, ...] = argument("pipeline", multiple=True, metavar="NETWORK.onnx|PIPELINE...")
    boards: tuple[str, ...] = option(
        "-p",
        "--platform",
        multiple=True,
        metavar="PLATFORM",
        help="Only this board; several may be given. [default: all]",
    )
    mode: str | None = mode()
    deadline: int | None = option("--deadline", kind="duration", help="Deadline of every chain, such as 33ms.")
    precisions: tuple[str, ...] = option(
        "--precision", multiple=True, kind=("fp32", "fp16", "int8", "w8a16", "fp8", "fp4"),
        help="Data types that networks may have, best first. [default: the pipeline's]",
    )  # fmt: skip
    plot: Path | None = option("--plot", kind="file", help="Draw latencies with their intervals: an SVG file.")


@verb("advise", AdviseRequest, "Find the boards that meet the deadlines: latency, power, certainty, what falls back.")
def command(output: Output, request: AdviseRequest) -> int:
    """Plan every NETWORK or PIPELINE on every described board, and list the answers, the surest first.

    "yes": the deadlines hold even with every time at the upper end of its interval; "likely": they hold with the
    expected times; "open": not as planned, but a measurement could change it; "no": they cannot hold.  A network alone
    gets ten frames per second unless --deadline says otherwise.

    Exit code 0: some board meets every deadline, 1: none does.
    """
    from socsched.api.advise import DRIFT, AdviseOptions, advise

    ready_to_write(file=request.plot)
    options = AdviseOptions(request.boards, request.deadline, request.precisions, request.mode)
    found = advise(request.pipelines, options)
    if request.plot is not None:
        with writing(request.plot):
            write_file(request.plot, str(_picture(found)))
    output.result({"advice": [asdict(one) for one in found], "noise_floor": DRIFT}, lambda: _view(found))
    return EXIT_OK if _met(found) else EXIT_VIOLATED


def _met(found: list[Advice]) -> bool:
    """Return whether one board answers yes or likely for every pipeline."""
    met = {(one.board, one.pipeline) for one in found if one.answer in ("yes", "likely")}
    return any(all((one.board, other.pipeline) in met for other in found) for one in found)


def _view(found: Sequence[Advice]) -> RenderableType:
    """Return a table for each pipeline, with what falls back and the measurement that settles most below."""
    from rich.console import Group
    from rich.text import Text

    from socsched.api.advise import DRIFT

    parts: list[RenderableType] = []
    for pipeline in dict.fromkeys(one.pipeline for one in found):
        own = [one for one in found if one.pipeline == pipeline]
        rows = [
            [
                one.answer,
                one.board,
                one.mode,
                "–" if one.latency_ns is None else format_duration(one.latency_ns),
                "–"
                if one.low_ns is None or one.high_ns is None
                else f"{format_duration(one.low_ns)} to {format_duration(one.high_ns)}",
                "–" if one.power_mw is None else format_power(one.power_mw),
                one.evidence,
                ", ".join(dict.fromkeys(place for _, place in one.places)),
                "; ".join(f"{what}: {why}" for what, why in one.falls_back) or (one.why and f"not met: {one.why}"),
            ]
            for one in own
        ]
        columns = ["answer", "board", "mode", "latency", "interval", "power", "evidence", "on", "falls back"]
        title = f"{pipeline}, deadline {format_duration(own[0].deadline_ns)}"
        parts += [table(title, columns, rows, (3, 5), (8,)), Text("")]
        undecided = [one for one in own if one.answer in ("likely", "open") and one.measure][:3]
        parts += [Text(f"{one.board}: measure {one.measure}", "dim") for one in undecided]
    return Group(*parts, Text(f"noise floor: {DRIFT}", "dim"))


def _picture(found: Sequence[Advice]) -> Markup:
    """Return bars of boards and pipelines from least to greatest latency on one scale, lines for deadlines, as SVG."""
    from socsched.reporting.markup import element, svg, text

    timed = [one for one in found if one.latency_ns is not None and one.high_ns and one.low_ns is not None]
    most = max(
        [2.0 * max((one.deadline_ns for one in found), default=1), *sorted(o.latency_ns or 0 for o in timed)[:-1]]
    )
    scale = (WIDTH - LEFT - RIGHT) / most
    parts = [text(f"latency, to {format_duration(round(most))}; line: deadline", LEFT, 20)]
    for number, one in enumerate(timed):
        y = TOP + ROW * number
        ends = (one.low_ns or 0, one.high_ns or 0, one.latency_ns or 0)
        low, high, at = (LEFT + min(value * scale, WIDTH - LEFT - RIGHT) for value in ends)
        due, colour = LEFT + one.deadline_ns * scale, COLOURS[one.answer]
        parts += [
            text(f"{one.board} {one.mode}", 8, y + 11),
            element("rect", x=low, y=y, width=max(high - low, 2), height=ROW - 6, fill=colour, fill_opacity=0.35),
            element("rect", x=at - 1.5, y=y, width=3, height=ROW - 6, fill=colour),
            element("rect", x=due, y=y - 3, width=1, height=ROW, fill="#000000"),
            text(one.answer, WIDTH - RIGHT + 6, y + 11),
        ]
    height = TOP + ROW * len(timed) + 12
    return svg("latency by board", parts, width=WIDTH, height=height, font_size=11, font_family="sans-serif")
