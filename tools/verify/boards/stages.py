"""Published stage times of CUDA-PointPillars, YUVToRGB and CUDA-CenterPoint against the shipped descriptors.

Rows of a board that a descriptor's figure was taken from show how its sizes and clocks are carried over; the rows
`from` another board predict it from that board's figures alone, by units times clock, and are out of sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Platform
from socsched.models.work import stage_work

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
SIZE = {"points": 18500, "pillars": 5455}
"""KITTI scans cropped to the camera's view, on average."""
NETWORK = tuple(f"pointpillars.{name}" for name in ("pfn", "scatter", "backbone", "head"))


@dataclass(frozen=True)
class Row:
    """A published time (ms) and the prediction for it; `held`: no figure of this row entered the descriptor used."""

    name: str
    board: str
    version: str
    published: float
    predicted: float
    held: bool

    @property
    def error(self) -> float:
        """Return the relative error of the prediction."""
        return self.predicted / self.published - 1


PUBLISHED = (
    # board, version, voxelise (with features), network, decode and NMS: CUDA-PointPillars README, FP16, MAXN
    (ORIN, "2022", 0.29, 9.12, 1.77),
    (ORIN, "2023, first", 0.12, 6.09, 1.58),
    (ORIN, "2023, at ce7e2bd", 0.18, 4.87, 1.79),
    (XAVIER, "2022", 0.60, 20.21, 3.38),
)
IMAGES = ((1920, 1080, 1080, 720, 183.85), (3840, 2160, 1920, 1080, 472.32))
"""YUVToRGB on DRIVE Orin at 1275 MHz: input and output width and height, us to fp32 planes, bilinear."""


def predicted_ms(board: str, models: tuple[str, ...], precision: str, engine: str = "gpu", figures: str = "") -> float:
    """Return the planned time (ms) of stages one after another on an engine in MAXN.

    `figures`: a board whose functions are used, scaled by units times clock, instead of its own.
    """
    platform = get_platform(board)
    if figures:
        platform = _with_functions(board, figures, engine)
    costs = CostModel(platform, platform.mode("MAXN"), stage_work)
    total = 0
    for model in models:
        params = SIZE if model.rpartition(".")[2] in ("voxelise", "pfn", "scatter") else {}
        found = costs.at(Stage(model, "", model=model, params=params, precisions=(precision,)), engine, precision,
                         platform.mode("MAXN").engines[engine].units)  # fmt: skip
        if found is None:
            raise SystemExit(f"{board}: {model} has no {precision} candidate on {engine}")
        total += found.time_ns
    return total / 1e6


def _with_functions(board: str, source: str, engine: str) -> Platform:
    """Return the platform with another board's functions, scaled by units times clock."""
    platform, other = get_platform(board), get_platform(source).engine(engine)
    own = platform.engine(engine)
    ratio = other.units * other.clock_hz.value / (own.units * own.clock_hz.value)
    carried = {
        name: replace(
            cost,
            time_ns=replace(cost.time_ns, value=cost.time_ns.value * ratio),
            per_million={n: replace(f, value=f.value * ratio) for n, f in cost.per_million.items()},
        )
        for name, cost in other.functions.items()
    }
    engines = tuple(replace(e, functions=carried) if e.id == engine else e for e in platform.engines)
    return replace(platform, engines=engines)


def rows() -> list[Row]:
    """Return every published time with its predictions."""
    found = []
    for board, version, voxelise, network, decode in PUBLISHED:
        latest = version == "2023, at ce7e2bd"
        other = XAVIER if board == ORIN else ORIN
        for name, models, precision, published in (
            ("voxelise", ("pointpillars.voxelise",), "fp32", voxelise),
            ("decode and NMS", ("pointpillars.decode",), "fp32", decode),
        ):
            own = latest or board == XAVIER
            found.append(Row(name, board, version, published, predicted_ms(board, models, precision), not own))
            held = predicted_ms(board, models, precision, figures=other)
            found.append(Row(f"{name}, from {other}", board, version, published, held, True))
        found.append(Row("network", board, version, network, predicted_ms(board, NETWORK, "fp16"), not latest))
    return found


def image_rows() -> list[tuple[str, float, float]]:
    """Return size, published and predicted time (us) of image preprocessing, the clock of DRIVE Orin allowed for."""
    platform = get_platform(ORIN)
    costs, result = CostModel(platform, platform.mode("MAXN"), stage_work), []
    for wide, tall, width, height, published in IMAGES:
        # the network's input is a multiple of 32: times are per output pixel
        params = {"width": wide, "height": tall, "input_width": width // 32 * 32, "input_height": height // 32 * 32}
        stage = Stage(f"image {wide} x {tall}", "", model="camera.preprocess", params=params, precisions=("fp32",))
        found = costs.at(stage, "gpu", "fp32", 16)
        assert found is not None
        pixels = width * height / (params["input_width"] * params["input_height"])
        result.append((f"{wide} x {tall} to {width} x {height}", published, found.time_ns / 1e3 * pixels))
    return result
