"""Networks on GPU and DLA at the same time: published times alone and together, and what calibrated factors predict.

Rows are those of NVIDIA/TensorRT issue 2745 (Jetson Orin, int8: GPU with one DLA, GPU with both) and of
jkjung-avt/tensorrt_demos issue 364 (Xavier NX, YOLOv4 on GPU and DLA, given as frames a second), in this order.

Rule: rows 1, 3, 5, ... calibrate and the others are predicted, then the other way round.  As there are few rows, all
splits into halves are tried as well.  Free parameters: one slowdown factor for every pair of engine kinds of a board,
for both sides alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched.cost.contention import contention_model
from socsched.cost.contention.calibrate import Half, Row, all_halves, fit_pairwise, try_half
from socsched.cost.cost import Segment
from socsched.descriptor.contention import ContentionChoice


def _row(board: str, run: str, engine: str, beside: tuple[str, ...], alone_ms: float, together_ms: float) -> Row:
    return Row(board, run, engine, beside, round(alone_ms * 1e6), round(together_ms * 1e6))


ROWS = (
    _row("orin", "GPU + DLA0", "gpu", ("dla",), 45.0, 51.05),
    _row("orin", "GPU + DLA0", "dla", ("gpu",), 17.6779, 20.78),
    _row("orin", "GPU + DLA0 + DLA1", "gpu", ("dla", "dla"), 45.0, 59.0),
    _row("orin", "GPU + DLA0 + DLA1", "dla", ("gpu", "dla"), 17.6779, 21.8),
    _row("orin", "GPU + DLA0 + DLA1", "dla", ("gpu", "dla"), 18.1355, 21.8),
    _row("xavier-nx", "GPU + DLA0", "gpu", ("dla",), 1000 / 19, 1000 / 11),
    _row("xavier-nx", "GPU + DLA0", "dla", ("gpu",), 1000 / 8.5, 1000 / 5),
)
OUTSIDE = (
    _row("xavier", "GoogleNet twice", "gpu", ("dla",), 1.959, 3.303),
    _row("xavier", "GoogleNet twice", "dla", ("gpu",), 3.656, 4.678),
)
"""HaX-CoNN's co-run of GoogleNet with itself; its GPU time includes profiling, so it is shown and not counted."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A held row and the time (ns) the model, calibrated on the other half, gives for it."""

    row: Row
    time_ns: int

    @property
    def error(self) -> float:
        """Relative error of the predicted time."""
        return self.time_ns / self.row.together_ns - 1


def predict(fitted: tuple[Row, ...], held: tuple[Row, ...]) -> list[Prediction]:
    """Return the predictions of the ``pairwise`` model for held rows, with factors from the fitted ones."""
    result = []
    for row in held:
        factors = fit_pairwise([other for other in fitted if other.board == row.board])
        names = [f"{kind}{i}" for i, kind in enumerate((row.engine, *row.beside))]
        engines = dict(zip(names, (row.engine, *row.beside), strict=True))
        model = contention_model(ContentionChoice("pairwise", factors), 0, engines)
        running = [(name, Segment(name, row.alone_ns, 0, 1)) for name in names]
        result.append(Prediction(row, model.paces(running)[0]))
    return result


def halves() -> tuple[list[Prediction], list[Prediction]]:
    """Return the predictions of even rows from odd ones, and of odd rows from even ones."""
    odd, even = ROWS[0::2], ROWS[1::2]
    return predict(odd, even), predict(even, odd)


def splits() -> list[Half]:
    """Return every split of the rows into halves."""
    return all_halves(ROWS)


def outside() -> Half:
    """Return the row shown and not counted: its DLA side from its GPU side."""
    return try_half(OUTSIDE[:1], OUTSIDE[1:])
